"""Which mapping would read records that we cannot read: guessed from names and values, tried by who asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monitor.base.records import TaskLayout
from monitor.config.mapping import PLACEHOLDERS, FieldMapping, TimeUnit, parse_field_path

NAME_OF_MODEL = "blindsight: not known"
"""Stands for the name of a model while a mapping is tried."""

_MOST_DEPTH = 6
_MOST_ELEMENTS = 20
_SUM_TOLERANCE = 1e-3

_WORDS: Mapping[str, str] = {
    "id": "id uuid uid requestid eventid predictionid inferenceid traceid correlationid",
    "time": "time timestamp ts at datetime createdat eventtime occurredat requesttime",
    "model": "model modelname modelid net deployment classifier endpoint",
    "version": "version modelversion",
    "prediction": "prediction predicted pred predictedclass predictedlabel ypred decision",
    "label": "label truth target groundtruth actual ytrue truelabel trueclass",
    "task": "task",
}
_NAMES: Mapping[str, frozenset[str]] = {field: frozenset(words.split()) for field, words in _WORDS.items()}
_SCORE = re.compile(r"score|prob|proba|likelihood|confidence|softmax|^p\d*$")
_ALONE = re.compile(_SCORE.pattern + "|logit|percent")
_OUTPUT = re.compile(_ALONE.pattern + "|output")
_UNITS: Sequence[tuple[float, TimeUnit]] = (
    (1e17, "nanoseconds"),
    (1e14, "microseconds"),
    (1e11, "milliseconds"),
)


def propose(records: Sequence[Any], layout: TaskLayout, constants: Mapping[str, str]) -> FieldMapping | None:
    """The mapping that these records seem to need; None where no field of scores is found.

    Names decide what a field is; scores must look like probabilities too: numbers from 0 to 1, and an array
    or object of them sums to one. It is a guess: decode the records by it before it is shown.

    Parameters
    ----------
    records : sequence of dict
        Decoded, at least one.
    layout : TaskLayout
        The task they are of.
    constants : mapping of str to str
        Used where no record names a `model`; labels alone need none.

    Examples
    --------
    >>> record = {"req": {"uuid": "a"}, "deployment": "erm", "out": {"p_toxic": 0.75, "p_ok": 0.25}}
    >>> found = propose([record], TaskLayout("toxicity", ("ok", "toxic")), {})
    >>> found.id, found.model, found.class_scores
    ('req.uuid', 'deployment', {'ok': 'out.p_ok', 'toxic': 'out.p_toxic'})
    """
    leaves = {path: value for record in records[:10] for path, value in _leaves(record, "", 0)}
    scores = _scores(leaves, layout)
    single = {name: path for name in _NAMES if (path := _named(name, leaves))}
    if not scores and "label" not in single:
        return None
    found: dict[str, Any] = {**single, **scores}
    time = leaves.get(found.get("time", ""))
    unit = next((unit for above, unit in _UNITS if isinstance(time, int | float) and time >= above), None)
    if unit is not None:
        found["time_unit"] = unit
    if isinstance(time, str) and re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?", time):
        found["time_zone"] = "UTC"
    if "model" not in found and scores and constants:  # a label of one model joins no other's answer
        found["constants"] = dict(constants)
    try:
        return FieldMapping(**found)
    except ValueError:
        return None


def written(mapping: FieldMapping) -> dict[str, Any]:
    """A mapping as it is written down, with placeholders for what the records do not tell.

    Examples
    --------
    >>> written(FieldMapping(scores="p", constants={"model": NAME_OF_MODEL}))
    {'scores': 'p', 'constants': {'model': '<name of the model>'}}
    """
    found = mapping.model_dump(mode="json", exclude_defaults=True)
    if mapping.constants.model == NAME_OF_MODEL:
        found["constants"]["model"] = PLACEHOLDERS["model"]
    if mapping.time_zone is not None:
        found["time_zone"] = PLACEHOLDERS["time_zone"]
    return found


def vectors(records: Sequence[Any], layout: TaskLayout) -> dict[str, list[Any]]:
    """Fields that may be the scores by their names and lengths, whatever their numbers are.

    Parameters
    ----------
    records : sequence of dict
        Decoded.
    layout : TaskLayout
        The task they are of: an array has a number for each of its classes, an object a number by each; of
        two classes it may be one number.

    Returns
    -------
    dict
        What stands at each path, a row for each record that has it.

    Examples
    --------
    >>> vectors([{"out": {"logits": [-1.5, 1.5]}, "box": [3, 4]}], TaskLayout("toxicity", ("ok", "toxic")))
    {'out.logits': [[-1.5, 1.5]]}
    """
    found: dict[str, list[Any]] = {}
    for record in records:
        for path, value in _leaves(record, "", 0):
            alone = len(layout.classes) == 2 and _is_number(value) and _ALONE.search(_last(path))
            if alone or (_OUTPUT.search(_last(path)) and _has_a_number_a_class(value, layout.classes)):
                found.setdefault(path, []).append(value)
    return found


def named_path(field: str, records: Sequence[Any]) -> str | None:
    """The path of a field of ours in the first records, by the usual names of it; None where there is none.

    Examples
    --------
    >>> named_path("label", [{"id": 7, "out": {"y_true": "ok"}}]), named_path("time", [{"id": 7}])
    ('out.y_true', None)
    """
    leaves = {path: value for record in records[:10] for path, value in _leaves(record, "", 0)}
    return _named(field, leaves, (str, int, float))


def shares_of_classes(records: Sequence[Any]) -> tuple[str, ...]:
    """The classes that the names of the scores tell, in the order of the records; none where none tells.

    Examples
    --------
    >>> shares_of_classes([{"scores": {"ok": 0.25, "toxic": 0.75}}]), shares_of_classes([{"p": [0.25, 0.75]}])
    (('ok', 'toxic'), ())
    >>> shares_of_classes([{"scores.ok": 0.25, "scores.toxic": 0.75}])
    ('ok', 'toxic')
    >>> shares_of_classes([{"out": {"proba_late": 0.25, "proba_early": 0.5, "proba_none": 0.25}}])
    ('late', 'early', 'none')
    """
    for record in records[:10]:
        within = [("", record), *((p, v) for p, v in _leaves(record, "", 0) if isinstance(v, dict))]
        for path, value in within:
            shares = {name: each for name, each in value.items() if _is_share(each)}
            by_name = path and len(shares) == len(value) and _SCORE.search(_last(path))
            found = shares if by_name else _of_one_prefix(shares)
            if len(found) > 1 and abs(sum(found.values()) - 1) <= _SUM_TOLERANCE:
                return tuple(found)
    return ()


def _of_one_prefix(shares: Mapping[str, float]) -> dict[str, float]:
    """Of fields such as p_ok and p_toxic the shares, by what follows."""
    found: dict[str, dict[str, float]] = {}
    for name, share in shares.items():
        parts = re.fullmatch(
            r"(p|prob|proba|probability|probabilities|scores?)[_. -](.+)", name, re.IGNORECASE
        )
        if parts is not None:
            found.setdefault(parts[1], {})[parts[2]] = share
    return max(found.values(), key=len, default={})


def numbers_at(records: Sequence[Any]) -> tuple[int, str]:
    """How many classes the scores have that name none, and their path; 0 where there are no scores.

    Examples
    --------
    >>> numbers_at([{"id": 7, "out": {"probs": [0.2, 0.3, 0.5]}}]), numbers_at([{"score": 0.75}])
    ((3, 'out.probs'), (2, 'score'))
    """
    for record in records[:10]:
        named = [(p, v) for p, v in _leaves(record, "", 0) if _OUTPUT.search(_last(p)) and p[-1] != "]"]
        for path, value in named:
            if isinstance(value, list) and len(value) > 1 and all(map(_is_number, value)):
                return len(value), path
        for path, value in named:
            if _is_number(value) and _last(path) != "confidence":
                return 2, path
    return 0, ""


def _has_a_number_a_class(value: Any, classes: Sequence[str]) -> bool:
    if isinstance(value, dict):
        value = list(value.values()) if set(value) == set(classes) else []
    return (
        bool(value) and isinstance(value, list) and len(value) == len(classes) and all(map(_is_number, value))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every path in a record with what stands there, arrays and objects among them."""
    if path:
        yield path, value
    if depth == _MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            plain = re.fullmatch(r"[^.\[\]\"\\\s]+", name) is not None
            step = f".{name}".removeprefix("" if path else ".") if plain else f'["{name}"]'
            if plain or _is_path(step):
                yield from _leaves(inner, path + step, depth + 1)
    elif isinstance(value, list):
        for i, inner in enumerate(value[:_MOST_ELEMENTS]):
            yield from _leaves(inner, f"{path}[{i}]", depth + 1)


def _is_path(text: str) -> bool:
    try:
        parse_field_path(text)
    except ValueError:
        return False
    return True


def _last(path: str) -> str:
    name = str(parse_field_path(path)[-1])
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _named(field: str, leaves: Mapping[str, Any], kinds: tuple[type, ...] = ()) -> str | None:
    """The path whose last name is one of the field's; the least deep of several."""
    kinds = kinds or ((str, int, float) if field in ("time", "version") else (str, int))
    fitting = [
        path
        for path, value in leaves.items()
        if isinstance(value, kinds) and _last(path) in _NAMES[field] and not path.endswith("]")
    ]
    return min(fitting, key=lambda path: len(parse_field_path(path)), default=None)


def _scores(leaves: Mapping[str, Any], layout: TaskLayout) -> dict[str, Any]:
    if not layout.classes:
        path = next((p for p, v in leaves.items() if _is_share(v) and _SCORE.search(_last(p))), None)
        return {} if path is None else {"confidence": path}
    whole = [path for path, value in leaves.items() if _is_distribution(value, layout.classes)]
    if whole:
        return {"scores": min(whole, key=lambda path: (not _SCORE.search(_last(path)), len(path)))}
    each = {name: _of_class(name, leaves, layout.classes) for name in layout.classes}
    if all(each.values()):
        return {"class_scores": each}
    single = [p for p, v in leaves.items() if _is_share(v) and _SCORE.search(_last(p)) and p[-1] != "]"]
    return {"scores": single[0]} if len(layout.classes) == 2 and len(single) == 1 else {}


def _of_class(name: str, leaves: Mapping[str, Any], classes: Sequence[str]) -> str | None:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    fitting = [
        path
        for path, value in leaves.items()
        if _is_share(value) and re.fullmatch(rf"(p|prob|proba|probability|score)?{plain}", _last(path))
    ]
    return min(fitting, key=len, default=None)


def _is_share(value: Any) -> bool:
    return _is_number(value) and bool(0 <= value <= 1)


def _is_distribution(value: Any, classes: Sequence[str]) -> bool:
    if not _has_a_number_a_class(value, classes):
        return False
    numbers = list(value.values()) if isinstance(value, dict) else value
    return all(map(_is_share, numbers)) and abs(sum(numbers) - 1) <= _SUM_TOLERANCE
