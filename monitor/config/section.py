"""The base class of every section of the configuration, and checks of values that sections share.

The models are strict: text never becomes a number, and true never becomes 1. They accept the types of YAML: a
list for a tuple, ``500.0`` for the integer 500, and an integer for a number.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self, Union, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    model_validator,
)
from pydantic_core import PydanticKnownError, core_schema

from monitor.base.registry import Entry, load

Problem = tuple[str, str]
"""The problem of a value: its key within a section (``""`` for the section itself), and a message."""


class CrossCheckError(ValueError):
    """The error of values that are allowed separately but not in combination."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{key}: {text}" if key else text for key, text in problems))


def demand(problems: Iterable[Problem | None]) -> None:
    """Raise a `CrossCheckError` with all problems, if there are any. None means no problem."""
    actual = [problem for problem in problems if problem is not None]
    if actual:
        raise CrossCheckError(actual)


def unique(key: str, names: Sequence[str]) -> Problem | None:
    """Return a problem if a name occurs more than once in a list; otherwise None."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    return (
        (key, f"expected each name once, got {twice[0]!r} {names.count(twice[0])} times") if twice else None
    )


def sane(key: str, names: Iterable[str], forbidden: str = "") -> Problem | None:
    """Return a problem if a name cannot be used in metrics and reports; otherwise None.

    A name must have 1 to 200 characters, without double quotes, control characters and `forbidden`
    characters.
    """
    for name in names:
        controls = any(unicodedata.category(character) in ("Cc", "Cs") for character in name)
        if not name.strip() or len(name) > 200 or controls or set(name) & set('"' + forbidden):
            without = "double quotes, equals signs" if "=" in forbidden else "double quotes"
            return key, (
                f"expected names of 1 to 200 characters without {without} or control characters, "
                f"got {name[:60]!r}"
            )
    return None


def without_login(text: str) -> str:
    """Return a text, for use in a message, without the user and the password of an address.

    Examples
    --------
    >>> without_login("http://agent:secret@alerts/am"), without_login("http://alerts:9093")
    ('…@alerts/am', 'http://alerts:9093')
    """
    login, _, rest = text.rpartition("@")
    return f"…@{rest}" if ":" in login else text


_PASSWORD = re.compile(r"(?i)\b(password|sslpassword|passwd|pwd)\s*=|://[^/@\s]*:[^/@\s]*@")


def holds_password(address: str) -> bool:
    """Return whether the address of a database contains a password.

    Examples
    --------
    >>> holds_password("postgresql://agent:secret@db/m"), holds_password("host=db user=agent")
    (True, False)
    """
    return _PASSWORD.search(address) is not None


def listen_address(text: str) -> tuple[str, int]:
    """Split an address to listen on, ``host:port``, into host and port. Port 0 means any free port.

    An IPv6 address needs brackets.

    Raises
    ------
    ValueError
        The text has a different form. A host is required, because ``:9109`` would open the port to every
        network.

    Examples
    --------
    >>> listen_address("127.0.0.1:9109"), listen_address("[::1]:0")
    (('127.0.0.1', 9109), ('::1', 0))
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65_535:
        raise ValueError(
            "expected an address and a port from 0 to 65535, such as '127.0.0.1:9109' or '[::1]:9109', "
            f"got {text!r}"
        )
    return match[1] or match[2], int(match[3])


def web_address(text: str) -> str:
    """Validate the public address of a page and return it without its trailing slash.

    Raises
    ------
    ValueError
        The text is not a web address, contains a user, or has a query or a fragment, so that no path can be
        appended.

    Examples
    --------
    >>> web_address("https://models.example/blindsight/")
    'https://models.example/blindsight'
    """
    if re.fullmatch(r"https?://[^\s\x00-\x1f/?#@{}\"'<>]+(?:/[^\s\x00-\x1f?#{}\"'<>]*)?", text) is None:
        raise ValueError(
            "expected an address such as 'https://models.example/blindsight', without a user, a query, "
            f"spaces, quotes and braces, got {without_login(text)!r}"
        )
    return text.rstrip("/")


class Section(BaseModel):
    """Base class of all sections. Sections are frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    files: ClassVar[tuple[str, ...]] = ()
    """The keys whose values are paths of files or folders."""

    def resolve(self, folder: str) -> Self:
        """Return the section with relative paths resolved from `folder`."""
        values = {key: getattr(self, key) for key in type(self).model_fields}
        resolved = {key: _resolve(value, folder, key in self.files) for key, value in values.items()}
        changed = {key: value for key, value in resolved.items() if value != values[key]}
        return self.model_copy(update=changed) if changed else self

    @model_validator(mode="before")
    @classmethod
    def _as_yaml_gives_it(cls, data: Any) -> Any:
        """Convert lists to tuples, and floats such as 500.0 to integers for fields of integers."""
        if not isinstance(data, dict):
            return data
        return {key: cls._natural(key, value) for key, value in data.items()}

    @classmethod
    def _natural(cls, key: str, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        if isinstance(value, float) and value.is_integer() and (field := cls.model_fields.get(key)):
            return int(value) if int in (field.annotation, *get_args(field.annotation)) else value
        return value


def _resolve(value: Any, folder: str, is_file: bool) -> Any:
    if isinstance(value, Section):
        return value.resolve(folder)
    if isinstance(value, tuple):
        return tuple(_resolve(each, folder, is_file) for each in value)
    if isinstance(value, dict):
        return {key: _resolve(each, folder, is_file) for key, each in value.items()}
    return os.path.normpath(os.path.join(folder, value)) if is_file and isinstance(value, str) else value


class OneOf:
    """A pydantic annotation for a text that must be a key of a table. The table is read at each validation.

    Examples
    --------
    >>> from typing import Annotated
    >>> from pydantic import TypeAdapter
    >>> kind = TypeAdapter(Annotated[str, OneOf({"round": Entry("shapes:Round", "without corners")})])
    >>> kind.validate_python("round"), kind.json_schema()
    ('round', {'enum': ['round'], 'type': 'string'})
    """

    def __init__(self, table: Mapping[str, Entry]) -> None:
        self._table = table

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": [*self._table], "type": "string"}

    def _checked(self, value: Any) -> Any:
        if isinstance(value, str) and value in self._table:
            return value
        raise PydanticKnownError("literal_error", {"expected": " or ".join(map(repr, self._table))})


class AnyKind:
    """A pydantic annotation for a section whose `kind` is a key of a table.

    The table is read at each validation, because kinds may be added to it.

    Parameters
    ----------
    table : mapping of str to Entry
        An entry for each kind. Its attribute `section` is the import path of the section's class.
    default : str or None
        The kind of a section without the key `kind`; None if the key is required.
    """

    def __init__(self, table: Mapping[str, Any], default: str | None = None) -> None:
        self._table, self._default = table, default

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: self.adapter().validate_python(value)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(self.adapter().core_schema)

    def adapter(self) -> TypeAdapter[Any]:
        """Return pydantic's adapter for the union of the sections of all kinds in the table."""
        return _adapter_of(tuple((tag, entry.section) for tag, entry in self._table.items()), self._default)


@lru_cache(maxsize=8)
def _adapter_of(sections: tuple[tuple[str, str], ...], default: str | None) -> TypeAdapter[Any]:
    kinds = {tag: load(section) for tag, section in sections}
    if default is None:
        any_of: Any = Union[tuple(kinds.values())]  # noqa: UP007
        return TypeAdapter(Annotated[any_of, Field(discriminator="kind")])

    def kind_of(value: Any) -> Any:
        return value.get("kind", default) if isinstance(value, dict) else getattr(value, "kind", default)

    any_of = Union[tuple(Annotated[kind, Tag(tag)] for tag, kind in kinds.items())]  # noqa: UP007
    # Pydantic writes this schema for a discriminator that is a required key.
    mapping = {tag: f"#/$defs/{kind.__name__}" for tag, kind in sorted(kinds.items())}
    described = {"discriminator": {"propertyName": "kind", "mapping": mapping}}
    return TypeAdapter(Annotated[any_of, Discriminator(kind_of), Field(json_schema_extra=described)])


def describe_tags(table: Mapping[str, Entry]) -> Callable[[dict[str, Any]], None]:
    """Return a function that appends the descriptions of a table's keys to the description in a JSON Schema.

    Examples
    --------
    >>> node = {"description": "The shape."}
    >>> describe_tags({"round": Entry("shapes:Round", "without corners")})(node)
    >>> node["description"]
    'The shape. round: without corners.'
    """

    def explain(node: dict[str, Any]) -> None:
        tags = [f"{tag}: {entry.text}." for tag, entry in table.items()]
        node["description"] = " ".join([node["description"], *tags])

    return explain
