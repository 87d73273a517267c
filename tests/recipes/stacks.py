"""The stacks that have a recipe, and the table of what their runs printed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.recipes.recipe import Stack

OUTPUT = Path(__file__).with_name("output")
STACKS = {
    stack.name: stack
    for stack in (
        Stack("fastapi", ("fastapi", "uvicorn")),
        Stack("bentoml", ("bentoml",), id_header="X-BentoML-Request-ID"),
        Stack("mlserver", ("mlserver",)),
        Stack("ray-serve", ("ray",)),
        Stack("mlflow", ("mlflow",)),
        Stack("kserve", version="echo 'KServe agent 0.15.0'", proxies={"9081": "8080"}, lost=50),
        Stack(
            "kcat",
            version="kcat -V | sed -n 's/^Version \\([0-9.]*\\) .*/kcat \\1/p'",
            topics=("answers", "labels"),
        ),
        Stack(
            "syslog-ng",
            own=("agent.yaml", "syslog-ng.conf"),
            version="syslog-ng --version | sed -n 's/^syslog-ng .* (\\(.*\\))$/syslog-ng \\1/p'",
        ),
    )
}
_HEAD = """| stack | lines | added p50, ms | lost, away |
|---|---|---|---|"""
_FIGURES = re.compile(
    r"versions: (?P<versions>.*)\n"
    r"minutes to the first window: .*\n"
    r"lines of configuration: (?P<own>\d+), and (?P<marked>\d+) in the service\n"
    r"sent \d+ = used \d+ \+ rejected 0 \+ lost \d+.*\n"
    r"labels joined: 100 of 100\n"
    r"while the agent was away: (?P<away>\d+ of \d+) lost, .*\n"
    r"p50 of a response.*: (?P<added>.*)\n"
)


def table() -> str:
    """Return the figures of the kept runs, a stack a row."""
    return "\n".join([_HEAD, *map(_row, STACKS)]) + "\n"


def _row(stack: str) -> str:
    match = _FIGURES.search((OUTPUT / f"{stack}.txt").read_text(encoding="utf-8"))
    assert match is not None, f"{stack}: the kept output has another form, or not every label joined"
    cells = (
        f"[{match['versions']}](#{stack})",
        f"{match['own']} + {match['marked']}",
        match["added"],
        match["away"],
    )
    return f"| {' | '.join(cells)} |"
