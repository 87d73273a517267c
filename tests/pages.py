"""Generated pages, which always match the code: ``python -m tests.pages`` writes them.

`docs/configuration.md` comes from the configuration's schema (its kinds from the registry's tables),
`docs/metrics.md` from the table of families and a view in which every family has a sample, `docs/api.md`
from the public names of `monitor`, `docs/http-api.md` from the definition of the JSON API, and the schema of
the chart's values from that of the configuration.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import monitor
from deploy.helm.schema import values_schema
from monitor.config.file import schema
from monitor.config.messages import describe
from monitor.config.reload import consequence
from monitor.export.http.query import allowed
from monitor.export.page.openapi import document
from monitor.export.prometheus.families import FAMILIES
from tests.export.prometheus.scrape import RICH, exposed

DOCS = Path(__file__).parents[1] / "docs"
_ENDS = {"counter": "_total", "info": "_info"}

_API = """# In Python, every name

`python -m tests.pages` makes this page from the public names; do not edit it here. The site of the docs
(`mkdocs serve -f docs/mkdocs.yml`) puts the docstrings below the names. Import each from `monitor`:
[in Python](notebook.md#functions).
"""
_SUBJECTS = {
    "notebook": "In a notebook",
    "stats.estimate": "Estimates and intervals",
    "stats.calibration": "Calibration",
    "stats.charts": "Control charts",
    "stats.labelled": "Estimators that use labels",
    "stats.rivals": "Estimators for comparison",
    "stats.pairwise": "Models compared in pairs",
    "config": "Configuration",
    "engine": "Charts of a configuration",
    "reports": "Reports",
    "base": "Results and errors",
}
_CONFIGURATION = """# Every key of the configuration

`python -m tests.pages` makes this page from the schema that `blindsight schema` prints; do not edit it
here. In a path, `*` is a name of your choice, and `[]` is an entry of a list. The tests read every example as
a part of a configuration. `blindsight check` names the keys that are wrong, or that need others beside them.
In a value, `${NAME}` stands for an environment variable, `${NAME:-default}` for one that may be unset or
empty, and `$${` for the text `${`. Quote such a value within braces or brackets. Without quotes it is then
read as any other value, for example as a number. [config.example.yaml](../config.example.yaml) shows most
keys in use. The column *change* says when a changed key takes effect after SIGHUP
([reload](upgrade.md#changing-the-configuration-of-a-running-agent)).
"""
_WHOLE = "The whole file"
_WIDEST = 120
"""Characters that a cell of a table may have."""
_METRICS = """# Every metric

`python -m tests.pages` makes this page from the table of families; do not edit it here. The labels `task`
and `model` identify the series, `metric` is `accuracy`, `ece`, …, `estimator` is the estimator of the
value. A family with *(group)* also exists as `blindsight_group_…`, with a label `group` such as `region=eu`.
Counters end in `_total`, infos in `_info`; {histograms} are histograms, all others gauges.
The families `…_lower…` and `…_upper…` in the row of a value are the ends of its interval.
An unknown value is absent, with a reason in `blindsight_unknown`; it is never 0 or NaN.

* **Two identities** hold in every scrape, also over restarts and kills:
  * answers: `answers_received` = `predictions` (used) + `answers_pending` + `duplicates` + `rejected` +
    `shed` + `comparisons` + `comparisons_pending` + `comparison_duplicates` (those of arenas). A record of
    three models is three answers; text that is no record is one rejected answer.
  * labels: `labels_received` = `labels` of all outcomes (matched, duplicate, conflicting, expired, rejected,
    ambiguous, shed) + `labels_waiting`. A label in the record of its prediction counts too, once for each
    answer.
  * Neither counts `rows_left` and `events_ignored`, nor posts that are refused as a whole (`posts_refused`);
    but the rows of a 429, and of a 413 for too many labels of a token, are `shed`.
  * The group families count the same answers again. Series beyond `export.max_series` are missing in sums.
  * With `store.by_partition` the identities hold for the states in the database, taken together
    ([many agents](several-agents.md#what-prometheus-sees)).
* **`realised`** belongs to the newest window with labels, which is older than the window of the other
  estimates; `realised_cohort` and `realised_horizon` belong to [many windows](assumptions.md).
* **With `average: per_class`** each class adds three series for each metric, model and group.
* **Of a database**, `source_gap` counts [rows that came too late](files.md#databases). For the `sink`
  families see [sinks](sinks.md).

| metric | labels | meaning |
|---|---|---|
"""


_HTTP_API = """# The JSON API

`python -m tests.pages` makes this page from the API's definition; do not edit it here. The agent serves the
API on `export.listen` beside [the page](page.md), which uses it. `/api/v1/openapi.json` is its OpenAPI
document (3.1).

```sh
curl 'http://127.0.0.1:9109/api/v1/models?state=breached'
curl 'http://127.0.0.1:9109/api/v1/windows?task=toxicity&model=erm&limit=500&format=csv'
```

* Every request is a GET. All names stand in the query, so that a name may hold any character: write it in
  percent-encoding (`curl -G --data-urlencode 'model=org/erm 2'`).
* A parameter that cannot be used is answered with 400, an unknown name with 404, and a store that
  cannot be read with 503: `{"error": "limit: expected a whole number from 1 to 500, got '501'."}`.
* Values and limits are ratios, or in the `unit` beside them. A time is RFC 3339 in UTC, in `chart` seconds
  since the epoch. An unknown value is `null` in `chart`, and left out elsewhere.
* An answer has at most 500 models or windows. For older windows ask again with `before`: the number of the
  oldest window that you have.
* Windows are those of the store, with the delay of a checkpoint; without a store, the newest since the
  start.
* `windows` has the same fields as [the lines of the reports](reports.md); `format=ndjson` gives the lines
  themselves. `format=csv` has a row for each estimate, with the limits and the objective of its metric, and
  leaves out estimates of single classes. A version that begins like a formula (`=`, `+`, `-`, `@`) has an
  apostrophe before it there.
* The `page` of a model is its address, relative to that of the agent.
* With `export.tokens`, the API needs a token as the page does.
"""


def http_api_page() -> str:
    """Return every address of the API with its parameters."""
    parts = [_HTTP_API]
    for path, item in document()["paths"].items():
        operation = item["get"]
        rows = [
            f"| `{one['name']}` | "
            f"{'must be given' if one['required'] else _flow(default)} | "
            f"{_cell(allowed(one['schema']))} | {_cell(one['description'])} |"
            for one in operation["parameters"]
            for default in [None if one["schema"].get("default") == "" else one["schema"].get("default")]
        ]
        head = "| parameter | default | takes | meaning |\n|---|---|---|---|"
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        fields = document()["components"]["schemas"][answer.rpartition("/")[2]]["properties"]
        summary = f"The answer has {', '.join(f'`{name}`' for name in fields)}."
        parts.append(
            "\n".join([f"## `{path}`", "", operation["summary"], "", head, *rows, "", summary]) + "\n"
        )
    return "\n".join(parts)


def api_page() -> str:
    """Return every public name below its subject; the site puts its docstring there."""
    by_subject: dict[str, list[str]] = {}
    stub = ast.parse(Path(monitor.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    for node in (each for each in stub.body if isinstance(each, ast.ImportFrom)):
        module = node.module or ""
        subject = next(title for place, title in _SUBJECTS.items() if f"{module}.".startswith(f"{place}."))
        by_subject.setdefault(subject, []).extend(
            f"### {alias.name}\n\n::: monitor.{module}.{alias.name}\n" for alias in node.names
        )
    return "\n".join(
        [_API, *(f"## {title}\n\n" + "\n".join(by_subject[title]) for title in _SUBJECTS.values())]
    )


def configuration_page() -> str:
    """Return every key with an example, in the order of the schema, a table a section."""
    root = schema()
    sections = parts(root)
    titles = {id(part.node): part.title for part in sections}
    return "\n".join([_CONFIGURATION, *(_part(part, titles, root) for part in sections)])


def metrics_page() -> str:
    """Return every family with its labels."""
    labels: dict[str, set[str]] = {}
    for family in exposed(RICH).collect():
        for sample in family.samples:
            labels.setdefault(family.name, set()).update(sample.labels)
    rows, notes = [], []
    for name, family in FAMILIES.items():
        if any(name in _ends_of_interval(other) for other in FAMILIES):
            continue
        full = f"blindsight_{name}"
        held = sorted(
            labels.get(full, set()) - {"le"}, key=lambda x: (x not in ("task", "model"), x != "task", x)
        )
        metric = f"`{full}{_ENDS.get(family.kind, '')}`"
        first, more = _first(family.help)
        held += ["(group)"] if family.per_series else []
        names = ", ".join([metric, *(f"`blindsight_{end}`" for end in _ends_of_interval(name))])
        rows.append(f"| {names} | {', '.join(held)} | {_cell(first)} |")
        if more:
            notes.append(f"* {metric}: {_cell(' '.join(more))}")
    histograms = [f"`blindsight_{name}`" for name, each in FAMILIES.items() if each.kind == "histogram"]
    return _METRICS.format(histograms=" and ".join(histograms)) + "\n".join([*rows, "", *notes]) + "\n"


def _ends_of_interval(name: str) -> list[str]:
    """Return the families that have the ends of the interval of a family's value."""
    stem, ratio, _ = name.partition("_ratio")
    return [end for side in ("lower", "upper") if (end := f"{stem}_{side}{ratio}") in FAMILIES]


class Part(NamedTuple):
    """A section of the configuration: its node of the schema, its heading, and where it may stand."""

    node: Mapping[str, Any]
    title: str
    paths: list[str]


def parts(root: Mapping[str, Any]) -> list[Part]:
    """Return every section of a schema once, in the order of the keys."""
    choices_by_id: dict[int, tuple[Mapping[str, Any], list[tuple[str, str]]]] = {}

    def visit(node: Mapping[str, Any], path: str, of: str) -> None:
        for choice in choices(node, root):
            if "properties" in choice:
                kind = _only(choice["properties"].get("kind", {}))
                of = f", kind: {kind}" if kind else of
                places = choices_by_id.setdefault(id(choice), (choice, []))[1]
                places.append((path, of))
                if len(places) == 1:
                    for key, child in choice["properties"].items():
                        visit(child, f"{path}.{key}".lstrip("."), of)
            more, items = choice.get("additionalProperties"), choice.get("items")
            if isinstance(more, dict):
                visit(more, f"{path}.*", of)
            if items:
                visit(items, f"{path}[]", of)

    visit(root, "", "")
    users = Counter(path for _, places in choices_by_id.values() for path in {path for path, _ in places})
    return [
        Part(
            node,
            f"`{places[0][0]}`{places[0][1] if users[places[0][0]] > 1 else ''}" if places[0][0] else _WHOLE,
            list(dict.fromkeys(path for path, _ in places)),
        )
        for node, places in choices_by_id.values()
    ]


def example_of(node: Mapping[str, Any]) -> Any:
    """Return the example of a key that holds a value, None of one that holds a section."""
    return next(iter(node.get("examples", [])), _only(node))


def _only(node: Mapping[str, Any]) -> Any:
    """Return the one value that a key may have, or None."""
    allowed = node.get("enum", [node.get("const")])
    return allowed[0] if len(allowed) == 1 else None


def _part(part: Part, titles: Mapping[int, str], root: Mapping[str, Any]) -> str:
    inner = re.search(r"\w\.\w|\*\.|\]\.", part.title)
    description = part.node.get("description", "").split("\n\n")[0]
    lines = [f"{'###' if inner else '##'} {part.title}", "", " ".join(description.split()), ""]
    if part.paths[1:]:
        lines += [f"The same keys stand in {', '.join(f'`{path}`' for path in part.paths[1:])}.", ""]
    lines += ["| key | takes | default | example | change | meaning |", "|---|---|---|---|---|---|"]
    notes: list[str] = []
    for key, node in part.node["properties"].items():
        allowed = choices(node, root)
        kinds = [each for choice in allowed for each in held(choice, root)]
        first, more = _first(node.get("description") or allowed[0].get("description", ""))
        default = "*required*" if key in part.node.get("required", []) else _default(node, allowed)
        takes = " or ".join(_takes(each, titles, root) for each in allowed)
        example, change = _flow(example_of(node)), _change(part, key, allowed)
        lines.append(f"| `{key}` | {takes} | {default} | {example} | {change} | {_cell(first)} |")
        if more or kinds[1:]:
            plain = [_cell(each) for each in more if not _is_a_choice(each)]
            plain += [f"Its kinds: {', '.join(_link(each, titles) for each in kinds)}."] if kinds[1:] else []
            notes.append(f"* `{key}`: {' '.join(plain)}".rstrip())
            notes += [f"    * {_chosen(each)}" for each in more if _is_a_choice(each)]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _change(part: Part, key: str, allowed: list[Mapping[str, Any]]) -> str:
    """Return when a changed key takes effect; nothing for a section, whose keys say it."""
    if any("properties" in choice for choice in allowed):
        return ""
    end = ".*" if any("additionalProperties" in choice for choice in allowed) else ""
    paths = [f"{path}.{key}{end}".lstrip(".").replace("[]", "").split(".") for path in part.paths]
    return " or ".join(dict.fromkeys(consequence(tuple(path)).value for path in paths))


def held(node: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the sections that a list or a mapping may hold."""
    inner = node.get("items", node.get("additionalProperties"))
    allowed = choices(inner, root) if isinstance(inner, dict) else []
    return [each for each in allowed if "properties" in each]


def _takes(node: Mapping[str, Any], titles: Mapping[int, str], root: Mapping[str, Any]) -> str:
    """Return the values that a key may hold, with a link where that is a section."""
    if "properties" in node:
        return _link(node, titles, "a section")
    sections = held(node, root)
    if sections:
        words = "sections" if "items" in node else "sections by name"
        return words if sections[1:] else _link(sections[0], titles, words)
    return f"`{_only(node)}`" if _only(node) else _cell(describe(node))


def _link(node: Mapping[str, Any], titles: Mapping[int, str], words: str = "") -> str:
    """Return a link to a section, by default with its kind; anchors are the same on GitHub and on the
    site.
    """
    title = titles[id(node)]
    anchor = re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-")
    return f"[{words or _only(node['properties']['kind'])}](#{anchor})"


def _default(node: Mapping[str, Any], allowed: list[Mapping[str, Any]]) -> str:
    default = node.get("default")
    is_section = "properties" in allowed[-1 if isinstance(default, Mapping) else 0]
    return "" if default in (None, [], {}) or is_section else _flow(default)


def _flow(value: Any) -> str:
    """Return a value as a configuration has it, in one line."""
    if value is None:
        return ""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return f"`{text.removesuffix(chr(10)).removesuffix(chr(10) + '...')}`"


def _first(text: str) -> tuple[str, list[str]]:
    """Return the sentences of a text that a cell has room for, and the others."""
    first, *more = re.split(r"(?<=\.) (?=\S)", " ".join(text.split()))
    while more and not _is_a_choice(more[0]) and len(f"{first} {more[0]}") <= _WIDEST:
        first = f"{first} {more.pop(0)}"
    return first, more


def _is_a_choice(sentence: str) -> bool:
    """Return whether a sentence explains one of several values: ``null: never.``"""
    return re.match(r"\w+: ", sentence) is not None


def _chosen(sentence: str) -> str:
    value, _, meaning = sentence.partition(": ")
    return f"`{value}`: {_cell(meaning)}"


def choices(node: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the choices of a place of the schema, references followed, null left out."""
    if "$ref" in node:
        return choices(root["$defs"][node["$ref"].rsplit("/", 1)[1]], root)
    inner = None if "properties" in node else node.get("anyOf") or node.get("allOf") or node.get("oneOf")
    if inner:
        return [nested for choice in inner for nested in choices(choice, root)]
    return [] if node.get("type") == "null" else [node]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {
    "../deploy/helm/blindsight/values.schema.json": values_schema,
    "api.md": api_page,
    "configuration.md": configuration_page,
    "http-api.md": http_api_page,
    "metrics.md": metrics_page,
}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
