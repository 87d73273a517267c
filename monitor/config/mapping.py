"""The `mapping` of a source: the path of each field, for records whose fields have other names."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from monitor.base.registry import FORMATS
from monitor.config.section import OneOf, Problem, Section, demand, describe_tags

FieldPath = tuple[str | int, ...]
"""The steps from a record to a field: keys of objects and indices of arrays."""

_STEP = re.compile(r"""\.?([^.\[\]"\\\s\x00-\x1f]+)|\["([^"\\\x00-\x1f]+)"\]|\[(\d{1,4})\]""")
_IN_TEXT = "|json"


class _JsonText(str):
    """The type of `JSON_TEXT`, the step that parses a text as JSON. The step is not equal to any key."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = str.__hash__


JSON_TEXT = _JsonText(_IN_TEXT)
"""The step of a path that parses a text as JSON, written `|json`."""

MISSING: Any = object()
"""The result of `lookup` if a record has no value at a path."""


def parse_field_path(text: str) -> FieldPath:
    """Parse a path and return its steps. Raise ValueError if the text is not a path.

    Parameters
    ----------
    text : str
        Keys separated by dots. ``[0]`` is an index of an array, from 0; ``["a.b"]`` is a key with a dot, a
        bracket or a blank; ``name|json`` and ``[0]|json`` parse the text at this place as JSON.

    Examples
    --------
    >>> parse_field_path('outputs[0].data'), parse_field_path('["a.b"].c')
    (('outputs', 0, 'data'), ('a.b', 'c'))
    >>> parse_field_path("response|json.predictions[0]")
    ('response', '|json', 'predictions', 0)
    >>> parse_field_path('choices[0]|json.p')
    ('choices', 0, '|json', 'p')
    >>> parse_field_path("a..b")
    Traceback (most recent call last):
    ValueError: expected a path such as payload.probs, outputs[0].data or ["a.b"].c, got 'a..b'
    """
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        dotted = bool(steps) and step is not None and step[1] is not None and step[0] != _IN_TEXT
        if step is None or step[0].startswith(".") != dotted:
            break
        name = step[1]
        if step[0] == _IN_TEXT and steps:  # `|json` after an index, or after a name in quotes
            steps.append(JSON_TEXT)
        elif name is not None and name.endswith(_IN_TEXT) and name != _IN_TEXT:
            steps += [name.removesuffix(_IN_TEXT), JSON_TEXT]
        else:
            steps.append(int(step[3]) if step[3] is not None else name or step[2])
        at = step.end()
    if at < len(text) or not steps or isinstance(steps[0], int):
        raise ValueError(
            f'expected a path such as payload.probs, outputs[0].data or ["a.b"].c, got {text[:60]!r}'
        )
    return tuple(steps)


def lookup(value: object, path: FieldPath) -> Any:
    """Return the value at a path in a decoded record, or `MISSING`.

    Examples
    --------
    >>> lookup({"a": [{"b": 1}]}, ("a", 0, "b")), lookup({"a": 1}, ("a", "b")) is MISSING
    (1, True)
    """
    for step in path:
        if step is JSON_TEXT:
            value = _in_text(value)
            there = value is not MISSING
        elif isinstance(step, str):
            there = isinstance(value, dict) and step in value
        else:
            there = isinstance(value, list) and step < len(value)
        if not there:
            return MISSING
        if step is not JSON_TEXT:
            value = value[step]  # type: ignore[index]
    return value


def _in_text(value: object) -> Any:
    """Parse a text as JSON.

    Return an object or array unchanged, because some writers do not encode it as text.
    """
    if isinstance(value, dict | list):
        return value
    try:
        return json.loads(value) if isinstance(value, str) else MISSING
    except (ValueError, RecursionError):
        return MISSING


TimeUnit = Literal["seconds", "milliseconds", "microseconds", "nanoseconds"]

UNITS: Mapping[TimeUnit, float] = {
    "seconds": 1.0,
    "milliseconds": 1e3,
    "microseconds": 1e6,
    "nanoseconds": 1e9,
}
"""The number of units in a second, by unit."""

PATHS: tuple[str, ...] = (
    *("id", "time", "task", "model", "scores", "confidence", "prediction", "sigma", "version"),
    *("label", "correct", "probability", "draw"),
)
"""The fields of a record that have a single path in a mapping."""

BESIDE = ("$key", "$timestamp", "$headers")
"""The first steps of paths to the metadata of a Kafka message. The name of a header follows `$headers`."""

PLACEHOLDERS: Mapping[str, str] = {
    "model": "<name of the model>",
    "time_zone": "<zone of times without an offset, such as UTC or Europe/Berlin>",
    "class": "<class of score {}>",
    "reference": "<file of answers with labels>",
    "tolerance": "<largest error of a right answer>",
}
"""The placeholders that `doctor` and `init` write for values that only the user knows.

A configuration with a placeholder is not valid.
"""


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder, which the user must replace."""
    return re.fullmatch(r"<.+>", value) is not None


_OFFSET = re.compile(r"[+-]\d\d:\d\d")


def _path(what: str, example: str) -> str | None:
    field: str | None = Field(
        default=None, min_length=1, max_length=500, description=what, examples=[example]
    )
    return field


class Constants(Section):
    """Values of fields that are the same for all records of a source, and missing in the records."""

    task: str | None = Field(
        default=None, min_length=1, description="The task of every record.", examples=["toxicity"]
    )
    model: str | None = Field(
        default=None, min_length=1, description="The model of every record.", examples=["erm"]
    )
    version: str | None = Field(
        default=None, min_length=1, description="The model's version.", examples=["2026-11"]
    )


_ONE_OR_MORE = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})


def _placeholders(constants: Constants) -> Iterable[Problem]:
    """Yield a problem for each constant that is a placeholder."""
    for name, value in constants:
        if value is not None and is_placeholder(value):
            problem = f"expected the {name} of every record, got the placeholder {value!r}"
            yield f"constants.{name}", f"{problem}: write its name here"


class FieldMapping(Section):
    """The paths of the fields in the records of a source: dotted paths such as payload.probs[0].

    In a Kafka message ``$key``, ``$timestamp`` and ``$headers.NAME`` are paths too.

    With a mapping, a field without a path is absent, even if the record has a field with its name. Such a
    field often has another meaning. For example, `label` may be the predicted class.

    Examples
    --------
    >>> FieldMapping(id="request.uuid", class_scores={"ok": "p[0]", "toxic": "p[1]"}).paths["scores.ok"]
    'p[0]'
    """

    format: Annotated[str, OneOf(FORMATS)] | None = Field(
        default=None,
        description="The format of the records, if it is not plain JSON.",
        json_schema_extra=describe_tags(FORMATS),
        examples=["kserve"],
    )
    id: str | None = _path(
        "Path of the request's id, which joins labels; $key is a Kafka message's key. With format: kserve, "
        "the only value is body: the id of the response instead of that of the event.",
        "request.uuid",
    )
    id_hex_digits: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="Number of hexadecimal digits. An id that is a decimal number is written in "
        "hexadecimal, as in the labels. It is 16 for BentoML's request_id, 32 for its "
        "trace_id.",
        examples=[16],
    )
    id_digits: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="Number of digits to which an id that is a whole number is padded with zeros, as in the "
        "labels. With 1, 7.0 becomes 7, and 007 stays.",
        examples=[8],
    )
    id_prefix: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="The text with which ids begin in the labels. It is put before an id that does not "
        "begin with it.",
        examples=["req-"],
    )
    id_case: Literal["lower", "upper"] | None = Field(
        default=None,
        description="Convert ids to small or capital letters, if answers and labels differ in case.",
        examples=["lower"],
    )
    time: str | None = _path("Path of the time of the answer; $timestamp is a Kafka message's own.", "ts")
    time_unit: TimeUnit = Field(
        default="seconds",
        description="Unit of times that are numbers since the epoch.",
        examples=["milliseconds"],
    )
    time_zone: str | None = Field(
        default=None,
        min_length=1,
        description="Time zone of times without an offset: a name such as Europe/Berlin, UTC, or an "
        "offset such as +01:00. If an hour occurs twice in autumn, the first one counts.",
        examples=["Europe/Berlin"],
    )
    task: str | None = _path("Path of the task.", "meta.task")
    model: str | None = _path("Path of the model.", "deployment.name")
    scores: str | None = _path(
        "Path of the scores: an array in class order, an object by class, or the second class's number.",
        "out.p",
    )
    class_scores: dict[str, str] = Field(
        default={},
        description="The path of each class's probability, instead of scores.",
        examples=[{"ok": "out.p[0]", "toxic": "out.p[1]"}],
    )
    confidence: str | None = _path(
        "Path of the probability of being right, for a task without classes.", "out.confidence"
    )
    prediction: str | None = _path("Path of the class that was acted on, or of the number.", "out.class")
    sigma: str | None = _path("Path of the standard deviation of a predicted number.", "out.std")
    quantiles: dict[str, str] = Field(
        default={},
        description="The path of each quantile of a predicted number, by its level.",
        examples=[{"0.05": "out.low", "0.95": "out.high"}],
    )
    version: str | None = _path("Path of the model's version.", "deployment.version")
    groups: dict[str, str] = Field(
        default={}, description="The path of each group's value.", examples=[{"region": "meta.region"}]
    )
    features: dict[str, str] = Field(
        default={}, description="The path of each feature's value.", examples=[{"hour": "input.hour"}]
    )
    label: str | None = _path("Path of the true class.", "truth")
    label_values: dict[str, str] = Field(
        default={},
        description="The class for each label value that does not name a class. Keys are read as text: 1, "
        "true.",
        examples=[{"1": "toxic", "0": "ok"}],
    )
    where: dict[str, Annotated[tuple[str, ...], _ONE_OR_MORE]] = Field(
        default={},
        description="A condition on records: each of these paths must have this text, or one of these texts. "
        "Other records are ignored.",
        examples=[{"answer": "accept"}],
    )
    correct: str | None = _path(
        "Path of the verdict, true or false, on an answer of a task without classes.", "review.correct"
    )
    probability: str | None = _path(
        "Path of the probability with which a row was selected for labelling.", "review.probability"
    )
    draw: str | None = _path(
        "Path of the draw of a label's row: an object with round, number, pool, probability.", "review.draw"
    )
    constants: Constants = Field(
        default=Constants(), description="Values that are the same for every record."
    )

    @field_validator("label_values", "quantiles", "where", mode="before")
    @classmethod
    def _texts(cls, section: Any, field: ValidationInfo) -> Any:
        """Convert keys, and values that are texts of records, to text, even if YAML read another type."""
        if not isinstance(section, dict):
            return section
        keys = [_as_text(key) for key in section]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"expected each value once, got {twice!r} twice, as text: leave one out")
        values = dict(zip(keys, section.values(), strict=True))
        if field.field_name == "quantiles":
            return values
        if field.field_name == "label_values":
            return {key: _as_text(value) for key, value in values.items()}
        several = {
            key: value if isinstance(value, list | tuple | dict) else [value] for key, value in values.items()
        }
        return {
            key: value if isinstance(value, dict) else tuple(map(_as_text, value))
            for key, value in several.items()
        }

    @model_validator(mode="after")
    def _fits(self) -> FieldMapping:
        demand(self._problems())
        return self

    @property
    def paths(self) -> Mapping[str, str]:
        """The configured paths by field; fields include `scores.<class>` and `groups.<name>`."""
        single = {name: path for name in PATHS if (path := getattr(self, name)) is not None}
        scores = {f"scores.{name}": path for name, path in self.class_scores.items()}
        groups = {f"groups.{name}": path for name, path in self.groups.items()}
        return {
            **single,
            **scores,
            **groups,
            **{f"features.{name}": path for name, path in self.features.items()},
            **{f"quantiles.{level}": path for level, path in self.quantiles.items()},
        }

    @property
    def beside(self) -> Mapping[str, str]:
        """The path of each field that is read from the metadata of a Kafka message, such as `$key`.

        A path with a quoted first step, such as `["$key"]`, leads to a field of the record.
        """
        return {name: path for name, path in self.paths.items() if _is_beside(path)}

    @property
    def reads_headers(self) -> bool:
        """True if the headers, the key or the time of a Kafka message are read."""
        return self.format is not None or bool(self.beside)

    def _problems(self) -> Iterable[Problem | None]:
        for name, path in self.paths.items():
            try:
                parse_field_path(path)
            except ValueError as error:
                yield _key(name), str(error)
                continue
            yield from _problems_beside(name, path)
        yield from _placeholders(self.constants)
        for name in ("time_unit", "time_zone"):
            if self.time == "$timestamp" and getattr(self, name) != FieldMapping.model_fields[name].default:
                yield name, "expected none beside time: $timestamp, which needs none: leave it out"
        if self.scores is not None and self.class_scores:
            yield "class_scores", "expected scores or class_scores, got both: leave one out"
        for name in ("task", "model", "version"):
            if getattr(self, name) is not None and getattr(self.constants, name) is not None:
                yield name, f"expected a path or constants.{name}, got both: leave one out"
        if self.format is not None and not FORMATS[self.format].paths:
            ids = FORMATS[self.format].ids
            for name, path in self.paths.items():
                if name == "id" and path in ids:
                    continue
                problem = f"expected no path with format: {self.format}, which defines all fields"
                other = f", or give id: {' or '.join(ids)}" if name == "id" and ids else ""
                yield _key(name), f"{problem}: leave one out{other}"
        elif not self.paths and (self.format is None or not FORMATS[self.format].holds_records):
            yield "", "expected the path of at least one field, got none: leave mapping out, or name them"
        if self.format is not None and FORMATS[self.format].holds_records:
            problem = f"expected a path into the row, which format: {self.format} reads, got {{}}"
            yield from ((_key(name), problem.format(path)) for name, path in self.beside.items())
        yield from self._problems_of_ids()
        yield from self._problems_of_values()
        if self.time is None and (self.time_zone is not None or self.time_unit != "seconds"):
            yield "time", "missing; time_unit and time_zone need it: give its path, or leave them out"
        if self.time_zone is not None and not _is_zone(self.time_zone):
            yield (
                "time_zone",
                "expected the name of a time zone such as Europe/Berlin, or an offset such as +01:00, "
                f"got {self.time_zone!r}",
            )

    def _problems_of_ids(self) -> Iterable[Problem]:
        """Yield the problems of the keys that translate ids, such as `id_prefix`."""
        has_path = self.id is not None and (self.format is None or FORMATS[self.format].paths)
        for name in ("id_hex_digits", "id_digits", "id_prefix", "id_case"):
            if getattr(self, name) is not None and not has_path:
                yield "id", f"missing; {name} needs it: give its path, or leave {name} out"

    def _problems_of_values(self) -> Iterable[Problem]:
        """Yield the problems of the keys `label_values` and `where`."""
        if self.label_values and self.label is None:
            yield "label", "missing; label_values needs it: give its path, or leave label_values out"
        for path, value in self.where.items():
            try:
                beside = parse_field_path(path)[0] in BESIDE
            except ValueError as error:
                yield "where", str(error)
                continue
            if beside or (self.format is not None and not FORMATS[self.format].paths):
                yield "where", f"expected paths into the record, got {path[:60]!r}: leave it out"
            if not any(value):
                yield "where", f"expected a text, or a list of some, at {path[:60]!r}, got none: list them"


def _as_text(value: Any) -> Any:
    """Return a scalar of YAML as the text that it has in JSON; return a mapping or list unchanged.

    Examples
    --------
    >>> _as_text(True), _as_text(1), _as_text(1.0), _as_text("TRUE"), _as_text(None)
    ('true', '1', '1.0', 'TRUE', 'null')
    """
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return str(value) if isinstance(value, int | float | datetime.date) else value


def _is_beside(path: str) -> bool:
    return path.startswith("$") and parse_field_path(path)[0] in BESIDE


def _problems_beside(name: str, path: str) -> Iterable[Problem]:
    """Yield the problems of a path if it leads to the metadata of a Kafka message."""
    if not _is_beside(path):
        return
    first, *rest = parse_field_path(path)
    if first == "$headers":
        if len(rest) != 1 or not isinstance(rest[0], str):
            yield _key(name), f'expected $headers.NAME or $headers["a name"], got {path[:60]!r}'
    elif rest:
        yield _key(name), f"expected {first} alone, which has no fields, got {path[:60]!r}"
    elif first == "$timestamp" and name != "time":
        yield _key(name), "expected another path than $timestamp, which is for time"


def _key(name: str) -> str:
    """Return the key of the mapping that has the path of a field."""
    parent, _, key = name.partition(".")
    return f"class_scores.{key}" if parent == "scores" and key else name


def _is_zone(name: str) -> bool:
    if _OFFSET.fullmatch(name):
        return int(name[1:3]) <= 23 and int(name[4:]) <= 59
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError; a folder is an OSError
        return False
    return True


MAPPING: FieldMapping | None = Field(
    default=None, description="The place of each field in the records, if they use other names."
)
"""The key `mapping`, which every source has."""
