"""One script a library, run by the interpreter that has it: see `tests.bench.bench_rivals`.

Each gets the path of the arrays, and prints one JSON object: by name of the work, a `Measured`.
"""
