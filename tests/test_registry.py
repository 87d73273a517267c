"""One line of a table is enough: one of each kind is added here at run time, and seen where users see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field

from connectors.build import build_inputs
from connectors.formats.decode.answers import read_answers
from connectors.formats.decode.columns import Columns, Places, RejectList
from connectors.formats.wires.choice import wire_of
from connectors.formats.wires.mapped import MappedWire
from monitor import CALIBRATIONS, CALIBRATORS, CHARTS, ESTIMATORS
from monitor.base import registry
from monitor.base.errors import MissingExtraError
from monitor.base.records import Batch, Floats, Ints, TaskLayout
from monitor.base.results import Estimate
from monitor.base.source import EndOfSource, Raw, RawBlock, Source
from monitor.cli.trial import read_references, refuse_missing_extras
from monitor.config.file import config_from, schema
from monitor.config.mapping import MAPPING, FieldMapping
from monitor.config.sources import SourceSection
from monitor.config.task import Task
from monitor.engine.reference import Reference
from monitor.engine.refit.fit import refit
from monitor.export.prometheus.families import FAMILIES, MetricFamily
from monitor.reports.views import AgentView
from monitor.stats.calibration.base import Calibration
from monitor.stats.calibration.none import NoCalibrator, Uncalibrated
from monitor.stats.charts.shewhart import Shewhart
from monitor.stats.estimate.reference import ReferenceEstimator
from monitor.stats.labelled.ensemble import Ensemble
from tests.daemon import diagnosed, ndjson, write_configuration
from tests.export.prometheus.scrape import samples, value
from tests.pages import configuration_page, metrics_page
from tests.streams import CLASSES, Record, Rig, answers, task


class Boldest(Ensemble):
    """The mean of the models, under a name of its own."""

    tag = "boldest"


@dataclass(frozen=True, slots=True)
class Unmoved(ReferenceEstimator):
    """An estimator that expects the share of right answers in the reference."""

    right: float
    is_share: ClassVar[bool] = True

    @classmethod
    def fit(cls, confidence: Floats, correct: NDArray[np.bool_]) -> Unmoved:
        return cls(float(correct.mean()))

    def _accuracy(self, confidence: Floats) -> float:
        return self.right


@dataclass(frozen=True)
class Patient(Shewhart):
    """Shewhart's chart, under a name of its own."""

    kind = "patient"


@dataclass(frozen=True, slots=True)
class Trusting(Uncalibrated):
    """The scores as they are, under a name of its own."""

    method: ClassVar[str] = "trusting"


class TrustingCalibrator(NoCalibrator):
    """A calibrator that fits nothing."""

    method: ClassVar[str] = "trusting"
    calibration: ClassVar[type[Calibration]] = Trusting

    def fit(
        self, scores: Floats, predicted: Ints, labels: Ints, weights: Floats | None = None
    ) -> Uncalibrated:
        return Trusting(scores.shape[1])


class Coin(Task):
    """A task whose records have one probability, under a name of its own."""

    kind: Literal["coin"] = Field(description="A coin.")  # type: ignore[assignment]
    side: Literal["head", "tail"] = Field(default="head", description="The side that falls.")


def read_coins(
    layout: TaskLayout, columns: Columns, chosen: Ints, places: Places, rejects: RejectList
) -> Batch | None:
    """Read the probabilities of the side as scores."""
    for i in chosen.tolist():
        columns.scores[i] = [1 - columns.judge_b[i], columns.judge_b[i]]
    return read_answers(layout, columns, chosen, places, rejects)


class TapeSource(SourceSection):
    """A text that stands in the configuration."""

    kind: Literal["tape"] = Field(description="A tape.")
    text: str = Field(description="Records, one a line.")
    name: str | None = Field(default=None, description="In metrics.")
    mapping: FieldMapping | None = MAPPING


class Tape(Source[int]):
    """A source that reads the text once."""

    def __init__(self, settings: TapeSource) -> None:
        self.name, self._text, self._at = settings.label, settings.text.encode(), 0

    def open(self, positions: Mapping[str, int]) -> None:
        self._at = positions.get(self.name, 0)

    def read(self, timeout_seconds: float) -> list[Raw]:
        if self._at == len(self._text):
            raise EndOfSource
        block = RawBlock(self._text[self._at :], self.name, self._at)
        self._at = len(self._text)
        return [block]

    def close(self) -> None:
        """Nothing is held."""

    @property
    def up(self) -> bool:
        return True


class Mirrored(MappedWire):
    """A mapping, under a name of its own."""


def sources_seen(view: AgentView) -> Iterator[tuple[dict[str, str], float]]:
    yield {"of": "tests"}, float(len(view.sources))


def records(n: int = 700) -> list[Record]:
    return answers(np.random.default_rng(5), n, labelled=True)


def view_of(rig: Rig) -> AgentView:
    return AgentView(engine=rig.engine.view(), reload_time=1.0)


def test_an_estimator_that_uses_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    line = registry.EstimatorEntry("tests.test_registry:Boldest", "the boldest of all", "refit")
    monkeypatch.setitem(registry.ESTIMATORS, "boldest", line)
    estimators = ["average_confidence", "boldest"]
    settings = task(estimators=estimators, models={"erm": {}}, ssme={"every_windows": 1, "every_labels": 1})
    assert settings.refit_estimators == ("boldest",)
    rig = Rig(settings, refit=refit)
    estimates = [e for report in rig.feed(records()) for e in report.estimates if e.estimator == "boldest"]
    assert estimates[-1].metric == "accuracy"
    scraped = samples(view_of(rig))
    assert value(
        scraped, "blindsight_estimate_ratio", estimator="boldest", metric="accuracy", model="erm", task="t"
    )
    assert "* `boldest`: the boldest of all." in configuration_page()
    assert "boldest: the boldest of all." in str(schema())
    assert ESTIMATORS["boldest"] is Boldest


def test_an_estimator_that_is_fitted_on_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    line = registry.EstimatorEntry("tests.test_registry:Unmoved", "the reference's", "reference")
    monkeypatch.setitem(registry.ESTIMATORS, "unmoved", line)
    rng = np.random.default_rng(4)
    scores = np.column_stack((1 - (p := rng.random(200)), p))
    predicted = (p > 0.5).astype(np.int64)
    labels = (rng.random(200) < p).astype(np.int64)
    known = Reference(scores, predicted, labels, np.arange(200.0), "", {})
    settings = task(estimators=["average_confidence", "unmoved"], models={"erm": {}})
    reports = Rig(settings, references={"t": {"erm": known}}).feed(records())
    results = [each.result for report in reports for each in report.estimates if each.estimator == "unmoved"]
    assert [result.value for result in results if isinstance(result, Estimate)] == [
        pytest.approx((predicted == labels).mean())
    ] * len(reports)
    assert "* `unmoved`: the reference's." in configuration_page()


def test_a_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    line = registry.ChartEntry("tests.test_registry:Patient", "a patient chart", ("rules",))
    monkeypatch.setitem(registry.CHARTS, "patient", line)
    rig = Rig(task(chart={"kind": "patient"}, reference={"first_windows": 5}))
    reports = rig.feed(records())
    assert [chart.metric for chart in reports[-1].charts] == ["accuracy"]
    center = value(
        samples(view_of(rig)), "blindsight_control_center_ratio", task="t", model="erm", metric="accuracy"
    )
    assert center == reports[-1].charts[0].verdict.center
    assert "* `patient`: a patient chart." in configuration_page()
    assert CHARTS["patient"] is Patient


def test_a_calibration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = registry.CalibrationEntry("tests.test_registry:TrustingCalibrator", "trusts the scores")
    monkeypatch.setitem(registry.CALIBRATIONS, "trusting", line)
    (tmp_path / "reference.ndjson").write_bytes(ndjson(records()))
    settings: dict[str, Any] = {
        "classes": CLASSES,
        "metrics": ["accuracy"],
        "window": {"size": 100},
        "calibration": {"method": "trusting"},
        "reference": {"path": str(tmp_path / "reference.ndjson")},
    }
    config = config_from({"tasks": {"t": settings}})
    rig = Rig(config.scored_tasks["t"], references=read_references(config))
    reports = rig.feed(answers(np.random.default_rng(6), 300))
    assert [report.calibration.method for report in reports] == ["trusting"] * 3
    scraped = samples(view_of(rig))
    shown = [dict(labels)["calibration"] for name, labels in scraped if name == "blindsight_model_info"]
    assert shown == ["trusting"]
    assert (CALIBRATORS["trusting"], CALIBRATIONS["trusting"]) == (TrustingCalibrator, Trusting)
    assert "* `trusting`: trusts the scores." in configuration_page()


def test_a_kind_of_task(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "tests.test_registry"
    line = registry.TaskKind(
        "monitor.engine.task:TaskEngine",
        "answers that are coins",
        section=f"{own}:Coin",
        answers=f"{own}:read_coins",
        labels="connectors.formats.decode.truth:read_labels",
        line="monitor.reports.window_report:WindowLine",
        fields=("judge_b",),
        marks=("judge_b",),
    )
    monkeypatch.setitem(registry.TASK_KINDS, "coin", line)
    with pytest.raises(Exception, match=r"tasks\.t\.side"):
        config_from({"tasks": {"t": {"kind": "coin", "classes": CLASSES, "side": 3}}})
    window = {"size": 10, "max_age_seconds": 1e9}
    tasks = {"t": {"kind": "coin", "classes": CLASSES, "window": window}, "other": {"classes": CLASSES}}
    rig = Rig(config_from({"tasks": tasks}).tasks)
    flips = [{"id": str(i), "model": "m", "judge_b": 0.5 + i / 100} for i in range(25)]
    reports = rig.feed(flips)
    assert [(report.task, report.size) for report in reports] == [("t", 10), ("t", 10)]
    assert rig.engine.snapshot().tasks["t"].join.answers.first == 0
    assert value(samples(view_of(rig)), "blindsight_answers_pending", task="t", model="m") == 5.0
    assert "kind: coin\n" in configuration_page()
    assert schema()["properties"]["tasks"]["additionalProperties"]["discriminator"]["mapping"]["coin"]


def test_a_source_and_a_wire_format(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "tests.test_registry"
    line = registry.SourceEntry(f"{own}:Tape", "a tape", section=f"{own}:TapeSource")
    monkeypatch.setitem(registry.SOURCES, "tape", line)
    monkeypatch.setitem(registry.FORMATS, "mirrored", registry.FormatEntry(f"{own}:Mirrored", "mirrored"))
    mapping = {"format": "mirrored", "model": "m", "confidence": "c"}
    text = '{"m": "erm", "c": 0.9}\n'
    config = config_from(
        {"tasks": {"t": {}}, "sources": [{"kind": "tape", "text": text, "mapping": mapping}]}
    )
    (source_input,) = build_inputs(config)
    source_input.feed.open({})
    chunk = source_input.decode(source_input.feed.read(0.0))
    rig = Rig(config.scored_tasks["t"])
    rig.engine.absorb(chunk, 0.0)
    assert value(samples(view_of(rig)), "blindsight_answers_received_total", source="tape") == 1.0
    assert value(samples(view_of(rig)), "blindsight_answers_pending", task="t", model="erm") == 1.0
    assert type(wire_of(config.sources[0])) is Mirrored
    for named in ("kind: tape\n", "* `mirrored`: mirrored."):
        assert named in configuration_page()
    assert schema()["properties"]["sources"]["items"]["discriminator"]["mapping"]["tape"]


def test_what_a_kind_of_source_does_not_sample_the_doctor_does_not_look_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = "tests.test_registry"
    line = registry.SourceEntry(f"{own}:Tape", "a tape", section=f"{own}:TapeSource")
    monkeypatch.setitem(registry.SOURCES, "tape", line)
    config = {"tasks": {"t": {}}, "sources": [{"kind": "tape", "text": "{}"}]}
    expected = "tape (tape):\n  not looked at: a source of kind tape can be read by its agent alone"
    assert diagnosed(str(write_configuration(tmp_path, config))) == (expected, True)


def test_a_metric_family(monkeypatch: pytest.MonkeyPatch) -> None:
    family = MetricFamily("gauge", "Sources.", per_series=False, rows="tests.test_registry:sources_seen")
    monkeypatch.setitem(FAMILIES, "sources_seen", family)
    monkeypatch.setitem(FAMILIES, "window_number", MetricFamily("gauge", "Last.", value="windows_closed"))
    assert value(samples(AgentView(reload_time=1.0)), "blindsight_sources_seen", of="tests") == 0.0
    assert "| `blindsight_sources_seen` | of | Sources. |" in metrics_page()
    rig = Rig(task())
    rig.feed(records())
    assert value(samples(view_of(rig)), "blindsight_window_number", task="t", model="erm") == 7.0


def test_an_extra_that_a_line_names_is_told_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = registry.Extra("bold", ("no_such_package",))
    line = registry.EstimatorEntry("tests.test_registry:Boldest", "the boldest", "refit", extra=extra)
    monkeypatch.setitem(registry.ESTIMATORS, "boldest", line)
    estimators = ["average_confidence", "boldest"]
    config = config_from(
        {"tasks": {"t": {"classes": CLASSES, "models": {"a": {}}, "estimators": estimators}}}
    )
    with pytest.raises(MissingExtraError) as caught:
        refuse_missing_extras(config)
    assert str(caught.value).startswith(
        "tasks.t.estimators: boldest needs an optional package: pip install 'blindsight[bold]'"
    )


def test_a_tag_that_no_table_has_is_told_with_those_that_there_are() -> None:
    with pytest.raises(Exception, match=r"expected one of shewhart, .*, cusum, got 'cusun'; did you mean"):
        config_from({"tasks": {"t": {"chart": {"kind": "cusun"}}}})


@pytest.mark.parametrize("kind", registry.TABLES)
def test_every_line_names_code_that_is_there_and_says_what_it_is(kind: str) -> None:
    for tag, entry in registry.TABLES[kind].items():
        code: Any = registry.load(entry.path)
        own = [getattr(code, key) for key in ("tag", "kind", "method") if hasattr(code, key)]
        assert own in ([], [tag])
        assert entry.text
        assert not entry.text.endswith(".")
    for source in registry.SOURCES.values():
        assert issubclass(registry.load(source.section), SourceSection)
