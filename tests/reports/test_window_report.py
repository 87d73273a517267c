"""The reports file's line: its fields, their order, and that the same window gives the same bytes."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import RankInterval
from monitor.base.records import FIRST_MILLISECOND, LAST_MILLISECOND
from monitor.base.results import Estimate, Result, Unknown
from monitor.engine.series_output import estimates_from, plain_estimates
from monitor.reports.reader import from_json
from monitor.reports.views import (
    CalibrationView,
    ChartView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    Rebaselined,
)
from monitor.reports.window_report import WindowReport, finite, revised, rfc3339, to_json
from monitor.stats.charts.base import Verdict

OWN = CalibrationView(method="isotonic", version=1, foreign=False, fitted_time=0.0)
START, END = 1795168800.12, 1795169251.002  # 2026-11-20 10:00:00.120 and 10:07:31.002, as in the SPEC

# SPEC section 7's example, byte for byte but for the spaces, with `positions` after it.
SPEC_LINE = (
    '{"task":"toxicity","model":"erm","group":"","version":"","window":17,"revision":0,"size":500,'
    '"closed_by":"size","start_time":"2026-11-20T10:00:00.120Z","end_time":"2026-11-20T10:07:31.002Z",'
    '"calibration":{"method":"isotonic","version":1},"estimates":[{"metric":"accuracy",'
    '"estimator":"average_confidence","value":0.913,"lower":0.888,"upper":0.936,"level":0.95,"size":500},'
    '{"metric":"auroc","estimator":"average_confidence","unknown":"one class only"}],'
    '"charts":[{"metric":"accuracy","center":0.921,"lower":0.885,"upper":0.957,"rules":[],'
    '"out_of_control":false}],"objectives":[{"metric":"accuracy","floor":0.9,"state":"met"}],'
    '"positions":{"predictions-0":[100,640]}}'
)


def spec_window() -> WindowReport:
    return WindowReport(
        task="toxicity",
        model="erm",
        group="",
        version="",
        window=17,
        size=500,
        closed_by="size",
        start_time=START,
        end_time=END,
        calibration=OWN,
        estimates=(
            MetricEstimate("accuracy", "average_confidence", Estimate(0.913, 0.888, 0.936, 0.95, 500)),
            MetricEstimate("auroc", "average_confidence", Unknown("one class only")),
        ),
        charts=(ChartView("accuracy", Verdict(0.921, 0.885, 0.957, (), False)),),
        objectives=(ObjectiveView("accuracy", 0.9, True, ObjectiveState.MET),),
        positions={"predictions-0": (100, 640)},
    )


def with_estimate(result: Estimate | Unknown) -> dict[str, object]:
    window = dataclasses.replace(spec_window(), estimates=(MetricEstimate("accuracy", "x", result),))
    return json.loads(to_json(window))["estimates"][0]


def test_the_line_is_the_one_in_the_specification() -> None:
    assert to_json(spec_window()).decode() == SPEC_LINE


def test_the_same_report_gives_the_same_bytes() -> None:
    assert to_json(spec_window()) == to_json(spec_window())


def test_only_a_foreign_calibration_is_flagged() -> None:
    foreign = dataclasses.replace(spec_window(), calibration=dataclasses.replace(OWN, foreign=True))
    assert b'"calibration":{"method":"isotonic","version":1,"foreign":true}' in to_json(foreign)
    assert b"foreign" not in to_json(spec_window())


def test_a_ceiling_is_told_from_a_floor_and_an_unjudged_objective_has_no_state() -> None:
    ceiling = dataclasses.replace(spec_window(), objectives=(ObjectiveView("ece", 0.05, False, None),))
    assert json.loads(to_json(ceiling))["objectives"] == [{"metric": "ece", "ceiling": 0.05}]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["value", "lower", "upper"])
def test_an_estimate_that_is_not_a_number_is_unknown(field: str, wrong: float) -> None:
    result = dataclasses.replace(Estimate(0.9, 0.8, 1.0, 0.95, 10), **{field: wrong})
    assert finite(result) == Unknown("not a number")
    assert with_estimate(result) == {"metric": "accuracy", "estimator": "x", "unknown": "not a number"}


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_limit_that_is_not_a_number_is_null(wrong: float) -> None:
    verdict = Verdict(0.9, wrong, 1.0, ("we1", "we4"), True)
    line = json.loads(to_json(dataclasses.replace(spec_window(), charts=(ChartView("accuracy", verdict),))))
    assert line["charts"][0] == {
        "metric": "accuracy",
        "center": 0.9,
        "lower": None,
        "upper": 1.0,
        "rules": ["we1", "we4"],
        "out_of_control": True,
    }


def test_numbers_are_rounded_to_six_decimals_and_zero_has_no_sign() -> None:
    entry = with_estimate(Estimate(0.12345649, -1e-9, 0.9999999, 0.95, 3))
    assert (entry["value"], entry["upper"]) == (0.123456, 1.0)
    assert math.copysign(1.0, entry["lower"]) == 1.0  # type: ignore[arg-type]


def test_numpy_scalars_are_written_as_numbers() -> None:
    result = Estimate(np.float64(0.5), np.float64(0.25), np.float64(1.0), 0.95, np.int64(7))  # type: ignore[arg-type]
    assert with_estimate(result) | {"metric": 0} == {
        "metric": 0,
        "estimator": "x",
        "value": 0.5,
        "lower": 0.25,
        "upper": 1.0,
        "level": 0.95,
        "size": 7,
    }


def test_anything_else_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="a window report holds plain numbers and text, got object"):
        to_json(dataclasses.replace(spec_window(), window=object()))  # type: ignore[arg-type]


def test_text_that_is_not_unicode_does_not_stop_the_report() -> None:
    line = json.loads(to_json(dataclasses.replace(spec_window(), model="e\ud800m", version="\nß")))
    assert (line["model"], line["version"]) == ("e?m", "\nß")


def test_it_is_one_line_whatever_the_names_hold() -> None:
    line = to_json(dataclasses.replace(spec_window(), model='a\n\r"b', positions={"x\ny": (0, 1)}))
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line)["model"] == 'a\n\r"b'


@given(st.integers(FIRST_MILLISECOND, LAST_MILLISECOND))
def test_times_say_the_millisecond_they_came_from(milliseconds: int) -> None:
    text = rfc3339(milliseconds / 1000)
    assert len(text) == 24
    read = datetime.fromisoformat(text)
    whole = (read - datetime(1970, 1, 1, tzinfo=UTC)) // (read.resolution * 1000)
    assert whole == milliseconds


FIRST, LAST = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-math.inf, FIRST),
        (-1e15, FIRST),
        (-62_135_596_800.001, FIRST),
        (-62_135_596_799.999, "0001-01-01T00:00:00.001Z"),
        (253_402_300_799.9994, LAST),
        (253_402_300_799.9999, LAST),
        (253_402_300_800, LAST),
        (1.7e308, LAST),
        (np.float64(1.7e308), LAST),
        (math.inf, LAST),
        (math.nan, FIRST),
        (np.float64("nan"), FIRST),
    ],
)
def test_a_time_beyond_the_calendar_is_its_nearest_end_and_none_is_its_beginning(
    seconds: float, text: str
) -> None:
    assert rfc3339(seconds) == text
    assert datetime.fromisoformat(text).tzinfo is not None


@given(st.floats(), st.floats())
def test_every_float_has_a_text_and_texts_are_in_the_order_of_time(one: float, other: float) -> None:
    texts = rfc3339(one), rfc3339(other)
    assert [len(text) for text in texts] == [24, 24]
    assert not (one < other and texts[0] > texts[1])


def test_an_odd_time_does_not_stop_the_report() -> None:
    odd = dataclasses.replace(spec_window(), start_time=math.nan, end_time=math.inf)
    line = json.loads(to_json(odd))
    assert (line["start_time"], line["end_time"]) == (FIRST, LAST)


@given(
    st.floats(0, 1),
    st.integers(0, 10**6),
    st.text(max_size=8),
    st.lists(st.sampled_from(["we1", "we2", "we3", "we4"]), max_size=4),
)
def test_what_is_read_back_is_what_was_given(value: float, size: int, model: str, rules: list[str]) -> None:
    window = dataclasses.replace(
        spec_window(),
        model=model,
        estimates=(MetricEstimate("accuracy", "x", Estimate(value, 0.0, 1.0, 0.9, size)),),
        charts=(ChartView("accuracy", Verdict(value, 0.0, 1.0, tuple(rules), bool(rules))),),
    )
    line = json.loads(to_json(window))
    assert line["estimates"][0]["value"] == pytest.approx(value, abs=5.1e-7)
    assert line["estimates"][0]["size"] == size
    assert line["charts"][0]["rules"] == rules
    assert line["model"] == model.encode("utf-8", "replace").decode()


RANKED = MetricEstimate(
    "accuracy", "autoeval", Estimate(0.9, 0.8, 0.95, 0.95, 60), 0, RankInterval(1, 3), RankInterval(1, 2)
)


def test_a_rank_stands_beside_its_estimate() -> None:
    line = json.loads(to_json(dataclasses.replace(spec_window(), estimates=(RANKED,))))
    assert line["estimates"][0]["rank"] == {"best": 1, "worst": 3}
    assert line["estimates"][0]["rank_chi_square"] == {"best": 1, "worst": 2}


@pytest.mark.parametrize("labels", [0, 40])
@pytest.mark.parametrize(
    ("rank", "chi_square"),
    [(None, None), (RankInterval(1, 3), None), (RankInterval(1, 3), RankInterval(1, 2))],
)
def test_estimates_are_saved_with_their_ranks_and_labels(
    labels: int, rank: RankInterval | None, chi_square: RankInterval | None
) -> None:
    estimates = (dataclasses.replace(RANKED, labels=labels, rank=rank, rank_chi_square=chi_square),)
    assert estimates_from(plain_estimates(estimates)) == estimates


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"revision": 3, "group": "region=eu", "version": "é\ud800"},
        {"start_time": FIRST_MILLISECOND / 1000, "end_time": LAST_MILLISECOND / 1000},
        {"charts": (ChartView("ece", Verdict(math.nan, 0.0, math.inf, ("we1", "we4"), True)),)},
        {"objectives": (ObjectiveView("ece", 0.05, False, None),)},
        {"calibration": CalibrationView("isotonic", 2, True, 5.0), "positions": {}},
        {"rebaselined": (Rebaselined("accuracy", "the threshold was moved"),)},
        {"estimates": (RANKED,)},
    ],
)
def test_a_line_that_is_read_is_written_the_same_again(changed) -> None:
    line = to_json(dataclasses.replace(spec_window(), **changed))
    read = from_json(line)
    assert to_json(read) == line
    if not changed:
        unfitted = dataclasses.replace(OWN, fitted_time=None)  # when it was fitted is not in the line
        assert read == dataclasses.replace(spec_window(), calibration=unfitted)


@given(st.floats(FIRST_MILLISECOND / 1000, LAST_MILLISECOND / 1000), st.floats(0, 1))
def test_every_time_and_every_number_survives_reading(seconds, value) -> None:
    estimate = MetricEstimate("accuracy", "realised", Estimate(value, value / 3, 1.0, 0.95, 7))
    window = dataclasses.replace(spec_window(), start_time=seconds, end_time=seconds, estimates=(estimate,))
    line = to_json(window)
    assert to_json(from_json(line)) == line


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", SPEC_LINE.encode().replace(b"20T10", b"99T10")])
def test_what_is_no_line_of_ours_is_refused(line) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        from_json(line)


SOME_RESULT = st.one_of(
    st.sampled_from([Unknown("no labels yet"), Estimate(math.nan, 0.0, 1.0, 0.95, 3)]),
    st.builds(Estimate, *[st.floats(0, 1)] * 3, st.just(0.95), st.integers(1, 500)),
)


@given(st.text(), st.integers(0, 30), SOME_RESULT, SOME_RESULT, st.booleans())
def test_a_spliced_line_is_the_one_that_the_whole_report_gives(
    name, revision, was, now: Result, twice
) -> None:
    realised = [MetricEstimate(metric, "realised", was) for metric in ("accuracy", name)]
    odd = f'{{"metric":"accuracy","estimator":"realised"}},"revision":{revision},{name}'
    before = dataclasses.replace(
        spec_window(),
        group=f"region={odd}",
        revision=revision,
        estimates=(*spec_window().estimates, *realised[: 1 + twice]),
        positions={odd: (100, 640)},
    )
    after = dataclasses.replace(
        before,
        revision=revision + 1,
        estimates=tuple(
            dataclasses.replace(e, result=now) if e.estimator == "realised" else e for e in before.estimates
        ),
    )
    spliced = revised(before, to_json(before), "realised", now)
    if to_json(dataclasses.replace(after, revision=revision)) == to_json(before):
        assert spliced is None
    else:
        assert spliced == after
        assert to_json(spliced) == to_json(after)  # of `after` every byte is written anew


def test_a_line_is_made_once_and_a_changed_report_has_another() -> None:
    window = spec_window()
    assert window.line == b""
    assert to_json(window) is to_json(window) is window.line
    assert b'"window":18' in to_json(dataclasses.replace(window, window=18))
    assert window == spec_window()


def test_every_stretch_of_a_window_survives_reading() -> None:
    line = to_json(dataclasses.replace(spec_window(), positions={"predictions-0": (100, 300, 400, 640)}))
    assert from_json(line).positions == {"predictions-0": (100, 300, 400, 640)}
    assert to_json(from_json(line)) == line


def test_a_revision_has_the_corrected_accuracy_by_then_and_beside_it_the_one_at_the_close() -> None:
    def corrected(value: float, labels: int) -> MetricEstimate:
        result = Estimate(value, value - 0.05, value + 0.03, 0.95, 500)
        return MetricEstimate("accuracy", "corrected", result, labels)

    realised = [Estimate(0.8, 0.7, 0.9, 0.95, n) for n in (10, 20, 40, 80)]
    window = spec_window()
    first = revised(window, to_json(window), "realised", realised[0], corrected(0.9, 10))
    assert first is not None
    assert [e.estimator for e in first.estimates[:2]] == ["average_confidence", "corrected"]
    assert first.estimates[1].at_close is None, "nothing was corrected when it closed"
    second = revised(first, first.line, "realised", realised[1], corrected(0.88, 20))
    assert second is not None
    third = revised(from_json(second.line), second.line, "realised", realised[2], corrected(0.87, 40))
    assert third is not None
    for revision, value, labels in ((second, 0.88, 20), (third, 0.87, 40)):
        newest = revision.estimates[1]
        assert isinstance(newest.result, Estimate)
        assert (newest.result.value, newest.labels) == (value, labels)
        assert newest.at_close == first.estimates[1].result, "the first one stays beside it"
        assert revision.line == to_json(dataclasses.replace(revision))
        assert from_json(revision.line).estimates == revision.estimates
        assert estimates_from(plain_estimates(revision.estimates)) == revision.estimates
    assert b'"at_close":{"value":0.9,"lower":0.85,"upper":0.93}' in third.line
    assert revised(third, third.line, "realised", realised[2], corrected(0.87, 80)) is None, "the same"
    assert revised(third, third.line, "realised", realised[2], None) is None, "it is not kept any more"
