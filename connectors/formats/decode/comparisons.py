"""Converts the records of arenas: comparisons of two models' answers, and later verdicts of humans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from connectors.formats.decode.columns import Columns, Places, RejectList, picker
from connectors.formats.decode.names import check_names, encode
from connectors.formats.decode.structs import Faults
from connectors.formats.decode.truth import picking_probabilities
from connectors.formats.messages.wording import shown
from monitor.base.records import NO_ID, Batch, Floats, Ints, LabelBatch, RejectReason, TaskLayout

_WINNERS = {"model_a": 0, "tie": 1, "tie (bothbad)": 1, "model_b": 2}
"""The class of each verdict; the public records of Chatbot Arena write "tie (bothbad)"."""
_SHARES = np.array([0.0, 0.5, 1.0, np.nan])  # b's share of the win by class; the last one is for no verdict


def read_comparisons(
    layout: TaskLayout, columns: Columns, chosen: Ints, places: Places, rejects: RejectList
) -> Batch | None:
    """Return the comparisons of one arena (a task that compares models in pairs).

    `Batch.other` holds the second model of each comparison. Return None if no record is usable. See
    `read_answers` for the parameters.
    """
    pick = picker(chosen, columns.size)
    faults = Faults(len(chosen))
    pair = [_models(list(pick(column)), name, layout, faults) for column, name in _sides(columns)]
    for row, (a, b) in enumerate(zip(*pair, strict=True)):
        if a == b and a is not None:
            message = f"$.model_b: expected another model than model_a, got {shown(b)} twice"
            faults.add(row, RejectReason.NO_MODEL, message)
    human = _winners(pick(columns.winner), "winner", pair, faults)
    judge = _judged(pick(columns.judge_winner), pick(columns.judge_b), pair, faults)
    chance = picking_probabilities(pick(columns.probability), faults)
    rejects.add_all(faults, chosen, columns.weight, lambda _: layout.name)
    keep = np.flatnonzero(faults.good())
    if not len(keep):
        return None
    kept, zeros = chosen[keep], np.zeros(len(keep), dtype=np.int64)
    names, code = encode([str(side[i]) for i in keep.tolist() for side in pair])
    return Batch(
        task=layout.name,
        scores=judge[keep, np.newaxis],
        predicted=zeros,
        model=code[::2],
        models=names,
        version=zeros,
        versions=("",),
        time=places.time[kept],
        key=places.key[kept],
        label=human[keep],
        groups={},
        order=places.order[kept],
        partition=places.partition[kept],
        position=places.position[kept],
        probability=np.where(human[keep] >= 0, chance[keep], np.nan),
        other=code[1::2],
    )


def read_verdicts(
    layout: TaskLayout, columns: Columns, chosen: Ints, places: Places, rejects: RejectList
) -> LabelBatch | None:
    """Return the verdicts of one arena as labels: 0 if `model_a` won, 1 for a tie, 2 if `model_b` won.

    Return None if no verdict is usable.

    See `read_answers` for the parameters.
    """
    pick = picker(chosen, columns.size)
    faults = Faults(len(chosen))
    for row, value in enumerate(pick(columns.winner)):
        if value is None:
            message = "$.winner: missing; give model_a, model_b or tie"
            faults.add(row, RejectReason.NO_LABEL, message)
    key = places.key[chosen]
    for row in np.flatnonzero(key == NO_ID).tolist():
        faults.add(row, RejectReason.NO_ID, "$.id: a verdict needs the id of its comparison, got none")
    winner = _winners(pick(columns.winner), "winner", None, faults)
    chance = picking_probabilities(pick(columns.probability), faults)
    rejects.add_all(faults, chosen, columns.weight, lambda _: layout.name)
    keep = np.flatnonzero(faults.good())
    if not len(keep):
        return None
    return LabelBatch(
        task=layout.name,
        key=key[keep],
        label=winner[keep],
        model=np.full(len(keep), -1, dtype=np.int64),
        models=(),
        time=places.time[chosen[keep]],
        probability=chance[keep],
        order=places.order[chosen[keep]],
    )


def _sides(columns: Columns) -> tuple[tuple[Sequence[Any], str], tuple[Sequence[Any], str]]:
    return (columns.model_a, "model_a"), (columns.model_b, "model_b")


def _models(values: list[Any], field: str, layout: TaskLayout, faults: Faults) -> list[str | None]:
    """Return the model names of one side, None in rows with a fault."""
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            faults.add(row, RejectReason.WRONG_TYPE, f"$.{field}: expected a string, got {shown(value)}")
            values[row] = None
    name_faults = Faults(len(values))
    check_names(values, lambda _: f"$.{field}", layout, name_faults)
    for row, fault in name_faults.by_row.items():
        faults.add(row, *fault)
        values[row] = None
    return values


def _winners(
    values: Sequence[Any], field: str, pair: Sequence[Sequence[str | None]] | None, faults: Faults
) -> Ints:
    """Return the class of each verdict, -1 for none; with a `pair`, a verdict may name the winning model."""
    classes = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        if value is None:
            continue
        names = () if pair is None else (pair[0][row], pair[1][row])
        if isinstance(value, str) and value in names:  # a model may be called tie
            classes[row] = 2 * names.index(value)
        elif isinstance(value, str) and value in _WINNERS:
            classes[row] = _WINNERS[value]
        else:
            other = " or one of the two models' names" if pair is not None else ""
            message = f"$.{field}: expected model_a, model_b, tie{other}, got {shown(value)}"
            faults.add(row, RejectReason.UNKNOWN_CLASS, message)
    return classes


def _judged(
    winner: Sequence[Any], chance: Sequence[Any], pair: Sequence[Sequence[str | None]], faults: Faults
) -> Floats:
    """Return the judge's probability that b wins, with a tie as 0.5, (n,); NaN without a judgement."""
    share: Floats = _SHARES[_winners(winner, "judge_winner", pair, faults)]
    for row, value in enumerate(chance):
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and 0 <= value <= 1:
            share[row] = value
            continue
        reason = RejectReason.OUT_OF_RANGE if number else RejectReason.WRONG_TYPE
        faults.add(row, reason, f"$.judge_b: expected a number from 0 to 1, got {shown(value)}")
    return share
