"""Pages that are generated, so that they cannot lie: ``python -m tests.pages`` writes them anew.

`docs/configuration.md` comes from the configuration's schema, `docs/kinds.md` from the registry's tables,
`docs/metrics.md` from the table of families and a view in which every family has a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monitor.base.registry import TABLES
from monitor.config.file import schema
from monitor.config.messages import describe
from monitor.export.prometheus.families import FAMILIES
from tests.export.prometheus.scrape import RICH, exposed

DOCS = Path(__file__).parents[1] / "docs"
_ENDS = {"counter": "_total", "info": "_info"}

_CONFIGURATION = """# Every key of the configuration

Made by `python -m tests.pages` from the schema that `blindsight schema` prints; do not edit it here. `*`
stands for a name of your choice. What a change of a key takes while the agent runs is in
[reload.md](reload.md); [config.example.yaml](../config.example.yaml) shows most of them at work.
"""
_KINDS = """# Every estimator, calibration, chart, source and wire format

Made by `python -m tests.pages` from the tables in `monitor/base/registry.py`; do not edit it here. The names
are those that a configuration gives: [every key](configuration.md). What an estimator believes,
and where it misleads: [estimators.md](estimators.md); the same of calibrations and charts:
[calibration.md](calibration.md), [reading-the-chart.md](reading-the-chart.md). Families of metrics:
[metrics.md](metrics.md).
"""
_METRICS = """# Every metric

Made by `python -m tests.pages` from the table of families; do not edit it here. `task` and `model` name the
series, `metric` is `accuracy`, `ece`, …, `estimator` what made the figure. A family with *groups* stands a
second time as `blindsight_group_…`, with a label `group` such as `region=eu`. What is not known is absent,
with a reason in `blindsight_unknown`; it is never 0 or NaN.

* **At all times** received = used + pending + duplicate + rejected + shed of answers
  (`blindsight_answers_received_total` and the like), and received = matched + waiting + duplicate +
  conflicting + expired + rejected + shed of labels (`blindsight_labels_total{outcome}`). A label that comes
  along with its prediction counts too.
* **`realised`** is of the newest window that labels have reached, so of an older one than the estimates
  beside it; `realised_cohort` and `realised_horizon` are of many windows
  ([assumptions.md](assumptions.md)).
* **With `average: per_class`** each class by itself is three series more a metric, model and group.
* **An objective** is judged on the interval pooled over the last `objective.windows` windows (five).
* **A recalibration** is `taken`, `kept` (labels do not favour the new one) or `refused`
  ([calibration.md](calibration.md)); how to read what `ssme` says: [ssme.md](ssme.md).
* **Redis**: `source_gap` counts what was trimmed before it was read, `source_overlap` what was claimed from
  a consumer that had died.
* **Kafka**: `source_gap` counts what retention deleted before it was read; `source_taken_over` lies between
  our own position and the group's, where another member read on; `source_overlap` comes of a kill -9, since
  positions are committed every second; `source_rebuilds` of a partition that delivered nothing for
  `stall_seconds` while its lag grew.
* **Sinks** are files, topics and scrapers that the output goes to: [what each does when it
  cannot](sinks.md).

| metric | type | labels | groups | meaning |
|---|---|---|---|---|
"""


def kinds_page() -> str:
    """Every line of every table."""
    parts = [_KINDS]
    for kind, table in TABLES.items():
        rows = [f"| `{tag}` | {_cell(entry.text)} |" for tag, entry in table.items()]
        parts.append(
            "\n".join([f"## {kind.capitalize()}", "", "| name | what it is |", "|---|---|", *rows]) + "\n"
        )
    return "\n".join(parts)


def configuration_page() -> str:
    """Every key, in the order of the schema, a table a section."""
    parts = [_CONFIGURATION]
    for title, rows in _sections():
        head = f"## {title}\n\n| key | takes | default | meaning |\n|---|---|---|---|"
        parts.append("\n".join([head, *rows]) + "\n")
    return "\n".join(parts)


def metrics_page() -> str:
    """Every family with its labels."""
    labels: dict[str, set[str]] = {}
    for family in exposed(RICH).collect():
        for sample in family.samples:
            labels.setdefault(family.name, set()).update(sample.labels)
    rows = []
    for name, family in FAMILIES.items():
        full = f"blindsight_{name}"
        held = sorted(
            labels.get(full, set()) - {"le"}, key=lambda x: (x not in ("task", "model"), x != "task", x)
        )
        rows.append(
            f"| `{full}{_ENDS.get(family.kind, '')}` | {family.kind} | {', '.join(held)} | "
            f"{'yes' if family.per_series else ''} | {_cell(family.help)} |"
        )
    return _METRICS + "\n".join(rows) + "\n"


def _sections() -> Iterator[tuple[str, list[str]]]:
    root = schema()
    for key, node in root["properties"].items():
        kinds = node.get("items", {}).get("discriminator", {}).get("mapping", {})
        if kinds:
            yield key, [_row(node, root, key)]
            for kind, reference in kinds.items():
                title = f"{key}, kind: {kind}"
                yield title, list(_rows({"$ref": reference}, root, f"{key}[]."))
        else:
            yield key, list(_rows(node, root, key, own=True))


def _rows(node: Mapping[str, Any], root: Mapping[str, Any], path: str, own: bool = False) -> Iterator[str]:
    if own:
        yield _row(node, root, path)
        path += "."
    for choice in _choices(node, root):
        for key, child in choice.get("properties", {}).items():
            yield from _rows(child, root, path + key, own=True)
        more, items = choice.get("additionalProperties"), choice.get("items")
        if isinstance(more, dict) and any("properties" in found for found in _choices(more, root)):
            yield from _rows(more, root, f"{path}*.")
        if items and any("properties" in found for found in _choices(items, root)):
            yield from _rows(items, root, f"{path.removesuffix('.')}[].")


def _row(node: Mapping[str, Any], root: Mapping[str, Any], path: str) -> str:
    found = _choices(node, root)
    takes = " or ".join("a section" if "properties" in each else describe(each) for each in found)
    default = node.get("default")
    shown = "" if default is None or isinstance(default, dict | list) else f"`{str(default).lower()}`"
    if isinstance(default, str):
        shown = f"`{default}`"
    meaning = node.get("description") or found[0].get("description", "")
    return f"| `{path}` | {_cell(takes)} | {shown} | {_cell(meaning)} |"


def _choices(node: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a place of the schema may hold, references followed, null left out."""
    if "$ref" in node:
        return _choices(root["$defs"][node["$ref"].rsplit("/", 1)[1]], root)
    inner = None if "properties" in node else node.get("anyOf") or node.get("allOf") or node.get("oneOf")
    if inner:
        return [found for choice in inner for found in _choices(choice, root)]
    return [] if node.get("type") == "null" else [node]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {"configuration.md": configuration_page, "kinds.md": kinds_page, "metrics.md": metrics_page}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
