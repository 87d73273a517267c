"""Recipes for serving stacks, each installed for itself and run as its page shows it.

    python -m tests.recipes fastapi [--keep] [--record]

The stack's packages are installed into a virtual environment in a temporary folder, the page's service runs
with and without the lines for monitoring, and `blindsight run` by the page's configuration. 200 requests and
100 labels are sent; then the agent is killed (kill -9), and is away for 50 requests and five seconds.
`--record` keeps what the agent gets of three more requests in `tests/recipes/recorded`.
`python -m tests.recipes table` prints what the kept runs have printed, as `docs/serving/stacks.md` shows it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

from tests.harness import run
from tests.recipes.recipe import Stack, report_lines
from tests.recipes.stacks import OUTPUT, STACKS, table


def main() -> None:
    """Run the recipe that is named first, or print the table."""
    names = ", ".join(STACKS)
    if sys.argv[1:] == ["table"]:
        print(table(), end="")
        return
    if len(sys.argv) < 2 or sys.argv[1] not in STACKS:
        raise SystemExit(f"python -m tests.recipes STACK: expected one of {names}, or table")
    stack: Stack = STACKS[sys.argv.pop(1)]

    def recipe(record: bool = False) -> Iterator[str]:
        return report_lines(stack, record)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # what was started is stopped on the way out
    run(recipe, keep=False, path=OUTPUT / f"{stack.name}.txt")


if __name__ == "__main__":
    main()
