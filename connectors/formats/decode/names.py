"""Names in a column (models, versions, classes, groups) become indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

import numpy as np

from connectors.formats.decode.structs import MAX_NAME, Faults
from connectors.formats.messages.wording import listing, nearest, shown, values_are_shown
from monitor.base.records import Ints, Keys, RejectReason, TaskLayout, id_keys

Value = str | int | float | bool | None


def text_of(value: Value) -> str:
    """A scalar as JSON spells it, without quotes.

    Examples
    --------
    >>> text_of("a"), text_of(True), text_of(3), text_of(1.5)
    ('a', 'true', '3', '1.5')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode(names: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """The distinct names in order of appearance, and each row's index into them.

    Examples
    --------
    >>> encode(["b", "a", "b"])
    (('b', 'a'), array([0, 1, 0]))
    """
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) <= 1:
        return distinct, np.zeros(len(names), dtype=np.int64)
    return distinct, indices(names, {name: i for i, name in enumerate(distinct)})


def indices(names: Sequence[object], index: Mapping[object, int] | Mapping[str, int]) -> Ints:
    """Each name's index; every name must be there."""
    return np.fromiter(map(index.__getitem__, names), dtype=np.int64, count=len(names))  # type: ignore[arg-type]


def encode_ids(values: Sequence[str | int | None], faults: Faults) -> Keys:
    """Keys of ids (`monitor.base.records.id_keys`); integers are taken as their decimal text.

    Examples
    --------
    >>> keys = encode_ids(["81", 81, None], Faults(3))
    >>> bool(keys[0] == keys[1]), int(keys[2])
    (True, 0)
    """
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return np.zeros(len(values), dtype=np.uint64)
    if kinds == {str}:
        texts: list[str] = list(values)  # type: ignore[arg-type]
    else:
        texts = ["" if value is None else str(value) for value in values]
    if texts and (max(map(len, texts)) > MAX_NAME or "" in texts):
        for row, value in enumerate(values):
            if value == "":
                message = '$.id: expected 1 to 512 characters, got ""; leave it out where there is none'
                faults.add(row, RejectReason.BAD_ID, message)
            elif len(texts[row]) > MAX_NAME:
                size = len(texts[row])
                message = f"$.id: expected 1 to {MAX_NAME} characters, got {size}"
                faults.add(row, RejectReason.BAD_ID, message)
                texts[row] = ""
    return id_keys(texts)


def check_names(names: Sequence[str | None], path: Callable[[int], str], faults: Faults) -> None:
    """Find models without a name, and names that are too long to keep."""
    wrong = {name for name in set(names) if not name or len(name) > MAX_NAME}
    if not wrong:
        return
    for row, name in enumerate(names):
        if name not in wrong:
            continue
        if name:
            message = f"{path(row)}: expected at most {MAX_NAME} characters, got {len(name)}"
            faults.add(row, RejectReason.TOO_LARGE, message)
        else:
            message = f"{path(row)}: expected the name of the model, got {shown(name)}"
            faults.add(row, RejectReason.NO_MODEL, message)


def encode_versions(values: Sequence[str | int | float | None], faults: Faults) -> list[str]:
    """Versions as text, ``""`` where there is none."""
    if set(map(type, values)) == {str}:
        texts: list[str] = list(values)  # type: ignore[arg-type]
    else:
        texts = ["" if value is None else text_of(value) for value in values]
        for row, value in enumerate(values):
            if isinstance(value, float) and not isfinite(value):
                message = f"$.version: expected a string or a number, got {shown(value)}"
                faults.add(row, RejectReason.NOT_A_NUMBER, message)
                texts[row] = ""
    if max(map(len, texts), default=0) > MAX_NAME:
        for row, text in enumerate(texts):
            if len(text) > MAX_NAME:
                message = f"$.version: expected at most {MAX_NAME} characters, got {len(text)}"
                faults.add(row, RejectReason.TOO_LARGE, message)
                texts[row] = ""
    return texts


def encode_classes(values: Sequence[Value], field: str, layout: TaskLayout, faults: Faults) -> Ints:
    """Indices of classes, -1 where there is none. `field` is the name in messages."""
    if values.count(None) == len(values):
        return np.full(len(values), -1, dtype=np.int64)
    index = {name: i for i, name in enumerate(layout.classes)}
    found = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        if value is None:
            continue
        place = index.get(text_of(value), -1)
        found[row] = place
        if place < 0:
            faults.add(row, RejectReason.UNKNOWN_CLASS, unknown_class(f"$.{field}", value, layout))
    return found


def unknown_class(path: str, value: Value, layout: TaskLayout) -> str:
    """The sentence about a class that the task does not have."""
    allowed = listing(layout.classes)
    hint = nearest(text_of(value), layout.classes) if values_are_shown() else ""  # which says much of it
    return f"{path}: task {layout.name} has no class {shown(value)}; its classes are {allowed}{hint}"


def encode_group(
    values: Sequence[Mapping[str, object] | None], name: str, faults: Faults
) -> tuple[tuple[str, ...], Ints]:
    """The values of one watched group, and each row's index into them, -1 where absent."""
    index: dict[str, int] = {}
    found = np.full(len(values), -1, dtype=np.int64)
    for row, groups in enumerate(values):
        value = groups.get(name) if groups else None
        if value is None:
            continue
        if not isinstance(value, str | int | float):
            message = f"$.groups.{name}: expected a string, a number, true or false, got {shown(value)}"
            faults.add(row, RejectReason.WRONG_TYPE, message)
        elif len(text := text_of(value)) > MAX_NAME:
            message = f"$.groups.{name}: expected at most {MAX_NAME} characters, got {len(text)}"
            faults.add(row, RejectReason.TOO_LARGE, message)
        else:
            found[row] = index.setdefault(text, len(index))
    return tuple(index), found
