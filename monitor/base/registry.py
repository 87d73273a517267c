"""The tables of task kinds, estimators, calibrations, charts, sources and formats.

Each kind, estimator and so on has a line in its table. A line contains the tag that configurations, reports
and metrics use, the import path of the code, and a description. The code is imported when it is first used,
so reading a configuration imports none of it. The choices in the schema, the messages, the pages in `docs`
and the contract tests are made from these tables. Metric families have a separate table,
`monitor.export.prometheus.families`.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypeVar

from monitor.base.errors import MissingExtraError

_E = TypeVar("_E", bound="Entry")
_T = TypeVar("_T")


def load(path: str) -> Any:
    """Import and return the object with the path ``package.module:name``.

    Examples
    --------
    >>> load("monitor.base.results:Estimate").__name__
    'Estimate'
    """
    module, _, names = path.partition(":")
    return attrgetter(names)(importlib.import_module(module))


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the distribution, which installs optional packages.

    Parameters
    ----------
    name : str
    packages : tuple of str
        The import names of the extra's packages.

    Examples
    --------
    >>> Extra("kafka-codecs", ("no_such_package",)).require("Reading a topic")
    Traceback (most recent call last):
        ...
    monitor.base.errors.MissingExtraError: Reading a topic needs an optional package: pip install 'blindsight[kafka-codecs]' (from a checkout: pip install '.[kafka-codecs]')
    """  # noqa: E501 - the line is the thing shown

    name: str
    packages: tuple[str, ...]

    def require(self, what: str) -> None:
        """Raise MissingExtraError if a package of the extra is not installed.

        The packages are not imported.

        Parameters
        ----------
        what : str
            The feature that needs the packages, as the subject of a sentence.
        """
        try:
            missing = any(importlib.util.find_spec(package) is None for package in self.packages)
        except ModuleNotFoundError:  # the parent package is missing
            missing = True
        if missing:
            raise MissingExtraError(what, self.name)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of one of the tables of this module, under the tag that configurations and reports use.

    Parameters
    ----------
    path : str
        The import path of the code, such as ``package.module:name``.
    text : str
        A description for the JSON Schema and `docs/configuration.md`, as a clause without a full stop.
    """

    path: str
    text: str


class TablePart(Mapping[str, _E]):
    """A live view of the lines of a table that fulfil a condition."""

    def __init__(self, table: Mapping[str, _E], holds: Callable[[_E], bool]) -> None:
        self._table, self._holds = table, holds

    def __getitem__(self, tag: str) -> _E:
        if not self._holds(self._table[tag]):
            raise KeyError(tag)
        return self._table[tag]

    def __iter__(self) -> Iterator[str]:
        return (tag for tag, entry in self._table.items() if self._holds(entry))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Classes(Mapping[str, _T]):
    """A mapping from the tags of a table to the code. The code is imported when its tag is first looked up.

    Parameters
    ----------
    table : mapping of str to Entry
        The table. It is read at each look-up, so lines may be added later.
    convert : callable, optional
        Takes the imported object, and returns the value of the mapping. By default, the value is the object.

    Examples
    --------
    >>> results = Classes({"estimate": Entry("monitor.base.results:Estimate", "a value")})
    >>> list(results), results["estimate"].__name__, "other" in results
    (['estimate'], 'Estimate', False)
    """

    def __init__(self, table: Mapping[str, Entry], convert: Callable[[Any], _T] = lambda code: code) -> None:
        self._table, self._convert = table, convert

    def __getitem__(self, tag: str) -> _T:
        return self._convert(load(self._table[tag].path))

    def __contains__(self, tag: object) -> bool:  # Mapping's method would import the code
        return tag in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"Classes({', '.join(self)})"


@dataclass(frozen=True, slots=True)
class TaskKind(Entry):
    """A line of the table `TASK_KINDS`. Its tag is a value of `tasks.*.kind` in the configuration.

    Parameters
    ----------
    path : str
        The import path of a subclass of `monitor.engine.task_logic.TaskLogic`.
    section : str
        The import path of the task's section of the configuration, a `monitor.config.task.TaskSection`.
    answers, labels : str
        The import paths of the functions that convert columns of records to a `Batch` of answers, and to a
        `LabelBatch`.
    line : str
        The import path of the class of a closed window's JSON line.
    fields : tuple of str
        The fields that only records of this kind have. If no task of this kind is configured, these fields
        are ignored.
    marks : tuple of str
        The fields that mark a record as a record of this kind, if the record names no task.
    piece : str
        The prefix of the name under which the state of a task is saved (``task`` in ``task/toxicity``). With
        an appended ``s``, it is the name of a field of `EngineState`.
    rings : (str, str)
        The prefixes of the names of the rings (`monitor.base.state_changes`) with answers and with labels.
    references : str
        The import path of the function that makes the `Reference` of each model from the labelled answers of
        the reference file and the task's section. Empty if the kind has no reference.
    page, rows : str
        The import paths of the functions that yield the HTML and the metric rows of a task's `TaskView`.
        Empty if each model has separate windows, because a `SeriesView` describes each model.
    """

    section: str
    answers: str
    labels: str
    line: str
    fields: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    piece: str = "task"
    rings: tuple[str, str] = ("answers", "labels")
    references: str = ""
    page: str = ""
    rows: str = ""


@dataclass(frozen=True, slots=True)
class EstimatorEntry(Entry):
    """A line of the table `ESTIMATORS`.

    Parameters
    ----------
    needs : {"confidences", "reference", "labels", "refit"}
        The input of the estimator. ``"confidences"``: the confidences of a window. ``"reference"``: these
        confidences, and a fit on the labelled reference. ``"labels"``: the labels of the window. ``"refit"``:
        a refit on the scores of several models and all labels so far.
    by_labels : bool
        Whether the error of the estimates comes only from the labels. If so, the estimator can rank models
        and uses the weights of labels.
    brings : tuple of str
        The tags of estimators that are always reported together with this one.
    charted : bool
        Whether charts and objectives may judge the accuracy by this estimator.
    extra : Extra, optional
        The extra that installs the packages that only this estimator needs; None if there are none.
    """

    needs: Literal["confidences", "reference", "labels", "refit"]
    by_labels: bool = False
    brings: tuple[str, ...] = ()
    charted: bool = False
    extra: Extra | None = None


@dataclass(frozen=True, slots=True)
class ChartEntry(Entry):
    """A line of the table `CHARTS`, for a kind of control chart.

    Parameters
    ----------
    keys : tuple of str
        The keys of `chart` in the configuration that this kind accepts besides `arl0` and `sigmas`.
    """

    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CalibrationEntry(Entry):
    """A line of the table `CALIBRATIONS`, for a calibration method.

    Parameters
    ----------
    refitted : bool
        Whether only refits fit the calibration. If so, `path` is the path of the fitted calibration.
        Otherwise it is the path of the `Calibrator`.
    chooses : bool
        Whether the method selects one of the other methods. The fitted calibration has the name of the
        selected method.
    """

    refitted: bool = False
    chooses: bool = False


@dataclass(frozen=True, slots=True)
class SourceEntry(Entry):
    """A line of the table `SOURCES`, for a kind of source.

    Parameters
    ----------
    path : str
        The import path of a subclass of `monitor.base.source.Source`.
    section : str
        The import path of the source's section of the configuration, a
        `monitor.config.sources.SourceSection`.
    extra : Extra, optional
        The extra that installs the client library; None if the distribution installs it.
    """

    section: str
    extra: Extra | None = None


@dataclass(frozen=True, slots=True)
class FormatEntry(Entry):
    """A line of the table `FORMATS`. Its tag is a value of `mapping.format` in the configuration.

    Parameters
    ----------
    path : str
        The import path of a subclass of `connectors.formats.wires.wire.Wire`, whose argument is the mapping.
    paths : bool
        Whether the mapping contains the paths of the fields. If not, the format defines them.
    numbers_rows : bool
        Whether the id of an answer is the id of its request, a colon and the row's number from 0.
    ids : tuple of str
        Words that `mapping.id` accepts although the mapping has no paths. They choose one of several ids.
    marks : tuple of tuple of str
        Sets of fields that mark a record of this format if there is no mapping. Such a record has all fields
        of one of these sets, and no field that marks a record of Blindsight's own format.
    holds_records : bool
        Whether each event contains a record that may have another format.
    columns : tuple of str
        The columns to read from a table with records of this format. If empty, all columns are read.
    """

    paths: bool = True
    numbers_rows: bool = False
    ids: tuple[str, ...] = ()
    marks: tuple[tuple[str, ...], ...] = ()
    holds_records: bool = False
    columns: tuple[str, ...] = ()

    @property
    def needs_no_mapping(self) -> bool:
        """True if a configuration with the name of the format needs no mapping of fields."""
        return not self.paths or self.holds_records


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """A line of the table `METRICS`, for a metric that charts judge.

    Parameters
    ----------
    better : {1, -1, 0}
        1 if larger values are better, -1 if smaller values are better. 0 if neither is better, as for a
        prevalence. A change in either direction then raises an alarm.
    min_change : float
        The default for the smallest change that raises an alarm, in the unit of the metric.
    pages : bool
        Whether an alarm of the metric's chart also raises an alert.
    words : str
        The name in sentences; by default, the name in the configuration with spaces instead of underscores.
    scale : {"ratio", "logarithm", "identity"}
        The scale on which charts judge the metric. `ratio` is for values of 0 to 1, and the other two are for
        metrics of errors: `logarithm` for those that vary by a share of their size.
    """

    better: int
    min_change: float = 0.0
    pages: bool = True
    words: str = ""
    scale: Literal["ratio", "logarithm", "identity"] = "ratio"

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value on the scale of the chart."""
        return _BOUNDS[self.scale]


_BOUNDS = {"ratio": (0.0, 1.0), "logarithm": (-700.0, 700.0), "identity": (-math.inf, math.inf)}


_STATS = "monitor.stats"
_JOINT = ("ensemble", "labelled", "realised_cohort")

TASK_KINDS: dict[str, TaskKind] = {
    "classification": TaskKind(
        "monitor.engine.task:TaskEngine",
        "each answer has scores of classes, or a confidence",
        section="monitor.config.task:Task",
        answers="connectors.formats.decode.answers:read_answers",
        labels="connectors.formats.decode.truth:read_labels",
        line="monitor.reports.window_report:WindowLine",
        references="monitor.engine.reference:references_of",
    ),
    "arena": TaskKind(
        "monitor.engine.arena.engine:ArenaEngine",
        "the models are compared in pairs, by humans and a judge",
        section="monitor.config.arena:Arena",
        answers="connectors.formats.decode.comparisons:read_comparisons",
        labels="connectors.formats.decode.comparisons:read_verdicts",
        line="monitor.reports.arena_report:ArenaLine",
        fields=("model_a", "model_b", "winner", "judge_winner", "judge_b"),
        marks=("model_a", "model_b", "winner"),
        piece="arena",
        rings=("comparisons", "verdicts"),
        page="monitor.export.page.arenas:arena",
        rows="monitor.export.prometheus.arenas:arena_rows",
    ),
    "regression": TaskKind(
        "monitor.engine.regression:RegressionEngine",
        "each answer is a number, which is right within a tolerance",
        section="monitor.config.regression:Regression",
        answers="connectors.formats.decode.answers:read_answers",
        labels="connectors.formats.decode.truth:read_labels",
        line="monitor.reports.window_report:WindowLine",
        fields=("sigma", "quantiles"),
        marks=("sigma", "quantiles"),
        references="monitor.engine.regression:references_of_numbers",
    ),
}
"""All kinds of tasks, by tag."""
WHOLE_TASKS = TablePart(TASK_KINDS, lambda entry: bool(entry.page))
"""Kinds of tasks whose models have their windows in common."""

ESTIMATORS: dict[str, EstimatorEntry] = {
    "average_confidence": EstimatorEntry(
        f"{_STATS}.estimate.average_confidence:average_confidence",
        "the mean of the calibrated confidences, without labels (also reports corrected)",
        "confidences",
        brings=("corrected",),
        charted=True,
    ),
    "corrected": EstimatorEntry(
        f"{_STATS}.estimate.corrected:CorrectionLogic.estimate",
        "average_confidence, corrected by all labels so far; from the first label on, accuracy only",
        "labels",
    ),
    "cbpe_sem": EstimatorEntry(
        f"{_STATS}.rivals.cbpe_sem:cbpe_sem",
        "average_confidence with the interval of NannyML, for comparison",
        "reference",
    ),
    "doc": EstimatorEntry(
        f"{_STATS}.rivals.doc:DoCFeat",
        "the accuracy of the labelled reference plus the change of the mean confidence; accuracy only",
        "reference",
        charted=True,
    ),
    "atc": EstimatorEntry(
        f"{_STATS}.rivals.atc:ATC",
        "the share of confidences above a threshold, which is fitted on the labels of the reference; "
        "accuracy only",
        "reference",
        charted=True,
    ),
    "realised": EstimatorEntry(
        "monitor.engine.labels.tally:Tally.realised",
        "the value among the labelled answers of each window",
        "labels",
    ),
    "realised_cohort": EstimatorEntry(
        "monitor.engine.labels.tally:Tally.realised_cohort",
        "the value among the labelled answers of the newest windows that have 200 labels together",
        "labels",
    ),
    "realised_horizon": EstimatorEntry(
        "monitor.engine.labels.tally:Tally.realised_horizon",
        "the value among the labelled answers of the last horizon_days",
        "labels",
    ),
    "ssme": EstimatorEntry(
        f"{_STATS}.labelled.ssme:SSME",
        "from the scores of all models and the labels; the labels decide how several hypotheses are weighted "
        "(also reports ensemble, labelled and realised_cohort, as ssme_paper does)",
        "refit",
        brings=_JOINT,
    ),
    "ssme_paper": EstimatorEntry(
        f"{_STATS}.rivals.ssme_paper:SSMEPaper",
        "SSME as published: kernel densities of all scores, fitted by EM",
        "refit",
        brings=_JOINT,
    ),
    "ensemble": EstimatorEntry(
        f"{_STATS}.labelled.ensemble:Ensemble", "the mean of the models' scores", "refit"
    ),
    "labelled": EstimatorEntry(
        f"{_STATS}.labelled.labelled:Labelled", "the labelled rows alone", "refit", by_labels=True
    ),
    "pseudo_label": EstimatorEntry(
        f"{_STATS}.rivals.pseudo_label:PseudoLabel",
        "a logistic regression of the labels on the scores",
        "refit",
    ),
    "majority_vote": EstimatorEntry(
        f"{_STATS}.rivals.majority_vote:MajorityVote", "the models' vote, weighted by accuracy", "refit"
    ),
    "dawid_skene": EstimatorEntry(
        f"{_STATS}.rivals.dawid_skene:DawidSkene", "a confusion matrix for each model, fitted by EM", "refit"
    ),
    "bayesian_calibration": EstimatorEntry(
        f"{_STATS}.rivals.bayesian_calibration:BayesianCalibration",
        "a beta calibration for each model, with a prior, for two classes",
        "refit",
    ),
    "rectified": EstimatorEntry(
        f"{_STATS}.labelled.rectified:Rectified",
        "PPI++ with ssme as the annotator",
        "refit",
        by_labels=True,
    ),
    "autoeval": EstimatorEntry(
        f"{_STATS}.labelled.autoeval:AutoEval",
        "PPI++ with the models as annotators; accuracy only",
        "refit",
        by_labels=True,
    ),
    "active_testing": EstimatorEntry(
        f"{_STATS}.labelled.active_testing:ActiveTesting",
        "from labels of answers that are drawn one after another with known probabilities; accuracy only",
        "refit",
    ),
    "ssme_flow": EstimatorEntry(
        f"{_STATS}.rivals.ssme_flow:SSMEFlow",
        "a normalizing flow of all scores (needs the extra flow)",
        "refit",
        extra=Extra("flow", ("jax", "equinox", "optax", "paramax", "flowjax")),
    ),
    "spe": EstimatorEntry(f"{_STATS}.rivals.spe:SPE", "two parametric densities for each model", "refit"),
}
"""All estimators by tag, in the order of reports."""
COMPARISON_ESTIMATORS = TablePart(ESTIMATORS, lambda entry: entry.needs == "reference")
"""Estimators that are fitted on the labelled reference, for comparison."""
REFITTED = TablePart(ESTIMATORS, lambda entry: entry.needs == "refit")
CHARTED = TablePart(ESTIMATORS, lambda entry: entry.charted)
BY_LABELS = TablePart(ESTIMATORS, lambda entry: entry.by_labels)


def estimators_by_input(tags: Iterable[str], needs: str) -> tuple[str, ...]:
    """Return the estimators with this kind of input among `tags` and among the estimators that these add.

    Parameters
    ----------
    tags : iterable of str
        Tags of estimators. An unknown tag is ignored.
    needs : str
        The input: see `EstimatorEntry`.

    Examples
    --------
    >>> estimators_by_input(["average_confidence", "ssme"], "refit"), estimators_by_input(["ssme"], "labels")
    (('ssme', 'ensemble', 'labelled'), ('realised_cohort',))
    """
    known = [tag for tag in tags if tag in ESTIMATORS]
    reported = {*known, *(other for tag in known for other in ESTIMATORS[tag].brings)}
    return tuple(tag for tag, entry in ESTIMATORS.items() if tag in reported and entry.needs == needs)


CALIBRATIONS: dict[str, CalibrationEntry] = {
    "none": CalibrationEntry(f"{_STATS}.calibration.none:NoCalibrator", "uses the raw scores"),
    "auto": CalibrationEntry(
        f"{_STATS}.calibration.auto:AutoCalibrator",
        "the method with the least log loss on rows outside its fit",
        chooses=True,
    ),
    "isotonic": CalibrationEntry(
        f"{_STATS}.calibration.isotonic:IsotonicCalibrator", "a curve of any form that rises"
    ),
    "platt": CalibrationEntry(f"{_STATS}.calibration.platt:PlattCalibrator", "a smooth curve of two numbers"),
    "beta": CalibrationEntry(f"{_STATS}.calibration.beta:BetaCalibrator", "a smooth curve of three numbers"),
    "temperature": CalibrationEntry(
        f"{_STATS}.calibration.temperature:TemperatureCalibrator",
        "a smooth curve of one number for all classes",
    ),
    "vector": CalibrationEntry(
        f"{_STATS}.calibration.vector:VectorCalibrator",
        "a curve for all classes together, of two numbers for each class",
    ),
    "ssme": CalibrationEntry(
        f"{_STATS}.calibration.ssme:SSMECalibration",
        "refitted, as labels come, on the scores of all models and the labels; isotonic on the reference "
        "until the first refit",
        refitted=True,
    ),
    "covariates": CalibrationEntry(
        f"{_STATS}.calibration.covariates:CovariatesCalibration",
        "isotonic, fitted for each window, with more weight on rows of the reference whose features are like "
        "those of the window; for covariate shift",
        refitted=True,
    ),
}
"""All calibration methods, by tag."""
FITTED_ON_REFERENCE = TablePart(CALIBRATIONS, lambda entry: not entry.refitted)
CALIBRATING = TablePart(CALIBRATIONS, lambda entry: not entry.chooses)
"""Methods that have a calibration of their own; `auto` takes that of another method."""

CHARTS: dict[str, ChartEntry] = {
    "shewhart": ChartEntry(
        f"{_STATS}.charts.shewhart:Shewhart",
        "a Shewhart chart, with limits from the variation of the estimate in the reference",
        ("rules",),
    ),
    "shewhart_p": ChartEntry(
        f"{_STATS}.charts.shewhart_p:ShewhartP",
        "the p-chart of textbooks, of the share of right answers; for the accuracy only (other metrics use "
        "shewhart)",
        ("rules",),
    ),
    "shewhart_np": ChartEntry(
        f"{_STATS}.charts.shewhart_p:ShewhartNp",
        "the np-chart: like shewhart_p, of the number of right answers",
        ("rules",),
    ),
    "laney": ChartEntry(
        f"{_STATS}.charts.laney:Laney",
        "like shewhart_p, with limits that the variation between windows widens",
        ("rules",),
    ),
    "ewma": ChartEntry(
        f"{_STATS}.charts.ewma:Ewma",
        "a moving average, which finds small lasting shifts sooner than shewhart",
        ("shift", "weight"),
    ),
    "cusum": ChartEntry(
        f"{_STATS}.charts.cusum:Cusum",
        "cumulative sums, which find small lasting shifts sooner than shewhart",
        ("shift",),
    ),
}
"""All kinds of control charts, by tag."""

SOURCES: dict[str, SourceEntry] = {
    "file": SourceEntry("connectors.files:FileSource", "a file", "monitor.config.sources:FileSourceConfig"),
    "stdin": SourceEntry(
        "connectors.stdin:StdinSource", "standard input", "monitor.config.sources:StdinSourceConfig"
    ),
    "kafka": SourceEntry(
        "connectors.kafka:KafkaSource", "Apache Kafka", "monitor.config.sources:KafkaSourceConfig"
    ),
    "http": SourceEntry(
        "connectors.http:HttpSource", "posts over HTTP", "monitor.config.http:HttpSourceConfig"
    ),
    "redis": SourceEntry(
        "connectors.redis_stream:RedisStream",
        "a Redis stream",
        "monitor.config.redis:RedisSourceConfig",
        extra=Extra("redis", ("redis",)),
    ),
    "sql": SourceEntry(
        "connectors.sql.source:SqlSource",
        "a table or a query of a database",
        "monitor.config.sql:SqlSourceConfig",
    ),
}
"""All kinds of sources, by tag."""

FORMATS: dict[str, FormatEntry] = {
    "kserve": FormatEntry(
        "connectors.formats.wires.kserve:KserveWire",
        "events of KServe's, MLServer's and Seldon's loggers, and responses of the protocols v1 and Open "
        "Inference, of Triton, MLflow and Seldon; one answer for each row; needs no paths",
        paths=False,
        numbers_rows=True,
        ids=("body",),
        marks=(("specversion",), ("predictions",), ("outputs",), ("data", "meta")),
    ),
    "sagemaker": FormatEntry(
        "connectors.formats.wires.sagemaker:SagemakerWire",
        "SageMaker's data capture and its ground truth; one answer for each row; needs no paths",
        paths=False,
        numbers_rows=True,
        marks=(("captureData", "eventMetadata"), ("groundTruthData", "eventMetadata")),
        columns=("captureData", "groundTruthData", "eventMetadata"),
    ),
    "inference_table": FormatEntry(
        "connectors.formats.wires.inference_table:InferenceTableWire",
        "rows of Databricks' inference tables, which have the response of MLflow's serving as text in one "
        "field; one answer for each row of the response; needs no paths",
        paths=False,
        numbers_rows=True,
        marks=(("databricks_request_id", "response"),),
        columns=(
            *("databricks_request_id", "client_request_id", "status_code", "response"),
            *("request_metadata", "timestamp_ms", "request_time"),
        ),
    ),
    "debezium": FormatEntry(
        "connectors.formats.wires.debezium:DebeziumWire",
        "Debezium's change events, without deletes. Paths begin at the row; without paths, the row is the "
        "record",
        marks=(("op", "after"), ("op", "before"), ("payload", "schema")),
        holds_records=True,
    ),
    "cloudevents": FormatEntry(
        "connectors.formats.wires.mapped:MappedWire",
        "CloudEvents in any mode; paths refer to the event as structured JSON (id, data.probs)",
    ),
}
"""All wire formats, by tag."""

METRICS: dict[str, MetricEntry] = {
    "accuracy": MetricEntry(1, min_change=0.01),
    "within_tolerance": MetricEntry(1, min_change=0.01, words="share within tolerance"),
    "ece": MetricEntry(-1, pages=False, words="calibration error"),
    "class_ece": MetricEntry(-1, pages=False, words="calibration error by class"),
    "precision": MetricEntry(1),
    "recall": MetricEntry(1),
    "specificity": MetricEntry(1),
    "f1": MetricEntry(1, words="F1"),
    "auroc": MetricEntry(1, words="AUROC"),
    "average_precision": MetricEntry(1),
    "mae": MetricEntry(-1, pages=False, scale="logarithm"),
    "rmse": MetricEntry(-1, pages=False, scale="logarithm"),
    "bias": MetricEntry(0, pages=False, scale="identity"),
    "mape": MetricEntry(-1, pages=False, scale="logarithm", words="MAPE"),
    "wape": MetricEntry(-1, pages=False, scale="logarithm", words="WAPE"),
    "coverage": MetricEntry(0, pages=False, scale="identity"),
    "r2": MetricEntry(1, pages=False, scale="identity", words="R²"),
}
"""All metrics that charts judge, by name."""

SHARES = ("accuracy", "within_tolerance")
"""The metrics that are the share of right answers, which the mean confidence estimates; a task has one."""

TABLES: Mapping[str, Mapping[str, Entry]] = {
    "tasks": TASK_KINDS,
    "estimators": ESTIMATORS,
    "calibrations": CALIBRATIONS,
    "charts": CHARTS,
    "sources": SOURCES,
    "formats": FORMATS,
}
"""All tables, by the kind of their lines."""


def metric_words(metric: str) -> str:
    """Return the name of a metric in words.

    Examples
    --------
    >>> metric_words("ece"), metric_words("average_precision"), metric_words("accuracy")
    ('calibration error', 'average precision', 'accuracy')
    """
    entry = METRICS.get(metric)
    return (entry.words if entry else "") or metric.replace("_", " ")
