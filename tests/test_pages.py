"""Generated pages are those that the code would make now; the others name what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import jsonschema
import pydantic
import pytest

from deploy.helm.schema import values_schema
from monitor.base.errors import ConfigError
from monitor.config.file import config_from, schema
from monitor.config.task import Metric
from monitor.export.prometheus.families import FAMILIES
from tests.pages import DOCS, PAGES, choices, configuration_page, example_of, held, metrics_page, parts

WRITTEN = sorted(str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md") if path.name not in PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written, generated = (DOCS / name).read_text(encoding="utf-8"), PAGES[name]()
    if name.endswith(".json") and tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 11):
        # Older versions of pydantic write the same schema in other words.
        assert outline(written) == outline(generated), "run python -m tests.pages"
    else:
        assert written == generated, "run python -m tests.pages"


def outline(text: str) -> dict[str, list[str]]:
    """Return the keys of each definition of a JSON Schema."""
    return {name: list(node["properties"]) for name, node in json.loads(text)["definitions"].items()}


def keys(node: Any) -> Iterator[str]:
    for inner in (node, *node["$defs"].values()):
        yield from inner.get("properties", {})


def test_every_key_of_the_schema_has_a_row_that_says_what_it_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", configuration_page(), flags=re.MULTILINE)
    assert set(keys(schema())) == {key for key, _ in rows}
    assert [key for key, rest in rows if not rest.split(" | ")[-1].strip()] == []
    assert len(rows) == sum(len(part.node["properties"]) for part in parts(schema())) > 150


IN, OUT, SECTION = object(), object(), object()
"""What is done with a key: it is there, it is not, it is there as a section and not as its example."""
TOGETHER: dict[str, Any] = {
    r"reference\.first_windows": OUT,
    r"objective\.\w+\.max": OUT,
    r"chart\.(rules|sigmas|estimator|features)": OUT,
    r"tasks\.\*\.features": OUT,
    r"tasks\.\*\.metrics": list(get_args(Metric)),
    r"tasks\.delay\.objective\.(?!within_tolerance|ece|mae|rmse|bias|mape|wape|coverage|r2|windows)\w+": OUT,
    r"delay\.error_metrics": ["mae", "rmse", "bias", "mape", "wape", "coverage", "r2"],
    r"relative_tolerance": OUT,
    r"delay\.labels\.weights": OUT,
    r"(mapping|\*)\.(format|class_scores|constants)": OUT,
    r"tokens\[\]\.token": OUT,
    r".*basic_auth": OUT,
    r"\*\.average": OUT,
    r"sources\[\]\.query": OUT,
    r"store\.(postgres|prefix|password_file|lease_seconds|by_partition)": OUT,
}
"""Patterns of keys, and what is done so that all others can stand in one configuration."""
APART: list[dict[str, Any]] = [
    {r"\*\.average": IN, r"\*\.classes": ["ok", "toxic", "spam"], r"\*\.positive": OUT},
    {r"\*\.reference\.first_windows": IN, r"\*\.reference\.path": OUT},
    {r"objective\.\w+\.max": IN, r"objective\.\w+\.min": OUT},
    {r"chart\.rules": IN, r"chart\.kind": "shewhart", r"chart\.(shift|weight)": OUT, r"chart\.arl0": SECTION},
    {r"chart\.sigmas": IN, r"chart\.arl0": OUT, r"chart\.min_change": SECTION},
    {
        r"chart\.estimator": IN,
        r"\*\.estimators": ["average_confidence", "doc", "ssme"],
        r"delay\.estimators": ["average_confidence", "doc"],
    },
    {
        r"relative_tolerance": IN,
        r"delay\.tolerance": OUT,
        r"delay\.error_metrics": IN,
        r"delay\.objective\.(rmse|bias|mape|coverage|r2)": OUT,
    },
    {r"tasks\.\*\.features": IN, r"chart\.features": SECTION, r"calibration\.method": "covariates"},
    {r"tasks\.\*\.metrics": IN, r"\*\.objective\.(?!accuracy|ece|f1)\w+": OUT},
    {
        r"(mapping|\*)\.(class_scores|constants)": IN,
        r"(mapping|observe\.\*)\.(scores|task|model|version)": OUT,
    },
    {r"(mapping|observe\.\*)\.format": IN, r"(mapping|observe\.\*)\.\w+": OUT},
    {r"tokens\[\]\.token": IN, r".*\.token_file": OUT, r".*basic_auth": IN},
    {r"sources\[\]\.query": IN, r"sources\[\]\.table": OUT},
    {r"store\.(postgres|prefix|password_file|lease_seconds|by_partition)": IN, r"store\.path": OUT},
]
"""The same for the keys that exclude others; this holds before the above."""
Changes = list[tuple[str, Any]]


def configured(
    node: Mapping[str, Any],
    root: Mapping[str, Any],
    changes: Changes,
    path: str,
    used: set[tuple[int, str]],
) -> dict[str, Any]:
    """Return a section of the examples of its keys; adds those that it has to `used`."""
    made = {}
    for key, child in node["properties"].items():
        at = f"{path}.{key}"
        change = next((done for keys, done in changes if re.search(rf"(^|\.){keys}$", at)), IN)
        if change is OUT:
            continue
        if change in (IN, SECTION):
            used.add((id(node), key))
            change = _value(child, root, changes, at, used, change)
        made[key] = change
    return made


def _value(
    node: Mapping[str, Any],
    root: Mapping[str, Any],
    changes: Changes,
    path: str,
    used: set[tuple[int, str]],
    change: object,
) -> Any:
    if (example := example_of(node)) is not None and change is not SECTION:
        return example
    for choice in choices(node, root):
        if "properties" in choice:
            return configured(choice, root, changes, path, used)
        if sections := held(choice, root):
            if "items" in choice:
                return [configured(each, root, changes, f"{path}[]", used) for each in sections]
            names = ["toxicity", "chat", "delay"] if path == ".tasks" else ["erm", "irm"]
            return {
                name: configured(each, root, changes, f"{path}.{'delay' if name == 'delay' else '*'}", used)
                for name, each in zip(names, sections if sections[1:] else 2 * sections, strict=True)
            }
    raise AssertionError(f"no example of {path}")


def test_every_key_has_an_example_that_is_right_in_a_configuration() -> None:
    root = schema()
    used: set[tuple[int, str]] = set()
    for changes in ({}, *APART):
        config_from(configured(root, root, [*changes.items(), *TOGETHER.items()], "", used))
    assert used == {(id(part.node), key) for part in parts(root) for key in part.node["properties"]}


def test_the_values_of_the_chart_may_hold_every_key_of_the_configuration() -> None:
    root = schema()
    chart = json.loads(values_schema())
    jsonschema.Draft7Validator.check_schema(chart)
    validator = jsonschema.Draft7Validator(chart)
    for changes in ({}, *APART):
        config = configured(root, root, [*changes.items(), *TOGETHER.items()], "", set())
        values = {"mode": "standalone", "image": {"repository": "blindsight"}, "config": config}
        assert [error.message for error in validator.iter_errors(values)] == []
        config["tasks"]["toxicity"]["window"]["siz"] = 500
        assert list(validator.iter_errors(values))


def test_a_wrong_example_would_be_found() -> None:
    root = schema()
    made = configured(root, root, [(r"window\.size", 5), *TOGETHER.items()], "", set())
    with pytest.raises(ConfigError, match=r"tasks.toxicity.window.size: expected an integer from 10"):
        config_from(made)


def test_every_family_has_a_row_with_the_labels_that_it_is_exported_with() -> None:
    page = metrics_page()
    cells = re.findall(r"^\| (`blindsight_.*?) \|", page, flags=re.MULTILINE)
    assert len({name for cell in cells for name in cell.split(", ")}) == len(FAMILIES)
    assert "_upper_ratio` | task, model, estimator, metric, (group) | Estimate for the last closed" in page
    assert "| `blindsight_rejected_total` | reason, source |" in page


def test_pages_name_metrics_that_exist() -> None:
    known = {re.sub("_(total|info)$", "", f"blindsight_{family}") for family in FAMILIES}
    named = [
        (name, metric)
        for name in WRITTEN
        for metric in re.findall(r"`(blindsight_[a-z_]+)", (DOCS / name).read_text(encoding="utf-8"))
    ]
    assert len(named) > 20
    assert [each for each in named if re.sub("_(total|info)$", "", each[1]) not in known] == []


def test_pages_lead_to_files_that_are_there() -> None:
    links = [
        (name, link)
        for name in (*PAGES, *WRITTEN)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (DOCS / name).read_text(encoding="utf-8"))
    ]
    assert len(links) > 100
    assert [each for each in links if not ((DOCS / each[0]).parent / each[1]).exists()] == []


def test_a_record_goes_through_at_most_twelve_steps_and_a_window_through_at_most_five_shapes() -> None:
    page = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\d+\. \[`[a-z_/]+\.py`\]", page, flags=re.MULTILINE)) == len(
        re.findall(r"^\d+\. ", page, flags=re.MULTILINE)
    )
    assert 8 <= len(re.findall(r"^\d+\. ", page, flags=re.MULTILINE)) <= 12
    shapes = re.findall(r"^\| `(\w+)` \| `([\w/.]+)` \|", page, flags=re.MULTILINE)
    assert len(shapes) == 5
    for shape, file in shapes:
        assert f"class {shape}" in (DOCS.parent / file).read_text(encoding="utf-8")
