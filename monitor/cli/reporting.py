"""The command `blindsight report`, which writes a period of a store to one HTML file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from monitor.base.codec import restored
from monitor.base.errors import ConfigError, SinkError, StoreError
from monitor.config.section import web_address
from monitor.engine.features import FeaturesState
from monitor.export.page.period import Period, Series, parse_time
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.features import FeatureCounts
from monitor.reports.reader import from_json
from monitor.reports.window_report import WindowReport
from monitor.store.history import StoreHistory
from monitor.store.opening import locate_store


def report(store: Path, out: Path, since: str = "", until: str = "", external_url: str = "") -> int:
    """Write the report of a store, and return the number of report lines in the store.

    The number includes lines outside of the period. An agent may use the store at the same time.

    Parameters
    ----------
    store : Path
        The store's folder, a backup, or a configuration that names it.
    out : Path
        The file; an existing one is replaced.
    since, until : str
        Dates or times; ``""`` means the beginning or the end of the store.
    external_url : str
        Address of the agent's page, to which the models' names link; no links if empty.

    Raises
    ------
    ConfigError
        A time or the address cannot be read, or the period ends before it begins.
    StoreError
        There is no store, or it cannot be read.
    SinkError
        The file cannot be written.
    """
    begin, end = _time("--since", since), _time("--until", until)
    if begin is not None and end is not None and end <= begin:
        raise ConfigError(f"--until: {until!r} is not after --since, {since!r}; give a later one")
    address = _address(external_url)
    history = StoreHistory(locate_store(store))
    try:
        period = Period(history.judged_estimators(), begin, end, address, history.shared_seconds())
        lines = 0
        for line in history.reports():
            period.add([_read(line, history.name)])
            lines += 1
        features = _features(history, period)
    finally:
        history.close()
    write_report(out, period.html({}, features=features))
    return lines


def _features(history: StoreHistory, period: Period) -> dict[Series, FeatureCounts]:
    """Return the counts of the features of each model whose last window in the period is its newest one."""
    newest = period.last_windows
    try:
        return {
            series: restored(state, FeaturesState).newest()
            for series, (number, state) in history.features().items()
            if newest.get(series) == number - 1
        }
    except ValueError as error:
        raise StoreError(f"{history.name}: the features of a model cannot be read: {error}") from error


def write_report(path: Path, text: str) -> None:
    """Write the text of a report to a file, which is replaced if it exists.

    Raises
    ------
    SinkError
        The file cannot be written; the message gives the reason.
    """
    try:
        path.write_bytes(text.encode("utf-8", "replace"))
    except OSError as error:
        raise SinkError(cannot_write(str(path), error)) from error


def _read(line: bytes, name: str) -> WindowReport:
    try:
        return from_json(line)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{name}: a reported window cannot be read: {error}") from error


def _address(words: str) -> str:
    try:
        return web_address(words) if words else ""
    except ValueError as error:
        raise ConfigError(f"--external-url: {error}") from error


def _time(option: str, words: str) -> float | None:
    try:
        return parse_time(words) if words else None
    except ValueError as error:
        raise ConfigError(
            f"{option}: expected a date or a time such as 2026-11-20 or 2026-11-20T10:00:00Z, got {words!r}"
        ) from error
