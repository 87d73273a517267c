"""A rise of duplicates or of labels without an answer is logged once."""

from __future__ import annotations

import re

import pytest

from monitor.agent.rises import RisingShares
from monitor.base.records import Chunk, TaskLayout
from monitor.config.layouts import layouts
from monitor.config.task import Task
from monitor.engine.engine import EngineSettings
from monitor.export.page.api import Data
from monitor.export.page.document import render_page
from monitor.export.page.model import NamedModelQuery, render_model
from monitor.export.page.windows import RecentWindows
from monitor.reports.views import AgentView, EngineView, LabelOutcome
from tests.numbers import predictions, regression
from tests.records import answer, decode


def labels(matched: int, expired: int, waiting: int = 0) -> EngineView:
    counts = {("t", LabelOutcome.MATCHED): matched, ("t", LabelOutcome.EXPIRED): expired}
    return EngineView(labels=counts, labels_waiting={"t": waiting})


def test_a_rise_of_unmatched_labels_is_logged_once_and_again_after_it_was_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rises = RisingShares()
    for counts in ((1000, 10), (1100, 200), (1150, 250), (1200, 700), (3000, 700), (3000, 1000)):
        rises.log_rises(labels(*counts))
    assert [line.split(" of the newest")[0] for line in caplog.messages] == ["Task t: 66 %", "Task t: 100 %"]
    assert "`blindsight doctor` compares ids" in caplog.text


def test_few_labels_and_labels_of_which_none_ever_joined_are_left_to_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    RisingShares().log_rises(labels(10, 189))
    RisingShares().log_rises(labels(0, 0, waiting=500))
    assert not caplog.messages


def test_a_stream_whose_ids_are_those_of_users_is_told_of_its_duplicates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = EngineSettings({"toxicity": Task(classes=("ok", "toxic"))}).build()
    rises = RisingShares()
    for begin in range(0, 600, 100):
        engine.absorb(answers_of_users(begin, 100), 0.0)
        rises.log_rises(engine.view())
    (line,) = caplog.messages
    assert line == (
        "Task toxicity: 80 % of the newest answers have the id of an earlier one of their model. They do not "
        "count: give each answer an id of its own."
    )


def answers_of_users(begin: int, n: int) -> Chunk:
    """Return answers with the ids of 40 users."""
    rows = (answer(id=f"user-{i % 40}") for i in range(begin, begin + n))
    return decode(*rows, layouts=(TaskLayout("toxicity", ("ok", "toxic")),))


def test_scores_that_are_all_0_or_1_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    rises, layouts = RisingShares(), (TaskLayout("toxicity", ("ok", "toxic")),)
    for begin in range(0, 400, 100):
        sure = [answer(id=f"a{begin + i}", scores=[float(i % 2), float(1 - i % 2)]) for i in range(100)]
        others = [answer(id=f"b{begin + i}", model="irm", scores=[1.0, 0.0]) for i in range(99)]
        rises.check_scores(decode(*sure, *others, answer(id=f"c{begin}", model="irm"), layouts=layouts))
    assert caplog.messages == [
        "Task toxicity, model erm: each score of 200 answers is exactly 0 or 1, so every answer gets the "
        "same confidence; send probabilities before rounding."
    ]


def test_a_standard_deviation_of_1_is_no_certain_score(caplog: pytest.LogCaptureFixture) -> None:
    records = [record | {"sigma": 1.0} for record in predictions(1, 300)]
    RisingShares().check_scores(decode(*records, layouts=tuple(layouts({"t": regression()}))))
    assert not caplog.messages


def test_the_page_says_that_scores_are_all_0_or_1_until_one_is_not() -> None:
    engine = EngineSettings({"toxicity": Task(classes=("ok", "toxic"))}).build()
    rises, layouts = RisingShares(), (TaskLayout("toxicity", ("ok", "toxic")),)

    def sentences_of(*scores: float) -> list[tuple[str, str]]:
        begin = sum(one.pending + one.predictions for one in engine.view().series)
        rows = [answer(id=f"a{begin + i}", scores=[p, 1 - p]) for i, p in enumerate(scores)]
        chunk = decode(*rows, layouts=layouts)
        engine.absorb(chunk, 0.0)
        rises.check_scores(chunk)
        view = AgentView(engine=rises.marked(engine.view()))
        data = Data(lambda: view, RecentWindows())
        own = render_model(data, NamedModelQuery(task="toxicity", model="erm"), "")
        sentence = (
            r'<p class="warn">(Each score of \d+ answers) is exactly 0 or 1, so every answer gets the same '
        )
        pages = (render_page(view), own.decode())
        return [match.groups() for page in pages for match in re.finditer(sentence + "(confidence;)", page)]

    assert sentences_of(*[1.0, 0.0] * 99) == []
    assert sentences_of(1.0, 0.0, 1.0) == [("Each score of 201 answers", "confidence;")] * 2
    assert sentences_of(0.0, 1.0) == [("Each score of 203 answers", "confidence;")] * 2
    assert sentences_of(1.0, 0.75) == []
