"""The quality of each calibration method, by the size of its reference.

    python -m tests.fidelity.calibration [--quick]

Simulated: confidences of Kivimäki et al., Table 2, as they are (calibrated) and made overconfident (logits
times 1.6); judged on 20,000 new rows with known true probabilities: log loss minus that of the truth in
thousandths of a nat a row, and ACE (20 bins of equal count, calibrated against true probability) in points.

Flights: each model of the demo, fitted on rows of every second of the held-out days of January to March and
judged on the other days; ACE without the bias of label noise, log loss minus that of the raw scores (below 0
is better). scikit-learn's sigmoid (of the logit) and isotonic stand beside as witnesses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from monitor import CALIBRATORS, labelled_calibration_error
from monitor.base.records import Floats, Ints
from monitor.base.results import Estimate
from monitor.stats.estimate.equal_count import equal_count_bins
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.harness import run

SIZES = (100, 1_000, 10_000)
TRIALS = {100: 40, 1_000: 20, 10_000: 5}
METHODS = ("none", "temperature", "platt", "beta", "isotonic", "auto")
WITNESSES = ("sklearn sigmoid", "sklearn isotonic")
JUDGED_ROWS = 20_000
OVERCONFIDENCE = {"calibrated": 1.0, "overconfident": 1.6}
_SMALLEST = 1e-4  # probabilities count as at least it in the log loss; isotonic says exactly 0 and 1

Map = Callable[[Floats], Floats]


def logit(p: Floats) -> Floats:
    """Return the logits of probabilities kept a millionth off 0 and 1."""
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(clipped) - np.log1p(-clipped)


def fitted(method: str, score: Floats, success: Ints) -> Map:
    """Return the fitted map from (n,) scores to (n,) chances of success."""
    if method == "sklearn sigmoid":
        theirs = _SigmoidCalibration().fit(logit(score), success)
        return lambda fresh: np.asarray(theirs.predict(logit(fresh)))
    if method == "sklearn isotonic":
        curve = IsotonicRegression(out_of_bounds="clip").fit(score, success)
        return lambda fresh: np.asarray(curve.predict(fresh))
    ours = CALIBRATORS[method]().fit(score[:, None], np.zeros(len(score), dtype=np.int64), 1 - success)
    return lambda fresh: ours.apply(fresh[:, None])[:, 0]


def loss(chance: Floats, success: Floats) -> float:
    """Return mean log loss; `success` may be a chance itself."""
    kept = np.clip(chance, _SMALLEST, 1 - _SMALLEST)
    return -float(np.mean(success * np.log(kept) + (1 - success) * np.log1p(-kept)))


def ace(chance: Floats, truth: Floats) -> float:
    """Return mean gap over 20 bins of equal count by the calibrated chance."""
    cut, _ = equal_count_bins(chance, chance - truth, 20)
    return float(np.abs(cut.bin_sums(cut.values)).sum() / len(chance))


def simulated(kind: str, size: int, method: str, trials: int) -> tuple[float, float]:
    """Return excess log loss in thousandths of a nat, and ACE in points, means over trials."""
    errors = []
    for trial in range(trials):
        rng = np.random.default_rng([trial, size])
        truth = confidences(rng, ORIGINAL, (size + JUDGED_ROWS,))
        score = 1 / (1 + np.exp(-OVERCONFIDENCE[kind] * logit(truth)))
        success = (rng.random(size) < truth[:size]).astype(np.int64)
        chance = fitted(method, score[:size], success)(score[size:])
        left = truth[size:]
        errors.append((1000 * (loss(chance, left) - loss(left, left)), 100 * ace(chance, left)))
    return tuple(np.mean(errors, axis=0).tolist())


def of_flights(
    score: Floats, late: Ints, odd: Floats, size: int, method: str, trials: int
) -> Iterator[float]:
    """Yield log loss beyond the raw scores' in thousandths of a nat, and ACE in points, means over trials."""
    learnt, judged = np.flatnonzero(odd), np.flatnonzero(~odd)
    errors = []
    for trial in range(trials):
        rng = np.random.default_rng([trial, size])
        rows = np.sort(rng.choice(learnt, min(size, len(learnt)), replace=False))
        chance = fitted(method, score[rows], late[rows])(score[judged])
        error = labelled_calibration_error(chance, late[judged] == 1, seed=trial).corrected.result
        assert isinstance(error, Estimate)
        worse = loss(chance, late[judged]) - loss(score[judged], late[judged])
        errors.append((1000 * worse, 100 * error.value))
    yield from np.mean(errors, axis=0).tolist()


def lines_simulated(trials: dict[int, int]) -> Iterator[str]:
    """Yield a line for each kind of scores and method."""
    for kind in OVERCONFIDENCE:
        yield f"simulated, {kind}"
        for method in (*METHODS, *WITNESSES):
            cells = (simulated(kind, size, method, trials[size]) for size in SIZES)
            yield f"  {method:18s}" + "".join(f"{a:12.2f} {b:6.2f}" for a, b in cells)


def lines_flights(trials: dict[int, int]) -> Iterator[str]:
    """Yield a line for each model and method."""
    from monitor.cli.demo.flights import read_flights
    from monitor.cli.demo.training import train_and_score

    flights = read_flights()
    scored = train_and_score(flights, seed=0)
    rows = scored.reference_rows
    odd = flights.day_of_year[rows] // 3 % 2 == 1
    for column, model in enumerate(scored.models):
        yield f"flights, {model}"
        for method in (*METHODS, *WITNESSES):
            score, late = scored.reference_scores[:, column], flights.late[rows]
            cells = (of_flights(score, late, odd, size, method, trials[size]) for size in SIZES)
            yield f"  {method:18s}" + "".join(f"{a:12.2f} {b:6.2f}" for a, b in cells)


def table(quick: bool = False) -> Iterator[str]:
    """Yield all of it, a line at a time; quick: two trials each."""
    trials = dict.fromkeys(SIZES, 2) if quick else TRIALS
    yield "Log loss beyond the truth's (flights: the raw scores'), 1/1000 nat, and ACE, points, by rows"
    runs = ", ".join(f"{count} at {size:,}" for size, count in trials.items())
    yield f"means over {runs} trials (python -m tests.fidelity.calibration)"
    yield f"{'':20s}" + "".join(f"{size:12,d} {'ACE':>6s}" for size in SIZES)
    yield from lines_simulated(trials)
    yield from lines_flights(trials)


if __name__ == "__main__":
    run(table)
