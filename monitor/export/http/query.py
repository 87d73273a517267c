"""Parsing of a query into a struct whose fields are the parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from monitor.export.http.messages import RefusedError

MOST_NUMBER = 2**53 - 1
"""The largest whole number that every program reads from JSON exactly."""

_MOST_PARAMETERS = 50
_SHOWN_CHARACTERS = 60

T = TypeVar("T", bound=msgspec.Struct)


def parse_query(query: str, form: type[T]) -> T:
    """Parse a query into a struct.

    Parameters
    ----------
    query : str
        The query as it was sent.
    form : type of msgspec.Struct
        A struct whose fields are texts and numbers, with their ranges in `msgspec.Meta`.

    Raises
    ------
    RefusedError
        Status 400: the sentence names the parameter, its value and the allowed values.

    Examples
    --------
    >>> from typing import Annotated
    >>> limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
    >>> Parameters = msgspec.defstruct("Parameters", [("model", str), ("limit", limit, 100)])
    >>> parse_query("model=a%2Fb+c&limit=7", Parameters)
    Parameters(model='a/b c', limit=7)
    >>> parse_query("model=a&limit=0", Parameters)
    Traceback (most recent call last):
    monitor.export.http.messages.RefusedError: limit: expected a whole number from 1 to 500, got '0'.
    """
    known = {field.encode_name: field for field in msgspec.structs.fields(form)}
    texts: dict[str, str] = {}
    for name, value in _pairs(query):
        if name not in known:
            raise _wrong(f"expected parameters among {', '.join(known)}, got {_shown(name)}")
        if name in texts:
            raise _wrong(f"{name}: expected one value, got {_shown(texts[name])} and {_shown(value)}")
        texts[name] = value
    for name, field in known.items():
        if field.required and name not in texts:
            raise _wrong(f"{name}: expected {allowed(parameters(form)[name])}, got nothing: it must be given")
    values: dict[str, Any] = {}
    for name, value in texts.items():
        try:
            values[name] = msgspec.convert(value, known[name].type, strict=False)
        except msgspec.ValidationError:
            expected = allowed(parameters(form)[name])
            raise _wrong(f"{name}: expected {expected}, got {_shown(value)}") from None
    return msgspec.convert(values, form)


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise _wrong(f"expected at most {_MOST_PARAMETERS} parameters, got more") from None


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…")


def _wrong(sentence: str) -> RefusedError:
    return RefusedError(400, f"{sentence}.")


def parameters(form: type[msgspec.Struct]) -> Mapping[str, Mapping[str, Any]]:
    """Return the JSON Schema of each parameter (field of the struct), by its name."""
    schema = msgspec.json.schema(form)
    properties: Mapping[str, Mapping[str, Any]] = schema["$defs"][form.__name__]["properties"]
    return properties


def allowed(schema: Mapping[str, Any]) -> str:
    """Return a parameter's allowed values in words.

    Examples
    --------
    >>> allowed({"type": "integer", "minimum": 0, "maximum": 9}), allowed({"enum": ["json", "csv"]})
    ('a whole number from 0 to 9', 'one of json, csv')
    """
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema["type"] == "string":
        return "a text"
    return f"a whole number from {schema['minimum']} to {schema['maximum']}"


def some(names: Iterable[str], most: int = 5) -> str:
    """Join the first names for a sentence, and add the number of other names.

    Examples
    --------
    >>> some(["erm"]), some(map(str, range(7)), 2), some([])
    ('erm', '0, 1 and 5 more', 'none')
    """
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most:,} more" if len(distinct) > most else ""
    return ", ".join(_cut(name) for name in distinct[:most]) + more if distinct else "none"


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "…"
