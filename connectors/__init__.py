"""The sources, which read raw records for the agent, and the decoder of these records.

Each kind of source has a module or a package: `files`, `stdin`, `kafka`, `http`, `sql`, `redis_stream`. They
implement the interface in `monitor.base.source`, whose names are importable from here. `build` makes sources
from the configuration, and `formats` converts bytes and tables to columns. `splits` and `spark` read files in
parallel, and `client` is the separate distribution `blindsight-client`.

Within the package `monitor`, only the command line, the test kit and the notebook import this package.
"""

from monitor.base.source import (
    EndOfSource,
    Raw,
    RawBlock,
    RawDamaged,
    RawMessages,
    RawPosition,
    RawSkipped,
    RawTable,
    Source,
)

__all__ = [
    "EndOfSource",
    "Raw",
    "RawBlock",
    "RawDamaged",
    "RawMessages",
    "RawPosition",
    "RawSkipped",
    "RawTable",
    "Source",
]
