"""Reads frames of pandas, polars and Arrow, and mappings of arrays. Makes new frames."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np

from connectors.formats.messages.wording import listing, nearest
from monitor.base.errors import BlindsightError, ConfigError, MissingExtraError

Cells = list[Any]


class ReadFrame:
    """A table whose columns are read as plain Python values.

    Parameters
    ----------
    frame : frame of pandas, polars or Arrow, or mapping of str to array
        Any eager frame that narwhals supports. The values of a mapping are arrays, series or lists of equal
        length; each row of a two-dimensional array becomes a list.
    what : str
        The name of the table in messages.

    Raises
    ------
    ConfigError
        The frame has an unsupported type, or its columns differ in length.
    MissingExtraError
        narwhals is needed, but not installed.
    """

    def __init__(self, frame: Any, what: str) -> None:
        self._what = what
        self._read: Callable[[Any], Cells]
        if isinstance(frame, Mapping):
            cells = {name: _cells(values, f"{what}, column {name}") for name, values in frame.items()}
            lengths = {str(name): len(column) for name, column in cells.items()}
            if len(set(lengths.values())) > 1:
                counts = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
                raise ConfigError(f"{what}: expected columns of one length, got {counts} rows")
            self._names: dict[str, Any] = {str(name): name for name in cells}
            self._read = cells.__getitem__
        else:
            native = _narwhals_frame(frame, what)
            self._names = {str(name): name for name in native.columns}
            self._read = lambda name: _of_series(native.get_column(name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._names)

    def columns(self, places: Mapping[str, str], optional: Iterable[str] = ()) -> dict[str, Cells]:
        """Return the values of the columns that `places` names, by the name of the column.

        Parameters
        ----------
        places : mapping of str to str
            For each argument of the caller, such as ``label``, the name of a column. Messages mention the
            argument.
        optional : iterable of str
            Keys of `places` whose column may be absent.

        Raises
        ------
        ConfigError
            A column does not exist; the message lists the existing columns.
        """
        left_out = set(optional)
        for key, name in places.items():
            if name not in self._names and key not in left_out:
                there = tuple(self._names)
                raise ConfigError(
                    f"{self._what}: no column {name!r}, which {key} names; there are {listing(there)}"
                    f"{nearest(name, there)}"
                )
        wanted = (name for name in dict.fromkeys(places.values()) if name in self._names)
        return {name: self._read(self._names[name]) for name in wanted}


def new_frame(columns: Mapping[str, tuple[str, Sequence[Any]]], library: Literal["pandas", "polars"]) -> Any:
    """Return a new frame of pandas or polars.

    Parameters
    ----------
    columns : mapping of str to (str, sequence)
        The type and the values of each column. The type is the name of a narwhals type, or `time` for times
        in UTC in milliseconds.
    library : {"pandas", "polars"}

    Raises
    ------
    BlindsightError
        The library is not installed.
    MissingExtraError
        narwhals is not installed.
    """
    nw = _narwhals(f"to_{library}")
    required(library, f"to_{library}")
    schema = {
        name: nw.Datetime("ms", "UTC") if kind == "time" else getattr(nw, kind)
        for name, (kind, _) in columns.items()
    }
    data = {name: list(values) for name, (_, values) in columns.items()}
    frame = nw.from_dict(data, schema=schema, backend=library).to_native()
    if library == "pandas":  # a column of text would hold the word "None"
        for name, values in data.items():
            if columns[name][0] == "String":
                frame.loc[[value is None for value in values], name] = None
    return frame


def required(package: str, what: str) -> ModuleType:
    """Import a package that no extra of Blindsight installs.

    Raises
    ------
    BlindsightError
        The package is not installed; the message has the pip command.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise BlindsightError(f"{what} needs {package}: pip install {package}") from error


def _narwhals(what: str) -> Any:
    try:
        import narwhals.stable.v1 as narwhals
    except ImportError as error:
        raise MissingExtraError(what, "notebook") from error
    return narwhals


def _narwhals_frame(frame: Any, what: str) -> Any:
    nw = _narwhals("Reading a frame")
    wanted = f"{what}: expected a frame of pandas, polars or Arrow, or a dict of arrays"
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError as error:
        lazy = "; call .collect() of a lazy frame" if hasattr(frame, "collect") else ""
        raise ConfigError(f"{wanted}, got {type(frame).__module__}.{type(frame).__name__}{lazy}") from error
    except nw.exceptions.NarwhalsError as error:
        raise ConfigError(
            f"{what}: {' '.join(str(error).split())}; give each column a name of its own"
        ) from error


def _of_series(series: Any) -> Cells:
    """Return the cells of a narwhals series, with None for its library's missing values."""
    missing = series.is_null().to_list()
    return [None if gone else _plain(value) for value, gone in zip(series.to_list(), missing, strict=True)]


def _cells(values: Any, what: str) -> Cells:
    """Return the cells of an array, a series or a list, with None for the missing values NaN and NaT."""
    if not isinstance(values, list | tuple | np.ndarray):
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise ConfigError(f"{what}: expected an array with a value a row, got {type(values).__name__}")
        if hasattr(values, "to_list") or hasattr(values, "to_pylist"):
            return _of_series(_narwhals("Reading a series").from_native(values, series_only=True))
        values = np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "M":  # microseconds become Python's datetime, nanoseconds would not
            values = values.astype("datetime64[us]")
        values = values.tolist()
    return [None if isinstance(cell := _plain(value), float) and cell != cell else cell for value in values]


def _plain(value: Any) -> Any:
    """Return a value, and the contents of its lists and dicts, as plain Python objects.

    Examples
    --------
    >>> _plain({"ok": np.float64(0.25)}), _plain([np.float32(0.5), None])
    ({'ok': 0.25}, [0.5, None])
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def with_nan(cells: Cells) -> Cells:
    """Replace None by NaN in a column of scores.

    Otherwise the decoder would treat a row whose scores are all None as a label.

    Examples
    --------
    >>> with_nan([0.5, None])
    [0.5, nan]
    """
    return [math.nan if cell is None else cell for cell in cells] if None in cells else cells
