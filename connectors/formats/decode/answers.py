"""Converts the answers of one task to rows: one row for each record, or for each model of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from connectors.formats.decode.columns import Columns, Places, RejectList, absent, picker
from connectors.formats.decode.names import (
    Value,
    check_names,
    encode,
    encode_classes,
    encode_features,
    encode_group,
    encode_versions,
)
from connectors.formats.decode.numbers import read_predictions, read_spreads, true_numbers
from connectors.formats.decode.scores import score_matrix
from connectors.formats.decode.structs import Faults, Scores
from connectors.formats.decode.truth import picking_probabilities, true_classes
from connectors.formats.messages.wording import step
from monitor.base.records import NO_ID, Batch, Floats, Ints, Keys, RejectReason, TaskLayout

_NEITHER = (
    "$.label: missing, and so is everything of an answer; give `label` (or `model` with `correct`), "
    "or `model` with `scores` or `confidence`"
)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The answers in the chosen records, one row each.

    Parameters
    ----------
    values : list
        The scores, unchecked.
    names : list of str or None
        The models.
    owner : (m,) int64
        The index of each answer's record among the chosen records.
    offset : (m,) int64
        The index of each answer within its record.
    path : callable
        A function from a row to the JSON path of its scores.
    """

    values: Sequence[Scores | None]
    names: Sequence[str | None]
    owner: Ints
    offset: Ints
    path: Callable[[int], str]

    def take(self, kept: Ints) -> _Rows:
        """Return the rows at these indices."""
        chosen = kept.tolist()
        values, names = [self.values[i] for i in chosen], [self.names[i] for i in chosen]
        return _Rows(values, names, self.owner[kept], self.offset[kept], lambda row: self.path(chosen[row]))


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of the chosen records other than scores and models, (n,) each.

    Parameters
    ----------
    label, acted : (n,) int64
        The true class and the predicted class, -1 for an absent one and for a faulty label.
    label_faults : Faults
        The faults of labels, which do not reject the answers.
    probability : (n,) float64 or None
        The probability with which the label was picked, NaN if absent; None if all are absent.
    version : list of str or None
        None if no record has a version.
    groups : mapping of str to (tuple of str, (n,) int64)
    features : (n, F) float64
        See `Batch`.
    truth : (n,) float64 or None
        The true numbers; None if the labels are classes.
    """

    label: Ints
    label_faults: Faults
    acted: Ints
    probability: Floats | None
    version: Sequence[str] | None
    groups: Mapping[str, tuple[tuple[str, ...], Ints]]
    features: Floats
    truth: Floats | None = None


def read_answers(
    layout: TaskLayout, columns: Columns, chosen: Ints, places: Places, rejects: RejectList
) -> Batch | None:
    """Return the usable answers of one task as a batch, or None if there are none.

    Parameters
    ----------
    layout : TaskLayout
    columns : Columns
    chosen : (m,) int64
        The indices of the records that hold answers of this task.
    places : Places
    rejects : RejectList
        Receives the unusable records, answers and labels.
    """
    faults = Faults(len(chosen))
    fields = _read_fields(layout, columns, chosen, faults)
    rejects.add_all(faults, chosen, columns.weight, lambda _: layout.name)
    rows = _expand(columns, chosen, layout)
    row_faults = Faults(len(rows.values))
    scores = _read_scores(layout, columns, chosen, rows, row_faults)
    predictions = _read_predictions(layout, rows, row_faults)
    for row, fault in row_faults.by_row.items():
        if int(rows.owner[row]) not in faults.by_row:
            rejects.add(int(chosen[rows.owner[row]]), fault, 1, layout.name)
    if faults.by_row or row_faults.by_row:
        kept = np.flatnonzero(faults.good()[rows.owner] & row_faults.good())
        rows, scores = rows.take(kept), scores[kept]
        predictions = None if predictions is None else predictions[kept]
    if fields.label_faults.by_row:
        used = frozenset(rows.owner.tolist())
        for row, fault in fields.label_faults.by_row.items():
            if row in used:
                rejects.add(int(chosen[row]), fault, 0, layout.name, along=True)
    if not len(rows.owner):
        return None
    batch = _batch(layout, fields, rows, scores, chosen, places)
    if predictions is None or fields.truth is None:
        return batch
    return replace(batch, numbers=np.column_stack((predictions, fields.truth[rows.owner])))


def _read_fields(layout: TaskLayout, columns: Columns, chosen: Ints, faults: Faults) -> _Fields:
    pick = picker(chosen, columns.size)
    if not absent(columns.models):
        _check_several(columns, chosen, faults)
    label_faults, truth = Faults(len(chosen)), None
    if layout.numeric:
        label, truth = true_numbers(pick(columns.label), label_faults)
    else:
        label = true_classes(
            pick(columns.label), pick(columns.correct), pick(columns.prediction), layout, label_faults
        )
    probability = _label_probabilities(pick(columns.probability), label, label_faults)
    label[list(label_faults.by_row)] = -1
    return _Fields(
        label=label,
        label_faults=label_faults,
        probability=probability,
        acted=_acted_on(pick(columns.prediction), layout, faults),
        version=None if absent(columns.version) else encode_versions(pick(columns.version), layout, faults),
        groups=_groups(pick(columns.groups), layout, faults),
        features=encode_features(pick(columns.features), layout, faults),
        truth=truth,
    )


def _read_predictions(layout: TaskLayout, rows: _Rows, faults: Faults) -> Floats | None:
    """Return the predictions of the answers, (m,), or None if they are classes."""
    return read_predictions(rows.values, layout, rows.path, faults) if layout.numeric else None


def _read_scores(layout: TaskLayout, columns: Columns, chosen: Ints, rows: _Rows, faults: Faults) -> Floats:
    """Return the scores of the answers, (m, K), undefined for those in `faults`."""
    if layout.numeric:
        pick = picker(chosen[rows.owner], columns.size)
        scores = read_spreads(pick(columns.sigma), pick(columns.quantiles), layout, faults)
    else:
        if not absent(columns.confidence):
            _check_confidence(columns, chosen, layout, rows, faults)
        scores = score_matrix(rows.values, layout, rows.path, faults)
    check_names(rows.names, _model_path(rows), layout, faults)
    if columns.reads_labels:
        _suspect_labels(columns, chosen, rows, faults)
    return scores


def _batch(
    layout: TaskLayout, fields: _Fields, rows: _Rows, scores: Floats, chosen: Ints, places: Places
) -> Batch:
    owner = rows.owner
    record = chosen[owner]
    models, model = encode(rows.names)  # type: ignore[arg-type]
    versions: tuple[str, ...] = ("",)
    version = np.zeros_like(owner)
    if fields.version is not None:
        alone = len(owner) == len(fields.version) and bool((owner == np.arange(len(owner))).all())
        versions, version = encode(fields.version if alone else [fields.version[i] for i in owner.tolist()])
    predicted, key = fields.acted[owner], places.key[record]
    label = _once_a_record(fields.label[owner], owner, key)
    probability = np.full(len(owner), np.nan)
    if fields.probability is not None:
        probability = np.where(label < 0, np.nan, fields.probability[owner])
    return Batch(
        task=layout.name,
        scores=scores,
        predicted=np.where(predicted < 0, _largest(scores), predicted),
        model=model,
        models=models,
        version=version,
        versions=versions,
        time=places.time[record],
        key=key,
        label=label,
        groups={name: (values, code[owner]) for name, (values, code) in fields.groups.items()},
        order=places.order[record] + rows.offset,
        partition=places.partition[record],
        position=places.position[record],
        probability=probability,
        features=fields.features[owner],
        **_request_columns(places, record),
    )


def _request_columns(places: Places, record: Ints) -> dict[str, Any]:
    """Return `request` and `alone` of `Batch`, or nothing if no record is a row of a request."""
    if places.request is None or places.alone is None:
        return {}
    return {"request": places.request[record], "alone": places.alone[record]}


def _label_probabilities(values: Sequence[object], label: Ints, faults: Faults) -> Floats | None:
    """Return the probabilities with which labels were picked, NaN without a label.

    Return None if no record has one.
    """
    if absent(values):
        return None
    picked = [value if known else None for value, known in zip(values, (label >= 0).tolist(), strict=True)]
    return picking_probabilities(picked, faults)


def _once_a_record(label: Ints, owner: Ints, key: Keys) -> Ints:
    """Keep the label of a record with an id only on its first answer.

    The id joins the label to the other answers; a label in each row would count as several labels.
    """
    first = np.diff(owner, prepend=-1) != 0
    return np.where(first | (key == NO_ID), label, -1)


def _largest(scores: Floats) -> Ints:
    """Return the index of the largest score of each row, (n,); the first one if several are equal."""
    if scores.shape[1] == 2:
        return (scores[:, 1] > scores[:, 0]).astype(np.int64)  # four times as fast as argmax
    largest: Ints = np.argmax(scores, axis=1)
    return largest


def _acted_on(values: Sequence[Value], layout: TaskLayout, faults: Faults) -> Ints:
    if not layout.classes:
        return np.zeros(len(values), dtype=np.int64)  # an answer with a confidence has one class
    return encode_classes(values, "prediction", layout, faults)


def _groups(
    values: Sequence[Mapping[str, object] | None], layout: TaskLayout, faults: Faults
) -> Mapping[str, tuple[tuple[str, ...], Ints]]:
    return {name: encode_group(values, name, layout, faults) for name in layout.groups}


def _check_several(columns: Columns, chosen: Ints, faults: Faults) -> None:
    """Add a fault for a record with several models and a field that only one model can have."""
    fields: Mapping[str, Sequence[object]] = {
        "model": columns.model,
        "scores": columns.scores,
        "confidence": columns.confidence,
        "prediction": columns.prediction,
        "correct": columns.correct,
        "sigma": columns.sigma,
        "quantiles": columns.quantiles,
    }
    of_one_model = {name: column for name, column in fields.items() if not absent(column)}
    for row, record in enumerate(chosen.tolist()):
        models = columns.models[record]
        if models is None:
            continue
        if not models:
            message = "$.models: expected at least one model with its scores, got none"
            faults.add(row, RejectReason.NO_MODEL, message)
        for name, column in of_one_model.items():
            if column[record] is not None:
                message = f"$.{name}: not allowed beside models; send one record a model"
                faults.add(row, RejectReason.WRONG_TYPE, message)


def _expand(columns: Columns, chosen: Ints, layout: TaskLayout) -> _Rows:
    pick = picker(chosen, columns.size)
    name = "scores" if layout.classes else "prediction" if layout.numeric else "confidence"
    single: Sequence[Scores | None] = pick(getattr(columns, name))
    field = f"$.{name}"
    several = pick(columns.models)
    if absent(several):
        owner = np.arange(len(chosen), dtype=np.int64)
        return _Rows(single, pick(columns.model), owner, np.zeros_like(owner), lambda _: field)
    model = pick(columns.model)
    values: list[Scores | None] = []
    names: list[str | None] = []
    sizes = np.ones(len(chosen), dtype=np.int64)
    for i, models in enumerate(several):
        if models is None:
            values.append(single[i])
            names.append(model[i])
        else:
            values.extend(models.values())
            names.extend(models)
            sizes[i] = len(models)
    owner = np.repeat(np.arange(len(chosen), dtype=np.int64), sizes)
    offset = np.arange(len(owner), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)

    def path(row: int) -> str:
        return field if several[owner[row]] is None else f"$.models{step(names[row])}"

    return _Rows(values, names, owner, offset, path)


def _model_path(rows: _Rows) -> Callable[[int], str]:
    return lambda row: "$.models" if rows.path(row).startswith("$.models") else "$.model"


def _suspect_labels(columns: Columns, chosen: Ints, rows: _Rows, faults: Faults) -> None:
    """Report a missing label for a record that has an id and no part of an answer.

    Such a record is most likely a label without its value.
    """
    for row, (reason, _) in faults.by_row.items():
        record = int(chosen[rows.owner[row]])
        answer = (columns.models[record], columns.confidence[record], columns.prediction[record])
        is_empty = rows.names[row] is None and answer == (None, None, None)
        if reason is RejectReason.NO_SCORES and is_empty and columns.id[record] is not None:
            faults.by_row[row] = (RejectReason.NO_LABEL, _NEITHER)


def _check_confidence(
    columns: Columns, chosen: Ints, layout: TaskLayout, rows: _Rows, faults: Faults
) -> None:
    """Add a fault for a confidence without scores in a task with classes."""
    if not layout.classes:
        return
    for row, value in enumerate(rows.values):
        if value is None and columns.confidence[int(chosen[rows.owner[row]])] is not None:
            message = (
                f"$.confidence: task {layout.name} has classes and needs scores; "
                "leave classes out of its configuration if its models give a confidence only"
            )
            faults.add(row, RejectReason.NO_SCORES, message)
