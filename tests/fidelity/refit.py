"""Windows calibrated by `ssme`, compared with windows calibrated on the old reference, after drift.

    python -m tests.fidelity.refit [--draws 20 21 22 23] [--rows 150000] [--no-flights]

The mean absolute error of the windows' Average Confidence accuracy, in points, that of its means over 20
windows in a row, and the root mean square error, from two replays of the same records: calibration
`isotonic`, fitted once on the labelled reference, and calibration `ssme`, refitted on all models' scores and
the labels that have come by then. The truth comes from all labels; the stream has labels for 1 % of the rows,
hours late. An old calibration is wrong by the same amount for a long time, which the means show. Single
windows add their own error (a day of bad weather), which no calibration fitted on earlier windows knows. Such
days are few and bad, so the median window is better than the mean: an estimate that is too high on average is
nearer to most windows, which the absolute error rewards and the square does not. The possible gain in single
windows is printed below the table: there the reference's curve is corrected by its own exact errors in the
last 20 windows, which no agent knows.

* `flights`: the demo's four models and 250,000 flights, April to December 2013 (concept drift): four draws of
  the labels, and the mean of their errors. What follows the drift was tuned on draws 0 to 3, not reported.
* `simulated`: three models that are calibrated in the reference and grow overconfident over 150,000 rows:
  the log-odds of the truth shrink to 40 % of those that they claim. Tuned on other seeds.
* `steady`: the same without the drift, where the reference stays right: what the refits cost there.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from monitor.base.records import Floats
from monitor.cli.replay import replay as run_replay
from tests.harness import run

if TYPE_CHECKING:  # the demo's extra may not be installed
    from monitor.cli.demo.stream import DemoData

LABELLED = 0.01
WINDOW = 500
TOGETHER = 20
MODELS = ("a", "b", "c")
REFERENCE_ROWS = 5_000
SSME = {"every_windows": 60, "every_labels": 50, "max_rows": 5_000, "max_labelled": 500}
"""Of the replays: every 15 to 20 windows of each model, on the newest rows and labels."""
DRAWS = (20, 21, 22, 23)
"""Seeds of which flights are labelled."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean absolute errors of the windows' accuracy, in points: of windows, and of means over `TOGETHER`.

    Parameters
    ----------
    name : str
    windows : int
    labels : int
        That came in the whole stream.
    isotonic, ssme : (float, float, float)
        Mean absolute error of windows, of means over `TOGETHER`; root mean square error of windows.
    """

    name: str
    windows: int
    labels: int
    isotonic: tuple[float, float, float]
    ssme: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Knowing:
    """The remaining errors where the exact errors of the last `TOGETHER` windows are known: see `Errors`."""

    name: str
    errors: tuple[float, float, float]


def compared(
    name: str,
    config: dict[str, Any],
    stream: Path,
    truth: dict[str, Floats],
    labels: int,
    isotonic: Floats | None = None,
) -> tuple[Errors, Floats]:
    """Replay with both calibrations; the truth is by model the share right in each window.

    The second are the errors by the reference, (models, windows), which do not depend on labels: given
    again, they spare a replay.
    """
    by_method = {"isotonic": _errors(config, "isotonic", stream, truth) if isotonic is None else isotonic}
    by_method["ssme"] = _errors(config, "ssme", stream, truth)
    size = sum(map(len, truth.values()))
    errors = Errors(name, size, labels, _summary(by_method["isotonic"]), _summary(by_method["ssme"]))
    return errors, by_method["isotonic"]


def _errors(config: dict[str, Any], method: str, stream: Path, truth: dict[str, Floats]) -> Floats:
    """Estimate less truth of each window in points, (models, windows)."""
    task = next(iter(config["tasks"].values()))
    task["calibration"] = {"method": method, "refit_labels": None}  # the reference is kept
    task["ssme"] = {**SSME, "models": list(truth)}
    path = stream.parent / f"{method}.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    out = stream.parent / f"out-{method}-{stream.stem}"
    run_replay(str(path), [stream], out, lambda path, count: None)
    errors: dict[str, list[float]] = {model: [] for model in truth}
    for line in (out / "windows.ndjson").read_bytes().splitlines():
        window = json.loads(line)
        own = errors[window["model"]]
        if not window.get("revision") and len(own) < len(truth[window["model"]]):
            [estimate] = [e["value"] for e in window["estimates"] if e["estimator"] == "average_confidence"]
            own.append(estimate - truth[window["model"]][len(own)])
    return 100 * np.array(list(errors.values()))


def _summary(errors: Floats) -> tuple[float, float, float]:
    """Return mean absolute error of windows, of means over `TOGETHER` of them; root mean square error."""
    whole = errors[:, : errors.shape[1] // TOGETHER * TOGETHER].reshape(len(errors), -1, TOGETHER)
    absolute, means = np.abs(errors).mean(), np.abs(whole.mean(axis=2)).mean()
    return float(absolute), float(means), float(np.sqrt((errors**2).mean()))


def knowing(name: str, errors: Floats) -> Knowing:
    """Return the errors of a reference, (models, windows), less their own mean over the windows just
    before.
    """
    known = np.cumsum(np.pad(errors, ((0, 0), (1, 0))), axis=1)
    at = np.arange(errors.shape[1])
    first = np.maximum(at - TOGETHER, 0)
    mean = (known[:, at] - known[:, first]) / np.maximum(at - first, 1)
    return Knowing(name, _summary(errors - mean))


def simulated(folder: Path, rows: int, shrink: float, seed: int = 0) -> Errors:
    """Return three models whose claims grow too bold: at the end log-odds are `shrink` times those
    claimed.
    """
    rng = np.random.default_rng(seed)
    total = REFERENCE_ROWS + rows
    claimed = rng.normal(0.5, 2.0, (total, 1)) + rng.normal(0.0, 0.7, (total, len(MODELS)))
    drift = np.concatenate([np.zeros(REFERENCE_ROWS), np.linspace(0, 1, rows)])
    # The mean of the claims is what the models know together; the truth follows it less and less.
    odds = claimed.mean(axis=1) * (1 - (1 - shrink) * drift)
    late = (rng.random(total) < 1 / (1 + np.exp(-odds))).astype(int)
    scores = np.round(1 / (1 + np.exp(-claimed)), 6)
    labelled = rng.random(total) < LABELLED
    _write(folder / "reference.ndjson", _reference(scores[:REFERENCE_ROWS], late[:REFERENCE_ROWS]))
    stream = folder / "stream.ndjson"
    _write(stream, _stream(scores[REFERENCE_ROWS:], late[REFERENCE_ROWS:], labelled[REFERENCE_ROWS:]))
    right = ((scores > 0.5) == (late[:, None] == 1))[REFERENCE_ROWS:]
    whole = rows // WINDOW * WINDOW
    truth = {model: right[:whole, at].reshape(-1, WINDOW).mean(axis=1) for at, model in enumerate(MODELS)}
    task = {
        "classes": ["ok", "bad"],
        "positive": "bad",
        "window": {"size": WINDOW, "max_age_seconds": 1e9},
        "reference": {"path": "reference.ndjson"},
        "metrics": ["accuracy"],
        "estimators": ["average_confidence"],
    }
    name = "steady" if shrink == 1.0 else "simulated"
    return compared(name, {"tasks": {"t": task}}, stream, truth, int(labelled[REFERENCE_ROWS:].sum()))[0]


def _write(path: Path, records: Iterator[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(record) + b"\n" for record in records)


def _reference(scores: Floats, late: Any) -> Iterator[dict[str, Any]]:
    for i, (row, label) in enumerate(zip(scores.tolist(), late.tolist(), strict=True)):
        yield _answer(f"r{i}", 1.6e9 + i, row) | {"label": ["ok", "bad"][label]}


def _stream(scores: Floats, late: Any, labelled: Any) -> Iterator[dict[str, Any]]:
    delay = 2 * WINDOW  # seconds, of which each brings one row
    for i, row in enumerate(scores.tolist()):
        yield _answer(f"s{i}", 1.7e9 + i, row)
        if i >= delay and labelled[i - delay]:
            label = ["ok", "bad"][late[i - delay]]
            yield {"id": f"s{i - delay}", "time": 1.7e9 + i, "label": label}


def _answer(name: str, time: float, row: list[float]) -> dict[str, Any]:
    scores = {model: [round(1 - score, 6), score] for model, score in zip(MODELS, row, strict=True)}
    return {"id": name, "time": time, "models": scores}


def flights(folder: Path, draws: tuple[int, ...] = DRAWS) -> tuple[list[Errors], Knowing]:
    """Return the demo's year, with labels of 1 % of the flights: each draw of those, and the mean of the
    errors.
    """
    import yaml

    from monitor.cli.demo.stream import prepare
    from monitor.cli.demo.summary import turned_out

    data = prepare(folder / "demo", seed=0)
    config = yaml.safe_load(data.config.read_text(encoding="utf-8"))
    task = next(iter(config["tasks"].values()))
    task.update(estimators=["average_confidence"], metrics=["accuracy"])
    task.pop("objective")
    config = {"tasks": config["tasks"]}
    windows = len(data) // WINDOW
    truth = {model: turned_out(data, at, windows) for at, model in enumerate(data.models)}
    all_errors: list[Errors] = []
    isotonic = None
    for draw in draws:
        stream, labels = _few_labels(data, draw)
        errors, isotonic = compared(f"flights_{draw}", config, stream, truth, labels, isotonic)
        all_errors.append(errors)
    if isotonic is None:
        raise ValueError("draws must name one at least, got none")
    mean = replace(
        all_errors[0],
        name="flights",
        labels=round(float(np.mean([one.labels for one in all_errors]))),
        ssme=tuple(np.mean([one.ssme for one in all_errors], axis=0).tolist()),
    )
    return [*all_errors, mean], knowing("flights", isotonic)


def _few_labels(data: DemoData, draw: int) -> tuple[Path, int]:
    """Return the demo's stream with labels of 1 % of the flights, and how many those are."""
    known = np.flatnonzero(data.labelled)
    kept = np.random.default_rng(draw).random(len(known)) < LABELLED / (len(known) / len(data))
    labelled_ids = {one.decode() for one in data.id[known[kept]]}
    stream = data.stream.with_name(f"few-labels-{draw}.ndjson")
    with data.stream.open("rb") as lines, stream.open("wb") as file:
        for line in lines:
            record = msgspec.json.decode(line)
            if "label" not in record or record["id"] in labelled_ids:
                file.write(line)
    return stream, len(labelled_ids)


def table(rows: int = 150_000, no_flights: bool = False, draws: tuple[int, ...] = DRAWS) -> Iterator[str]:
    """Yield all of it, a line at a time; `rows` of the simulated streams, `draws` of the flights' labels."""
    yield "Mean absolute error of the windows' accuracy, in points (python -m tests.fidelity.refit)"
    yield (
        f"labels of {100 * LABELLED:g} % of the rows, windows of {WINDOW}; calibration isotonic on the "
        "reference beside ssme, refitted"
    )
    yield f"{'':28s}{'windows':>18s}{f'means over {TOGETHER}':>18s}{'windows, RMS':>18s}"
    yield f"{'data':12s}{'windows':>8s}{'labels':>8s}" + 3 * f"{'isotonic':>10s}{'ssme':>8s}"
    for shrink in (0.4, 1.0):
        with tempfile.TemporaryDirectory() as folder:
            yield _line(simulated(Path(folder), rows, shrink))
    if no_flights:
        return
    with tempfile.TemporaryDirectory() as folder:
        errors, known = flights(Path(folder), draws)
    yield from map(_line, errors)
    parts = "windows {:.2f}, means {:.2f}, windows, RMS {:.2f}".format(*known.errors)
    yield f"{known.name}, the reference put right by its exact errors in the last {TOGETHER} windows: {parts}"


def _line(e: Errors) -> str:
    cells = "".join(f"{a:10.2f}{b:8.2f}" for a, b in zip(e.isotonic, e.ssme, strict=True))
    return f"{e.name:12s}{e.windows:8,d}{e.labels:8,d}{cells}"


if __name__ == "__main__":
    run(table)
