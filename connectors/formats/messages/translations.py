"""Guesses translations of ids and labels with which labels join predictions. The caller tries each guess."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from connectors.formats.decode.names import meant_class, same_name
from connectors.formats.wires.mapped import id_reader
from monitor.config.mapping import FieldMapping

_MOST_TRIED = 50  # ids of each of the two sets
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


def translated_ids(
    ids: Collection[str], wanted: Collection[str], knows: Callable[[str], bool] | None = None
) -> dict[str, Any]:
    """Return the mapping keys that turn the most ids into wanted ids, or {} if no key helps.

    Parameters
    ----------
    ids : collection of str
        The ids of the source. The keys are for this source's mapping.
    wanted : collection of str
        The ids that must be joined, or a part of them.
    knows : callable, optional
        A function that returns whether an id is among all ids that must be joined. By default, `wanted` has
        all of them.

    Examples
    --------
    >>> translated_ids(["81", "82"], ["req-00081", "req-00082"])
    {'id_digits': 5, 'id_prefix': 'req-'}
    >>> translated_ids(["AB-7"], ["ab-7"]), translated_ids(["7.0", "8.0"], ["7", "8"])
    ({'id_case': 'lower'}, {'id_digits': 1})
    >>> translated_ids(["x"], ["y"])
    {}
    """
    sample, knows = list(ids)[:_MOST_TRIED], knows or frozenset(wanted).__contains__
    best: dict[str, Any] = {}
    most = sum(map(knows, sample))
    for keys in _candidates(list(wanted)[:_MOST_TRIED]):
        read = id_reader(FieldMapping.model_validate({"id": "id", **keys}))
        joined = sum(knows(read(id_)) for id_ in sample) if read is not None else 0
        if joined > most:  # of equally good ones, the first and shortest
            best, most = keys, joined
    return best


def _candidates(wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the translations that the wanted ids suggest, in rising number of keys."""
    parts = [match.groups() for id_ in wanted if (match := _NUMBERED.fullmatch(id_)) is not None]
    digits = dict.fromkeys([1, *(len(number) for _, number in parts)])
    prefixes = dict.fromkeys(prefix for prefix, _ in parts if 0 < len(prefix) <= 100)
    prefixes |= dict.fromkeys(match[0] for id_ in wanted if (match := re.match(r"[^\W\d_]+[-_:/.]", id_)))
    singles: list[dict[str, Any]] = [
        {"id_case": "lower"},
        {"id_case": "upper"},
        *({"id_digits": each} for each in digits if each <= 128),
    ]
    yield from singles
    for prefix in list(prefixes)[:5]:
        yield {"id_prefix": prefix}
        yield from ({**each, "id_prefix": prefix} for each in singles)


def translated_labels(values: Collection[str], classes: Sequence[str]) -> Mapping[str, str]:
    """Return a mapping to a class from each label value that is not a class name.

    Return {} if the class of any value is unknown.

    Examples
    --------
    >>> translated_labels(["TOXIC", "Ok", "ok"], ["ok", "toxic"])
    {'TOXIC': 'toxic', 'Ok': 'ok'}
    >>> translated_labels(["1", "false"], ["ok", "toxic"])
    {'1': 'toxic', 'false': 'ok'}
    >>> translated_labels(["spam"], ["ok", "toxic"])
    {}
    """
    known = frozenset(map(same_name, classes))
    translated: dict[str, str] = {}
    for value in values:
        if value in classes or same_name(value) in known:
            continue
        name = meant_class(value, classes)
        if name is None:
            return {}
        translated[value] = name
    return translated
