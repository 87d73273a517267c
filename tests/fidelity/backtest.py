"""A backtest's delays on the demo's flights, and the false alarms that `check` predicts beside a backtest's.

    python -m tests.fidelity.backtest [flights] [incident] [quiet]

`flights`: two of the demo's models of "arrives more than 15 minutes late", April to December 2013, calibrated
on the held-out days of January to March, windows of 500. Labels of 5 % of the flights come three hours after
landing. A drop of five points begins at each of the shares 5 %, 10 %, …, 95 % of the stream. The ideal test
knows the accuracy before and after the drop; it needs ln 20 / Kullback-Leibler divergence labels on average.

`incident`: the output of `backtest --incident` for the incident of the demo, 16 to 21 July 2013.

`quiet`: simulated streams without a change; the charts of the accuracy have an ARL0 of 100 windows.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from monitor.cli.backtest.backtest import BacktestOptions, backtest
from monitor.cli.backtest.incident import backtest_incident
from monitor.cli.backtest.incident_text import print_incident
from monitor.cli.backtest.results import BacktestDocument, Detection
from monitor.cli.demo.incident import prepare_incident
from monitor.cli.demo.stream import prepare, stamps, write_lines
from monitor.cli.series_table import WIDE
from tests.daemon import configuration, ndjson, write_configuration
from tests.fidelity.labels_help import ideal
from tests.harness import run
from tests.streams import Record, answers

MODELS = ("logistic", "boosting")
INCIDENT = "2013-07-16T04:00Z", "2013-07-22T04:00Z"
DROP = 5.0
SHARE = 0.05
WITHIN = 2
STARTS = tuple(f"{percent}%" for percent in range(5, 100, 5))
_BLOCK = 2048


def flights_backtest(folder: Path, starts: Sequence[str] = STARTS, seed: int = 0) -> BacktestDocument:
    """Return the backtest of the flights with a drop of five points."""
    data = prepare(folder, seed=0)
    columns = [data.models.index(model) for model in MODELS]
    labelled = (np.random.default_rng(seed).random(len(data)) < SHARE) & (data.late >= 0)
    answer_times, label_times = stamps(data.time), stamps(data.reported)
    ids = [name.decode() for name in data.id]
    events = np.concatenate([data.time, data.reported[labelled]])
    rows = np.concatenate([np.arange(len(data)), np.flatnonzero(labelled)])

    def record(event: int) -> Record:
        row = int(rows[event])
        if event >= len(data):
            return {"id": ids[row], "time": label_times[row], "label": data.classes[data.late[row]]}
        scores = data.scores[row, columns].tolist()
        models = {name: [round(1 - p, 6), p] for name, p in zip(MODELS, scores, strict=True)}
        return {"id": ids[row], "time": answer_times[row], "models": models}

    def blocks() -> Iterator[list[Record]]:
        order = np.argsort(events, kind="stable").tolist()
        for first in range(0, len(order), _BLOCK):
            yield [record(event) for event in order[first : first + _BLOCK]]

    write_lines(folder / "thinned.ndjson", blocks())
    options = BacktestOptions(str(data.config), [folder / "thinned.ndjson"], [DROP], starts, seed)
    return backtest(options).document


def flights(starts: int = len(STARTS)) -> Iterator[str]:
    """Yield the share of drops detected in time, and the labels beside the ideal test's."""
    with tempfile.TemporaryDirectory() as folder:
        document = flights_backtest(Path(folder) / "flights", STARTS[:: max(1, len(STARTS) // starts)])
    yield f"Flights, {', '.join(MODELS)}: drops of {DROP:g} points from {len(document.starts)} points on\n"
    accuracy = float(np.mean([each.accuracy or np.nan for each in document.history]))
    for known, labelled in ((True, False), (True, True), (False, True)):
        cases = [each for each in document.detections if (each.known, each.labelled) == (known, labelled)]
        yield f"{_line(cases, known, labelled, accuracy)}\n"


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


def quiet(streams: int = 6, windows: int = 1000) -> Iterator[str]:
    """Yield the false signals of simulated streams without a change, and those that `check` predicts."""
    alarms, better, predicted, judged = 0, 0, 0.0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stream in range(streams):
            rng = np.random.default_rng(stream)
            reference = answers(rng, 100 * 200, start=1.6e9, labelled=True)
            (folder / "reference.ndjson").write_bytes(ndjson(reference))
            (folder / "in.ndjson").write_bytes(ndjson(answers(rng, 100 * windows, start=1.7e9)))
            task = {
                "reference": {"path": str(folder / "reference.ndjson")},
                "chart": {"arl0": 100, "min_change": 0},
            }
            config = write_configuration(folder, configuration(task=task))
            options = BacktestOptions(str(config), [folder / "in.ndjson"], [20.0], ["95%"])
            for each in backtest(options).document.history:
                alarms += len(each.alarms)
                better += each.improvements
                predicted += each.predicted or 0.0
                judged += each.windows
    yield (
        f"Simulated streams without a change, {judged:,} windows of 100: {alarms} alarms and {better} "
        f"changes for the better in the backtest, {predicted:.1f} of both by check: "
        f"{(alarms + better) / predicted:.2f}\n"
    )


if __name__ == "__main__":
    run({"flights": flights, "incident": incident, "quiet": quiet})
