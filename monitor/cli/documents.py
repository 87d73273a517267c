"""The JSON documents of `--json`, made from the results that the commands otherwise print as text.

Later versions may add keys, and do not remove any. Values are ratios, times are in RFC 3339, and an unknown
value is null. `blindsight schema NAME` prints the JSON Schema of a document.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from monitor.base.names import AVERAGE_CONFIDENCE
from monitor.base.results import Estimate
from monitor.cli.backtest.results import BacktestDocument
from monitor.cli.check.check import CheckReport, SharedBudget
from monitor.cli.labels_ask import LabelSelection, ModelForecast, RoundForecast
from monitor.reports.features import BrokenFeature
from monitor.reports.statements import SharedLine
from monitor.reports.views import ObjectiveState, SeriesState, SeriesView
from monitor.reports.window_report import rfc3339
from monitor.reports.window_view import Coverage, MetricEstimate, leading_estimate

if TYPE_CHECKING:
    from monitor.cli.doctor import Diagnosis, SourceDiagnosis
    from monitor.cli.replay import Replayed
    from monitor.cli.verify import Findings
    from monitor.export.charts.pictures import Alarm

Counts = dict[str, int]
Rate = Annotated[float | None, Meta(description="Expected false alarms in a week; null: unknown traffic.")]


class ChartForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The expected false alarms of one chart. `model` is null if the forecast is the same for every model."""

    task: str
    model: str | None
    metric: str
    false_alarms_per_window: float
    windows_per_day: float | None
    false_alarms_per_week: Rate


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `check --json`, for a valid configuration."""

    false_alarms_per_week: Rate
    false_alarms_of_groups_per_week: Rate
    charts: list[ChartForecast]
    budgets: list[SharedBudget]
    groups: Annotated[dict[str, list[str]], Meta(description="The groups of each task.")]
    features: Annotated[dict[str, float], Meta(description="False alarms of drift in a week, by task.")]
    calibrations: Annotated[list[str], Meta(description="A sentence on each calibration of auto.")]
    warnings: list[str]


def check_document(report: CheckReport) -> CheckDocument:
    """Return the JSON document of a report of `check`."""
    return CheckDocument(
        false_alarms_per_week=report.false_alarms_per_week,
        false_alarms_of_groups_per_week=report.false_alarms_of_groups,
        charts=[
            ChartForecast(
                task=chart.task,
                model=chart.model,
                metric=chart.metric,
                false_alarms_per_window=chart.false_alarms_per_window,
                windows_per_day=chart.windows_per_day,
                false_alarms_per_week=chart.false_alarms_per_week,
            )
            for chart in report.charts
        ],
        budgets=list(report.shared),
        groups={task: list(names) for task, names in report.groups.items()},
        features=dict(report.features),
        calibrations=list(report.calibrations),
        warnings=list(report.warnings),
    )


class MappingTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping that makes more records of a source usable, and the counts of a trial on these records."""

    mapping: Annotated[dict[str, Any], Meta(description="The keys for `mapping:` in the configuration.")]
    answers: int
    labels: int
    rejected: int
    losses: Annotated[list[str], Meta(description="What can be used now, but not with the mapping.")]


class SourceFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of `doctor` about the records of one source."""

    source: str
    kind: str
    well: bool
    records: int
    answers: int
    labels: int
    rejected: int
    remarks: list[str]
    proposal: MappingTrial | None


class JoinFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The number of labels of a task that join an answer with the proposed mappings."""

    task: str
    joined: int
    labels: int
    answers: int
    ambiguous: int
    comparison: str


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `doctor --json`. `check` is null if `doctor` finds a problem, and with `--sample`."""

    well: bool
    sources: list[SourceFindings]
    joins: list[JoinFindings]
    check: CheckDocument | None


def doctor_document(diagnosis: Diagnosis, report: CheckReport | None) -> DoctorDocument:
    """Return the JSON document of a diagnosis, and of the check that follows if it shows no problem."""
    return DoctorDocument(
        well=diagnosis.well,
        sources=[_source(each) for each in diagnosis.sources],
        joins=[
            JoinFindings(task=each.task, **each.join._asdict(), comparison=each.comparison)
            for each in diagnosis.joins
        ],
        check=None if report is None else check_document(report),
    )


def _source(source: SourceDiagnosis) -> SourceFindings:
    examination, proposal = source.examination, source.proposal
    trial = None
    if proposal is not None:
        trial = MappingTrial(
            mapping=proposal.keys,
            answers=proposal.answers,
            labels=proposal.labels,
            rejected=proposal.chunk.rejected,
            losses=[*proposal.losses(), *source.losses],
        )
    return SourceFindings(
        source=source.name,
        kind=source.kind,
        well=not examination.wrong,
        records=examination.records,
        answers=examination.answers,
        labels=examination.every_label,
        rejected=examination.rejected,
        remarks=list(examination.lines),
        proposal=trial,
    )


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its interval, and the number of labels or answers from which it is computed."""

    value: float
    lower: float
    upper: float
    rows: int


class ObjectiveOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an objective. The state is null if it is unknown."""

    metric: str
    state: ObjectiveState | None


class AlarmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms of one chart in the replay."""

    metric: str
    alarms: int
    first_window: int
    first_time: str
    on: Annotated[bool, Meta(description="Whether the last alarm is still on.")]


class FeatureOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a feature, with its duration and its worst window."""

    worst: BrokenFeature
    windows: int
    first_window: int
    first_time: str


class ModelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a model or a group at the end of a replay."""

    task: str
    model: str
    group: str
    version: str
    windows: int
    state: SeriesState
    improved: Annotated[list[str], Meta(description="The metrics that are better than the baseline.")]
    confidences_moved: bool
    share: Annotated[
        str, Meta(description="The metric of accuracy and realised: accuracy, or within_tolerance.")
    ]
    accuracy: Annotated[Interval | None, Meta(description="The estimate in the newest window.")]
    accuracy_unknown: Annotated[str, Meta(description="Why the accuracy is null.")]
    realised: Annotated[Interval | None, Meta(description="The accuracy of the newest labelled rows.")]
    objectives: list[ObjectiveOutcome]
    alarms: list[AlarmOutcome]
    broken_features: list[FeatureOutcome]
    coverage: Coverage | None


class AnswerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of answers of a replay by outcome.

    `rejected` has the numbers of rejected answers by reason.
    """

    used: int
    duplicates: int
    rejected: Counts


class LabelOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of labels of a replay by outcome.

    `rejected` has the numbers of rejected labels by reason.
    """

    matched: int
    unmatched: int
    conflicting: int
    repeated: int
    rejected: Counts


class ReplayDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `replay --json`."""

    models: list[ModelOutcome]
    shared: Annotated[list[SharedLine], Meta(description="The changes that the models of a task share.")]
    windows: int
    reports: Annotated[str, Meta(description="The file of the windows.")]
    page: Annotated[str, Meta(description="The report as HTML.")]
    pictures: list[str]
    answers: AnswerCounts
    labels: LabelOutcomes
    rows_left: Annotated[Counts, Meta(description="Rows that a mapping does not read, by its path.")]
    first_rejected: Annotated[list[str], Meta(description="The first messages about unusable records.")]
    rejects: Annotated[str | None, Meta(description="The file of unusable records.")]
    notes: list[str]
    warnings: list[str]


def replay_document(done: Replayed, out: Path) -> ReplayDocument:
    """Return the JSON document of a replay whose files are in the folder `out`."""
    from monitor.cli.accounts import warnings
    from monitor.cli.replay import PAGE, REPORTS

    accounts, unused = done.accounts, done.unused
    return ReplayDocument(
        models=[_model(one, done) for one in done.view.series],
        shared=[SharedLine.from_view(each) for each in done.shared],
        windows=done.windows,
        reports=_path(out / REPORTS),
        page=_path(out / PAGE),
        pictures=list(map(str, done.pictures)),
        answers=AnswerCounts(
            used=accounts.used, duplicates=accounts.duplicates, rejected=dict(unused.answers)
        ),
        labels=LabelOutcomes(
            matched=accounts.labels.matched,
            unmatched=accounts.labels.unmatched,
            conflicting=accounts.labels.conflicting,
            repeated=accounts.labels.duplicate,
            rejected=dict(unused.labels),
        ),
        rows_left=dict(unused.rows_left),
        first_rejected=list(unused.first),
        rejects=None if done.rejects is None else _path(done.rejects),
        notes=list(done.notes),
        warnings=list(warnings(accounts, unused.answers.total(), unused.labels)),
    )


def _model(one: SeriesView, done: Replayed) -> ModelOutcome:
    series = one.task, one.model, one.group
    newest = leading_estimate(one.estimates, one.share, AVERAGE_CONFIDENCE)
    wanted = (one.share, "realised")
    realised = next((e for e in one.estimates if (e.metric, e.estimator) == wanted), None)
    unknown = "" if newest is None or isinstance(newest.result, Estimate) else newest.result.reason
    return ModelOutcome(
        task=one.task,
        model=one.model,
        group=one.group,
        version=one.version,
        windows=one.windows_closed,
        state=one.state,
        improved=[chart.metric for chart in one.charts if chart.verdict.improved],
        confidences_moved=any(chart.confidences_moved for chart in one.charts),
        share=one.share,
        accuracy=_interval(newest),
        accuracy_unknown=unknown,
        realised=_interval(realised),
        objectives=[ObjectiveOutcome(metric=each.metric, state=each.state) for each in one.objectives],
        alarms=[_alarms(metric, raised) for metric, raised in done.alarms.get(series, {}).items()],
        broken_features=[
            FeatureOutcome(
                worst=each.worst,
                windows=each.windows,
                first_window=each.window,
                first_time=rfc3339(each.time),
            )
            for each in done.faults.get(series, ())
        ],
        coverage=one.coverage,
    )


def _interval(estimate: MetricEstimate | None) -> Interval | None:
    if estimate is None or not isinstance(estimate.result, Estimate):
        return None
    result = estimate.result
    return Interval(value=result.value, lower=result.lower, upper=result.upper, rows=result.n)


def _alarms(metric: str, raised: Sequence[Alarm]) -> AlarmOutcome:
    return AlarmOutcome(
        metric=metric,
        alarms=len(raised),
        first_window=raised[0].window,
        first_time=rfc3339(raised[0].time),
        on=raised[-1].ended_window is None,
    )


class LabelsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `labels ask --json`. With `--for`, `rounds` has the content, and `models` is empty."""

    records: Annotated[list[dict[str, Any]], Meta(description="The records to complete with labels.")]
    models: list[ModelForecast]
    rounds: list[RoundForecast]
    remarks: list[str]


def labels_document(selection: LabelSelection) -> LabelsDocument:
    """Return the JSON document of a selection of answers to label."""
    return LabelsDocument(
        records=selection.records,
        models=[each for each in selection.forecasts if isinstance(each, ModelForecast)],
        rounds=[each for each in selection.forecasts if isinstance(each, RoundForecast)],
        remarks=list(selection.remarks),
    )


class WindowDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a window whose recomputed value differs from its reported value."""

    task: str
    model: str
    group: str
    window: int
    field: str
    reported: str
    recomputed: str


class NotRecomputed(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of checked windows that were not recomputed."""

    times: Annotated[int, Meta(description="Windows whose times were not compared.")]
    interval_ends: Annotated[int, Meta(description="Intervals that labels moved.")]
    comparison_estimates: int
    estimates_from_labels: int
    corrected_estimates: int


class VerifyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `verify --json`."""

    clean: Annotated[bool, Meta(description="Whether windows were checked, and all are equal.")]
    equal: int
    different: int
    differences: Annotated[list[WindowDifference], Meta(description="The first ten.")]
    missing: Annotated[Counts, Meta(description="Windows whose rows are not in the input, by reason.")]
    not_checkable: Annotated[Counts, Meta(description="Windows that cannot be recomputed, by reason.")]
    not_recomputed: NotRecomputed


def verify_document(findings: Findings) -> VerifyDocument:
    """Return the JSON document of a verification."""
    return VerifyDocument(
        clean=findings.clean,
        equal=findings.equal,
        different=findings.different,
        differences=[
            WindowDifference(
                task=each.series[0],
                model=each.series[1],
                group=each.series[2],
                window=each.window,
                field=each.field,
                reported=each.reported,
                recomputed=each.recomputed,
            )
            for each in findings.first
        ],
        missing=dict(findings.missing),
        not_checkable=dict(findings.not_checkable),
        not_recomputed=NotRecomputed(
            times=findings.untimed,
            interval_ends=findings.informed,
            comparison_estimates=findings.rivals,
            estimates_from_labels=findings.realised,
            corrected_estimates=findings.corrected,
        ),
    )


DOCUMENTS: Mapping[str, type[msgspec.Struct]] = {
    "check": CheckDocument,
    "doctor": DoctorDocument,
    "replay": ReplayDocument,
    "backtest": BacktestDocument,
    "labels": LabelsDocument,
    "verify": VerifyDocument,
}
"""The type of each document, by its command."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, a key of `DOCUMENTS`."""
    root = msgspec.json.schema(DOCUMENTS[name])
    for each in root["$defs"].values():
        each["description"] = each["description"].partition("\n\n")[0]
    return root


def _path(path: Path) -> str:
    """Return a path as text. Bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def to_json(document: msgspec.Struct) -> str:
    """Return a document as JSON text. NaN becomes null."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
