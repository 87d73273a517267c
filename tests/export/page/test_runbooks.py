"""The runbooks as pages: every block is rendered, names are filled in, and links lead somewhere."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pytest

from monitor.export.page.runbooks import RunbookQuery, render_runbook
from monitor.export.rules import runbook, runbook_names
from monitor.reports.statements import describe
from monitor.reports.views import AgentView, EngineView
from tests.export.prometheus.scrape import WATCHED

NAMED = RunbookQuery(task="toxicity", model="erm")


def body(name: str, query: RunbookQuery = NAMED, view: AgentView | None = None) -> str:
    """Return the main part of a runbook's page."""
    page = render_runbook(name, view or AgentView(), query, now=0.0).decode()
    return page.partition('<main id="main">')[2]


def words_of(text: str) -> str:
    """Return a text without white space, and without the addresses of docs."""
    return re.sub(r"\s|\(docs/[^)]*\)", "", text)


@pytest.mark.parametrize("name", runbook_names())
def test_a_page_has_each_word_of_the_runbook_and_no_mark_of_markdown(name: str) -> None:
    page = body(name, RunbookQuery())
    shown = unescape(re.sub(r"<[^>]+>", "", page.partition('<div id="runbook">')[2]))
    written = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", runbook(name))
    written = re.sub(r"^ *(?:\d+\.|\*|#+) |`|\*\*", "", written, flags=re.MULTILINE)
    assert words_of(shown) == words_of(written)
    prose = re.sub(r"<code>.*?</code>", "", page, flags=re.DOTALL)
    assert not re.search(r"\*\*|`|\]\(|^#|<p>\s*(?:\*|\d+\.) ", prose, re.MULTILINE)
    assert page.count("<li>") == len(re.findall(r"^(?:\d+\.|\*) ", runbook(name), re.MULTILINE))


@pytest.mark.parametrize("name", runbook_names())
def test_links_lead_to_runbooks_that_there_are(name: str) -> None:
    for link in re.findall(r'href="([^"#]+)"', body(name)):
        assert unescape(link).removesuffix("?task=toxicity&model=erm") in runbook_names()


@pytest.mark.parametrize("name", runbook_names())
def test_no_name_is_left_to_fill_in(name: str) -> None:
    page = unescape(body(name))
    assert not re.search(r'"[TM]"|--task T|--model M', page)
    assert ('task="toxicity"' in page) == ('task="T"' in runbook(name))


def test_commands_can_be_copied_whatever_the_names_are() -> None:
    page = unescape(body("BlindsightOutOfControl", RunbookQuery(task='a "b"', model="it's <b>")))
    assert 'task="a \\"b\\"",model="it\'s <b>"' in page
    assert r"""--task 'a "b"' --model 'it'\''s <b>'""" in page
    assert "<b>'" not in body("BlindsightOutOfControl", RunbookQuery(model="<b>"))


def test_a_page_says_how_the_model_is_now() -> None:
    page = body("BlindsightOutOfControl", view=AgentView(engine=EngineView(series=(WATCHED,))))
    assert f"Now: {describe(WATCHED)}" in unescape(page)
    assert '<a href="../models/toxicity/erm">Page of the model</a>' in page
    assert "Now:" not in body("BlindsightOutOfControl", RunbookQuery(task="other", model="erm"))


def test_a_page_of_a_group_says_how_the_group_is_now() -> None:
    group = dataclasses.replace(WATCHED, group="region=eu")
    view = AgentView(engine=EngineView(series=(WATCHED, group)))
    page = body("BlindsightOutOfControl", RunbookQuery(task="toxicity", model="erm", group="region=eu"), view)
    assert f"Now: {describe(group)}" in unescape(page)
    assert '<a href="../models/toxicity/erm?group=region%3Deu">Page of the model</a>' in page
