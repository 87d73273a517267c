"""Generated pages are those that the code would make now; the others name what exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from monitor.config.file import schema
from monitor.export.prometheus.families import FAMILIES
from tests.pages import DOCS, PAGES, configuration_page, metrics_page

WRITTEN = sorted(str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md") if path.name not in PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run python -m tests.pages"


def keys(node: Any) -> Iterator[str]:
    for inner in (node, *node["$defs"].values()):
        yield from inner.get("properties", {})


def test_every_key_of_the_schema_has_a_row_that_says_what_it_is() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", configuration_page(), flags=re.MULTILINE)
    assert set(keys(schema())) <= {re.split(r"[.\]]", path)[-1] for path, _ in rows}
    assert [path for path, rest in rows if not rest.split(" | ")[-1].strip()] == []
    assert len({path for path, _ in rows}) > 100


def test_every_family_has_a_row_with_the_labels_that_it_is_exported_with() -> None:
    page = metrics_page()
    assert page.count("\n| `blindsight_") == len(FAMILIES)
    assert "| `blindsight_estimate_ratio` | gauge | task, model, estimator, metric | yes |" in page
    assert "| `blindsight_rejected_total` | counter | reason, source |  |" in page


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_names_metrics_that_exist(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    known = {re.sub("_(total|info)$", "", f"blindsight_{family}") for family in FAMILIES}
    for metric in re.findall(r"`(blindsight_[a-z_]+)", text):
        assert re.sub("_(total|info)$", "", metric) in known, metric


@pytest.mark.parametrize("name", [*PAGES, *WRITTEN])
def test_a_page_leads_to_files_that_are_there(name: str) -> None:
    page = DOCS / name
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


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
