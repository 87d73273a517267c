"""The command `blindsight init`, which writes a configuration from files of predictions and labels.

The command examines the files like `doctor`. A value that the files do not show becomes a placeholder in
``<…>``. `check` names and refuses placeholders.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import scipy
import yaml

from connectors.files import why_not_a_file
from connectors.formats.decode.decoder import Decoder
from connectors.formats.decode.names import text_of
from connectors.formats.files.joining import join_batches, take
from connectors.formats.files.tables import EVERY_COLUMN
from connectors.formats.messages.proposal import (
    Sample,
    named_classes,
    named_path,
    number_paths,
    numbers_at,
    propose,
    shares_of_classes,
    spelled_scores,
    top_class,
    two_classes_of,
    zoned,
)
from connectors.formats.messages.wording import nearest
from connectors.formats.wires.choice import RECOGNISED, compiled
from connectors.formats.wires.wire import Wire
from monitor.base.errors import ConfigError, SourceError
from monitor.base.records import (
    NO_ID,
    Batch,
    Chunk,
    FeatureKind,
    Floats,
    Ints,
    Keys,
    Reject,
    TaskLayout,
    text_codes,
)
from monitor.base.source import Raw, records_in
from monitor.cli.examine import (
    Examination,
    answers_in,
    examine,
    faults,
    repeats_predictions,
    unread_fields,
)
from monitor.cli.inputs import read_file
from monitor.config.file import load_config
from monitor.config.mapping import (
    PLACEHOLDERS,
    FieldMapping,
    is_placeholder,
    parse_field_path,
)
from monitor.config.task import MOST_FEATURES, Window
from monitor.reports.statements import count
from monitor.reports.window_report import rfc3339
from monitor.stats.regression.losses import MOST_UNUSABLE
from monitor.stats.regression.tolerance import DEFAULT_SHARE, FEWEST_ERRORS, Tolerance

LOOKED_AT = 1000
"""The number of records from which fields and classes are derived."""

MOST_ROWS = 200_000
"""The largest number of records that are read from each file."""

FEWEST_REFERENCE = 1000
"""The number of labelled answers that each model must have for a reference. Predicted numbers need fewer, as
`FEWEST_ERRORS` says, because their task cannot begin without a reference."""

MOST_VALUES = 20
"""The largest number of values of a proposed group. Each value has separate windows."""

_REFERENCE_WINDOWS = 20
_FEWEST_IN_WINDOW = 50
_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})(\D.*)?", re.DOTALL)
_MOST_NUMBERS = 50  # distinct numbers that may be names of classes
_MOST_NAMES = 10  # names of fields in one sentence
_NO_SCORES = (
    "has no scores: expected probabilities from 0 to 1 in fields such as scores, probability or p_<class>, "
    "got the fields {}"
)
_NUMBERS_INSTEAD = (
    "; if the model predicts numbers, name them prediction and the truth label, for a task of kind: "
    "regression (docs/regression.md)"
)
_NO_PREDICTION = (
    "{}: expected classes, got numbers such as {}, and no field has a predicted number: name it prediction, "
    "for a task of kind: regression (docs/regression.md); got the fields {}"
)
_DOUBTFUL = (
    "{}: expected classes, got numbers such as {}, beside {}: name the field score if they are probabilities "
    "of a class; if they are predicted numbers, write a task of kind: regression by hand (docs/regression.md)"
)


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The files to examine, and the names from the options of the command.

    Parameters
    ----------
    predictions : Path
        A file in NDJSON, a JSON array, CSV or Parquet. At most `MOST_ROWS` of its records are read.
    labels : Path, optional
        A file with labels, which have the ids of the predictions.
    task : str
        Name of the task; by default the name in the records, or else the name of the file.
    model : str
        Name of the model of records that name no model; by default the name of the file.
    label : str
        The name or path of the field with the true class.
    """

    predictions: Path
    labels: Path | None = None
    task: str = ""
    model: str = ""
    label: str = ""


def write_configuration(options: InitOptions, out: Path) -> tuple[str, bool]:
    """Write a configuration for a stream whose records have the same form as the records in the files.

    If enough answers have a label, these answers, or the older half of many, are written as a labelled
    reference to a file in the folder of the configuration.

    Parameters
    ----------
    options : InitOptions
    out : Path
        The configuration to write. This file and the file of the reference must not exist.

    Returns
    -------
    str
        A text about the contents of the files and the next steps.
    bool
        Whether the configuration is complete.

    Raises
    ------
    ConfigError
        An output file exists already, or an input file cannot be read or holds no usable record.
    """
    reference = out.with_name(f"{out.stem}.reference.ndjson")
    for path in (out, reference):
        if path.exists():
            raise ConfigError(
                f"--out: {path} exists, and init overwrites no file; move it away, or give another"
            )
    contents = _examine_files(options)
    old = contents.older_half()
    if old is not None:
        _create(reference, b"".join(line + b"\n" for line in contents.lines(old)))
    text = "\n".join([*_configuration(contents, out, reference.name, old), ""])
    _create(out, text.encode())
    try:
        load_config(out)
        problem = ""
    except ConfigError as error:
        problem = str(error)
    lines = _summary(contents, out, reference if old is not None else None, problem)
    return "\n".join(lines), not problem


@dataclass(frozen=True, slots=True)
class _Source:
    """A file and the mapping that reads it."""

    path: Path
    mapping: FieldMapping | None

    def section(self, folder: Path) -> dict[str, Any]:
        """Return the file's section of `sources`."""
        keys: dict[str, Any] = {"kind": "file", "path": os.path.relpath(self.path, folder)}
        if self.path.suffix in (".ndjson", ".jsonl", ".log", ".json"):
            keys["follow"] = True
        return keys if self.mapping is None else {**keys, "mapping": zoned(self.mapping)}


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of the files."""

    layout: TaskLayout
    predictions: _Source
    labels: _Source | None
    answers: Batch
    seen: tuple[str, ...] = ()
    """The names of the classes, if their order is unknown."""
    dropped: tuple[str, ...] = ()
    """Sentences about records that are not used."""
    notes: tuple[str, ...] = ()
    """Other sentences for the user."""

    features: tuple[tuple[str, FeatureKind], ...] = ()
    """The features that the records have, with their kinds."""
    texts: tuple[tuple[float, str], ...] = ()
    """The codes of the texts of features, with the texts, for the features of the layout."""

    @property
    def per_model(self) -> dict[str, Ints]:
        """The rows of each model."""
        codes = np.asarray(self.answers.models, dtype=object)[self.answers.model]
        return {model: np.flatnonzero(codes == model) for model in sorted(set(codes.tolist()))}

    def a_day(self, rows: Ints) -> int | None:
        """Return the number of answers per day; see `answers_a_day`."""
        return answers_a_day(self.answers.time[rows])

    def older_half(self) -> Ints | None:
        """Return the rows of a reference, in order of time, or None if a model has too few labels."""
        fewest = FEWEST_ERRORS if self.layout.numeric else FEWEST_REFERENCE
        parts = []
        for rows in self.per_model.values():
            known = rows[self.answers.label[rows] >= 0]
            if len(known) < fewest:
                return None
            ordered = known[np.argsort(self.answers.time[known], kind="stable")]
            parts.append(ordered[: len(ordered) // 2] if len(known) >= 2 * FEWEST_REFERENCE else ordered)
        rows = np.concatenate(parts)
        ordered_rows: Ints = rows[np.argsort(self.answers.time[rows], kind="stable")]
        return ordered_rows

    def lines(self, rows: Ints) -> Iterator[bytes]:
        """Yield labelled answers as records."""
        answers, classes, levels = self.answers, self.layout.classes, self.layout.quantiles
        texts = dict(self.texts)
        for i in rows.tolist():
            row: dict[str, Any] = {"model": answers.models[int(answers.model[i])]}
            if math.isfinite(answers.time[i]):
                row["time"] = rfc3339(float(answers.time[i]))
            label, scores = int(answers.label[i]), answers.scores[i].tolist()
            if self.layout.numeric:
                row["prediction"], row["label"] = answers.numbers[i].tolist()
                row |= {"sigma": scores[0]} if math.isfinite(scores[0]) else {}
                stated = dict(zip(map(str, levels), scores[1:], strict=True))
                row |= {"quantiles": stated} if levels and math.isfinite(scores[1]) else {}
            elif classes:
                acted = int(answers.predicted[i])
                row |= {"scores": scores, "label": classes[label]}
                row |= {} if acted == int(np.argmax(scores)) else {"prediction": classes[acted]}
            else:
                row |= {"confidence": scores[0], "correct": label == 0}
            row |= {"features": features} if (features := self._features_of(i, texts)) else {}
            groups = {
                name: values[int(code[i])] for name, (values, code) in answers.groups.items() if code[i] >= 0
            }
            yield msgspec.json.encode(row | ({"groups": groups} if groups else {}))

    def _features_of(self, row: int, texts: Mapping[float, str]) -> dict[str, Any]:
        """Return the features of an answer that are known, in the order of the layout."""
        cells = zip(self.layout.features, self.answers.features[row].tolist(), strict=True)
        values = {name: cell if kind == "number" else texts.get(cell) for (name, kind), cell in cells}
        return {name: value for name, value in values.items() if value is not None and value == value}


class _Classes(NamedTuple):
    """The classes in the order of the scores, and whether both their names and their order are known."""

    names: tuple[str, ...]
    sure: bool


def _examine_files(options: InitOptions) -> _Contents:
    predictions, labels = options.predictions, options.labels
    raws = _beginning(predictions)
    values = _of_one_model([*answers_in(raws)])
    if not values:
        raise ConfigError(f"--from: {predictions} holds no record{_why_none(raws)}")
    beside = [] if labels is None else list(answers_in(_beginning(labels)))
    stem = predictions.name.split(".")[0]
    name = options.task or _task_of(values) or re.sub(r"\W+", "_", stem) or "task"
    label = _label_of(options, values)
    levels = _levels(predictions, values, beside, label)
    if levels is None:
        classes = _classes(predictions, raws, values, beside, label)
        layout = TaskLayout(name, classes.names, max(len(classes.names) - 1, 0))
    else:
        classes = _Classes((), True)
        layout = TaskLayout(name, (), kind="regression", numeric=True, quantiles=levels)
    layout = replace(layout, groups=tuple(_groups(values)))
    if options.model or not _names_models(values):
        layout = replace(layout, models=(options.model or stem or "model",))
    mapping, notes = _readable(predictions, raws, values, layout, label)
    of_labels = None if labels is None else _label_source(labels, layout)
    source = _Source(predictions, mapping)
    unread = unread_fields(raws, values, RECOGNISED if mapping is None else compiled(mapping))
    if unread:
        notes = (*notes, f"Fields that are not read: {_listed(unread)}.")
    paths = _feature_paths(mapping, values)
    features = tuple(_feature_kinds(paths, values, layout.numeric).items())
    texts: tuple[tuple[float, str], ...] = ()
    if layout.numeric:
        layout = replace(layout, features=features)
        texts = _texts(predictions, [paths[name] for name, kind in features if kind == "text"])
    contents = replace(_read_whole(layout, source, of_labels), notes=notes, features=features, texts=texts)
    if not classes.sure:
        contents = _with_ordered_classes(contents, named_path("prediction", values) is not None)
    return _with_doubts(contents, options)


def _label_source(labels: Path, layout: TaskLayout) -> _Source:
    mapping, examination = _best_mapping(labels, _beginning(labels), layout)
    if not examination.labels:
        why = "; ".join(examination.lines[1:])
        raise ConfigError(f"--labels: {labels} has no label that can be used: {why}")
    return _Source(labels, mapping)


def _why_none(raws: Sequence[Raw]) -> str:
    """Return the end of a sentence on a file without records: the fault of its first line."""
    chunk = Decoder([TaskLayout("task", ("0", "1"))], "", wire=RECOGNISED).decode(raws)
    why = next((reject.message for reject in chunk.rejects if not reject.along), "")
    return f": {why.removeprefix('$: ')}" if why else "; give a file of predictions (docs/records.md)"


def _of_a_format(raws: Sequence[Raw]) -> str:
    """Return the fault of the first record if it has a serving stack's format; otherwise ""."""
    chunk = Decoder([TaskLayout("task", ("0", "1"), models=("model",))], "", wire=RECOGNISED).decode(raws)
    messages = (reject.message for reject in chunk.rejects)
    return next((message for message in messages if message.startswith(("$.response", "$.capture"))), "")


def _with_doubts(contents: _Contents, options: InitOptions) -> _Contents:
    """Return the contents with notes on labels and scores that are doubtful."""
    notes = list(contents.notes)
    if repeats_predictions(contents.answers) and (options.label or options.labels):
        what = options.label or options.labels
        notes.append(
            f"Each label of {what} is the number that was predicted, so each error is 0: is it true?"
            if contents.layout.numeric
            else f"Each label of {what} is the class that was predicted, so the accuracy is 100 %: is it "
            "true?"
        )
    if contents.answers.certain.all():
        notes.append(
            "Each score is exactly 0 or 1, so that every answer gets the same confidence; send probabilities "
            "before rounding."
        )
    return replace(contents, notes=tuple(notes))


def _label_of(options: InitOptions, values: Sequence[Any]) -> str:
    """Return the path of `--label`, or "" without the option."""
    if not options.label:
        return ""
    paths = Sample(values).cells
    for path in (options.label, f'["{options.label}"]'):
        if path in paths:
            return path
    raise ConfigError(
        f"--label: {options.predictions} has no field {options.label}, or no value in it; it has the "
        f"fields {_fields(values)}{nearest(options.label, [*paths])}"
    )


def _names_models(values: Sequence[Any]) -> bool:
    """Return whether the records name their model."""
    return named_path("model", values) is not None or any(
        isinstance(value.get("models"), dict) for value in values
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _of_one_model(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records in which the answer of the first model stands for the answers of several models."""
    first = [
        next(iter(models.values())) if isinstance(models := value.get("models"), dict) and models else None
        for value in values
    ]
    numbers = [answer for answer in first if answer is not None]
    numeric = are_numbers(numbers) and not all(0 <= number <= 1 for number in numbers)
    field = "prediction" if numeric else "scores"
    return [
        value if answer is None else {**value, field: answer}
        for value, answer in zip(values, first, strict=True)
    ]


def _read_whole(layout: TaskLayout, predictions: _Source, labels: _Source | None) -> _Contents:
    answers, notes = _answers(predictions, layout)
    if labels is not None:
        answers = _with_labels_of(answers, labels, layout)
    return _Contents(layout, predictions, labels, answers, dropped=notes)


def _beginning(path: Path) -> list[Raw]:
    """Return the beginning of a file, with all columns of a table."""
    beginning: list[Raw] = []
    for raws in _read(path, EVERY_COLUMN):
        beginning += raws
        if sum(map(records_in, beginning)) >= LOOKED_AT:
            break
    return beginning


def _read(path: Path, mapped: Any) -> Iterator[Sequence[Raw]]:
    problem = why_not_a_file(path)
    if problem is not None:
        raise ConfigError(problem)
    try:
        yield from read_file(path, path.name, mapped)
    except SourceError as error:
        raise ConfigError(str(error)) from error


def _task_of(values: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of the task in the records, or "" if they name none."""
    named = {value["task"] for value in values if isinstance(value.get("task"), str)}
    if len(named) > 1:
        listed = ", ".join(sorted(named)[:5])
        raise ConfigError(
            f"--from: expected the records of one task, got {listed}; give a file for each task"
        )
    return named.pop() if named else ""


def _levels(path: Path, values: Sequence[Any], labels: Sequence[Any], label: str) -> tuple[float, ...] | None:
    """Return the levels of the quantiles beside predicted numbers; None if the records predict no number.

    Raises
    ------
    ConfigError
        The predicted numbers may be the probabilities of a class.
    """
    sample, beside = Sample(values), Sample(labels)
    paths = number_paths(sample, label)
    if "prediction" not in paths or shares_of_classes(values):
        return None
    truths = [*sample.cells.get(paths.get("label", ""), {}).values()]
    truths += beside.cells.get(number_paths(beside).get("label", ""), {}).values()
    predicted = [*sample.cells[paths["prediction"]].values()]
    levels = tuple(map(float, paths.get("quantiles", ())))
    if are_numbers(truths) or paths.keys() & {"sigma", "quantiles"}:
        return levels
    if not are_numbers(predicted) or named_path("confidence", values) is not None:
        return None
    doubt = f"scores at {field}" if (field := numbers_at(values)[1]) else ""
    if not doubt and len(set(truths)) == 2:
        doubt = "a truth of two values"
    if not doubt and not truths and all(0 <= number <= 1 for number in predicted):
        doubt = "no truth, and all from 0 to 1"
    if doubt:
        raise ConfigError(f"--from: {path}: {_DOUBTFUL.format(paths['prediction'], predicted[0], doubt)}")
    return levels


def _classes(
    path: Path, raws: Sequence[Raw], values: Sequence[Any], labels: Sequence[Any], label: str
) -> _Classes:
    """Return the classes, from the names of the scores or from the values of labels and predictions."""
    named = shares_of_classes(values)
    if named:
        return _Classes(named, True)
    width, field = numbers_at(values)
    if not width and named_path("confidence", values) is not None:
        return _Classes((), True)
    _refuse_numbers(path, values, labels)
    if not width:
        spelled = spelled_scores(values) or _of_a_format(raws)
        hint = f"; {spelled}" if spelled else _NUMBERS_INSTEAD
        raise ConfigError(f"--from: {path} {_NO_SCORES.format(_fields(values))}{hint}")
    sample = Sample(values)
    if width == 2 and top_class(sample, {"scores": field}) is not None:
        return _Classes((), True)
    cells = [cell for rows in (values, labels) for _, column in _named_cells(rows) for cell in column]
    cells += sample.cells[label].values() if label else ()
    names = named_classes(cells, width)
    if not label and not names and width == 2:
        names = set(two_classes_of(sample, field))
    if len(names) > width:
        raise ConfigError(
            f"--from: {path}: expected {width} classes, as {field} tells, got {len(names)} values of labels "
            f"and predictions: {', '.join(sorted(names, key=_natural)[:10])}; give each class one spelling, "
            "or name the field of the truth with --label"
        )
    if len(names) == width:
        return _Classes(tuple(sorted(names, key=_natural)), False)
    return _Classes(tuple(PLACEHOLDERS["class"].format(k) for k in range(width)), True)


def _named_cells(rows: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the fields that name classes, with their values."""
    sample = Sample(rows)
    for field in ("prediction", "label"):
        path = named_path(field, rows)
        if path is not None:
            yield path, [*sample.cells[path].values()]


def _fields(values: Sequence[Any]) -> str:
    return ", ".join(itertools.islice(dict.fromkeys(name for value in values for name in value), 30))


def _natural(name: str) -> tuple[int, float, str]:
    """Return a key that sorts numbers by size before words, as scikit-learn orders classes."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _refuse_numbers(path: Path, values: Sequence[Any], labels: Sequence[Any]) -> None:
    """Raise `ConfigError` for labels that are numbers of a regression, in records without a prediction."""
    for rows in (values, labels):
        for field, cells in _named_cells(rows):
            if are_numbers(cells):
                raise ConfigError(
                    f"--from: {path}: {_NO_PREDICTION.format(field, cells[0], _fields(values))}"
                )


def are_numbers(cells: Sequence[Any]) -> bool:
    """Return whether values must be numbers of a regression, because they can be no names of classes.

    Examples
    --------
    >>> are_numbers([3.5, 12.25]), are_numbers([0, 1, 1]), are_numbers(range(99))
    (True, False, True)
    """
    numbers = [cell for cell in cells if isinstance(cell, int | float) and not isinstance(cell, bool)]
    many = len(set(numbers)) > _MOST_NUMBERS
    return bool(numbers) and len(numbers) == len(cells) and (many or any(x % 1 for x in numbers))


def _groups(values: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the names of the records' groups that have few values."""
    seen: dict[str, set[str]] = {}
    for value in values:
        inner = value.get("groups")
        pairs = list(inner.items()) if isinstance(inner, dict) else []
        pairs += [(name[7:], each) for name, each in value.items() if name.startswith("groups.")]
        for name, each in pairs:
            seen.setdefault(name, set()).add(str(each))
    return (name for name, each in seen.items() if len(each) <= MOST_VALUES)


def _readable(
    path: Path, raws: Sequence[Raw], values: Sequence[Any], layout: TaskLayout, label: str
) -> tuple[FieldMapping | None, tuple[str, ...]]:
    """Return the mapping that reads most of a file's records, or None if none is needed, and notes."""
    mapping, examination = _best_mapping(path, raws, layout)
    as_many = False
    own = propose(values, layout, {"model": layout.models[0]} if layout.models else {}, label)
    trial = None if own is None else _decode_with(own, raws, layout, path.name)
    if own is not None and trial is not None:
        # A mapping reads the truth if records with our field names lack it, or if --label names its field.
        as_many = sum(map(len, trial.batches)) >= examination.answers
        if as_many and (
            label or (mapping is None and not _labelled_rows(examination.chunk) and _labelled_rows(trial))
        ):
            mapping, examination = (
                own,
                replace(examination, answers=sum(map(len, trial.batches)), chunk=trial),
            )
    if not examination.answers:
        messages = [*faults(trial)] if trial is not None else []  # these name the fields of the records
        why = "; ".join(messages or examination.lines[1:])
        raise ConfigError(f"--from: {path} has no answer that can be used: {why}")
    if not label and any(map(repeats_predictions, examination.chunk.batches)):
        mapping = mapping or own
    if mapping is None and own is not None and trial is not None and layout.numeric and not layout.groups:
        # Features beside the fields that have our names; without a mapping they are not read.
        as_well = _labelled_rows(trial) >= _labelled_rows(examination.chunk)
        if as_many and as_well and not _feature_paths(None, values) and _features(own, values):
            mapping = own
    if mapping is None:
        return None, ()
    return _refined(mapping, examination.chunk, values, label)


def _refined(
    mapping: FieldMapping, chunk: Chunk, values: Sequence[Any], label: str
) -> tuple[FieldMapping, tuple[str, ...]]:
    """Return a mapping with features, in which a repeated prediction is not read as the truth; and notes."""
    fields = mapping.model_dump(exclude_defaults=True)
    notes = []
    if not label and mapping.label is not None and any(map(repeats_predictions, chunk.batches)):
        fields.setdefault("prediction", mapping.label)
        fields.pop("label")
        numeric = any(batch.numbers.shape[1] for batch in chunk.batches)
        follows = "is the predicted number" if numeric else "follows from the predicted class or the scores"
        notes.append(
            f"{mapping.label} {follows} in every row: it is read as what the model predicted, not as the "
            "truth. --label COLUMN names the truth."
        )
    elif mapping.label is not None:
        notes.append(f"The truth is read at {mapping.label}; --label COLUMN names another field.")
    elif mapping.prediction is not None and mapping.confidence is None:
        notes.append("No field of the truth is known; --label COLUMN names it.")
    if mapping.confidence is not None and mapping.prediction is not None:
        notes.append(
            f"{mapping.confidence} is the probability of the class at {mapping.prediction} alone: it is read "
            "as the confidence that the answer is right, in a task without classes."
        )
    if mapping.time_zone is not None:
        notes.append(
            "Times have no offset and are read as UTC: change time_zone if they are of another zone."
        )
    if mapping.id is None and (path := named_path("id", values)) is not None:
        got = Sample(values).first(path)
        notes.append(
            f"{path} is not read as the id: expected text or integers, got {got}; write it as text, or no "
            "label can join these answers."
        )
    features = _features(mapping, values)
    if features and not (mapping.format or mapping.features):
        fields["features"] = features
    return FieldMapping(**fields), tuple(notes)


def _feature_paths(mapping: FieldMapping | None, values: Sequence[Any]) -> Mapping[str, str]:
    """Return the paths of the features of the records, or those of a mapping, by name."""
    if mapping is not None:
        return mapping.features
    inner = [value["features"] for value in values if isinstance(value.get("features"), dict)]
    paths = {name: f"features.{name}" for each in inner for name in each if name.isidentifier()}
    flat = dict.fromkeys(name for value in values for name in value if name.startswith("features."))
    return paths | {name[9:]: f'["{name}"]' for name in flat}


def _feature_kinds(paths: Mapping[str, str], values: Sequence[Any], numeric: bool) -> dict[str, FeatureKind]:
    """Return the features with values, each with its kind.

    In a task of predicted numbers, the errors of rows that lack a feature cannot be estimated. So a feature
    that many rows lack is left out there, and so are a counter, dates and other texts that change with time,
    because they soon lie beyond any reference.
    """
    sample = Sample(values)
    kinds: dict[str, FeatureKind] = {}
    for name, path in itertools.islice(paths.items(), MOST_FEATURES):
        filled = [*sample.cells.get(path, {}).values()]
        number = all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in filled)
        lacking = numeric and len(filled) < (1 - MOST_UNUSABLE) * sample.rows
        if filled and not lacking and not (numeric and (_is_counter if number else _are_passing)(filled)):
            kinds[name] = "number" if number else "text"
    return kinds


def _is_counter(cells: Sequence[float]) -> bool:
    """Return whether numbers, of which at least three differ, never fall or never rise."""
    steps = np.diff(np.array(cells, dtype=np.float64))
    return bool(np.count_nonzero(steps) > 1 and ((steps >= 0).all() or (steps <= 0).all()))


def _are_passing(cells: Sequence[Any]) -> bool:
    """Return whether all texts are dates, or the older half lacks those of many rows of the newer half."""
    texts = list(map(text_of, cells))
    older, newer = set(texts[: len(texts) // 2]), texts[len(texts) // 2 :]
    new = sum(text not in older for text in newer)
    return all(map(_DATE.fullmatch, texts)) or new > MOST_UNUSABLE * len(newer)


def _texts(path: Path, paths: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Return the codes in a `Batch` of the texts at these paths of a file's records, with the texts."""
    texts: dict[str, None] = {}
    if paths:
        read = 0
        for raws in _read(path, EVERY_COLUMN):
            cells = Sample([*answers_in(raws)]).cells
            texts |= dict.fromkeys(text_of(cell) for each in paths for cell in cells.get(each, {}).values())
            read += sum(map(records_in, raws))
            if read >= MOST_ROWS:
                break
    return tuple(zip(text_codes([*texts]).tolist(), texts, strict=True))


def _features(mapping: FieldMapping, values: Sequence[Any]) -> dict[str, str]:
    """Return the fields with numbers, or with few distinct texts, that nothing else reads.

    They are at the top level or in the object `features`.
    """
    mapped = {parse_field_path(path)[0] for path in mapping.paths.values()}
    features = {}
    for path, cells in Sample(values).cells.items():
        (name, *deeper) = parse_field_path(path)
        if name == "features" and len(deeper) == 1:
            name, deeper = deeper[0], []
        elif isinstance(name, str):
            name = name.removeprefix("features.")
        if deeper or name in mapped or name in ("id", "groups", "features") or not isinstance(name, str):
            continue
        filled = list(cells.values())
        numbers = all(isinstance(cell, int | float) for cell in filled)
        texts = all(isinstance(cell, str) for cell in filled) and len(set(filled)) <= MOST_VALUES
        if (numbers or texts) and name.isidentifier() and len(set(filled)) > 1:
            features[name] = path
    return dict(itertools.islice(features.items(), MOST_FEATURES))


def _labelled_rows(chunk: Chunk) -> int:
    return sum(int((batch.label >= 0).sum()) for batch in chunk.batches)


def _decode_with(mapping: FieldMapping, raws: Sequence[Raw], layout: TaskLayout, name: str) -> Chunk:
    return Decoder([layout], name, wire=compiled(mapping)).decode(raws)


def _best_mapping(
    path: Path, raws: Sequence[Raw], layout: TaskLayout
) -> tuple[FieldMapping | None, Examination]:
    """Return the mapping that reads most of a file's records, or None if none is needed, and its result."""
    examination = examine(raws, [layout], path.name, RECOGNISED)
    best = max(examination.proposals, key=lambda each: each.answers_first, default=None)
    if best is None:
        return None, examination
    answers, labels = (sum(map(len, each)) for each in (best.chunk.batches, best.chunk.labels))
    return best.mapping, replace(examination, answers=answers, labels=labels, chunk=best.chunk)


def _decoded(source: _Source, layout: TaskLayout) -> Iterator[Chunk]:
    wire: Wire = RECOGNISED if source.mapping is None else compiled(source.mapping)
    decoder = Decoder([layout], source.path.name, wire=wire)
    read = 0
    for raws in _read(source.path, wire.columns):
        yield decoder.decode(raws)
        read += sum(map(records_in, raws))
        if read >= MOST_ROWS:
            return


def _answers(source: _Source, layout: TaskLayout) -> tuple[Batch, tuple[str, ...]]:
    """Return a file's answers with their labels, one for each id of a model, and notes on the others."""
    batches, left = list[Batch](), Counter[str]()
    rejects: dict[str, list[Reject]] = {"row": [], "label": []}
    labels = 0
    for chunk in _decoded(source, layout):
        batches += chunk.batches
        labels += sum(map(len, chunk.labels))
        left.update(chunk.rows_left)
        for reject in chunk.rejects:
            rejects["label" if reject.along else "row"].append(reject)
    answers = join_batches(batches)
    known = np.flatnonzero((answers.label >= 0) & (answers.key != NO_ID))
    if len(known):  # the label of a request holds for each of its models
        truths = answers.numbers[known, -1:]
        answers = _labelled(answers, answers.key[known], answers.label[known], truths)
    distinct = _first_of_each_id(answers)
    dropped = []
    for what, rejected in rejects.items():
        if rejected:
            often = Counter(reject.reason.value.replace("_", " ") for reject in rejected)
            counts = ", ".join(f"{count:,} {reason}" for reason, count in often.most_common())
            first = f"{rejected[0].partition}, {rejected[0].position}: {rejected[0].message}"
            dropped.append(f"Not used: {count(len(rejected), what)} ({counts}). The first: {first}")
    dropped += [
        f"The mapping reads {path} alone, and leaves {count(rows, 'row')} that stand beside it: write one "
        "row a record."
        for path, rows in left.items()
    ]
    if len(distinct) < len(answers):
        duplicates = len(answers) - len(distinct)
        dropped.append(
            f"{duplicates:,} of {count(len(answers), 'answer')} have the id of an earlier one of their "
            "model, and do not count (duplicates): give each answer an id of its own, not that of its user."
        )
        answers = take(answers, distinct)
    if labels and labels * 20 > len(answers):
        dropped.append(f"{count(labels, 'row')} of the file are labels without scores.")
    return answers, tuple(dropped)


def _first_of_each_id(answers: Batch) -> Ints:
    """Return the rows that are not duplicates, in order; rows without an id are never duplicates."""
    known = answers.key != NO_ID
    pairs = np.stack([answers.key[known], answers.model[known].astype(np.uint64)])
    first = np.unique(pairs, axis=1, return_index=True)[1]
    rows: Ints = np.sort(np.concatenate([np.flatnonzero(~known), np.flatnonzero(known)[first]]))
    return rows


def _with_labels_of(answers: Batch, source: _Source, layout: TaskLayout) -> Batch:
    """Return the answers with the labels of another file, joined by id."""
    labels = [batch for chunk in _decoded(source, layout) for batch in chunk.labels]
    keys, classes, truths = (
        np.concatenate([getattr(batch, name) for batch in labels]) for name in ("key", "label", "numbers")
    )
    joined = _labelled(answers, keys, classes, truths)
    if (joined.label == answers.label).all():
        raise ConfigError(
            f"--labels: no label of {source.path} has the id of an answer: give labels the id of their "
            "answer (`blindsight doctor` compares ids)"
        )
    return joined


def _labelled(answers: Batch, keys: Keys, labels: Ints, truths: Floats) -> Batch:
    """Return the answers with the labels of these keys, and with the true numbers if they predict numbers."""
    order = np.argsort(keys, kind="stable")
    keys, labels, truths = keys[order], labels[order], truths[order]
    place = np.minimum(np.searchsorted(keys, answers.key), len(keys) - 1)
    known = (keys[place] == answers.key) & (answers.key != NO_ID)
    numbers = answers.numbers
    if numbers.shape[1]:
        numbers = np.column_stack((numbers[:, 0], np.where(known, truths[place, 0], numbers[:, 1])))
    return replace(answers, label=np.where(known, labels[place], answers.label), numbers=numbers)


def _with_ordered_classes(contents: _Contents, predicted: bool) -> _Contents:
    """Return the contents with the classes in the order of the scores, if the file shows only their names.

    Each score gets the class that is most often the label, or the predicted class, of the rows where that
    score is the largest. If there are too few such rows, the classes become placeholders.
    """
    answers, classes = contents.answers, contents.layout.classes
    known = np.flatnonzero(answers.label >= 0)
    enough = len(known) >= _FEWEST_IN_WINDOW
    if not enough and not predicted:
        names = tuple(PLACEHOLDERS["class"].format(k) for k in range(len(classes)))
        return replace(contents, layout=replace(contents.layout, classes=names), seen=classes)
    expected = answers.label[known] if enough else answers.predicted
    largest = answers.scores[known if enough else slice(None)].argmax(axis=1)
    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (largest, expected), 1)
    _, order = scipy.optimize.linear_sum_assignment(counts, maximize=True)
    if (order == np.arange(len(classes))).all():
        return contents
    layout = replace(contents.layout, classes=tuple(classes[k] for k in order))
    reread = _read_whole(layout, contents.predictions, contents.labels)
    return replace(reread, notes=contents.notes)


def _window(contents: _Contents, reference: Ints | None) -> tuple[int, int]:
    """Return the number of rows of a window, and its maximum age in seconds."""
    per_model = contents.per_model
    rows = reference if reference is not None else np.arange(len(contents.answers))
    fewest = min(len(np.intersect1d(rows, own)) for own in per_model.values())
    rates = [rate for own in per_model.values() if (rate := contents.a_day(own)) is not None]
    size = fitting_size(fewest)
    return size, fitting_age(size, min(rates, default=None))


def answers_a_day(times: Floats) -> int | None:
    """Return the number of answers per day with two significant digits; None if the times do not show it.

    Times are in seconds since the epoch.
    """
    times = times[np.isfinite(times)]
    span = float(np.ptp(times)) if len(times) > 1 else 0.0
    if span <= 0:
        return None
    return max(1, int(float(f"{len(times) / span * 86_400:.2g}")))


def fitting_size(rows: int) -> int:
    """Return the window size with which `rows` rows of a reference make 20 windows.

    The size is a multiple of 50, at least 50 (then there may be fewer windows) and at most 500 (then there
    may be more).

    Examples
    --------
    >>> fitting_size(700), fitting_size(5_000), fitting_size(100_000)
    (50, 250, 500)
    """
    size = rows // _REFERENCE_WINDOWS // 50 * 50
    return min(max(size, _FEWEST_IN_WINDOW), Window().size)


def fitting_age(size: int, a_day: float | None) -> int:
    """Return the maximum age, in seconds, of windows of `size` rows with a traffic of `a_day` answers a day.

    The age is the default age if the traffic fills a window within this time, or if `a_day` is None.
    Otherwise the age is twice the time that the traffic needs to fill a window, rounded up to whole hours.

    Examples
    --------
    >>> fitting_age(500, None), fitting_age(500, 100_000), fitting_age(500, 1_000)
    (900, 900, 86400)
    """
    usual = Window()
    fills = 0.0 if a_day is None else size / a_day * 86_400
    if fills <= usual.max_age_seconds:
        return int(usual.max_age_seconds)
    return math.ceil(2 * fills / 3600) * 3600


def _configuration(contents: _Contents, out: Path, reference: str, old: Ints | None) -> Iterator[str]:
    """Yield the lines of the configuration."""
    yield "# By `blindsight init`. `blindsight check` says what is missing; config.example.yaml has all keys."
    yield "tasks:"
    yield f"  {_plain(contents.layout.name)}:"
    yield from (f"    {line}" for line in _task(contents, reference, old))
    yield "sources:"
    for source in (contents.predictions, contents.labels):
        if source is not None:
            section = yaml.safe_dump([source.section(out.parent)], sort_keys=False, width=1000)
            yield from (f"  {line}" for line in section.splitlines())
    yield '  # - {kind: kafka, brokers: ["localhost:9092"], topics: [predictions, labels], group: blindsight}'
    yield '  # - {kind: http, listen: "127.0.0.1:9108"}   # POST /v1/predictions, /v1/labels'
    yield "store: {path: state}   # a restart loses nothing"
    yield "reports: {path: windows.ndjson}   # one line for each closed window"


def _task(contents: _Contents, reference: str, old: Ints | None) -> Iterator[str]:
    """Yield the lines of the task's section."""
    classes = contents.layout.classes
    if contents.layout.numeric:
        yield from _numeric_keys(contents, old)
    elif classes:
        seen = f"   # {', '.join(contents.seen)}, in the order of the scores" if contents.seen else ""
        yield f"classes: {_plain(list(classes))}{seen}"
    if len(classes) == 2 and not is_placeholder(classes[1]):
        yield f"positive: {_plain(classes[1])}   # the positive class of the two"
    size, age = _window(contents, old)
    slow = "" if age == Window().max_age_seconds else f", max_age_seconds: {age}"
    yield f"window: {{size: {size}{slow}}}   # answers of one model; an older window closes with fewer"
    if old is not None:
        which = f"{len(old):,} labelled answers, {_share(contents, old)}"
        yield f"reference: {{path: {_plain(reference)}}}   # {which}"
    elif contents.layout.numeric:
        file = _plain(PLACEHOLDERS["reference"])
        yield f"reference: {{path: {file}}}   # {FEWEST_ERRORS} or more of each model"
    else:
        yield f"reference: {{first_windows: {_REFERENCE_WINDOWS}}}   # better {{path: FILE}}, with labels"
    yield _objective(contents, old)
    if contents.layout.groups:
        groups = _plain(list(contents.layout.groups))
        yield f"groups: {groups}   # each value has windows and charts of its own"
    if features := contents.features:
        yield _features_line(dict(features), contents.layout.numeric, old is not None)
    rates = {model: contents.a_day(rows) for model, rows in contents.per_model.items()}
    if len(rates) <= MOST_VALUES:
        yield "models:   # with their traffic, from which `check` predicts the false alarms a week"
        for model, rate in rates.items():
            yield f"  {_plain(model)}: {{{'' if rate is None else f'answers_per_day: {rate}'}}}"


def _features_line(features: Mapping[str, str], numeric: bool, has_reference: bool) -> str:
    """Return the line of the features; a comment where the reference lacks them or there is none."""
    if numeric and has_reference:
        return f"features: {_plain(dict(features))}   # the estimated errors rest on them: docs/regression.md"
    lacks = " once the reference has their columns" if numeric or has_reference else ""
    return f"# features: {_plain(dict(features))}   # watches them{lacks}: docs/features.md"


def _numeric_keys(contents: _Contents, old: Ints | None) -> Iterator[str]:
    """Yield the lines that only a task of predicted numbers has."""
    yield f"kind: {contents.layout.kind}   # docs/regression.md"
    yield "# unit: minutes   # of the target, as the page and the metrics name it"
    largest = "the largest error of a right answer, in the unit of the target"
    share = f"{DEFAULT_SHARE * 100:.0f} % of the reference's errors are"
    if old is None:
        yield f"# tolerance: 1   # {largest}; without it, {share} within it"
    else:
        try:
            usual = Tolerance.from_errors(np.diff(contents.answers.numbers[old])[:, 0]).value
            yield f"tolerance: {_rounded_up(usual)}   # {largest}; {share} within it"
        except ValueError:
            yield f"tolerance: {_plain(PLACEHOLDERS['tolerance'])}   # {share} 0"
    if contents.layout.quantiles:
        yield f"quantiles: {_plain(list(contents.layout.quantiles))}   # the levels in the records"


def _rounded_up(number: float) -> str:
    """Return a number above 0, rounded up to three significant digits, as YAML.

    Examples
    --------
    >>> _rounded_up(12.3456), _rounded_up(12.0), _rounded_up(51234.0), _rounded_up(2.001e-9)
    ('12.4', '12.0', '51300.0', '2.01e-09')
    """
    short = float(f"{number:.2e}")
    if short < number:
        short = float(f"{short + 10.0 ** (math.floor(math.log10(number)) - 2):.2e}")
    return _plain(short)


def _objective(contents: _Contents, old: Ints | None) -> str:
    """Return the line with an example of an objective."""
    if contents.layout.numeric:
        return "# objective: {within_tolerance: {min: 0.75}}   # set your own floor"
    known = ""
    if old is not None:
        right = float((contents.answers.label[old] == contents.answers.predicted[old]).mean())
        known = f"; the reference's accuracy is {right:.3f}"
    return f"# objective: {{accuracy: {{min: 0.90}}}}   # set your own floor{known}"


def _share(contents: _Contents, reference: Ints) -> str:
    """Return which of the labelled answers the reference has: all, or the oldest."""
    return "all" if len(reference) == (contents.answers.label >= 0).sum() else "the oldest"


def _plain(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _create(path: Path, data: bytes) -> None:
    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written ({error.strerror}); give another") from error


def _summary(contents: _Contents, out: Path, reference: Path | None, problem: str) -> Iterable[str]:
    known = int((contents.answers.label >= 0).sum())
    more = "" if len(contents.answers) < MOST_ROWS else " (the first of the file)"
    models = ", ".join(itertools.islice(contents.per_model, 5))
    yield f"{out}: {len(contents.answers):,} answers{more} of {models}; {known:,} have a label."
    yield from (*contents.dropped, *contents.notes)
    if reference is not None:
        yield f"{reference}: labelled answers, as reference. Were the models good then?"
    if problem:
        yield f"Fill in the places in <…>; blindsight check says so of each:\n{problem}"
        return
    files = " ".join(str(each.path) for each in (contents.predictions, contents.labels) if each is not None)
    yield f"Next: blindsight check {out}; then blindsight replay {out} {files} --out replayed"
    if contents.layout.numeric:
        yield f"Whether its charts saw an incident: blindsight backtest {out} {files} --incident START END"
        return
    yield f"How soon its charts see a drop: blindsight backtest {out} {files}"
    yield "Whether they saw an incident of the past: add --incident START END"
