"""The test of trust of estimated errors: alone, and in an engine with reports, page, metrics and alerts."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.base.records import Floats, Ints
from monitor.cli.backtest.signals import signals_of
from monitor.cli.journal import Journal
from monitor.engine.labels.error_trust import ErrorTest, ExpectedError, compare_errors
from monitor.engine.labels.trust import ALARM, ratio
from monitor.export.alertmanager.holding import BREACHED, UNTRUSTED, active_conditions
from monitor.export.page import render_page
from monitor.export.page.states import headline
from monitor.export.prometheus.collector import BlindsightCollector
from monitor.export.prometheus.rows import untrusted_rows
from monitor.reports.reader import from_json
from monitor.reports.statements import describe, error_sentence
from monitor.reports.trust import Bias, Trust
from monitor.reports.views import AgentView, ObjectiveState, SeriesState
from monitor.reports.window_report import WindowReport, to_json
from tests.numbers import Record, predictions, reference_of_numbers, regression
from tests.streams import Rig, lines

EXPECTED = ExpectedError(mean=1.0, deviation=0.02, cap=5.0)


def sizes_of(seed: int, n: int, mean: float = 1.0) -> Floats:
    return np.random.default_rng(seed).exponential(mean, n)


def add(test: ErrorTest, window: int | Ints, sizes: Floats, weight: Floats | None = None) -> None:
    n = len(sizes)
    compare_errors(
        [test],
        np.zeros(n, dtype=np.int64),
        np.broadcast_to(window, n),
        sizes,
        np.ones(n) if weight is None else weight,
    )


def test_the_ratio_of_an_outcome_between_0_and_1_is_linear_and_gains_nothing_on_average() -> None:
    rng = np.random.default_rng(1)
    confidence, shown = rng.uniform(0.05, 0.95, 50), rng.random(50)
    of = {right: ratio(confidence, np.full(50, right), -0.1, -0.7) for right in (False, True)}
    assert ratio(confidence, shown, -0.1, -0.7) == pytest.approx(shown * of[True] + (1 - shown) * of[False])
    assert ratio(confidence, np.ones(50), -0.1, -0.7) == pytest.approx(of[True])
    edge = 1 / (1 + np.exp(0.1) * (1 - confidence) / confidence)
    assert ratio(confidence, edge, -0.1, -0.7) == pytest.approx(np.ones(50))


def test_errors_that_are_half_as_large_again_lose_trust_and_the_same_ones_do_not() -> None:
    test = ErrorTest(keep=10)
    for window in range(5):
        add(test, window, sizes_of(window, 100))
        assert test.close(window, EXPECTED) is None
    add(test, 5, sizes_of(5, 400, 1.5))
    lost = test.close(5, EXPECTED)
    assert lost is not None
    assert lost.evidence >= ALARM
    assert lost.predicted == pytest.approx(1.0)
    assert lost.bias is not None
    assert lost.bias.lower < 0.5 < lost.bias.upper


@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_the_pieces_in_which_rows_come_change_nothing(late: int, weighted: bool, restart: bool) -> None:
    def lived(cuts: int) -> ErrorTest:
        rng, test = np.random.default_rng(2), ErrorTest(keep=4)
        for window in range(12):
            sizes = rng.exponential(1.0 if window < 6 else 1.8, 60)
            weight = rng.choice([1.0, 2.0, 8.0], 60) if weighted else np.ones(60)
            for piece in np.array_split(np.arange(60), cuts):
                add(test, window - late, sizes[piece], weight[piece])
                if restart and cuts > 1:
                    test = ErrorTest(keep=4, resume=test.snapshot())
            test.close(window, None if window == 3 else EXPECTED)
        return test

    whole, cut = lived(1), lived(7)
    assert msgspec.to_builtins(whole.snapshot(), enc_hook=_listed) == msgspec.to_builtins(
        cut.snapshot(), enc_hook=_listed
    )
    assert not whole.test.trusted


def _listed(value: Any) -> Any:
    return [None if each != each else each for each in value.ravel().tolist()]


def test_rows_of_windows_without_an_estimate_or_no_longer_kept_are_not_used() -> None:
    test = ErrorTest(keep=2)
    add(test, 0, sizes_of(1, 50))
    test.close(0, None)
    assert test.trust() is None
    for window in (1, 2, 3):
        test.close(window, EXPECTED)
    for window in (0, 1):
        add(test, window, sizes_of(1, 50))
    assert test.trust() is None
    add(test, 2, sizes_of(1, 50))
    trust = test.trust()
    assert trust is not None
    assert trust.labels == 50


def test_the_rows_of_an_open_window_that_wait_are_bounded() -> None:
    test = ErrorTest(keep=2)
    for _ in range(3):
        add(test, 0, sizes_of(1, 3000))
    test.close(0, EXPECTED)
    trust = test.trust()
    assert trust is not None
    assert trust.labels == 4096


def test_rows_that_were_picked_more_often_count_less() -> None:
    """Large errors are picked four times as often: without their weights, trust is lost."""
    rng, mixed = np.random.default_rng(3), {True: 0, False: 0}
    for _ in range(20):
        sizes = rng.exponential(1.0, 4000)
        chance = np.where(sizes > 1.0, 0.4, 0.1)
        picked = rng.random(4000) < chance
        for stated in mixed:
            test = ErrorTest(keep=2)
            test.close(0, EXPECTED)
            add(test, 0, sizes[picked], 1.0 / chance[picked] if stated else None)
            mixed[stated] += not test.test.trusted
    assert mixed[False] == 20
    assert mixed[True] <= 3  # with a probability of 5 % each, more than 3 have one of 1.6 %


def test_a_bias_that_turns_its_sign_loses_trust_and_sizes_alone_do_not_show_it() -> None:
    rng = np.random.default_rng(4)
    signed, sizes = ErrorTest(keep=10, signed=True), ErrorTest(keep=10)
    expected = ExpectedError(mean=1.0, deviation=0.05, cap=5.0)
    for window in range(6):
        errors = rng.normal(1.0 if window < 5 else -1.0, 1.0, 100)
        for test, mean in ((signed, 1.0), (sizes, 1.17)):
            test.close(window, expected._replace(mean=mean))
            add(test, window, errors)
        assert signed.test.trusted == (window < 5)
    assert sizes.test.trusted
    lost = signed.trust()
    assert lost is not None
    assert lost.metric == "bias"
    assert lost.predicted == pytest.approx(1.0)
    assert lost.bias is not None
    assert -2.5 < lost.bias.value < lost.bias.upper < 0.0


def test_trust_returns_when_the_errors_are_as_estimated_again() -> None:
    test = ErrorTest(keep=10)
    test.close(0, EXPECTED)
    add(test, 0, sizes_of(1, 300, 2.0))
    assert not test.test.trusted
    test.close(1, EXPECTED)
    lost = test.trust()
    assert lost is not None
    assert lost.on_probation
    for window in range(2, 6):
        add(test, window, sizes_of(window, 300))
        test.close(window, EXPECTED)
    assert test.test.trusted


def larger(record: Record, by: float) -> None:
    """Make the error of a record larger, but never larger than the tolerance if it was not."""
    error = record["label"] - record["prediction"]
    size = max(abs(error), min(by * abs(error), 3.9))
    record["label"] = record["prediction"] + math.copysign(size, error)


def grown(seed: int, n: int, by: float, start: float = 1.7e9) -> list[Record]:
    """Return predictions with labels, whose errors are up to `by` times as large as in the reference."""
    records = predictions(seed, n, start=start)
    for record in records:
        larger(record, by)
    return records


SETTINGS = regression(unit="minutes", tolerance=4.0)
REFERENCE = reference_of_numbers(SETTINGS, predictions(1, 2000, start=1.6e9))


def rig() -> Rig:
    return Rig({"t": SETTINGS}, {"t": REFERENCE})


@pytest.fixture(scope="module")
def life() -> tuple[Rig, list[WindowReport]]:
    """The errors of windows 5 to 9 are twice as large; nearly all stay within the tolerance."""
    own = rig()
    return own, own.feed(stream())


def stream() -> list[Record]:
    return predictions(2, 500) + grown(3, 500, 2.0, 1.7e9 + 500) + predictions(4, 700, start=1.7e9 + 1000)


def test_grown_errors_lose_their_trust_and_the_share_within_the_tolerance_keeps_it(
    life: tuple[Rig, list[WindowReport]],
) -> None:
    _, reports = life
    lost = [report.trust_in_errors is not None for report in reports]
    assert not any(lost[:5])
    assert any(lost[5:8])
    assert not lost[-1]
    assert [report.trust for report in reports[:7]] == [None] * 7
    first = next(report for report in reports if report.trust_in_errors is not None)
    trust = first.trust_in_errors
    assert trust is not None
    assert trust.bias is not None
    assert trust.predicted is not None
    assert 1.4 < 1 + trust.bias.value / trust.predicted < 2.6
    back = from_json(to_json(first)).trust_in_errors
    assert back is not None
    assert back.predicted == pytest.approx(trust.predicted)
    assert b'"untrusted":[{"metric":"mae"' in to_json(first)
    assert signals_of(first) >= {"labels contradict the estimated mae"}


@pytest.mark.parametrize("restart", [False, True])
def test_cuts_and_restarts_change_no_byte(life: tuple[Rig, list[WindowReport]], restart: bool) -> None:
    own = rig()
    assert lines(own.feed_in_pieces(stream(), [3, 130, 555, 777, 1400], restart)) == lines(life[1])
    [one], [other] = own.engine.view().series, life[0].engine.view().series
    assert one.trust_in_errors == other.trust_in_errors


def test_page_journal_metrics_and_alerts_say_so(caplog: pytest.LogCaptureFixture) -> None:
    own = rig()
    reports = own.feed(predictions(2, 500) + grown(3, 300, 2.0, 1.7e9 + 500))
    view = own.engine.view()
    [one] = view.series
    assert one.state is not SeriesState.UNTRUSTED
    lost = one.lost_trust_in_errors
    assert lost is not None
    words = error_sentence(one, lost)
    assert words.startswith("labels contradict")
    page = render_page(AgentView(engine=view))
    assert words in page
    assert page.count('<s class="soft">') == 3  # mae, rmse and bias without labels
    assert {"reason": "errors"} in [labels for labels, value in untrusted_rows(one) if value == 1.0]
    conditions = [each for each in active_conditions(AgentView(engine=view)) if each.name == UNTRUSTED]
    assert [dict(each.labels) for each in conditions] == [{"task": "t", "model": "gbm", "metric": "mae"}]
    assert conditions[0].statement.fact == words
    with caplog.at_level(logging.INFO, logger="blindsight"):
        Journal().windows(reports)
    [message] = [r.message for r in caplog.records if "Not trusted" in r.message]
    assert message.startswith("Not trusted: t, gbm, mae, window ")
    assert "predicted" in message


def test_objectives_of_errors_have_no_state_while_labels_contradict_them() -> None:
    objective = {"mae": {"max": 0.5}, "bias": {"min": -3}, "within_tolerance": {"min": 0.5}, "windows": 2}
    own = Rig({"t": regression(unit="minutes", tolerance=4.0, objective=objective)}, {"t": REFERENCE})
    met, breached = ObjectiveState.MET, ObjectiveState.BREACHED
    [*_, before] = own.feed(predictions(2, 500))
    states = {each.metric: each.state for each in before.objectives}
    assert states == {"within_tolerance": met, "mae": breached, "bias": met}
    reports = own.feed(grown(3, 300, 2.0, 1.7e9 + 500))
    [one] = own.engine.view().series
    for each in (*reports[-1].objectives, *one.objectives):
        assert each.state is (met if each.metric == "within_tolerance" else None), each.metric
    assert b'{"metric":"mae","ceiling":0.5,"unit":"minutes"}' in to_json(reports[-1])
    names = {each.name for each in active_conditions(AgentView(engine=own.engine.view()))}
    assert names & {UNTRUSTED, BREACHED} == {UNTRUSTED}
    lost = one.lost_trust_in_errors
    assert lost is not None
    assert describe(one).fact == error_sentence(one, lost)
    assert "; labels contradict estimated errors." in headline([one]).words
    assert "fine" not in headline([replace(one, objectives=(), charts=())]).words


def test_the_sentence_has_both_numbers_and_the_unit(life: tuple[Rig, list[WindowReport]]) -> None:
    trust = Trust(False, 23.5, 400, Bias(5.2, 3.1, 7.4, 0.95, 310), predicted=12.1)
    report = life[1][0]
    assert error_sentence(report, trust) == (
        "labels contradict the estimated mae: predicted 12.1 minutes, 310 labelled rows 17.3"
    )
    assert error_sentence(report, replace(trust, on_probation=True)) == (
        "labels contradicted the estimated mae: a fresh test has begun, predicted 12.1 minutes, "
        "310 labelled rows 17.3"
    )
    assert error_sentence(report, Trust(False, 1.0, 0, on_probation=True)) == (
        "labels contradicted the estimated mae: a fresh test has begun, no label yet"
    )


def test_a_new_baseline_and_another_version_begin_a_fresh_test() -> None:
    own = rig()
    own.feed(predictions(2, 500) + grown(3, 300, 2.0, 1.7e9 + 500))
    [(_, _, series)] = own.engine.snapshot().tasks["t"].series
    state = series.without_baseline().number_errors
    assert state is not None
    test = ErrorTest(100, resume=state)
    assert not test.test.trusted
    assert not test.test.lost
    newer = [record | {"version": "2"} for record in predictions(5, 100, start=1.7e9 + 800)]
    own.feed([record | {"version": "1"} for record in predictions(6, 100, start=1.7e9 + 700)] + newer)
    [one] = own.engine.view().series
    assert one.trust_in_errors is not None
    assert one.trust_in_errors.trusted or one.trust_in_errors.on_probation


def turned(seed: int, n: int, by: float, start: float = 1.7e9) -> list[Record]:
    """Return predictions with labels that are moved by `by`, within the tolerance if they were."""
    records = predictions(seed, n, start=start)
    for record in records:
        error = record["label"] + by - record["prediction"]
        record["label"] = record["prediction"] + (
            min(max(error, -3.9), 3.9) if abs(error - by) < 3.9 else error
        )
    return records


def test_a_bias_that_turns_is_shown_with_its_metric_in_line_page_metrics_and_alerts() -> None:
    own = Rig({"t": SETTINGS}, {"t": reference_of_numbers(SETTINGS, turned(1, 2000, -1.0, 1.6e9))})
    reports = own.feed(turned(2, 500, -1.0) + turned(3, 500, 1.0, 1.7e9 + 500))
    view = own.engine.view()
    [one] = view.series
    lost = one.lost_trust_in_errors
    assert lost is not None
    assert [each.metric for each in lost.lost] == ["bias"]
    assert lost.other is not None
    assert lost.other.trusted
    words = error_sentence(one, lost)
    assert words.startswith("labels contradict the estimated bias: predicted +")
    assert " labelled rows -" in words
    assert words in render_page(AgentView(engine=view))
    conditions = [each for each in active_conditions(AgentView(engine=view)) if each.name == UNTRUSTED]
    assert [dict(each.labels)["metric"] for each in conditions] == ["bias"]
    families = BlindsightCollector(lambda: AgentView(engine=view), 1000).collect()
    [trusted] = [each for each in families if each.name == "blindsight_estimate_trusted"]
    now = {each.labels["metric"]: each.value for each in trusted.samples}
    assert now == {"within_tolerance": 1.0, "mae": 1.0, "bias": 0.0}
    first = next(report for report in reports if report.trust_in_errors is not None)
    assert b'"untrusted":[{"metric":"bias"' in to_json(first)
    back = from_json(to_json(first)).trust_in_errors
    assert back is not None
    assert back.metric == "bias"
    assert signals_of(first) >= {"labels contradict the estimated bias"}


def test_a_state_of_an_older_version_begins_the_test_of_the_bias() -> None:
    own = rig()
    own.feed(predictions(2, 500))
    snapshot = own.engine.snapshot()
    [(task, group, series)] = snapshot.tasks["t"].series
    older = msgspec.structs.replace(series, signed_errors=None)
    tasks = {"t": msgspec.structs.replace(snapshot.tasks["t"], series=[(task, group, older)])}
    own.engine = own.settings.build(msgspec.structs.replace(snapshot, tasks=tasks))
    [one] = own.engine.view().series
    assert one.trust_in_errors is not None
    assert [each.metric for each in one.trust_in_errors.both] == ["mae"]
    own.feed(predictions(3, 300, start=1.7e9 + 500))
    [one] = own.engine.view().series
    assert one.trust_in_errors is not None
    assert {each.metric: each.labels for each in one.trust_in_errors.both} == {"mae": 800, "bias": 300}


@pytest.mark.parametrize("metrics", [["bias"], ["mae"], ["wape"]])
def test_only_the_tests_that_serve_a_metric_run(metrics: list[str]) -> None:
    checked = regression(error_metrics=metrics, tolerance=4.0)
    own = Rig({"t": checked}, {"t": reference_of_numbers(checked, predictions(1, 2000, start=1.6e9))})
    own.feed(predictions(2, 300))
    [one] = own.engine.view().series
    assert one.trust_in_errors is not None
    assert [each.metric for each in one.trust_in_errors.both] == ["bias" if metrics == ["bias"] else "mae"]


def test_a_group_loses_trust_by_its_own_labels() -> None:
    settings = regression(groups=["region"], tolerance=4.0)

    def regions(records: list[Record], seed: int) -> list[Record]:
        for i, record in enumerate(records):
            record["groups"] = {"region": ("eu", "us")[i % 2]}
            if record["groups"]["region"] == "us" and seed:
                larger(record, 2.0)
        return records

    known = reference_of_numbers(settings, regions(predictions(1, 2000, start=1.6e9), 0))
    own = Rig({"t": settings}, {"t": known})
    own.feed(regions(predictions(2, 1200), 1))
    trusted = {one.group: one.lost_trust_in_errors is None for one in own.engine.view().series}
    assert trusted["region=eu"]
    assert not trusted["region=us"]


def test_a_task_without_metrics_of_errors_has_no_test() -> None:
    settings = regression(error_metrics=[])
    own = Rig({"t": settings}, {"t": reference_of_numbers(settings, predictions(1, 2000, start=1.6e9))})
    own.feed(grown(3, 300, 3.0))
    [one] = own.engine.view().series
    assert one.trust_in_errors is None
    assert own.engine.snapshot().tasks["t"].series[0][2].number_errors is None
