"""A backtest's delays on the demo's flights, and the false alarms that `check` predicts beside a backtest's.

    python -m tests.fidelity.backtest [flights] [mixed] [incident] [quiet]

`flights`: two of the demo's models of "arrives more than 15 minutes late", April to December 2013, calibrated
on the held-out days of January to March, windows of 500. Labels of 5 % of the flights come three hours after
landing. A drop of five points begins at each of the shares 5 %, 10 %, …, 95 % of the stream. The ideal test
knows the accuracy before and after the drop; it needs ln 20 / Kullback-Leibler divergence labels on average.
Window 1 is the first whose answers all come after the drop. The last lines have the movement of the flights
themselves, which limits what any chart can show: the limits there are quantiles of the judged windows.

`mixed`: the same flights in random order, so that nothing moves. The reference has the first of them.

`incident`: the output of `backtest --incident` for the incident of the demo, 16 to 21 July 2013.

`quiet`: simulated streams without a change, with charts of the accuracy and an ARL0 of 100 or 370 windows. A
signal is an alarm or a change for the better. The error is that of the differences between streams, which
differ in their references too. Two things keep the ratio from 1. An alarm stays on for eight windows or more,
and a signal within it is no second one, which matters at small ARL0. Estimates of windows of 100 rows are
skewed, so that they pass their lower limit more often than normal ones, which matters at large ARL0.
"""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from monitor.base.records import Floats, Ints
from monitor.cli.backtest.backtest import BacktestOptions, backtest
from monitor.cli.backtest.incident import backtest_incident
from monitor.cli.backtest.incident_text import print_incident
from monitor.cli.backtest.results import BacktestDocument, Detection
from monitor.cli.demo.incident import prepare_incident
from monitor.cli.demo.stream import DemoData, prepare, write_lines
from monitor.cli.demo.training import MODELS as DEMO_MODELS
from monitor.cli.series_table import WIDE
from monitor.engine.label_alarm import POOLED, LabelBaseline
from tests.daemon import configuration, ndjson, write_configuration
from tests.fidelity.labels_help import ideal
from tests.fidelity.streams import Stream, flight_streams
from tests.harness import run
from tests.streams import Record, answers

MODELS = ("logistic", "boosting")
INCIDENT = "2013-07-16T04:00Z", "2013-07-22T04:00Z"
DROP = 5.0
SHARE = 0.05
WITHIN = 2
STARTS = tuple(f"{percent}%" for percent in range(5, 100, 5))
_BLOCK = 2048


def flights_backtest(
    folder: Path, starts: Sequence[str] = STARTS, seed: int = 0, mixed: bool = False
) -> BacktestDocument:
    """Return the backtest of the flights with a drop of five points; `mixed`: flights in random order."""
    data = prepare(folder, seed=0)
    rng = np.random.default_rng(seed)
    labelled = (rng.random(len(data)) < SHARE) & (data.late >= 0)
    rows = np.arange(len(data))
    if mixed:
        rows = rng.permutation(rows)
        data = _in_order(data, rows)
        labelled = labelled[rows]
        reference = np.flatnonzero(data.late >= 0)[: data.reference_flights]
        records = (_answer(data, row) | {"label": data.classes[data.late[row]]} for row in reference.tolist())
        write_lines(data.reference, ([each] for each in records))
        rows = np.arange(reference[-1] + 1, len(data))
    write_lines(folder / "thinned.ndjson", _blocks(data, rows, rows[labelled[rows]]))
    options = BacktestOptions(str(data.config), [folder / "thinned.ndjson"], [DROP], starts, seed)
    return backtest(options).document


def _in_order(data: DemoData, rows: Ints) -> DemoData:
    """Return the flights in another order. Times of departure stay in order, and labels are as late."""
    reported = data.time + (data.reported - data.time)[rows]
    columns = {name: getattr(data, name)[rows] for name in ("id", "late", "scores")}
    return replace(data, reported=reported, **columns)


def _answer(data: DemoData, row: int) -> Record:
    scores = zip(MODELS, data.scores[row, [data.models.index(name) for name in MODELS]].tolist(), strict=True)
    models = {name: [round(1 - p, 6), p] for name, p in scores}
    return {"id": data.id[row].decode(), "time": float(data.time[row]), "models": models}


def _blocks(data: DemoData, answered: Ints, labelled: Ints) -> Iterator[list[Record]]:
    """Yield the records of these answers and labels in the order of time."""
    times = np.concatenate([data.time[answered], data.reported[labelled]])
    order = np.argsort(times, kind="stable")

    def record(event: int) -> Record:
        if event < len(answered):
            return _answer(data, answered[event])
        row = labelled[event - len(answered)]
        label = data.classes[data.late[row]]
        return {"id": data.id[row].decode(), "time": float(data.reported[row]), "label": label}

    for first in range(0, len(order), _BLOCK):
        yield [record(event) for event in order[first : first + _BLOCK].tolist()]


def flights(starts: int = len(STARTS)) -> Iterator[str]:
    """Yield how soon drops are detected, and how much of that the flights' own movement allows."""
    yield from _delays("Flights", STARTS[:: max(1, len(STARTS) // starts)])
    for name, stream in zip(MODELS, _streams(), strict=True):
        yield f"{name}, windows of 500: {_movement(stream)}\n"


def mixed(starts: int = len(STARTS)) -> Iterator[str]:
    """Yield how soon drops are detected if the same flights come in random order."""
    yield from _delays("Flights in random order", STARTS[:: max(1, len(STARTS) // starts)], mixed=True)


def _delays(title: str, starts: Sequence[str], mixed: bool = False) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        document = flights_backtest(Path(folder) / "flights", starts, mixed=mixed)
    yield f"{title}, {', '.join(MODELS)}: drops of {DROP:g} points from {len(document.starts)} points on\n"
    accuracy = float(np.mean([each.accuracy or np.nan for each in document.history]))
    for known, labelled in ((True, False), (True, True), (False, True)):
        cases = [each for each in document.detections if (each.known, each.labelled) == (known, labelled)]
        yield f"{_line(cases, known, labelled, accuracy)}\n"


def _streams() -> Iterator[Stream]:
    streams, _, _ = flight_streams(len(DEMO_MODELS))
    yield from (streams[DEMO_MODELS.index(name)] for name in MODELS)


def _movement(stream: Stream, size: int = 500, arl0: float = 370) -> str:
    """Describe how windows move, and how often charts with the best limits on the same windows show a drop.

    The best limits are quantiles of the same windows: one in `arl0` windows without a drop lies below. The
    band is that of the alarm by labels.
    """
    words, share = [], 0.0
    for name, rows in (("the estimate", stream.confidence), ("the accuracy", stream.right.astype(float))):
        windows = _windows(rows, size)
        share = DROP / 100 / (windows.mean() - 0.5)
        seen = (1 - share) * windows + share / 2 < np.quantile(windows, 1 / arl0)
        words.append(
            f"{name} has a standard deviation of {100 * windows.std(ddof=1):.1f} points, independent rows "
            f"{100 * rows.std() / size**0.5:.1f}; the best limits show the drop within {WITHIN} windows in "
            f"{100 * (seen[:-1] | seen[1:]).mean():.0f} %"
        )
    held, five = _windows(stream.held, size), _windows(stream.right, POOLED * size)
    low, _ = LabelBaseline.from_windows(held.tolist(), [size] * len(held)).band(POOLED * size, 0.0)
    before, after = (100 * (each < low).mean() for each in (five, (1 - share) * five + share / 2))
    words.append(
        f"the accuracy of five windows lies below the band of labels in {before:.0f} %, with the drop in "
        f"{after:.0f} %"
    )
    return "; ".join(words)


def _windows(rows: Floats | NDArray[np.bool_], size: int) -> Floats:
    means: Floats = rows[: len(rows) // size * size].reshape(-1, size).mean(axis=1)
    return means


def _line(cases: Sequence[Detection], known: bool, labelled: bool, accuracy: float) -> str:
    counted = [each for each in cases if each.outcome != "alarm_before"]
    soon = sum(each.outcome == "detected" and each.windows <= WITHIN for each in counted)
    windows = np.array([each.windows if each.outcome == "detected" else np.inf for each in counted])
    labels = np.array([each.labels if each.outcome == "detected" else np.inf for each in counted])
    words = (
        f"model {'knows' if known else 'does not know'}, {'5 % labels' if labelled else 'no labels'}: "
        f"{soon} of {len(counted)} within {WITHIN} windows ({100 * soon / max(len(counted), 1):.0f} %), "
        f"median {np.median(windows):g} windows; an alarm was on before: {len(cases) - len(counted)}"
    )
    first = Counter(signal for each in counted for signal in each.signals)
    words += "; first: " + ", ".join(f"{signal} {times}" for signal, times in first.most_common())
    if labelled:
        best, median = ideal(accuracy, accuracy - DROP / 100), np.median(labels)
        words += f"; median {median:g} labels, the ideal test's {best:.0f}: {median / best:.2f}"
    return words


def incident() -> Iterator[str]:
    """Yield what `backtest --incident` prints for the incident of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        files = prepare_incident(Path(folder) / "demo")
        options = BacktestOptions(str(files.config), [files.stream], incident=INCIDENT)
        document = backtest_incident(options, lambda words: None).document
    assert document.incident is not None
    console = Console(file=io.StringIO(), width=WIDE)
    print_incident(console, document, document.incident)
    assert isinstance(console.file, io.StringIO)
    yield "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def quiet(streams: int = 40, windows: int = 1000) -> Iterator[str]:
    """Yield the false signals of simulated streams without a change, and those that `check` predicts."""
    for arl0 in (100, 370):
        rows = [_quiet_stream(arl0, stream, windows) for stream in range(streams)]
        alarms, better, predicted, judged = np.array(rows).sum(axis=0).tolist()
        spread = np.std([row[0] + row[1] for row in rows], ddof=1) * np.sqrt(streams) / predicted
        yield (
            f"ARL0 {arl0}, {streams} simulated streams without a change, {judged:,.0f} windows of 100: "
            f"{alarms:.0f} alarms and {better:.0f} changes for the better in the backtest, "
            f"{predicted:.1f} of both by check: {(alarms + better) / predicted:.2f} ± {spread:.2f}\n"
        )


def _quiet_stream(arl0: int, stream: int, windows: int) -> tuple[int, int, float, int]:
    """Return alarms, changes for the better, the predicted number of both, and judged windows of a stream."""
    rng = np.random.default_rng([arl0, stream])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = answers(rng, 100 * 200, start=1.6e9, labelled=True)
        (folder / "reference.ndjson").write_bytes(ndjson(reference))
        (folder / "in.ndjson").write_bytes(ndjson(answers(rng, 100 * windows, start=1.7e9)))
        task = {
            "reference": {"path": str(folder / "reference.ndjson")},
            "chart": {"arl0": arl0, "min_change": 0},
        }
        config = write_configuration(folder, configuration(task=task))
        options = BacktestOptions(str(config), [folder / "in.ndjson"], [20.0], ["95%"])
        (each,) = backtest(options).document.history
    return len(each.alarms), each.improvements, each.predicted or 0.0, each.windows


if __name__ == "__main__":
    run({"flights": flights, "mixed": mixed, "incident": incident, "quiet": quiet})
