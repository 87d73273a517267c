"""The class `Monitor`, which reads a labelled reference and estimates frames with the engine of `replay`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import yaml

from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.structs import Record
from connectors.formats.files.reference import reference_rows
from connectors.formats.files.table_rows import read_table
from connectors.formats.files.tables import ROWS
from connectors.formats.wires.mapped import MappedWire
from monitor.base.errors import ConfigError, SinkError
from monitor.base.records import FeatureKind
from monitor.base.registry import TASK_KINDS, load
from monitor.base.source import RawTable
from monitor.cli.examine import no_probabilities
from monitor.cli.init import answers_a_day, are_numbers, fitting_age, fitting_size
from monitor.cli.replay import unused_of
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import config_from
from monitor.config.layouts import layouts
from monitor.config.mapping import FieldMapping
from monitor.config.root import Config
from monitor.config.task import MOST_FEATURES, Task
from monitor.engine.engine import EngineSettings
from monitor.export.page.period import Period
from monitor.export.sinks.line_file import cannot_write
from monitor.notebook.estimates import MonitorResult
from monitor.notebook.frames import Cells, ReadFrame, with_nan
from monitor.parallel.planning import Facts
from monitor.reports.window_report import WindowReport

_NEAR = 0.05
"""The allowed difference, in addition to chance, between a class's mean probability and the class's share."""


class Monitor:
    """A monitor of a classifier or a regressor that estimates its quality on answers without labels.

    A monitor computes the same numbers as `blindsight replay`. A labelled reference calibrates the scores and
    sets the control limits. Each estimated frame is a separate stream: its rows fill one window after
    another, in their order.

    Parameters
    ----------
    classes : sequence of str, int or bool
        The classes in the order of the scores; empty if the model gives only a confidence, or predicts a
        number.
    task, model : str
        The names of the task and of the model in results and in the configuration.
    window : int or mapping, optional
        The number of rows of a window, or the section `window` of a task. By default the size is chosen so
        that the reference has 20 windows, but from 50 to 500 rows.
    **settings
        The other keys of a task (`docs/configuration.md`): ``positive="toxic"``, ``metrics=["accuracy",
        "recall"]``, ``objective={"accuracy": {"min": 0.9}}``, ``calibration={"method": "beta"}``, …; names in
        `groups` and `features` are columns of the frames. If the model predicts a number,
        ``kind="regression"``, with ``tolerance=15`` (`docs/regression.md`).

    Raises
    ------
    ConfigError
        A setting is unknown or wrong; the message lists every problem.

    Notes
    -----
    Estimates mislead if the relation between scores and truth has changed (concept drift), which is invisible
    without labels: see `docs/assumptions.md`. Labels in an estimated frame are treated as if they arrived
    together with the answers. As in the daemon, they change the intervals and refit the calibration.

    A monitor has one model, so its results have no changes that several models share; `blindsight replay` of
    a file with all models has them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p = np.where(rng.random(10_000) < 0.8, rng.beta(1, 9, 10_000), rng.beta(4, 3, 10_000))
    >>> reference = {"p_toxic": p, "truth": np.where(rng.random(10_000) < p, "toxic", "ok")}
    >>> monitor = Monitor(classes=["ok", "toxic"]).fit(reference, scores="p_toxic", label="truth")
    >>> result = monitor.estimate({"p_toxic": np.append(p[:5_000], rng.beta(4, 3, 5_000))})
    >>> result
    MonitorResult: 1 model is out of control. task/model: accuracy fell from 85 to about 64 % (58 to 70), in
    the newest window (20 closed); alarms: accuracy in window 10, ece in window 10
    >>> result.alarms[0].metric, result.alarms[0].window
    ('accuracy', 10)

    A regressor, of which the share of errors up to 2 is estimated:

    >>> x = rng.normal(size=10_000)
    >>> reference = {"x": x, "hat": 3 * x, "y": 3 * x + np.exp(x / 2) * rng.normal(size=10_000)}
    >>> monitor = Monitor(kind="regression", tolerance=2)
    >>> monitor = monitor.fit(reference, prediction="hat", label="y", features=["x"])
    >>> monitor.estimate({"x": x + 1, "hat": 3 * x + 3}).alarms[0].metric
    'within_tolerance'
    """

    def __init__(
        self,
        classes: Sequence[object] = (),
        *,
        task: str = "task",
        model: str = "model",
        window: int | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(classes, str):
            raise ConfigError(f"classes: expected a list of classes, got the text {classes!r}")
        if "reference" in settings:
            raise ConfigError("reference: expected no such setting: fit takes the reference")
        if "quantiles" in settings:
            raise ConfigError("quantiles: expected no such setting: fit takes the columns by level")
        if "positive" in settings:
            settings["positive"] = _class_name(settings["positive"])
        self.classes = tuple(map(_class_name, classes))
        self.task, self.model = task, model
        self._window, self._settings = window, settings
        self._fitted: _Fitted | None = None
        self._features: dict[str, FeatureKind] = {}  # of `fit`
        # `fit` gives the levels; two stand in for them, because the metric coverage needs levels.
        self._levels: tuple[str, ...] = ("0.05", "0.95") if settings.get("kind") == "regression" else ()
        draft = self._config(self.classes, {} if window is None else self._sized(0, None))
        self._numeric = draft.scored_tasks[task].layout.numeric

    def fit(
        self,
        reference: Any,
        *,
        scores: str | Sequence[str] | Mapping[Any, str] | None = None,
        label: str,
        confidence: str | None = None,
        prediction: str | None = None,
        time: str | None = None,
        time_zone: str = "UTC",
        version: str | None = None,
        features: Sequence[str] | Literal["auto"] = (),
        sigma: str | None = None,
        quantiles: Mapping[float, str] | None = None,
    ) -> Monitor:
        """Read a labelled reference from a time when the model was known to be good, and return the monitor.

        Frames that are estimated later must have the columns that this call names, except the label.

        Parameters
        ----------
        reference : frame or dict of arrays
            A frame of pandas, polars or Arrow, or a dict. Rows without a label are skipped.
        scores : str, sequence of str, or mapping of class to str
            The columns with probabilities from 0 to 1. They are a column for each class, in the order of the
            classes or by class, or one column of lists. For two classes, they may also be one column with the
            probability of the second class. By default, without `confidence`, the columns have the names of
            the classes.
        label : str
            The column of the true class, or of the true number of a regression. Otherwise without `classes`,
            a column that is true for right answers.
        confidence : str, optional
            Column of the probability that the answer is right, in place of `scores`. With `classes`,
            `prediction` is required too.
        prediction : str, optional
            Column of the predicted class, if this is not always the most probable class. A regression
            requires it: the column of the predicted number.
        time : str, optional
            The column of times: times with an offset, times in `time_zone`, or seconds since the epoch. If
            absent, windows have no times.
        time_zone : str
            Zone of times without an offset.
        version : str, optional
            Column of the model's version.
        features : sequence of str, or "auto"
            The columns of features, by which windows are compared with the reference. A feature is a number
            if all its values are numbers, else a text. With "auto", all columns are features that neither
            another argument nor `groups` names, except texts that differ in each row; if there are more than
            64, the first 64. By default, the columns of the setting `features` are used.
        sigma : str, optional
            Column of the standard deviation of the error that a regressor states for each answer.
        quantiles : mapping of float to str, optional
            The columns of the quantiles that a regressor states, by level: ``{0.05: "low", 0.95: "high"}``.

        Raises
        ------
        ConfigError
            A column is missing, its values are not probabilities or classes, a row cannot be used, or the
            reference is not sufficient for the calibration or the charts. The message says what to do.
        MissingExtraError
            The extra `notebook` is not installed.
        """
        if scores is None and confidence is None and self.classes:
            scores = self.classes  # as in a frame of predict_proba with columns=model.classes_
        named = _named(confidence=confidence, label=label, prediction=prediction, time=time, version=version)
        levels = {f"quantiles.{level}": column for level, column in (quantiles or {}).items()}
        named |= _named(sigma=sigma, **levels)
        self._refuse_arguments(named, scores is not None)
        self._levels = tuple(map(str, sorted(quantiles or ())))
        classes = self.classes if confidence is None else ()
        self._take_features(reference, features, self._places(scores) | named)
        draft = self._config(classes, self._sized(0, None)).scored_tasks[self.task]
        places = self._places(scores) | named
        places |= {f"groups.{name}": name for name in draft.groups}
        places |= {f"features.{name}": name for name in draft.features}
        columns = self._read(reference, "reference", places)
        self._refuse(columns, places)
        self._refuse_unknown(columns, places)
        wire = MappedWire(self._mapping(places, time_zone))
        tables = tuple(map(wire.map_table, _tables(columns, "reference")))
        config, settings = self._try_reference(tables, draft, classes)
        self._fitted = _Fitted(config, settings, wire, places, tables)
        return self

    def estimate(self, frame: Any, labels: bool = True) -> MonitorResult:
        """Estimate the model's quality in each window of a frame.

        Parameters
        ----------
        frame : frame or dict of arrays
            A frame with the columns that `fit` named. Rows that cannot be used are counted by reason, as in
            the daemon.
        labels : bool
            True to read the column of labels, if the frame has one.

        Raises
        ------
        ConfigError
            `fit` has not been called, a column is missing, or no row can be used; the message gives the
            reason.
        """
        if self._fitted is None:
            raise ConfigError("estimate: there is no reference yet; call fit with one first")
        fitted, places = self._fitted, self._fitted.places
        if not labels:
            places = {key: name for key, name in places.items() if key != "label"}
        columns = self._read(frame, "frame", places, optional=("label",))
        self._refuse_unknown(columns, places)
        engine = fitted.settings.build()
        decoder = Decoder(layouts(fitted.config.tasks), "frame", wire=fitted.wire)
        facts, reports = Facts(), list[WindowReport]()
        for table in _tables(columns, "frame"):
            chunk = decoder.decode([table])
            facts.note(chunk, "row")
            reports += engine.absorb(chunk, 0.0)
        unused = unused_of([facts])
        if unused.everything or not unused.received:
            self._refuse(columns, places)
            raise ConfigError(f"frame: no row can be used: {'; '.join(unused.first) or 'it has none'}")
        reports += engine.finish()
        period = Period.from_config(fitted.config)
        period.add(reports)
        return MonitorResult(
            fitted.to_config, tuple(reports), engine.view(), period, engine.labelled(), unused
        )

    def to_config(
        self, path: str | Path = "blindsight.yaml", source: str = "answers.ndjson", replace: bool = False
    ) -> Path:
        """Write the daemon's configuration, and the reference beside it; return the configuration's path.

        For a file with the columns of a frame, ``blindsight replay CONFIG FILE --out OUT`` gives the same
        numbers as `estimate` gives for the frame. ``blindsight run CONFIG`` watches `source`.

        Parameters
        ----------
        path : str or Path
            The configuration to write. The reference is written to ``NAME.reference.ndjson`` in the same
            folder.
        source : str
            The file that the daemon reads, relative to the folder of `path`. Its records have the fields that
            `fit` named.
        replace : bool
            True if existing files may be replaced.

        Raises
        ------
        ConfigError
            `fit` has not been called, or a file exists already.
        SinkError
            A file cannot be written.
        """
        if self._fitted is None:
            raise ConfigError("to_config: there is no reference yet; call fit with one first")
        return self._fitted.to_config(path, source, replace)

    def _refuse_arguments(self, named: Mapping[str, str], scored: bool) -> None:
        """Raise ConfigError for columns in `fit` that the kind of the task does not have, or lacks."""
        stated = [field for field in named if field.partition(".")[0] in ("sigma", "quantiles")]
        if self._numeric:
            if scored or "confidence" in named:
                got = "scores" if scored else "confidence"
                raise ConfigError(f"fit: expected prediction in a regression, got {got}: leave it out")
            if "prediction" not in named:
                raise ConfigError("fit: missing prediction, the column of the predicted number; give it")
            return
        if stated:
            raise ConfigError(
                f"fit: expected {stated[0].partition('.')[0]} in a regression only; leave it out, or give "
                'Monitor kind="regression"'
            )
        if scored == ("confidence" in named):
            got = "both" if scored else "neither"
            raise ConfigError(f"fit: expected either scores or confidence, got {got}")

    def _try_reference(
        self, tables: Sequence[RawTable], draft: Task, classes: Sequence[str]
    ) -> tuple[Config, EngineSettings]:
        """Return the configuration for a reference of these rows, and the settings of its engine.

        Parameters
        ----------
        tables : sequence of RawTable
            The rows of the reference, under Blindsight's names.
        draft : Task
            The task with windows of a provisional size.
        classes : sequence of str
            The classes of the task.
        """
        (layout,) = layouts({self.task: draft})
        batch = reference_rows("reference", tables, layout)
        config = self._config(classes, self._sized(len(batch), answers_a_day(batch.time)))
        task = config.scored_tasks[self.task]
        try:
            references = load(TASK_KINDS[task.kind].references)(batch, task)
        except ValueError as error:
            raise ConfigError(f"reference: {error}") from error
        trial = ReferenceTrial(config, references={self.task: references})
        return config, trial.engine_settings(event_time=True)

    def _read(
        self, frame: Any, what: str, places: Mapping[str, str], optional: Sequence[str] = ()
    ) -> dict[str, Cells]:
        """Return the columns of a frame by name, with NaN for missing scores or predicted numbers."""
        columns = ReadFrame(frame, what).columns(places, optional)
        answers = ("prediction",) if self._numeric else ("scores", "confidence")
        for field, name in places.items():
            if field.partition(".")[0] in answers:
                columns[name] = with_nan(columns[name])
        return columns

    def _take_features(
        self, reference: Any, features: Sequence[str] | Literal["auto"], places: Mapping[str, str]
    ) -> None:
        """Use these columns of the reference as the task's features."""
        self._features = {}
        if isinstance(features, str) and features != "auto":
            raise ConfigError(f'fit: expected features to be a list of columns or "auto", got {features!r}')
        if not features:
            return
        if self._settings.get("features"):
            raise ConfigError("fit: expected features here or in Monitor, got both: leave one out")
        frame = ReadFrame(reference, "reference")
        others = {*places.values(), *self._settings.get("groups", ())}
        auto = features == "auto"
        names = [name for name in frame.names if name not in others] if auto else features
        columns = frame.columns({f"features.{name}": name for name in names})
        kinds = {name: kind for name, cells in columns.items() if (kind := _kind_of(cells, auto))}
        self._features = dict(islice(kinds.items(), MOST_FEATURES if auto else None))

    def _sized(self, rows: int, a_day: float | None) -> dict[str, Any]:
        """Return the section `window` for a reference of this many rows, `a_day` of which arrive each day."""
        if isinstance(self._window, Mapping):
            return dict(self._window)
        size = fitting_size(rows) if self._window is None else self._window
        age = fitting_age(size, a_day) if isinstance(size, int) else 0
        return {"size": size} | ({"max_age_seconds": age} if age and age != fitting_age(size, None) else {})

    def _config(self, classes: Sequence[str], window: Mapping[str, Any]) -> Config:
        settings = self._settings | ({"features": self._features} if self._features else {})
        settings |= {"quantiles": list(map(float, self._levels))} if self._levels else {}
        if self.classes and not classes:  # a task of confidences has no positive class
            settings.pop("positive", None)
        task = {"classes": classes, "window": window, **settings, "reference": {"path": "reference"}}
        return config_from({"tasks": {self.task: task}}, name="This monitor")

    def _places(self, scores: str | Sequence[str] | Mapping[Any, str] | None) -> dict[str, str]:
        """Return the column of each field of scores (`scores`, or such as `scores.ok`)."""
        if scores is None:
            return {}
        if not self.classes:
            raise ConfigError("scores: expected classes=[…] to be given to Monitor, got none: name them")
        if isinstance(scores, str):
            return {"scores": scores}
        if isinstance(scores, Mapping):
            return {f"scores.{_class_name(name)}": str(column) for name, column in scores.items()}
        if len(scores) != len(self.classes):
            raise ConfigError(
                f"scores: expected a column for each of the {len(self.classes)} classes "
                f"({', '.join(self.classes)}), got {len(scores)}: {', '.join(map(str, scores))}"
            )
        return {f"scores.{name}": str(column) for name, column in zip(self.classes, scores, strict=True)}

    def _mapping(self, places: Mapping[str, str], time_zone: str) -> FieldMapping:
        """Return the mapping with which the daemon reads records that have the columns' names."""
        fields: dict[str, Any] = {"constants": {"model": self.model}}
        if "time" in places:
            fields["time_zone"] = time_zone
        for field, column in places.items():
            parent, _, name = field.partition(".")
            if name:
                parent = "class_scores" if parent == "scores" else parent
                fields.setdefault(parent, {})[name] = _path(column)
            else:
                fields[field] = _path(column)
        if "confidence" in places and not self.classes:
            fields["correct"] = fields.pop("label")
            fields.pop("prediction", None)
        named = {"tasks": {self.task: {}}, "sources": [{"kind": "stdin", "mapping": fields}]}
        (source,) = config_from(named, name="What fit was given").sources
        assert source.mapping is not None
        return source.mapping

    def _refuse(self, columns: Mapping[str, Cells], places: Mapping[str, str]) -> None:
        """Raise ConfigError for columns that no classifier produces, before rows are rejected one by one."""
        if self._numeric:
            return
        for field in ("label", "prediction"):
            cells = [cell for cell in columns.get(places.get(field, ""), ()) if cell is not None]
            if {_class_name(cell) for cell in cells} <= set(self.classes):
                continue
            if are_numbers(cells):
                raise ConfigError(
                    f"{places[field]}: expected classes, got numbers such as {cells[0]}: give Monitor "
                    'kind="regression" for predicted numbers (docs/regression.md)'
                )
        scored = [
            name for field, name in places.items() if field.partition(".")[0] in ("scores", "confidence")
        ]
        cells = columns[scored[0]]
        if len(scored) > 1:
            cells = [list(row) for row in zip(*(columns[name] for name in scored), strict=True)]
        for problem in no_probabilities(cells, ", ".join(scored)):
            raise ConfigError(problem)
        if "confidence" in places and self.classes:
            self._refuse_confidence(columns, places)

    def _refuse_confidence(self, columns: Mapping[str, Cells], places: Mapping[str, str]) -> None:
        """Raise ConfigError if `confidence` is the probability of a class, or if `prediction` is missing."""
        name, label = places["confidence"], places["label"]
        if label in columns and len(self.classes) == 2:
            positive = self._settings.get("positive", self.classes[-1])
            predicted = columns.get(places.get("prediction", ""), [None] * len(columns[name]))
            rows = [
                (
                    value,
                    _class_name(truth) == positive,
                    acted is not None and _class_name(acted) == _class_name(truth),
                )
                for value, truth, acted in zip(columns[name], columns[label], predicted, strict=True)
                if isinstance(value, int | float) and truth is not None
            ]
            if rows and (means := _of_one_class(np.array(rows, dtype=np.float64))):
                second = self.classes[1]
                remedy = "give it" if positive == second else f"give 1 less it, the probability of {second},"
                raise ConfigError(
                    f"{name}: expected the probability that the answer is right, got values below 0.5 whose "
                    f"mean, {means[0]:.3f}, is near the share of {positive} in the reference, {means[1]:.3f}:"
                    f" it is the probability of {positive}; {remedy} as scores, without confidence"
                )
        if "prediction" not in places:
            raise ConfigError(
                "confidence: missing prediction, the column with the class that was acted on; give it, or "
                "give the classes' probabilities as scores"
            )

    def _refuse_unknown(self, columns: Mapping[str, Cells], places: Mapping[str, str]) -> None:
        """Raise ConfigError for a class that is unknown, which a task of confidences would count as wrong."""
        if not ("confidence" in places and self.classes) or places.get("label", "") not in columns:
            return
        for field in ("label", "prediction"):
            strange = {_class_name(cell) for cell in columns[places[field]] if cell is not None} - {
                *self.classes
            }
            if strange:
                raise ConfigError(
                    f"{places[field]}: expected one of the classes ({', '.join(self.classes)}), got "
                    f"{min(strange)!r}: add it to classes, or correct it"
                )


@dataclass(frozen=True, eq=False, repr=False)
class _Fitted:
    """The product of `Monitor.fit`.

    Parameters
    ----------
    config : Config
        A configuration of one task, whose reference is not a file yet.
    settings : EngineSettings
    wire : MappedWire
        Reader of tables whose columns have the frames' names.
    places : mapping of str to str
        The column of each field.
    reference : tuple of RawTable
        The rows of the reference, under Blindsight's names.
    """

    config: Config
    settings: EngineSettings
    wire: MappedWire
    places: Mapping[str, str]
    reference: tuple[RawTable, ...]

    def to_config(self, path: str | Path, source: str, replace: bool) -> Path:
        """Write the configuration and the reference; see `Monitor.to_config`."""
        path = Path(path)
        reference = path.with_name(f"{path.stem}.reference.ndjson")
        for each in () if replace else (path, reference):
            if each.exists():
                raise ConfigError(f"to_config: {each} exists; give another path, or replace=True")
        _write(reference, b"".join(_lines(self.reference)))
        _write(path, self._yaml(source, reference.name).encode())
        return path

    def _yaml(self, source: str, reference: str) -> str:
        tasks = {
            name: task.model_dump(mode="json", exclude_defaults=True) | {"reference": {"path": reference}}
            for name, task in self.config.tasks.items()
        }
        read: dict[str, Any] = {"kind": "file", "path": source}
        if Path(source).suffix in (".ndjson", ".jsonl", ".log", ".json"):
            read["follow"] = True
        read["mapping"] = self.wire.mapping.model_dump(mode="json", exclude_defaults=True)
        sections = {"tasks": tasks, "sources": [read], "store": {"path": "state"}}
        sections["reports"] = {"path": "windows.ndjson"}
        text: str = yaml.safe_dump(sections, sort_keys=False, width=1000, allow_unicode=True)
        return (
            "# By Monitor.to_config. `blindsight check` predicts its false alarms; config.example.yaml has\n"
            f"# all keys. The source may be another: kafka, http, …, with the same mapping.\n{text}"
        )


def _named(**columns: str | None) -> dict[str, str]:
    """Return the arguments that are not None."""
    return {field: str(column) for field, column in columns.items() if column is not None}


def _class_name(value: object) -> str:
    """Return a class as records spell it: 1 and 1.0 are "1", True is "true"."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _kind_of(cells: Cells, unless_id: bool) -> FeatureKind | None:
    """Return the kind of a column of features; None for a column that "auto" leaves out."""
    present = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in present):
        return "number" if present else None
    scalar = all(isinstance(cell, str | int | float) for cell in present)
    if unless_id and (not scalar or len(set(map(str, present))) == len(present)):
        return None
    return "text"


def _path(column: str) -> str:
    """Return the mapping's path to a field with a column's name; a dot in the name is no separator."""
    return column if column.isidentifier() else f'["{column}"]'


def _tables(columns: Mapping[str, Cells], name: str) -> Iterator[RawTable]:
    """Yield the rows in tables of the size in which files are read."""
    rows = max(map(len, columns.values()), default=0)
    for start in range(0, rows, ROWS):
        yield RawTable({key: cells[start : start + ROWS] for key, cells in columns.items()}, name, start)


def _lines(tables: Sequence[RawTable]) -> Iterator[bytes]:
    """Yield the records of tables as lines of JSON, under Blindsight's names."""
    for table in tables:
        for record in read_table(table).records:
            fields = {
                name: value
                for name in Record.__struct_fields__
                if (value := getattr(record, name)) is not None
            }
            yield msgspec.json.encode(fields) + b"\n"


def _of_one_class(rows: np.ndarray) -> tuple[float, float] | None:
    """Return the mean and the positive class's share if the column is that class's probability.

    Parameters
    ----------
    rows : (n, 3) float64
        The value; whether the positive class was true; whether the answer was right.

    Notes
    -----
    With two classes, the predicted class usually has a probability of at least 0.5. So a confidence is hardly
    ever below 0.5, and its mean is near the accuracy. The probability of one class can be near 0, and its
    mean is near the class's share. If the mean of a column is nearer to the accuracy, the column is accepted
    as a confidence.

    Examples
    --------
    >>> p = np.tile([0.1, 0.2, 0.1, 0.8], 100)
    >>> positive = np.tile([0.0, 0.0, 0.0, 1.0], 100)
    >>> _of_one_class(np.column_stack((p, positive, np.ones(400))))
    (0.3, 0.25)
    >>> _of_one_class(np.column_stack((np.maximum(p, 1 - p), positive, np.ones(400))))
    """
    value, positive, right = rows.T
    mean, share, accuracy = float(value.mean()), float(positive.mean()), float(right.mean())
    off = abs(mean - share)
    near = _NEAR + 3 * math.sqrt((value.var() + share * (1 - share)) / len(value))
    if value.min() >= 0.5 or off > near or off > abs(mean - accuracy):
        return None
    return round(mean, 3), round(share, 3)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise SinkError(cannot_write(str(path), error)) from error
