"""Writes the dashboards, and the ConfigMap that brings them into a cluster.

``python -m deploy.grafana.build`` needs ``grafana-foundation-sdk`` (``pip install '.[dashboards]'``) and
is run from the repository's root. ``--check`` writes nothing and fails where a file is not what
would be written; ``--runbooks URL`` puts a link to the alerts' pages into both dashboards.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardLinkType

from deploy.grafana.fleet import fleet
from deploy.grafana.model import model

HERE = Path(__file__).parent
NAMES = {"fleet": fleet, "model": model}


_PAGES = {
    "fleet": ("Page of the agent", "${page}/"),
    "model": (
        "Page of the model",
        "${page}/models?task=${task:percentencode}&model=${model:percentencode}",
    ),
}
"""Of each dashboard, its link to the page of an agent: what it is called, and where it leads."""


def _links(board: builders.Dashboard, name: str, runbooks: str) -> builders.Dashboard:
    board = board.link(
        builders.DashboardLink("Blindsight")
        .type(DashboardLinkType.DASHBOARDS)
        .tags(["blindsight"])
        .include_vars(True)
        .keep_time(True)
    )
    title, address = _PAGES[name]
    board = board.link(
        builders.DashboardLink(title).type(DashboardLinkType.LINK).url(address).target_blank(True)
    )
    if runbooks:
        board = board.link(
            builders.DashboardLink("Runbooks").type(DashboardLinkType.LINK).url(runbooks).target_blank(True)
        )
    return board


def built(name: str, runbooks: str = "") -> dict[str, Any]:
    """A dashboard as Grafana reads it.

    Parameters
    ----------
    name : {"fleet", "model"}
    runbooks : str
        Address of the alerts' pages; no link to them if empty.
    """
    board, titles = NAMES[name]()
    encoded = json.dumps(_links(board, name, runbooks).build(), cls=JSONEncoder, sort_keys=True)
    ready: dict[str, Any] = json.loads(encoded)
    for number, each in enumerate(ready["panels"], start=1):
        each["id"] = number
    # The SDK writes what only variables of intervals have.
    for each in ready["templating"]["list"]:
        for field in ("auto", "auto_count", "auto_min"):
            each.pop(field, None)
    # The SDK has no word for what a mark of Prometheus' annotations is called; Grafana reads it here.
    for each in ready["annotations"].get("list", []):
        each["titleFormat"] = titles[each["name"]]
    return ready


def files(runbooks: str = "") -> dict[Path, str]:
    """Every file that belongs to the dashboards, with its text."""
    texts = {
        name: json.dumps(built(name, runbooks), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for name in NAMES
    }
    dashboards = {HERE / "dashboards" / f"blindsight-{name}.json": text for name, text in texts.items()}
    head = (
        "# Written by `python -m deploy.grafana.build`: Grafana's sidecar takes dashboards from this label.\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: blindsight-dashboards\n"
        '  labels:\n    grafana_dashboard: "1"\ndata:\n'
    )
    body = ""
    for name, text in texts.items():
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        body += f"  blindsight-{name}.json: |\n{lines}"
    return dashboards | {HERE / "configmap.yaml": head + body}


def main(words: Sequence[str] | None = None) -> int:
    """The command; 1 where `--check` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("--runbooks", default="", metavar="URL", help="address of the alerts' pages")
    chosen = parser.parse_args(words)
    stale = [
        path
        for path, text in files(chosen.runbooks).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if not chosen.check:
        for path, text in files(chosen.runbooks).items():
            path.write_text(text, encoding="utf-8")
        return 0
    for path in stale:
        print(f"{path.relative_to(HERE)} is not what the build writes: run python -m deploy.grafana.build")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
