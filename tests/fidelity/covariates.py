"""Error of estimates under covariate shift: weighted by features, by plain confidences, by a constant.

    python -m tests.fidelity.covariates [simulated flights visits]

The comparison of Białek et al. (arXiv 2401.08348) on simulated shifts and on data that packages carry; their
US census is not among those. Each metric of a window's own rows is estimated without their labels:

* ref: the metric's value in the reference;
* plain: an isotonic calibration on the reference, and its mean confidence (the paper's CBPE);
* boost: the reference's rows weighted by scikit-learn's `HistGradientBoostingClassifier` between reference
  and window (the paper's form), for the accuracy alone;
* cov: `monitor.stats.calibration.covariates`.

Windows of which `covariates` says unknown count for none of them. "In standard errors" divides an error of
the accuracy by the standard deviation of a random window's accuracy in the reference, as the paper does.
Intervals are predictive ones of 95 %.

`simulated`: a logistic regression that knows neither segments nor products of numbers; a reference of
5,000 rows. The shifts: none; two segments, of which one is right 25 points less often and rises from 30 to
90 % (a stream of its own, with this one feature); means; segments' shares; the correlation of two numbers
turns; the numbers of two segments move; spread, and three at once (segments' shares, means, and means of
segments), both not looked at in development; far (little overlap). Then what it cannot see: segments'
shares where the segment is not among the features, and a changed p(y | features).

`flights`: late arrivals of 2013, with carrier, origin, hour and departure delay as features. Over time: the
demo's reference of January to March, windows spread over July to December (the concept drifts). Two of the
demo's models, and a logistic regression of the delay alone, which does not know the other features. Then
alternate held-out days are the reference, and windows are drawn from the others, each leaning towards some
carriers, hours or delays.

`visits`: whether a person of RAND's health insurance experiment saw a doctor in a year (statsmodels), by a
logistic regression that knows the plan's price and the illnesses alone. Windows lean towards high or low
values of these two, or towards plans and physical limits.

Settings were chosen on simulated trials of other seeds, and on flights of April to June.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from statsmodels.datasets import randhie

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.base.results import Estimate
from monitor.cli.demo.flights import Flights, read_flights
from monitor.cli.demo.training import HOLD_OUT_EVERY_DAYS, MODELS, split, train_and_score
from monitor.engine.evaluate import EstimationRequest, evaluate
from monitor.stats.calibration.base import Calibration, confidence_of
from monitor.stats.calibration.covariates import Adapted, CovariateReference
from monitor.stats.calibration.isotonic import IsotonicCalibrator
from monitor.stats.estimate.predictive import Predictive
from monitor.stats.estimate.predictive_fit import fit_predictive
from tests.fidelity.metrics_coverage import realised_values
from tests.harness import run

METRICS = ("accuracy", "auroc", "f1")
METHODS = ("reference", "plain", "boosting", "covariates")
SIZES = (100, 500, 1000, 2000, 5000)
SHIFTS = (
    "none", "two segments", "means", "segments", "correlation", "of segments", "spread", "three", "far",
    "hidden", "concept",
)  # fmt: skip
KINDS: tuple[FeatureKind, ...] = ("number", "number", "number", "text", "text")
_REFERENCE = 5000
_REPORTED = 1000  # the first seed; development had 0 to 29
_WINDOWS = 20  # of each size
_MOST_DRAWN = 2000  # rows of a resampled window


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """n rows: scores (n, 2), predicted, labels (n,), features (n, F)."""

    scores: Floats
    predicted: Ints
    labels: Ints
    features: Floats

    @classmethod
    def of(cls, score: Floats, labels: Ints, features: Floats) -> Rows:
        """From the scores of the positive class."""
        scores = np.column_stack((1 - score, score))
        return cls(scores, (score > 0.5).astype(np.int64), labels.astype(np.int64), features)

    def at(self, rows: Ints) -> Rows:
        """Return some of the rows."""
        return Rows(self.scores[rows], self.predicted[rows], self.labels[rows], self.features[rows])


@dataclass(frozen=True, slots=True)
class Seen:
    """The results of one window.

    Parameters
    ----------
    errors : mapping of (metric, method) to float
        Absolute.
    covered, width : mapping of (metric, method) to float
        Of the intervals of plain and covariates.
    unit : float
        Standard deviation of the accuracy of a random window of the reference.
    effective : float
    """

    errors: dict[tuple[str, str], float]
    covered: dict[tuple[str, str], float]
    width: dict[tuple[str, str], float]
    unit: float
    effective: float


class Judge:
    """A reference with all that is fitted on it."""

    def __init__(self, rows: Rows, kinds: tuple[FeatureKind, ...]) -> None:
        fit = rows.scores, rows.predicted, rows.labels
        names = [f"feature {k}" for k in range(len(kinds))]
        self.values = realised_values(*fit[:2], np.eye(2)[rows.labels])
        self.plain = IsotonicCalibrator().fit(*fit)
        self.base = fit_predictive(IsotonicCalibrator(), *fit)
        self.reference = CovariateReference.from_rows(*fit, rows.features, kinds, names)
        n, many = len(rows.labels), len(self.reference)
        self.used = rows.at(np.arange(many) * n // many)
        self.categories = [kind == "text" for kind in kinds]

    def see(self, window: Rows, seed: int, boosted: bool = True) -> tuple[Adapted, Seen | None]:
        """None where the estimate is unknown."""
        adapted = self.reference.adapt(window.features)
        if adapted.calibration is None:
            return adapted, None
        truth = realised_values(window.scores, window.predicted, np.eye(2)[window.labels])
        errors: dict[tuple[str, str], float] = {}
        covered: dict[tuple[str, str], float] = {}
        width: dict[tuple[str, str], float] = {}
        pairs: tuple[tuple[str, Calibration, Predictive], ...] = (
            ("plain", self.plain, self.base),
            ("covariates", adapted.calibration, adapted.predictive(self.base, self.reference, 1)),
        )
        for method, calibration, model in pairs:
            request = EstimationRequest(
                window.scores, window.predicted, calibration.apply(window.scores), METRICS, 1, 0.95, seed,
                predictive=model,
            )  # fmt: skip
            for metric, result in evaluate([request])[0].estimates.items():
                value = truth[metric]
                if isinstance(result, Estimate) and value is not None:
                    errors[metric, method] = abs(result.value - value)
                    covered[metric, method] = result.lower - 1e-9 <= value <= result.upper + 1e-9
                    width[metric, method] = result.upper - result.lower
        for metric in METRICS:
            here, before = truth[metric], self.values[metric]
            if here is not None and before is not None:
                errors[metric, "reference"] = abs(before - here)
        if boosted:
            claimed = self._boosted(window)
            errors["accuracy", "boosting"] = abs(claimed - float((window.predicted == window.labels).mean()))
        before = self.values["accuracy"] or 0.0
        unit = float(np.sqrt(before * (1 - before) / len(window.labels)))
        return adapted, Seen(errors, covered, width, unit, adapted.effective)

    def _boosted(self, window: Rows) -> float:
        features = np.concatenate([self.used.features, window.features])
        old = len(self.used.labels)
        sample = np.arange(len(features)) >= old
        classifier = HistGradientBoostingClassifier(categorical_features=self.categories, random_state=0)
        chance = classifier.fit(features, sample).predict_proba(self.used.features)[:, 1]
        weights = np.clip(chance, 1e-6, 1 - 1e-6) / np.clip(1 - chance, 1e-6, 1)
        fitted = IsotonicCalibrator().fit(
            self.used.scores, self.used.predicted, self.used.labels, weights / weights.mean()
        )
        return float(confidence_of(fitted.apply(window.scores), window.predicted).mean())


def features_of(rng: np.random.Generator, n: int, shift: str) -> tuple[Floats, Ints, Ints]:
    """Return three numbers, six segments, four regions."""
    segments, regions = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05]), np.array([0.4, 0.3, 0.2, 0.1])
    if shift in ("segments", "three", "hidden"):
        segments = np.array([0.05, 0.1, 0.1, 0.15, 0.25, 0.35])
    if shift == "segments":
        regions = np.array([0.2, 0.2, 0.2, 0.4])
    segment, region = rng.choice(6, n, p=segments), rng.choice(4, n, p=regions)
    means = {"means": (0.7, -0.5, 0.0), "far": (1.5, -1.0, 0.5), "three": (0.5, 0.0, 0.0)}
    mean = np.tile(means.get(shift, (0.0, 0.0, 0.0)), (n, 1))
    if shift in ("of segments", "three"):
        mean[np.isin(segment, (0, 3))] += (1.0, 0.0, -0.7)
    turned = -0.5 if shift == "correlation" else 0.5
    numbers = rng.standard_normal((n, 3))
    numbers[:, 1] = turned * numbers[:, 0] + np.sqrt(1 - turned**2) * numbers[:, 1]
    if shift == "spread":
        numbers[:, :2] *= (1.4, 0.7)
    numbers += mean
    numbers[:, 2] = np.exp(0.7 * numbers[:, 2])
    return numbers, segment, region


def simulated_rows(rng: np.random.Generator, n: int, shift: str, model: LogisticRegression | None) -> Rows:
    """Return rows under a shift, scored by the model; without a model, scored 0."""
    numbers, segment, region = features_of(rng, n, shift)
    logit = (
        np.array([0.8, 0.3, 0.0, -0.3, -0.6, -1.0])[segment]
        + np.array([1.2, 1.0, 0.8, 0.6, 0.3, -0.2])[segment] * numbers[:, 0]
        - 0.6 * numbers[:, 1]
        + 0.9 * numbers[:, 0] * numbers[:, 1]
        + 0.5 * np.log(numbers[:, 2])
        + np.array([0.0, 0.3, -0.5, 1.0])[region]
        + 0.8 * (numbers[:, 0] > 1) * (region == 3)
        - 0.4
    )
    labels = rng.random(n) < expit(logit - (0.8 if shift == "concept" else 0.0))
    known = np.column_stack((numbers, np.eye(4)[region]))
    score = np.zeros(n) if model is None else model.predict_proba(known)[:, 1]
    features = np.column_stack((numbers, segment, region)).astype(np.float64)
    return Rows.of(score, labels.astype(np.int64), features)


def simulated_life(
    seed: int, shifts: Iterable[str], sizes: Iterable[int], boosted: bool = True
) -> Iterator[tuple[str, int, Seen | None]]:
    """Yield one model and its reference, and a window of each shift and size."""
    rng = np.random.default_rng([9, seed])
    training = simulated_rows(rng, 3000, "none", None)
    known = np.column_stack((training.features[:, :3], np.eye(4)[training.features[:, 4].astype(int)]))
    model = LogisticRegression(max_iter=500).fit(known, training.labels)
    rows = simulated_rows(rng, _REFERENCE, "none", model)
    judge = Judge(rows, KINDS)
    without = [0, 1, 2, 4]  # the segment is hidden
    blind = Judge(hiding(rows, without), tuple(KINDS[k] for k in without))
    two = Judge(two_segments(rng, _REFERENCE, 0.3), ("text",))
    for shift in shifts:
        for n in sizes:
            again = np.random.default_rng([seed, n, SHIFTS.index(shift)])
            if shift == "two segments":
                yield shift, n, two.see(two_segments(again, n, 0.9), seed, boosted)[1]
                continue
            window = simulated_rows(again, n, shift, model)
            if shift == "hidden":
                yield shift, n, blind.see(hiding(window, without), seed, boosted)[1]
            else:
                yield shift, n, judge.see(window, seed, boosted)[1]


def two_segments(rng: np.random.Generator, n: int, share: float) -> Rows:
    """Return answers that are right 25 points less often in the second segment, at the same score."""
    segment = (rng.random(n) < share).astype(np.float64)
    confidence, predicted = rng.uniform(0.5, 1.0, n), rng.integers(0, 2, n)
    labels = np.where(rng.random(n) < confidence - 0.25 * segment, predicted, 1 - predicted)
    return Rows.of(np.where(predicted == 1, confidence, 1 - confidence), labels, segment[:, None])


def hiding(rows: Rows, columns: list[int]) -> Rows:
    """Return the same rows with some of their features."""
    return Rows(rows.scores, rows.predicted, rows.labels, rows.features[:, columns])


def flight_features(flights: Flights, rows: Ints) -> Floats:
    """Return carrier, origin, hour, departure delay."""
    columns = flights.carrier[rows], flights.origin[rows], flights.hour[rows], flights.delay[rows]
    return np.column_stack(columns).astype(np.float64)


FLIGHT_KINDS: tuple[FeatureKind, ...] = ("text", "text", "number", "number")


def leaning(rng: np.random.Generator, features: Floats, towards: str) -> Floats:
    """Return (n,) logarithm of the chance of being drawn, up to a constant."""
    if towards == "carriers":
        logs: Floats = rng.normal(0, 1.5, 100)[features[:, 0].astype(int)]
        return logs
    column = features[:, 2] if towards == "hours" else np.log(np.maximum(features[:, 3] + 30.0, 1.0))
    scaled = (column - column.mean()) / column.std()
    return np.asarray(rng.choice([-1.0, 1.0]) * scaled)


def draw_rows(rng: np.random.Generator, logs: Floats, n: int) -> Ints:
    """Return n different rows with chances in proportion to exp(logs), one after the other (Gumbel's
    maxima).
    """
    rows: Ints = np.sort(np.argsort(-(logs + rng.gumbel(size=len(logs))))[:n])
    return rows


def flight_cases(
    sizes: Iterable[int] = SIZES, windows: int = _WINDOWS, months: tuple[int, int] = (7, 12)
) -> Iterator[tuple[str, int, Seen | None]]:
    """Yield windows over time, and resampled ones."""
    flights = read_flights()
    training, held_rows, later = split(flights)
    later = later[
        (flights.late[later] >= 0) & (flights.month[later] >= months[0]) & (flights.month[later] <= months[1])
    ]
    day = flights.day_of_year[held_rows] // HOLD_OUT_EVERY_DAYS % 2 == 0
    for model, score in flight_scores(flights, training).items():
        held, stream = rows_of_flights(flights, held_rows, score), rows_of_flights(flights, later, score)
        judge = Judge(held, FLIGHT_KINDS)
        for n in sizes:
            starts = np.linspace(0, len(stream.labels) - n, windows).astype(int)
            for seed, start in enumerate(starts.tolist()):
                window = stream.at(np.arange(start, start + n))
                yield f"{model}, over time", n, judge.see(window, seed)[1]
        pool, judge = held.at(np.flatnonzero(~day)), Judge(held.at(np.flatnonzero(day)), FLIGHT_KINDS)
        for towards in ("carriers", "hours", "delays"):
            for n in (size for size in sizes if size <= _MOST_DRAWN):
                for seed in range(windows):
                    rng = np.random.default_rng([months[0], n, seed])
                    window = pool.at(draw_rows(rng, leaning(rng, pool.features, towards), n))
                    yield f"{model}, {towards}", n, judge.see(window, seed)[1]


def flight_scores(flights: Flights, training: Ints) -> dict[str, Floats]:
    """Return, by model, the score of each flight; NaN where the demo's have none."""
    scored, score = train_and_score(flights, seed=0), np.full(len(flights), np.nan)
    scores = {}
    for name in ("logistic", "boosting"):
        column = MODELS.index(name)
        score[scored.reference_rows], score[scored.stream_rows] = (
            scored.reference_scores[:, column], scored.stream_scores[:, column],
        )  # fmt: skip
        scores[name] = score.copy()
    delay = np.clip(flights.delay, -30.0, 120.0)[:, None]
    alone = LogisticRegression(max_iter=500).fit(delay[training], flights.late[training])
    return {**scores, "delay alone": alone.predict_proba(delay)[:, 1]}


def rows_of_flights(flights: Flights, rows: Ints, score: Floats) -> Rows:
    return Rows.of(score[rows], flights.late[rows], flight_features(flights, rows))


VISIT_KINDS: tuple[FeatureKind, ...] = ("number", "number", "text", "text")


def visit_cases(
    sizes: Iterable[int] = SIZES, windows: int = _WINDOWS, seed: int = _REPORTED
) -> Iterator[tuple[str, int, Seen | None]]:
    """Yield half of the people learn and are the reference, windows are of the other half."""
    data = randhie.load_pandas().data.to_numpy(dtype=np.float64)
    rng = np.random.default_rng(seed)
    data = data[rng.permutation(len(data))]
    labels = (data[:, 0] > 0).astype(np.int64)
    known, features = data[:, [1, 6]], data[:, [1, 6, 2, 5]]
    features[:, 3] = np.round(features[:, 3], 3)
    features[:, 3] = np.where(np.isin(features[:, 3], (0.0, 1.0)), features[:, 3], 2.0)
    model = LogisticRegression(max_iter=500).fit(known[:4000], labels[:4000])
    rows = Rows.of(model.predict_proba(known)[:, 1], labels, features)
    judge, pool = Judge(rows.at(np.arange(4000, 10_000)), VISIT_KINDS), rows.at(np.arange(10_000, len(data)))
    scaled = (pool.features - pool.features.mean(axis=0)) / pool.features.std(axis=0)
    for towards, columns in (("price and illness", (0, 1)), ("plan and limits", (2, 3))):
        for n in (size for size in sizes if size <= _MOST_DRAWN):
            for k in range(windows):
                rng = np.random.default_rng([seed, n, k])
                logs = scaled[:, columns] @ rng.choice([-0.7, 0.7], 2)
                yield towards, n, judge.see(pool.at(draw_rows(rng, logs, n)), k)[1]


def mean_of(seen: list[Seen], what: str, *key: str) -> float:
    """Return the mean over the windows that have the figure; NaN if none has."""
    values = [float(getattr(one, what)[key]) for one in seen if key in getattr(one, what)]
    return float(np.mean(values)) if values else float("nan")


def line(name: str, n: int, measured: list[Seen | None]) -> str:
    """Return a case and a size."""
    seen = [one for one in measured if one is not None]
    unknown = 100 * (1 - len(seen) / len(measured))
    if not seen:
        return f"{name:28s}{n:>6,}{'unknown in all windows':>28s}"
    cells = [f"{100 * mean_of(seen, 'errors', 'accuracy', m):6.2f}" for m in METHODS]
    unit = np.mean([one.unit for one in seen])
    cells += [f"{mean_of(seen, 'errors', 'accuracy', m) / unit:6.2f}" for m in METHODS]
    for metric in METRICS[1:]:
        shown = ("reference", "plain", "covariates")
        cells += [f"{100 * mean_of(seen, 'errors', metric, m):6.2f}" for m in shown]
    for what in ("covered", "width"):
        cells += [
            f"{100 * mean_of(seen, what, metric, m):6.1f}"
            for metric in METRICS
            for m in ("plain", "covariates")
        ]
    effective = np.mean([one.effective for one in seen])
    return f"{name:28s}{n:>6,}" + "".join(cells) + f"{unknown:6.1f}{effective:8,.0f}"


HEADER = (
    f"{'':34s}{'error of accuracy':>24s}{'in standard errors':>24s}{'AUROC':>18s}{'F1':>18s}"
    f"{'covered: acc., AUROC, F1':>36s}{'width: acc., AUROC, F1':>36s}{'unkn.':>6s}{'effect.':>8s}\n"
    f"{'shift':28s}{'rows':>6s}"
    + "".join(f"{word:>6s}" for word in 2 * ("ref", "plain", "boost", "cov") + 2 * ("ref", "plain", "cov"))
    + "".join(f"{word:>6s}" for word in 6 * ("plain", "cov"))
    + f"{'%':>6s}{'rows':>8s}"
)


def lines(
    title: str, cases: Iterable[tuple[str, int, Seen | None]], apart: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the table of the cases; the last rows are means over all but those named."""
    yield f"{title}; in points, covered and width in %"
    yield HEADER
    by_case: dict[tuple[str, int], list[Seen | None]] = {}
    for name, n, seen in cases:
        by_case.setdefault((name, n), []).append(seen)
    for (name, n), each in sorted(by_case.items(), key=lambda item: list(by_case).index(item[0])):
        yield line(name, n, each)
    for n in sorted({n for _, n in by_case}):
        every = [one for (name, m), each in by_case.items() if m == n and name not in apart for one in each]
        yield line("all but the last two" if apart else "all", n, every)


def simulated(trials: int = 30) -> Iterator[str]:
    """Yield simulated shifts."""
    cases = (case for trial in range(trials) for case in simulated_life(_REPORTED + trial, SHIFTS, SIZES))
    title = "Simulated shifts (python -m tests.fidelity.covariates simulated), reference of 5,000 rows"
    return lines(f"{title}, {trials} trials a row", cases, SHIFTS[-2:])


def flights() -> Iterator[str]:
    """Yield flights over time and resampled."""
    title = f"Flights (python -m tests.fidelity.covariates flights), {_WINDOWS} windows a row"
    return lines(title, flight_cases())


def visits() -> Iterator[str]:
    """Yield visits to doctors, resampled."""
    title = f"Visits to doctors (python -m tests.fidelity.covariates visits), {_WINDOWS} windows a row"
    return lines(title, visit_cases())


if __name__ == "__main__":
    run({"simulated": simulated, "flights": flights, "visits": visits})
