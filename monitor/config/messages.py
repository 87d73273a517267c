"""Conversion of pydantic's errors to messages for the author of the configuration.

Each type of error has a template in `TEMPLATES`. The allowed values are taken from the JSON Schema, so that
each range is declared only once, in the model of its section.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from monitor.config.section import CrossCheckError, without_login

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]

_LONGEST_VALUE = 60
_SECRETS = frozenset({"options", "tokens", "url", "headers", "basic_auth"})  # values may be passwords
_LOGIN = re.compile(r"://[^\s/@]*@")


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a configuration: the path of the key, and a message."""

    path: Path
    text: str

    def __str__(self) -> str:
        # A user may write an address with a password under any key, for example as a name.
        return _LOGIN.sub("://…@", f"{show_path(self.path)}: {self.text}")


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an error in the schema, and the wrong value."""

    path: Path
    node: Schema
    parent: Schema
    value: Any
    context: Mapping[str, Any]
    root: Schema = field(repr=False)


OTHER_NAMES: Mapping[str, str] = {
    "roc_auc": "auroc",
    "auc": "auroc",
    "roc_auc_score": "auroc",
    "pr_auc": "average_precision",
    "auprc": "average_precision",
    "tpr": "recall",
    "sensitivity": "recall",
    "tnr": "specificity",
    "ppv": "precision",
    "f1_score": "f1",
    "expected_calibration_error": "ece",
}
"""Blindsight's name of a metric, by the names that other libraries use."""


def findings(error: ValidationError, schema: Schema) -> list[Finding]:
    """Return all problems in a pydantic error, in the order in which pydantic reports them.

    Parameters
    ----------
    error : ValidationError
    schema : mapping
        The JSON Schema of the validated model, with its `$defs`.
    """
    errors = error.errors(include_url=False)
    problems: list[Finding] = []
    for item in errors:
        place = _locate(schema, item["loc"], item.get("input"), item.get("ctx", {}))
        if item["type"] == "too_short" and _too_short_for_its_items(place):
            continue
        cause = place.context.get("error")
        if isinstance(cause, CrossCheckError):
            problems += [Finding(place.path + parse_path(key), text) for key, text in cause.problems]
            continue
        problems.append(TEMPLATES.get(item["type"], _expected)(place))
    return problems


def show_path(path: Path) -> str:
    """Format the path of a key as text.

    Examples
    --------
    >>> show_path(("tasks", "toxicity", "chart", "rules", 1)), show_path(("tasks", "is it spam?"))
    ('tasks.toxicity.chart.rules[1]', 'tasks["is it spam?"]')
    """
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            shown += f".{part}"
        else:
            shown += f"[{json.dumps(part, ensure_ascii=False)}]"
    return shown.removeprefix(".") or "top level"


def parse_path(key: str) -> Path:
    """Parse the key of a `Problem`, such as ``sources[1].name``, to a path within its section."""
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"\w+", key))


def nearest(name: str, allowed: Sequence[str]) -> str | None:
    """Return the allowed name that is closest to a wrong name; None if no allowed name is close.

    Examples
    --------
    >>> nearest("siz", ["size", "min_size", "max_age_seconds"]), nearest("colour", ["size"])
    ('size', None)
    """
    lower = {other.lower(): other for other in allowed}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    if not close and len(name) >= 3:
        close = [other for other in lower if name.lower() in other]
    return lower[close[0]] if close else None


def _likely(name: str, allowed: Sequence[str]) -> str | None:
    """Return our name of a metric that has this name in other libraries, otherwise the `nearest` name."""
    other = OTHER_NAMES.get(name.lower().replace("-", "_"))
    return other if other in allowed else nearest(name, allowed)


def _resolve(node: Schema, root: Schema) -> Schema:
    """Follow the references of a node; for an optional value, return the alternative that is not null."""
    while True:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rsplit("/", 1)[1]]
        elif "allOf" in node:  # pydantic before 2.9 writes a reference with a description like this
            node = node["allOf"][0]
        elif "anyOf" in node:
            node = next(branch for branch in node["anyOf"] if branch.get("type") != "null")
        else:
            return node


def _locate(root: Schema, loc: Sequence[str | int], value: Any, context: Mapping[str, Any]) -> _Place:
    path: list[str | int] = []
    node = parent = root
    for part in loc:
        node = _resolve(node, root)
        if part == "[key]":
            # The name itself is wrong, so the place is the mapping that contains the name.
            return _Place(tuple(path[:-1]), node, parent, value, context, root)
        if "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
            continue
        if "oneOf" in node and "type" not in node:  # a plain value or a mapping
            node = next(branch for branch in node["oneOf"] if ("$ref" in branch) == (part == "budget"))
            continue
        path.append(part)
        parent, node = node, _child(node, part)
    return _Place(tuple(path), _resolve(node, root), parent, value, context, root)


def _child(node: Schema, part: str | int) -> Schema:
    inner = node.get("properties", {}).get(part)
    if inner is None:
        inner = node.get("items") if isinstance(part, int) else node.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _too_short_for_its_items(place: _Place) -> bool:
    """Return whether a list would be long enough with its invalid entries, which have their own messages."""
    return isinstance(place.value, tuple | list) and len(place.value) >= place.node.get("minItems", 0)


def describe(node: Schema) -> str:
    """Describe in words the values that a node of a JSON Schema allows.

    Examples
    --------
    >>> describe({"type": "integer", "minimum": 10, "maximum": 1000000})
    'an integer from 10 to 1000000'
    >>> describe({"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 1})
    'a number above 0.5 and below 1'
    """
    if "enum" in node or "const" in node:
        return f"one of {', '.join(map(str, node.get('enum', [node.get('const')])))}"
    if "discriminator" in node:
        return f"a mapping with kind: {' | '.join(sorted(node['discriminator']['mapping']))}"
    kind = node.get("type")
    if kind in ("integer", "number"):
        return f"{'an integer' if kind == 'integer' else 'a number'}{_range(node)}"
    if kind == "string":
        return f"text{_length(node)}"
    if kind == "array":
        return "a list with at least one entry" if node.get("minItems") else "a list"
    if kind == "object":
        if "properties" in node:
            return f"a mapping with keys among {', '.join(node['properties'])}"
        return f"a mapping with {'at least one name' if node.get('minProperties') else 'names'} as keys"
    return {"boolean": "true or false"}.get(str(kind), "another value")


def _range(node: Schema) -> str:
    if "minimum" in node and "maximum" in node:
        return f" from {node['minimum']:.10g} to {node['maximum']:.10g}"
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    bounds = [f"{word} {node[key]:.10g}" for key, word in words.items() if key in node]
    return f" {' and '.join(bounds)}" if bounds else ""


def _length(node: Schema) -> str:
    if "maxLength" in node:
        return f" of {node.get('minLength', 0)} to {node['maxLength']} characters"
    return " that is not empty" if node.get("minLength") else ""


def _shown(value: Any, path: Path = ()) -> str:
    if _is_secret(path):
        return "a value that is not shown, as it may be secret"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return f"the date {value}"
    if isinstance(value, dict):
        return (
            "an empty mapping"
            if not value
            else f"a mapping with {', '.join(without_login(str(key)) for key in list(value)[:3])}"[:80]
        )
    if isinstance(value, list | tuple):
        return "an empty list" if not value else f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_VALUE:
        return "a huge number"
    text = repr(without_login(value) if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _hint(node: Schema, value: Any, path: Path) -> str:
    """Return the remedy if the value shows the cause of the mistake; otherwise an empty text."""
    kind = node.get("type")
    if kind == "array" and _is_secret(path):
        return ": write it as a list"
    if kind == "string" and "enum" not in node and isinstance(value, bool):
        return ": YAML reads yes, no, on, off, true and false as true or false; put the word in quotes"
    if path[-1:] == ("listen",) and isinstance(value, int) and not isinstance(value, bool):
        return f": write '127.0.0.1:{value}'"  # a port in quotes would be the next error
    if kind == "string" and "enum" not in node and isinstance(value, int | float | datetime.date):
        return ": put it in quotes"
    if kind in ("integer", "number") and isinstance(value, str):
        return _unquoted(value)
    if kind == "number" and _is_percentage(node, value):
        return f": write {value / 100:.10g}"
    if kind == "array" and isinstance(value, str | int | float) and not isinstance(value, bool):
        text = without_login(str(value))
        return f": write it as a list, [{text}]" if len(text) < _LONGEST_VALUE else ": write it as a list"
    if "enum" in node and isinstance(value, str):
        known = [str(name) for name in node["enum"]]
        close = _likely(value, known)
        return f"; did you mean {close!r}?" if close else ""
    if value is None and path:
        empty = "properties" in node and "required" not in node
        return f": give a value or leave the key out{'; {} takes the defaults' if empty else ''}"
    return ""


def _is_percentage(node: Schema, value: Any) -> bool:
    """Return whether a value for a share would be allowed if it were in per cent."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 < value <= 100:
        return False
    if node.get("maximum", node.get("exclusiveMaximum")) != 1:
        return False
    share, above = value / 100, node.get("exclusiveMinimum", -1)
    return bool(above < share and node.get("minimum", 0) <= share < node.get("exclusiveMaximum", 2))


def _unquoted(value: str) -> str:
    """Return the remedy for a number that YAML reads as text, such as 1e3 or a number in quotes."""
    try:
        number = float(value)
    except ValueError:
        return ""
    return f": write {number:.15g}, without quotes" if abs(number) < 1e15 else ""


def _expected(place: _Place) -> Finding:
    shown = _shown(place.value, place.path)
    if isinstance(place.value, float) and place.node.get("type") == "integer":
        shown = f"{place.value!r}"
    hint = _hint(place.node, place.value, place.path) or _as_section(place)
    return Finding(place.path, f"expected {describe(place.node)}, got {shown}{hint}")


def _as_section(place: _Place) -> str:
    """Return the remedy for a value that stands in place of its section, such as ``window: 500``.

    The value belongs to a key that has it among its choices, or else to the first key of the section.
    """
    value = place.value
    if isinstance(value, bool) or not isinstance(value, str | int | float) or _is_secret(place.path):
        return ""
    keys = {key: _resolve(node, place.root) for key, node in place.node.get("properties", {}).items()}
    chosen = [key for key, node in keys.items() if value in node.get("enum", ())]
    plain = [key for key in list(keys)[:1] if _takes(keys[key], value)]
    return "".join(f": write {{{key}: {without_login(str(value))}}}" for key in (chosen or plain)[:1])


def _takes(node: Schema, value: str | int | float) -> bool:
    """Return whether a key takes values of this type, of which it lists no choices."""
    types = ("string",) if isinstance(value, str) else ("integer", "number")
    return node.get("type") in types and "enum" not in node


def _is_secret(path: Path) -> bool:
    return not _SECRETS.isdisjoint(path)


def _own_text(place: _Place) -> Finding:
    return Finding(place.path, str(place.context["error"]))


def _missing(place: _Place) -> Finding:
    return Finding(place.path, f"missing; expected {describe(place.node)}")


def _unknown_key(place: _Place) -> Finding:
    name, allowed = str(place.path[-1]), list(place.parent.get("properties", {}))
    close = _likely(name, allowed)
    text = f"unknown key; did you mean {close!r}?" if close else "unknown key."
    if home := _section_that_has(name, place):
        text = f"unknown key here; it belongs under {home!r}."
    return Finding(place.path, f"{text} Allowed: {', '.join(allowed)}")


def _section_that_has(name: str, place: _Place) -> str | None:
    """Return the neighbouring section in which an unknown key would be valid; None if there is none."""
    for key, inner in place.parent.get("properties", {}).items():
        if name in _resolve(inner, place.root).get("properties", {}):
            return str(key)
    return None


def _bad_name(place: _Place) -> Finding:
    text = f"expected names as text, got {_shown(place.value)} as a name"
    return Finding(place.path, f"{text}{_hint({'type': 'string'}, place.value, place.path)}")


def _bad_key(place: _Place) -> Finding:
    text = f"expected keys as text, got {_shown(place.value)} as a key"
    return Finding(place.path[:-1], f"{text}. Allowed: {', '.join(place.parent.get('properties', {}))}")


def _string(place: _Place) -> Finding:
    """Return the finding for a value or a mapping key that is not a text."""
    return _expected(place) if place.node.get("type") == "string" else _bad_name(place)


def _bad_tag(place: _Place) -> Finding:
    kinds: dict[str, Any] = {"enum": sorted(place.node["discriminator"]["mapping"])}
    value = place.value["kind"] if isinstance(place.value, dict) else None
    text = f"expected {describe(kinds)}, got {_shown(value)}{_hint(kinds, value, place.path)}"
    return Finding((*place.path, "kind"), text)


def _no_tag(place: _Place) -> Finding:
    kinds: dict[str, Any] = {"enum": sorted(place.node["discriminator"]["mapping"])}
    return Finding((*place.path, "kind"), f"missing; expected {describe(kinds)}")


TEMPLATES: Mapping[str, Callable[[_Place], Finding]] = {
    "bool_type": _expected,
    "dict_type": _expected,
    "extra_forbidden": _unknown_key,
    "finite_number": _expected,
    "float_type": _expected,
    "greater_than": _expected,
    "greater_than_equal": _expected,
    "int_type": _expected,
    "invalid_key": _bad_key,
    "less_than": _expected,
    "less_than_equal": _expected,
    "literal_error": _expected,
    "missing": _missing,
    "model_attributes_type": _expected,
    "model_type": _expected,
    "string_too_long": _expected,
    "string_too_short": _expected,
    "string_type": _string,
    "string_unicode": _expected,
    "too_short": _expected,
    "tuple_type": _expected,
    "union_tag_invalid": _bad_tag,
    "union_tag_not_found": _no_tag,
    "value_error": _own_text,
}
"""The template for each type of error that the schema can raise; a test checks that no type is missing."""
