"""Reads configuration files, which are strict YAML. An error lists all problems with their lines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from monitor.base.errors import ConfigError
from monitor.base.registry import TABLES
from monitor.config.messages import Finding, findings
from monitor.config.messages import Path as KeyPath
from monitor.config.root import Config

_MOST_BYTES = 1 << 20  # a configuration is short; a large file named by mistake must not fill the memory
_VARIABLE = re.compile(r"(\$?)\$\{([^}]*)\}")  # the first group: `$${` stands for `${`
_VARIABLE_NAME = re.compile(r"([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL | re.ASCII)
_SHORTEST_SECRET = 4  # characters; shorter values of variables are shown in messages


def load_config(path: str | Path) -> Config:
    r"""Read and validate a configuration file.

    Relative paths are resolved from the folder of the file, not from the working directory. In a value,
    `${NAME}` is replaced by an environment variable, and `${NAME:-default}` by a variable that may be unset
    or empty. `$${` means the text `${`. Without quotes, the resulting value may be read as a number, like any
    other value. Errors do not show the value of a variable, unless it is shorter than four characters.

    Parameters
    ----------
    path : str or Path
        A YAML file in UTF-8, at most 1 MiB.

    Raises
    ------
    ConfigError
        The file cannot be read, is not YAML, names a variable that is not set, or does not match the schema.
        The message has a line for each problem, with the path of the key, the value, the allowed values, the
        nearest valid name, and the line number. Combinations of values (`positive` must be one of `classes`)
        are checked only if each value is valid.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "config.yaml"
    >>> _ = file.write_text("tasks:\n  toxicity:\n    window: {siz: 200}\n")
    >>> load_config(file)
    Traceback (most recent call last):
    monitor.base.errors.ConfigError: ...config.yaml cannot be used:
      tasks.toxicity.window.siz: unknown key; did you mean 'size'? Allowed: size, ... (line 3)
    """
    path = Path(path)
    variables: dict[str, str] = {}
    data, line_of = _parse(_read(path), str(path), variables)
    try:
        config = config_from(data, name=str(path), line_of=line_of)
    except ConfigError as error:
        if not variables:
            raise
        raise ConfigError(_without_values(str(error), variables)) from None  # the cause holds the values
    return resolve_paths(config, path.parent)


def config_from(
    data: object, name: str = "The configuration", line_of: Callable[[KeyPath], int] | None = None
) -> Config:
    """Validate a configuration in memory, and return it. Raise a ConfigError that lists all problems.

    Parameters
    ----------
    data : object
        The mappings, lists, texts and numbers of a YAML document; not modified.
    name : str
        The subject of the error message.
    line_of : callable, optional
        A function that returns the line number of a key, for the message.
    """
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_message(name, findings(error, _schema()), line_of)) from error


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration, for editors.

    The schema describes every key, but not the combinations of values (`positive` must be one of `classes`).

    Examples
    --------
    >>> schema()["properties"]["tasks"]["description"]
    'The tasks of the models, by name.'
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_without_titles(_schema()),
        "title": "Blindsight configuration",
    }


def _schema() -> dict[str, Any]:
    """Return the schema that pydantic generates; it is cached until a table of tags changes."""
    return _schema_of(tuple(tuple(table.items()) for table in TABLES.values()))


@lru_cache(maxsize=1)
def _schema_of(tables: object) -> dict[str, Any]:
    return Config.model_json_schema()


def _without_titles(node: Any) -> Any:
    """Return a schema without the titles that pydantic generates from keys; a key named `title` remains."""
    if isinstance(node, dict):
        return {
            key: _without_titles(value)
            for key, value in node.items()
            if key != "title" or not isinstance(value, str)
        }
    return [_without_titles(item) for item in node] if isinstance(node, list) else node


def _message(name: str, problems: list[Finding], line_of: Callable[[KeyPath], int] | None) -> str:
    lines = [f"{each} (line {line_of(each.path)})" if line_of else str(each) for each in problems]
    return "\n  ".join([f"{name} cannot be used:", *lines])


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; give the path of a configuration file") from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path}: expected a configuration file, got a folder; name the file in it"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: the configuration cannot be read: {reason}") from error
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{path}: expected a configuration of at most 1 MiB, got more: is it a data file?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}: expected UTF-8, got byte 0x{raw[error.start]:02x} in line {line}: save it as UTF-8"
        ) from error


def _parse(text: str, name: str, variables: dict[str, str]) -> tuple[object, Callable[[KeyPath], int]]:
    """Return the document and the line of a key in it; put the values of variables into a dict, by name."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{name}: the file is empty; it needs at least tasks, see config.example.yaml")
        _refuse_duplicates(node)
        _substitute(node, loader, variables)
        _keep_texts(node)
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{name}: {_syntax(error, text)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"the character U+{ord(text[error.position]):04X}"
        raise ConfigError(f"{name}: line {line}: {character} is not allowed in YAML: delete it") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: not a configuration: it is nested too deeply") from error
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        raise ConfigError(f"{name}: expected a mapping with tasks: at its top level, got {kind}")
    return data, lambda path: _line(node, path)


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"not YAML: {error.problem}"
    where = f"line {mark.line + 1}, column {mark.column + 1}"
    lines = text.splitlines()
    before = lines[mark.line][: mark.column + 1] if mark.line < len(lines) else ""
    if before.endswith("\t") and not before.strip():
        return f"{where}: a tab; YAML indents with spaces only"
    problem = error.problem or ""
    if problem.startswith("expected <block end>, but found '<block") or problem.endswith("found '-'"):
        return f"{where}: this line begins in another column than the keys of its section; align them"
    if problem.startswith("mapping values are not allowed"):
        return f"{where}: a second ': ' in one line; put the value in quotes, or begin a new line"
    return f"{where}: {', '.join(filter(None, (error.context, problem)))}"


def _line(node: yaml.Node, path: KeyPath) -> int:
    """Return the line of a key; for a missing key, the line of the nearest enclosing section in the file."""
    line: int = node.start_mark.line + 1
    for part in path:
        inner: tuple[yaml.Node, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            inner = next((pair for pair in reversed(node.value) if pair[0].value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            inner = (node.value[part], node.value[part])
        if inner is None:
            return line
        line, node = inner[0].start_mark.line + 1, inner[1]
    return line


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Yield each node of a document that is no key once, even if aliases refer to it."""
    waiting, done = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in done:  # an alias refers to this node
            continue
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if isinstance(node, yaml.MappingNode):
            waiting += (value for _, value in node.value)
        yield node


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Yield each mapping of a document once, even if aliases refer to it."""
    return (node for node in _nodes(root) if isinstance(node, yaml.MappingNode))


def _refuse_duplicates(root: yaml.Node) -> None:
    """Raise an error if a key occurs twice in a mapping; PyYAML would silently keep the last one.

    The check is made before merge keys (``<<``) are applied, because a mapping may override merged keys.
    """
    for node in _mappings(root):
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                raise _refusal(f"the key {key.value!r} occurs twice, first in line {lines[key.value]}", key)
            lines[key.value] = key.start_mark.line + 1


def _substitute(root: yaml.Node, loader: _Loader, variables: dict[str, str]) -> None:
    """Replace the variables in all values by the values of the environment.

    The document is parsed before, so that no variable can add a key.
    """
    for node in _nodes(root):
        if not isinstance(node, yaml.ScalarNode):
            continue
        text = _VARIABLE.sub(partial(_value_of, node, variables), node.value)
        if text != node.value:
            loader.written[id(node)] = node.value
            node.value = text
            if node.style is None:
                node.tag = loader.tag_of(text)


def _value_of(node: yaml.Node, variables: dict[str, str], match: re.Match[str]) -> str:
    escaped, inner = match.groups()
    if escaped:
        return match[0][1:]
    parts = _VARIABLE_NAME.fullmatch(inner)
    if parts is None:
        raise _refusal(
            f"{match[0][:40]} is no variable: write ${{NAME}} or ${{NAME:-default}}, "
            "or $${ for the text ${",
            node,
        )
    name, default = parts.groups()
    value = os.environ.get(name, "")
    if value:
        variables[name] = value
    elif default is not None:
        value = default
    elif name not in os.environ:
        raise _refusal(
            f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}", node
        )
    return value


def _without_values(message: str, variables: dict[str, str]) -> str:
    """Return a message with the names of variables in place of their values, which may be secret."""
    for name, value in sorted(variables.items(), key=lambda item: -len(item[1])):
        if len(value) >= _SHORTEST_SECRET:
            message = message.replace(value, f"${{{name}}}")
    return message


_TEXT = "tag:yaml.org,2002:str"


def _keep_texts(root: yaml.Node) -> None:
    """Mark the keys and values of `label_values` and `where` as texts, not numbers or booleans."""
    for node in _mappings(root):
        for key, value in node.value:
            if key.value == "mapping":
                _keep_texts_of(value)
            elif key.value == "observe" and isinstance(value, yaml.MappingNode):
                for _, mapping in value.value:
                    _keep_texts_of(mapping)


def _keep_texts_of(mapping: yaml.Node) -> None:
    for key, value in mapping.value if isinstance(mapping, yaml.MappingNode) else ():
        if key.value not in ("label_values", "where") or not isinstance(value, yaml.MappingNode):
            continue
        for each in (node for pair in value.value for node in pair):
            for scalar in each.value if isinstance(each, yaml.SequenceNode) else [each]:
                if isinstance(scalar, yaml.ScalarNode):
                    scalar.tag = _TEXT


def _refusal(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses numbers with a surprising meaning in YAML 1.1, such as octal numbers."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.written: dict[int, str] = {}  # text with variables in the file, by the id of the node

    def tag_of(self, text: str) -> str:
        """Return the YAML tag of a value without quotes."""
        return str(super().resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node; raise a yaml.MarkedYAMLError if it is refused."""
        try:
            return self._construct(node, deep)
        except yaml.MarkedYAMLError:
            if id(node) not in self.written:
                raise
        text = self.written[id(node)][:40]  # the error above shows the value
        raise _refusal(f"{text!r}: the environment has a value that YAML refuses: put it in quotes", node)

    def _construct(self, node: yaml.Node, deep: bool) -> Any:
        if isinstance(node, yaml.ScalarNode):
            _refuse_null_character(node)
            if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
                _refuse_old_numbers(node)
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # such as the 31st of February, or an integer of 5,000 digits
            reason = str(error).partition(":")[0]
            raise _refusal(f"{str(node.value)[:40]!r}: {reason}; put it in quotes", node) from error
        except (AttributeError, LookupError) as error:  # `!!bool maybe`: PyYAML does not check the value
            kind = node.tag.rpartition(":")[2]
            raise _refusal(f"{str(node.value)[:40]!r} is no {kind}: delete the tag !!{kind}", node) from error


def _refuse_null_character(node: yaml.ScalarNode) -> None:
    """Raise an error for U+0000, which YAML allows in double quotes but no path or name may contain."""
    if "\0" in node.value:
        raise _refusal("the character U+0000 is not allowed in a configuration: delete it", node)


def _refuse_old_numbers(node: yaml.Node) -> None:
    """Raise an error for a number with a surprising meaning in YAML 1.1, such as an octal number."""
    text = str(node.value)
    if re.fullmatch("[-+]?0[0-9_]+", text):
        raise _refusal(
            f"{text} starts with 0, which YAML reads as octal: write {int(text)}, or put it in quotes", node
        )
    if ":" in text:
        raise _refusal(f"{text} is a number to base 60 in YAML: put it in quotes", node)


def resolve_paths(config: Config, folder: str | Path) -> Config:
    """Return the configuration with relative paths resolved from `folder`.

    Examples
    --------
    >>> config = Config(tasks={"t": {}}, reports={"path": "windows.ndjson"})
    >>> resolve_paths(config, "/etc/blindsight").reports.path
    '/etc/blindsight/windows.ndjson'
    """
    return config.resolve(os.path.abspath(folder))
