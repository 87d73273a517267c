"""Proposes mappings for records in an unknown format.

A proposal is a guess from the names and values of the fields. The caller decodes the records with the
proposed mapping before showing the mapping to a user.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import numpy as np

from connectors.formats.decode.names import is_no_value
from connectors.formats.decode.reread import whole_number
from connectors.formats.messages.explain import is_unicode, spelling
from connectors.formats.messages.wording import shown
from monitor.base.records import TaskLayout
from monitor.config.mapping import PLACEHOLDERS, FieldMapping, TimeUnit, parse_field_path

NAME_OF_MODEL = "blindsight: not known"
"""The placeholder for the name of a model while a mapping is tried."""

_MOST_DEPTH = 6
_MOST_ELEMENTS = 20
_SUM_TOLERANCE = 1e-3

_FEWEST = 10
"""The smallest number of records whose values suffice to identify a field."""

FEWEST_DIVIDED = 50
"""The smallest number of labels for which a separation by a threshold on the score shows that the labels
derive from the score."""

_WORDS: Mapping[str, str] = {
    "id": "id uuid uid requestid eventid predictionid inferenceid traceid correlationid",
    "time": "time timestamp ts at datetime createdat eventtime occurredat requesttime",
    "model": "model modelname modelid net deployment classifier endpoint",
    "version": "version modelversion",
    "prediction": "prediction predicted pred predictedclass predictedlabel predlabel ypred decision",
    "label": "label truth target groundtruth actual ytrue truelabel trueclass",
    "task": "task",
    "confidence": "confidence",
}
_NAMES: Mapping[str, frozenset[str]] = {field: frozenset(words.split()) for field, words in _WORDS.items()}
_NUMBER_WORDS: Mapping[str, str] = {
    "prediction": f"{_WORDS['prediction']} yhat forecast predictedvalue predictionvalue predvalue",
    "label": f"{_WORDS['label']} truevalue actualvalue observed",
    "sigma": "sigma std stddev stdev standarddeviation predictionstd predictedstd predstd ypredstd ystd",
}
_NUMBER_NAMES: Mapping[str, frozenset[str]] = {
    field: frozenset(words.split()) for field, words in _NUMBER_WORDS.items()
}
"""The usual field names of predicted and true numbers, and of the standard deviation of their error."""

_OF_TARGET = re.compile(
    r"(?:predicted|prediction|pred|forecast)[_. -]?(.+)"
    r"|(.+?)[_. -]?(?:predicted|prediction|pred|forecast|hat)",
    re.IGNORECASE,
)
_QUANTILE = re.compile(
    r"(?:.*[_. -])?(?:q|p|quantiles?|percentile)[_. -]?(0?\.\d{1,6}|\d{1,3})", re.IGNORECASE
)
_LEVEL = re.compile(r"0?\.\d{1,6}")
_TRUTHS = _NAMES["label"] - {"label", "target"}
"""The usual field names of the true class. `label` is not among them, because it may also be the answer of a
model."""

_RESPONSE_WORDS = "answer choices output outputs prediction predictions response responses result results"
_RESPONSES = frozenset(_RESPONSE_WORDS.split())
_SCORE = re.compile(r"score|prob|proba|likelihood|confidence|softmax|^p\d*$")
_EXACT_WORDS = (
    "score scores p prob probs proba probas probability probabilities softmax likelihood yscore "
    "yprob yproba ypredproba ypredprob predproba predprob predictedprobability predictionprobability "
    "predictionscore predictproba predictproba1 positiveprobability modelscore"
)
_EXACT = frozenset(_EXACT_WORDS.split())
_PROBABILITY = re.compile(r"prob|likelihood|softmax")
_CLASS_FIELD = re.compile(
    r"((?:.*[_. -])?(?:p|prob|proba|probability|probabilities|scores?|softmax)[_. -])(.+)"
    r"|(.+)([_. -](?:prob|proba|probability|score))"
    r"|((?:p|prob|proba|probability|score))(\d+)",
    re.IGNORECASE,
)
_OF_CLASS = re.compile(r"p[_. -]\w", re.IGNORECASE)
_ALONE = re.compile(_SCORE.pattern + "|logit|percent")
_OUTPUT = re.compile(_ALONE.pattern + "|output")
_WITHOUT_OFFSET = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
_UNITS: Sequence[tuple[float, TimeUnit]] = (
    (1e17, "nanoseconds"),
    (1e14, "microseconds"),
    (1e11, "milliseconds"),
)


class Sample:
    """A sample of records, from which the values at each path can be read.

    Attributes
    ----------
    rows : int
        The number of records.
    cells : dict of str to dict of int to object
        For each path, the values by the index of the record, without nulls and empty texts.

    Examples
    --------
    >>> sample = Sample([{"out": {"p": 0.5}}, {"out": {"p": None}}])
    >>> sample.cells["out.p"]
    {0: 0.5}
    """

    def __init__(self, records: Sequence[Any]) -> None:
        self.rows = len(records)
        self.cells: dict[str, dict[int, Any]] = {}
        for row, record in enumerate(records):
            for path, value in _leaves(record, "", 0):
                if value is not None and value != "":
                    self.cells.setdefault(path, {})[row] = value

    def first(self, path: str) -> Any:
        """Return the first value at a path, or None if no record has a value there."""
        return next(iter(self.cells.get(path, {}).values()), None)

    def column(self, path: str) -> list[Any]:
        """Return the value of each record at a path, None for records without a value."""
        cells = self.cells.get(path, {})
        return [cells.get(row) for row in range(self.rows)]


def propose(
    records: Sequence[Any], layout: TaskLayout, constants: Mapping[str, str], label: str = ""
) -> FieldMapping | None:
    """Return a guess of the mapping that these records need, or None if no mapping is likely.

    Without recognised scores, the result is a mapping for labels, if the records have labels and no field
    that looks like scores.

    Names identify the fields. Scores must also look like probabilities: numbers from 0 to 1, which sum to 1
    if they are in an array or object. A field `label` counts as the prediction if it is in a model's
    response, or in the same object as the score of the class that it names. If no name suggests the true
    class, the function chooses the column whose values are the names of the classes and agree with the
    scores. Decode the records with the mapping before you show the mapping.

    Parameters
    ----------
    records : sequence of dict
        One or more decoded records.
    layout : TaskLayout
        The task of the records.
    constants : mapping of str to str
        The constants of the mapping if no record has a field `model`. Labels without scores need no
        constants.
    label : str
        The path of the true class, if known.

    Examples
    --------
    >>> record = {"req": {"uuid": "a"}, "deployment": "erm", "out": {"p_toxic": 0.75, "p_ok": 0.25}}
    >>> mapping = propose([record], TaskLayout("toxicity", ("ok", "toxic")), {})
    >>> mapping.id, mapping.model, mapping.class_scores
    ('req.uuid', 'deployment', {'ok': 'out.p_ok', 'toxic': 'out.p_toxic'})
    """
    sample = Sample(records)
    if layout.numeric:
        return _numeric_mapping(sample, layout, constants, label)
    scores = _scores(sample, layout)
    scored = {row for path in _paths_of(scores) for row in sample.cells[path]}
    single = {name: path for name in _NAMES if (path := _named(name, sample, scored=scored))}
    single.pop("confidence", None)
    if scores and not _goes_along(sample, single.get("label"), single.get("id"), scores):
        single.pop("label", None)
    own = _own_class(sample, scores, single.get("label"))
    if own is not None:
        if not _is_one_of_several(own, scores):
            single.setdefault("prediction", own)
        single.pop("label", None)
    if _may_be_top_class(sample, scores, single.get("label")):
        single.pop("label")
    if label:
        single["label"] = label
    elif "label" not in single and scores and layout.classes:
        truth = label_by_values(sample, layout.classes, scores, {*single.values()})
        single |= {} if truth is None else {"label": truth}
    if not scores and ("label" not in single or _looks_scored(sample)):
        return None
    if not layout.classes and not ("prediction" in single and scores):
        single.pop("label", None)  # only beside the predicted class a label says whether the answer is right
    return _mapping({**single, **scores}, sample, constants if scores else {})


def _mapping(keys: dict[str, Any], sample: Sample, constants: Mapping[str, str]) -> FieldMapping | None:
    """Return the mapping with these paths, and with the form of the times and constants that they need."""
    time = sample.first(keys.get("time", ""))
    unit = next((unit for above, unit in _UNITS if isinstance(time, int | float) and time >= above), None)
    if unit is not None:
        keys["time_unit"] = unit
    if isinstance(time, str) and _WITHOUT_OFFSET.fullmatch(time):
        keys["time_zone"] = "UTC"
    if "model" not in keys and constants:  # a label of one model joins no other answers
        keys["constants"] = dict(constants)
    try:
        return FieldMapping(**keys)
    except ValueError:
        return None


def number_paths(sample: Sample, label: str = "") -> dict[str, Any]:
    """Return the paths of a predicted number, of what the model states about its error, and of the truth.

    The keys are fields of a mapping: `prediction`, `sigma`, `quantiles` and `label`, each only if a field has
    a usual name and numbers. Without a usual name, a number is the prediction of another one if the name of
    its field extends the name of the other one's: ``delay_pred`` and ``delay``. The median of the quantiles
    is the prediction if nothing else is.

    Parameters
    ----------
    sample : Sample
    label : str
        The path of the true number, if known.

    Examples
    --------
    >>> rows = [{"delay": 4.5, "delay_pred": 3.0, "std": 2.0}]
    >>> number_paths(Sample(rows))
    {'prediction': 'delay_pred', 'label': 'delay', 'sigma': 'std'}
    >>> number_paths(Sample([{"forecast": 3.0, "q05": -1.0, "q95": 8.0}]))
    {'prediction': 'forecast', 'quantiles': {'0.05': 'q05', '0.95': 'q95'}}
    """
    named = {field: path for field in _NUMBER_NAMES if (path := _number_named(field, sample))}
    if label:
        named["label"] = label
    if "prediction" not in named:
        named |= _predicted_and_true(sample, label)
    paths: dict[str, Any] = {
        field: named[field] for field in ("prediction", "label", "sigma") if field in named
    }
    quantiles = _quantile_paths(sample)
    if quantiles:
        paths["quantiles"] = quantiles
        if "0.5" in quantiles:
            paths = {"prediction": quantiles["0.5"], **paths}
    if "prediction" not in paths:
        return {"label": paths["label"]} if "label" in paths else {}
    return paths


def _number_named(field: str, sample: Sample) -> str | None:
    """Return the path of numbers whose last name is usual for a field of predicted numbers, or None."""
    fitting = [
        path
        for path, cells in sample.cells.items()
        if _last(path) in _NUMBER_NAMES[field]
        and (not path.endswith("]") or path.endswith('"]'))
        and _mostly(_is_number, cells.values())
    ]
    return min(fitting, key=lambda path: len(parse_field_path(path)), default=None)


def _predicted_and_true(sample: Sample, label: str) -> dict[str, str]:
    """Return the paths of a target and of its prediction, whose name extends the target's; {} if not unique.

    Parameters
    ----------
    sample : Sample
    label : str
        The path of the target; "" if it is not known.
    """
    numeric = {path for path, cells in sample.cells.items() if _mostly(_is_number, cells.values())}
    pairs = []
    for path in numeric:
        parent, name = _parted(path)
        match = _OF_TARGET.fullmatch(name)
        if match is not None:
            target = f"{parent}.{match[1] or match[2]}".removeprefix("." if not parent else "")
            if target in numeric and (not label or target == label):
                pairs.append({"prediction": path, "label": target})
    return pairs[0] if len(pairs) == 1 else {}


def _quantile_paths(sample: Sample) -> dict[str, str]:
    """Return the paths of quantiles by level, increasing; {} without two levels around the median.

    The name of a field has the level (``q0.05``, ``quantiles.0.05``) or the percentage (``p5``, ``q95``). In
    nearly every record, the numbers do not decrease with the level.
    """
    by_level: dict[float, str] = {}
    for path, cells in sample.cells.items():
        parent, name = _parted(path)
        match = _QUANTILE.fullmatch(name)
        digits = match[1] if match else ""
        if not digits and _LEVEL.fullmatch(name) and parent and _last(parent) == "quantiles":
            digits = name
        if digits and _mostly(_is_number, cells.values()):
            level = float(digits) if "." in digits else int(digits) / (1000 if len(digits) == 3 else 100)
            by_level.setdefault(level, path)
    levels = sorted(level for level in by_level if 0 < level < 1)
    if len(levels) < 2 or not levels[0] <= 0.5 <= levels[-1]:
        return {}
    columns = [sample.column(by_level[level]) for level in levels]
    rows = [row for row in zip(*columns, strict=True) if all(map(_is_number, row))]
    rising = sum(list(row) == sorted(row) for row in rows)
    if not rows or rising < 0.95 * len(rows):
        return {}
    return {str(level): by_level[level] for level in levels}


def _numeric_mapping(
    sample: Sample, layout: TaskLayout, constants: Mapping[str, str], label: str
) -> FieldMapping | None:
    """Return a guess of the mapping of records with predicted numbers, or of their labels; see `propose`."""
    numbers = number_paths(sample, label)
    if not numbers:
        return None
    quantiles = numbers.pop("quantiles", {})
    if layout.quantiles and quantiles.keys() >= set(map(str, layout.quantiles)):
        numbers["quantiles"] = {str(level): quantiles[str(level)] for level in layout.quantiles}
    answered = sample.cells.get(numbers.get("prediction", ""), {}).keys()
    fields = ("id", "time", "model", "version", "task")
    single = {name: path for name in fields if (path := _named(name, sample, scored=set(answered)))}
    return _mapping({**single, **numbers}, sample, constants if answered else {})


def zoned(mapping: FieldMapping) -> dict[str, Any]:
    """Return a mapping as keys of a configuration. The time zone is always present, even if it is a guess."""
    return mapping.model_dump(mode="json", exclude_defaults=True)


def written(mapping: FieldMapping) -> dict[str, Any]:
    """Return a mapping as keys of a configuration file, with placeholders for values that are unknown.

    Examples
    --------
    >>> written(FieldMapping(scores="p", constants={"model": NAME_OF_MODEL}))
    {'scores': 'p', 'constants': {'model': '<name of the model>'}}
    """
    keys = mapping.model_dump(mode="json", exclude_defaults=True)
    if mapping.constants.model == NAME_OF_MODEL:
        keys["constants"]["model"] = PLACEHOLDERS["model"]
    if mapping.time_zone is not None:
        keys["time_zone"] = PLACEHOLDERS["time_zone"]
    return keys


def vectors(records: Sequence[Any], layout: TaskLayout) -> dict[str, list[Any]]:
    """Return the values of the fields whose name and length suggest scores. The numbers are not checked.

    The scores of a record are an array with a number for each class, or an object with a number for each
    class name. With two classes, the scores may also be one number.

    Returns
    -------
    dict
        The values at each path, one for each record that has the path.

    Examples
    --------
    >>> vectors([{"out": {"logits": [-1.5, 1.5]}, "box": [3, 4]}], TaskLayout("toxicity", ("ok", "toxic")))
    {'out.logits': [[-1.5, 1.5]]}
    """
    values: dict[str, list[Any]] = {}
    for record in records:
        for path, value in _leaves(record, "", 0):
            alone = len(layout.classes) == 2 and _is_number(value) and _ALONE.search(_last(path))
            if alone or (_OUTPUT.search(_last(path)) and _has_a_number_a_class(value, layout.classes)):
                values.setdefault(path, []).append(value)
    return values


def named_path(field: str, records: Sequence[Any]) -> str | None:
    """Return the path of a field that has one of its usual names in the records, or None.

    Examples
    --------
    >>> named_path("label", [{"id": 7, "out": {"y_true": "ok"}}]), named_path("time", [{"id": 7}])
    ('out.y_true', None)
    """
    return _named(field, Sample(records), (str, int, float))


def shares_of_classes(records: Sequence[Any]) -> tuple[str, ...]:
    """Return the class names in the scores of the records, in order; () if the scores name no classes.

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
            by_class = shares if by_name else _largest_group(shares)
            if len(by_class) > 1 and abs(sum(by_class.values()) - 1) <= _SUM_TOLERANCE:
                return tuple(by_class)
    return tuple(class_paths(Sample(records)))


def class_paths(sample: Sample) -> dict[str, str]:
    """Return the path of each class's score if the names of the fields show the classes, else {}.

    Fields with scores share a prefix or suffix, such as ``y_pred_proba_``, or are adjacent columns with the
    names of the classes. In nearly every record, the values of such columns lie in 0 to 1 and sum to 1.

    Examples
    --------
    >>> class_paths(Sample([{"y_pred_proba_a": 0.25, "y_pred_proba_b": 0.75}]))
    {'a': 'y_pred_proba_a', 'b': 'y_pred_proba_b'}
    >>> class_paths(Sample([{"id": 7, "a": p, "b": 1 - p} for p in (0.25, 0.5, 0.75, 0.1, 0.2)]))
    {'a': 'a', 'b': 'b'}
    """
    shares = [path for path, cells in sample.cells.items() if all(map(_is_share, cells.values()))]
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for path in shares:
        parent, name = _parted(path)
        match = _CLASS_FIELD.fullmatch(name)
        if match is not None:
            before, after = match[1] or match[4] or match[5], match[2] or match[3] or match[6]
            groups.setdefault((parent, before), {})[after] = path
    named = [each for each in groups.values() if len(each) > 1 and _sum_to_one(sample, [*each.values()])]
    return (
        max(named, key=len, default={})
        or _listed_classes(sample, shares)
        or _columns_of_classes(sample, shares)
    )


def _listed_classes(sample: Sample, shares: Sequence[str]) -> dict[str, str]:
    """Return the path of the score of each class in an array of objects like ``{"label": …, "score": …}``.

    Each class must have a fixed place in the array, which an array sorted by the scores lacks.
    """
    paths: dict[str, str] = {}
    for path in shares:
        parent, name = _parted(path)
        if name and parent.endswith("]") and not parent.endswith('"]') and _SCORE.search(_last(path)):
            beside = {
                class_name(cell)
                for word in ("label", "class", "name")
                for cell in sample.cells.get(f"{parent}.{word}", {}).values()
            }
            if len(beside) == 1:
                paths[beside.pop()] = path
    return paths if len(paths) > 1 and _sum_to_one(sample, [*paths.values()]) else {}


def _columns_of_classes(sample: Sample, shares: Sequence[str]) -> dict[str, str]:
    """Return the longest run of adjacent columns with fractions that sum to 1, by name."""
    if sample.rows < _FEWEST // 2:
        return {}
    fields: dict[str, list[str]] = {}
    for path in sample.cells:
        parent, name = _parted(path)
        if name:
            fields.setdefault(parent, []).append(path)
    for paths in fields.values():
        real = [path in shares and _has_fractions(sample.cells[path].values()) for path in paths]
        runs = [
            paths[a:b]
            for a in range(len(paths))
            for b in range(len(paths), a + 1, -1)
            if b - a <= _MOST_ELEMENTS and all(real[a:b])
        ]
        for run in sorted(runs, key=len, reverse=True):
            if _sum_to_one(sample, run, nearly=1.0):
                return {_parted(path)[1]: path for path in run}
    return {}


def _has_fractions(values: Iterable[Any]) -> bool:
    return any(isinstance(value, float) for value in values)


def _sum_to_one(sample: Sample, paths: Sequence[str], nearly: float = 0.5) -> bool:
    """Return whether these numbers sum to 1 in at least a share `nearly` of the records with all of them."""
    rows = set.intersection(*(set(sample.cells[path]) for path in paths))
    sums = [sum(sample.cells[path][row] for path in paths) for row in rows]
    right = sum(abs(each - 1) <= _SUM_TOLERANCE for each in sums)
    return bool(sums) and right >= nearly * len(sums) and len(sums) >= 0.5 * sample.rows


def _parted(path: str) -> tuple[str, str]:
    """Split a path into its beginning and the name at its end, which is "" for an index.

    Examples
    --------
    >>> _parted("out.p_ok"), _parted("id"), _parted("p[0]"), _parted('out["a b"]')
    (('out', 'p_ok'), ('', 'id'), ('p', ''), ('out', 'a b'))
    """
    name = parse_field_path(path)[-1]
    if not isinstance(name, str):
        return path[: path.rindex("[")], ""
    whole = f'["{name}"]' if path.endswith("]") else name
    return path.removesuffix(whole).removesuffix("."), name


def label_by_values(
    sample: Sample, classes: Sequence[str], scores: Mapping[str, Any], known: set[str]
) -> str | None:
    """Return the path of the field whose values are class names that agree with the scores.

    Return None if there is no such field, or more than one.

    Parameters
    ----------
    sample : Sample
    classes : sequence of str
        The names of the classes, not placeholders.
    scores : mapping
        The proposed part of a mapping that gives the paths of the scores, under `scores` or `class_scores`.
    known : set of str
        The paths that are known to hold other fields.

    Examples
    --------
    >>> rows = [{"p": i / 40, "weekday": i % 2, "repaid": float(i > 18)} for i in range(40)]
    >>> label_by_values(Sample(rows), ["0", "1"], {"scores": "p"}, set())
    'repaid'
    """
    score_paths = set(_paths_of(scores))
    beside = {_parted(path)[0] for path in score_paths}
    likely = _most_likely(sample, classes, scores)
    gains: dict[str, float] = {}
    for path, cells in sample.cells.items():
        if path in known or path in score_paths or path.endswith("]") or len(cells) < _FEWEST:
            continue
        if _in_response(path) or (_parted(path)[0] and _parted(path)[0] in beside):
            continue
        names = named_classes(cells.values(), len(classes))
        values = {row: name for row, cell in cells.items() if (name := class_name(cell)) in names}
        if len(names) < 2 or not names <= set(classes):
            continue
        gain = _gain([(likely[row], name) for row, name in values.items() if row in likely])
        if gain > 0 and not _divided(sample, scores, values):
            gains[path] = gain
    best = sorted(gains, key=lambda path: -gains[path])
    if len(best) > 1 and gains[best[1]] > 0.5 * gains[best[0]]:
        return None
    return best[0] if best else None


def _divided(sample: Sample, scores: Mapping[str, Any], names: Mapping[int, str]) -> bool:
    """Return whether a threshold of the score divides many rows by two names, which then derive from it."""
    path = scores.get("scores") or [*scores.get("class_scores", {"": ""}).values()][-1]
    numbers = {
        row: value[-1] if isinstance(value, list) and value else value
        for row, value in sample.cells.get(path, {}).items()
    }
    sides: dict[str, list[float]] = {}
    for row, name in names.items():
        if _is_number(numbers.get(row)):
            sides.setdefault(name, []).append(numbers[row])
    if len(sides) != 2 or len(names) < FEWEST_DIVIDED:
        return False
    low, high = sorted(sides.values(), key=max)
    return max(low) < min(high)


def two_classes_of(sample: Sample, score: str) -> tuple[str, ...]:
    """Return the two values of the field that agrees with a score; () if no field or several fields agree.

    Examples
    --------
    >>> rows = [{"p": i / 40, "kept": i % 3 == 0, "outcome": ("bad", "good")[i > 18]} for i in range(40)]
    >>> two_classes_of(Sample(rows), "p")
    ('bad', 'good')
    """
    gains: dict[tuple[str, ...], float] = {}
    for path, cells in sample.cells.items():
        values = named_classes(cells.values(), 2)
        if path == score or path.endswith("]") or len(values) != 2 or len(cells) < _FEWEST:
            continue
        pair = tuple(sorted(values))
        for classes in (pair, pair[::-1]):
            likely = _most_likely(sample, classes, {"scores": score})
            names = {row: class_name(cell) for row, cell in cells.items() if row in likely}
            gain = _gain([(likely[row], name) for row, name in names.items() if name in values])
            gains[pair] = max(gains.get(pair, 0.0), gain)
    best = sorted(gains, key=lambda pair: -gains[pair])
    if not best or not gains[best[0]] or (len(best) > 1 and gains[best[1]] > 0.5 * gains[best[0]]):
        return ()
    return best[0]


def _paths_of(scores: Mapping[str, Any]) -> list[str]:
    """Return all paths of `scores`, `class_scores` or `confidence`."""
    parts = (each.values() if isinstance(each, dict) else [each] for each in scores.values())
    return [path for part in parts for path in part]


def _gain(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the share of agreeing pairs minus chance and four standard errors, at least 0."""
    if not pairs:
        return 0.0
    n = len(pairs)
    agreed = sum(a == b for a, b in pairs) / n
    left, right = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    chance = sum(left[name] * right[name] for name in left) / n**2
    sigma = float(np.sqrt(max(chance * (1 - chance), 1e-9) / n))
    return max(agreed - chance - 4 * sigma, 0.0)


def _most_likely(sample: Sample, classes: Sequence[str], scores: Mapping[str, Any]) -> dict[int, str]:
    """Return the class with the largest score of each record."""
    likely: dict[int, str] = {}
    if "class_scores" in scores:
        columns = {name: sample.column(path) for name, path in scores["class_scores"].items()}
        for row in range(sample.rows):
            values = {name: column[row] for name, column in columns.items() if column[row] is not None}
            if values:
                likely[row] = max(values, key=values.__getitem__)
        return likely
    for row, value in sample.cells.get(scores.get("scores", ""), {}).items():
        if isinstance(value, dict):
            likely[row] = str(max(value, key=value.__getitem__))
        elif isinstance(value, list) and len(value) == len(classes):
            likely[row] = classes[int(np.argmax(value))]
        elif _is_number(value) and len(classes) == 2:
            likely[row] = classes[int(value > 0.5)]
    return likely


def named_classes(cells: Iterable[Any], most: int = 0) -> set[str]:
    """Return the distinct values that may be names of classes.

    If there are more than `most` values, values such as NULL count as missing and are left out.

    Examples
    --------
    >>> sorted(named_classes(["ok", "NULL", 1.0, None], 2)), sorted(named_classes(["ok", "none"], 2))
    (['1', 'ok'], ['none', 'ok'])
    """
    named = {class_name(cell) for cell in cells if isinstance(cell, str | int | float)}
    return named if len(named) <= most else {x for x in named if not is_no_value(x)}


def class_name(cell: object) -> str:
    """Return the name of the class that a value means. For example, 1.0 becomes "1", and True becomes "true".

    Examples
    --------
    >>> class_name(1.0), class_name(True), class_name("ok")
    ('1', 'true', 'ok')
    """
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _goes_along(sample: Sample, label: str | None, id_: str | None, scores: Mapping[str, Any]) -> bool:
    """Return whether a label is in records with scores, or in records with an id, which joins them."""
    rows = sample.cells.get(label or "", {}).keys()
    scored = {row for path in _paths_of(scores) for row in sample.cells[path]}
    return not rows.isdisjoint(scored) or not rows.isdisjoint(sample.cells.get(id_ or "", {}).keys())


def _own_class(sample: Sample, scores: Mapping[str, Any], label: str | None) -> str | None:
    """Return the path of `label` if it is the answer of the model, or None if it may be the true class."""
    if label is None or not scores or _last(label) in _TRUTHS:
        return None
    parent, _ = _parted(label)
    if _in_response(label) or _is_one_of_several(label, scores):
        return label
    if top_class(sample, scores) == label:
        return label
    beside = parent and all(_parted(path)[0] == parent for path in _paths_of(scores))
    id_ = _named("id", sample)
    return label if beside and (id_ is None or _parted(id_)[0] != parent) else None


def _may_be_top_class(sample: Sample, scores: Mapping[str, Any], label: str | None) -> bool:
    """Return whether a label may be the class that its score belongs to.

    The records are too few to decide, and the label is beside one number.
    """
    if label is None or sample.rows >= _FEWEST or _last(label) != "label":
        return False
    path = scores.get("scores", "")
    return _is_number(sample.first(path)) and _parted(path)[0] == _parted(label)[0]


def _in_response(path: str) -> bool:
    """Return whether a path leads into the response of a model."""
    steps = {step for step in parse_field_path(path)[:-1] if isinstance(step, str)}
    return bool(_RESPONSES & steps) and _last(path) not in _TRUTHS


def _is_one_of_several(label: str, scores: Mapping[str, Any]) -> bool:
    """Return whether a label names the class of one score in an array of scores."""
    parents = {_parted(path)[0] for path in _paths_of(scores)}
    return len(parents) > 1 and _parted(label)[0] in parents


def top_class(sample: Sample, scores: Mapping[str, Any]) -> str | None:
    """Return the path of the class that a score belongs to, as in ``{"label": …, "score": …}``, or None.

    The function tells the score of the most likely class from the score of a fixed class. With K classes,
    only the score of a fixed class can be below 1/K. See `label_by_values` for the parameters.

    Examples
    --------
    >>> rows = [{"label": ("NEG", "POS")[i % 2], "score": 0.5 + i / 40} for i in range(20)]
    >>> top_class(Sample(rows), {"scores": "score"})
    'label'
    """
    path = scores.get("scores") or scores.get("confidence")
    if path is None or not all(map(_is_number, sample.cells.get(path, {0: None}).values())):
        return None
    values = sample.cells[path]
    parent, _ = _parted(path)
    class_fields = _NAMES["prediction"] | {"label", "class"}
    for other, cells in sample.cells.items():
        where, name = _parted(other)
        if where != parent or not name or _last(other) not in class_fields or _last(other) in _TRUTHS:
            continue
        rows = [row for row in values if isinstance(cells.get(row), str | int | bool)]
        names = {class_name(cells[row]) for row in rows}
        least = min((values[row] for row in rows), default=0.0)
        if len(rows) >= _FEWEST and len(names) > 1 and least >= 1 / len(names) and least >= 1 / 3:
            return other
    return None


def looks_scored(records: Sequence[Any]) -> bool:
    """Return whether a field of the records has a name that is usual for scores. The values are not checked.

    Examples
    --------
    >>> looks_scored([{"proba_ok": "0,25"}]), looks_scored([{"p_id": 7, "label": "ok"}])
    (True, False)
    """
    return _looks_scored(Sample(records))


def _looks_scored(sample: Sample) -> bool:
    """Return whether a field has a name that is usual for scores, whatever its values are."""
    return any(
        _rank(path) < _NO_SCORE and (not _is_of_class(path) or _is_share(first) or bool(spelling(first)))
        for path in sample.cells
        if (first := sample.first(path)) is not None
    )


def _is_of_class(path: str) -> bool:
    """Return whether a field has a name such as ``p_toxic``; in labels it may be ``p_id``, too."""
    return _OF_CLASS.match(str(parse_field_path(path)[-1])) is not None


_NO_SCORE = 3


def _rank(path: str) -> int:
    """Return how surely the name of a field means scores, from 0 for certain to 3 for no scores."""
    if path.endswith("]") and not path.endswith('"]'):
        return _NO_SCORE
    name = _last(path)
    if _is_of_class(path):
        return 2
    if name in _EXACT:
        return 0
    if _PROBABILITY.search(name) or name == "confidence":
        return 1
    return 2 if _SCORE.search(name) else _NO_SCORE


def _largest_group(shares: Mapping[str, float]) -> dict[str, float]:
    """Return the shares by class of the largest group of fields such as p_ok and p_toxic."""
    groups: dict[str, dict[str, float]] = {}
    for name, share in shares.items():
        parts = re.fullmatch(
            r"(p|prob|proba|probability|probabilities|scores?)[_. -](.+)", name, re.IGNORECASE
        )
        if parts is not None:
            groups.setdefault(parts[1], {})[parts[2]] = share
    return max(groups.values(), key=len, default={})


def numbers_at(records: Sequence[Any]) -> tuple[int, str]:
    """Return the number of classes and the path of the scores, for scores that do not name the classes.

    Return 0 and "" if there are no such scores.

    Examples
    --------
    >>> numbers_at([{"id": 7, "out": {"probs": [0.2, 0.3, 0.5]}}]), numbers_at([{"score": 0.75}])
    ((3, 'out.probs'), (2, 'score'))
    """
    for record in records[:10]:
        named = [
            (p, v)
            for p, v in _leaves(record, "", 0)
            if p[-1] != "]" and _OUTPUT.search(_last(_parted(p)[0] if p.endswith(".values") else p))
        ]
        for path, value in named:
            if isinstance(value, list) and len(value) > 1 and all(map(_is_number, value)):
                return len(value), path
    sample = Sample(records)
    single = _single(sample) or _single(sample, any_number=True)
    return (0, "") if single is None or _last(single) == "confidence" else (2, single)


def _single(sample: Sample, any_number: bool = False) -> str | None:
    """Return the path of the one number that is the score by its name and values, or None.

    Many features have a name that ends in score, so better names come first.
    """
    ranked = []
    for path, cells in sample.cells.items():
        rank = _rank(path)
        fits = all(map(_is_number if any_number else _is_share, cells.values()))
        # Flags of 0 and 1 are no probabilities, unless their name is that of scores.
        if rank == _NO_SCORE or not fits or (rank and all(x in (0, 1) for x in cells.values())):
            continue
        if not (any_number and rank == 2):
            ranked.append((rank, _last(path) == "confidence", len(parse_field_path(path)), path))
    return min(ranked)[-1] if ranked else None


def _has_a_number_a_class(value: Any, classes: Sequence[str]) -> bool:
    if isinstance(value, dict):
        value = list(value.values()) if set(value) == set(classes) else []
    return (
        bool(value) and isinstance(value, list) and len(value) == len(classes) and all(map(_is_number, value))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield each path in a record with its value, arrays and objects included."""
    if path:
        yield path, value
    if depth == _MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            plain = re.fullmatch(r"[^.\[\]\"\\\s\x00-\x1f]+", name) is not None
            step = f".{name}".removeprefix("" if path else ".") if plain else f'["{name}"]'
            if (plain or _is_path(step)) and is_unicode(name):
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


@lru_cache(maxsize=4096)
def _last(path: str) -> str:
    name = str(parse_field_path(path)[-1])
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _named(
    field: str, sample: Sample, kinds: tuple[type, ...] = (), scored: Set[int] = frozenset()
) -> str | None:
    """Return the path whose last name is a usual name of a field, or None.

    Paths in most of the `scored` records come first, then the least deep ones.
    """
    kinds = kinds or ((str, int, float) if field in ("time", "version", "label") else (str, int))
    fitting = [
        path
        for path, cells in sample.cells.items()
        if _last(path) in _NAMES[field]
        and (not path.endswith("]") or path.endswith('"]'))
        and isinstance(_first_value(field, cells), kinds)
    ]

    def order(path: str) -> tuple[bool, int]:
        along = len(scored & sample.cells[path].keys()) if field != "label" else len(scored)
        return 2 * along < len(scored), len(parse_field_path(path))

    return min(fitting, key=order, default=None)


def _first_value(field: str, cells: Mapping[int, Any]) -> Any:
    """Return the first value; a whole float of an id as an integer, like the decoder."""
    first = next(iter(cells.values()))
    return whole_number(first) if field == "id" else first


def spelled_scores(records: Sequence[Any]) -> str:
    """Return a sentence about scores with a decimal comma or a per cent sign, or "" without such scores.

    Examples
    --------
    >>> spelled_scores([{"id": 7, "p_ok": "95 %"}])
    'p_ok: got "95 %"; this is a per cent sign: write 0.95'
    """
    for path, cells in Sample(records).cells.items():
        if _rank(path) < _NO_SCORE:
            for cell in cells.values():
                if hint := spelling(cell):
                    return f"{path}: got {shown(cell)}{hint}"
    return ""


def _scores(sample: Sample, layout: TaskLayout) -> dict[str, Any]:
    if not layout.classes:
        path = _single(sample)
        return {} if path is None else {"confidence": path}
    whole = [
        path
        for path, cells in sample.cells.items()
        if _mostly(lambda value: _is_distribution(value, layout.classes), cells.values())
    ]
    if whole:
        return {"scores": min(whole, key=lambda path: (not _SCORE.search(_last(path)), len(path)))}
    each = class_paths(sample)
    if set(each) == set(layout.classes):
        return {"class_scores": {name: each[name] for name in layout.classes}}
    by_class = {name: _class_path(name, sample) for name in layout.classes}
    if all(by_class.values()):
        return {"class_scores": by_class}
    single = _single(sample) if len(layout.classes) == 2 else None
    if single is None or top_class(sample, {"scores": single}) is not None:
        return {}
    return {"scores": single}


def _mostly(fits: Callable[[Any], bool], values: Any) -> bool:
    """Return whether at least half of the values fit."""
    fitting = [fits(value) for value in values]
    return 2 * sum(fitting) >= len(fitting)


def _class_path(name: str, sample: Sample) -> str | None:
    """Return the path of the score of a class by its name, or None."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    fitting = [
        path
        for path, cells in sample.cells.items()
        if _mostly(_is_share, cells.values())
        and re.fullmatch(rf"(p|prob|proba|probability|score)?{plain}", _last(path))
    ]
    return min(fitting, key=len, default=None)


def _is_share(value: Any) -> bool:
    return _is_number(value) and bool(0 <= value <= 1)


def _is_distribution(value: Any, classes: Sequence[str]) -> bool:
    if not _has_a_number_a_class(value, classes):
        return False
    numbers = list(value.values()) if isinstance(value, dict) else value
    return all(map(_is_share, numbers)) and abs(sum(numbers) - 1) <= _SUM_TOLERANCE
