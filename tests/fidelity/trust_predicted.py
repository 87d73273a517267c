"""Trust in the corrected accuracy on simulated streams: how often it is lost, and for how long.

    python -m tests.fidelity.trust_predicted [--lives 40]

Simulated rows (Kivimäki et al., Table 2) whose logits carry a bias, after a reference of 1,000 or 5,000 rows
with an isotonic calibration, through the checks of the agent: each label is held against its confidence, and
against what the correction predicted from the labels that were known when the newest window closed. `stable`
has no bias; `drift` is an Ornstein–Uhlenbeck process of 0.3 logits that is forgotten over 2,000 rows, `fast
drift` has one of 0.7 logits over 200 rows beside it. `5 points`, `10 points` and `20 points` fall by so much
at the 6,000th row and stay there, `gone` ones until the 16,000th; `every window` falls by 2.5 logits in every
second window from there on, which no prediction follows. Windows of 500 rows, 1,000 where all rows are
labelled.

`until lost` are the windows from the change until the first one without trust, `until back` those from there
until trust is back: means over the lives that lose it, and the windows within which 9 of 10 are back. Trust
that is lost again after it was back is a flap; where a bias goes, that is a second change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from monitor import CALIBRATORS
from monitor.base.records import Floats, Ints
from monitor.engine.label_checks import LabelChecks, compare_with_labels
from monitor.engine.labels.columns import Matches
from monitor.engine.labels.correcting import Correcting
from monitor.engine.labels.trust import epsilon_of
from monitor.stats.calibration.base import confidence_of, cross_fit_in_time
from monitor.stats.estimate.corrected import Correction, block_rows
from tests.fidelity.predictive import ornstein_uhlenbeck
from tests.fidelity.simulated import ORIGINAL, confidences
from tests.fidelity.trust import shift_of
from tests.harness import run

CHANGE_AT = 6000
GONE_AT = 16_000


class Case(NamedTuple):
    """A stream and its labels.

    Parameters
    ----------
    stream : str
    reference, rows, window : int
    share : float
        Of the rows that are labelled.
    late : int
        Windows after which labels come; with 0 before their own window closes.
    """

    stream: str
    reference: int
    rows: int
    share: float
    late: int = 1
    window: int = 500

    @property
    def changed(self) -> int:
        """The first window after the change; none of the stream where it has none."""
        changes = "points" in self.stream or self.stream == "every window"
        return (CHANGE_AT if changes else self.rows) // self.window


CASES = (
    Case("stable", 1000, 50_000, 0.2),
    Case("stable", 5000, 50_000, 0.2),
    Case("drift", 5000, 50_000, 0.2),
    Case("drift", 5000, 50_000, 0.2, late=10),
    Case("drift", 5000, 10_000, 1.0, late=0, window=1000),
    Case("fast drift", 5000, 50_000, 0.2),
    Case("5 points", 5000, 40_000, 0.05),
    Case("5 points", 5000, 40_000, 0.2),
    Case("10 points", 5000, 40_000, 0.2),
    Case("20 points", 5000, 40_000, 0.05),
    Case("20 points", 5000, 40_000, 0.2),
    Case("20 points", 5000, 40_000, 1.0),
    Case("20 points gone", 5000, 40_000, 0.05),
    Case("20 points gone", 5000, 40_000, 0.2),
    Case("20 points gone", 5000, 40_000, 1.0),
    Case("every window", 5000, 20_000, 0.2),
)


class Outcome(NamedTuple):
    """The outcome of one life.

    Parameters
    ----------
    trusted : (windows,) bool
        As each window closed.
    changed : int
        The first window after the change, as in `Case`.
    biased : bool
        Whether labels have contradicted the confidences.
    """

    trusted: NDArray[np.bool_]
    changed: int
    biased: bool

    @property
    def losses(self) -> Ints:
        """The windows at which trust was lost."""
        before = np.append(True, self.trusted[:-1])
        return np.flatnonzero(before & ~self.trusted)

    @property
    def until_lost(self) -> float:
        """Windows from the change until trust is lost; NaN where it never is, or was before."""
        if not len(self.losses):
            return np.nan
        return float(self.losses[0] - self.changed) if self.losses[0] >= self.changed else np.nan

    @property
    def until_back(self) -> float:
        """Windows from the first loss until trust is back, or until the end; NaN where it is never lost."""
        if not len(self.losses):
            return np.nan
        later = np.flatnonzero(self.trusted[self.losses[0] :])
        return float(later[0] if len(later) else len(self.trusted) - self.losses[0])


def bias_of(rng: np.random.Generator, case: Case) -> Floats:
    """Return the bias of each row, in logits, the reference's first."""
    many, at = case.reference + case.rows, case.reference + CHANGE_AT
    bias = np.zeros(many)
    if "drift" in case.stream:
        bias += ornstein_uhlenbeck(rng, many, 2000.0, 0.3)
    if case.stream == "fast drift":
        bias += ornstein_uhlenbeck(rng, many, 200.0, 0.7)
    if "points" in case.stream:
        end = case.reference + GONE_AT if "gone" in case.stream else many
        bias[at:end] = -shift_of(int(case.stream.split()[0]) / 100)
    if case.stream == "every window":
        bias[at:] = np.where(np.arange(many - at) // case.window % 2 == 0, -2.5, 0.0)
    return bias


def life(case: Case, seed: int) -> Outcome:
    """Return one stream with its labels."""
    rng = np.random.default_rng([seed, case.reference, 36])
    many, n = case.reference + case.rows, case.window
    chance = np.clip(confidences(rng, ORIGINAL, (many,)), 1e-9, 1 - 1e-9)
    hits = rng.random(many) < expit(logit(chance) + bias_of(rng, case))
    scores, acted = expit(1.5 * logit(chance) + 0.4)[:, None], np.zeros(many, dtype=np.int64)
    old, calibrator = slice(0, case.reference), CALIBRATORS["isotonic"]()
    rows = scores[old], acted[old], (~hits[old]).astype(np.int64)
    confidence = confidence_of(calibrator.fit(*rows).apply(scores), acted)
    crossed = confidence_of(cross_fit_in_time(calibrator, *rows, folds=5), rows[1])
    settings = Correction.from_reference(crossed, hits[old], n)
    checks = LabelChecks(0.95, Correcting(lambda: settings, settings.block_rows, 0), by_class=False)
    checks.inherit_tolerance(epsilon_of(confidence[old]))
    confidence, hits = confidence[case.reference :], hits[case.reference :]
    picked = np.flatnonzero(rng.random(case.rows) < case.share)
    trusted, biased = [], False
    for window in range(case.rows // n):
        fresh = picked[picked // n == window - case.late]
        place = fresh // n * n + fresh % n // block_rows(n) * block_rows(n)
        matches = matches_of(fresh, fresh // n, place, confidence, hits)
        biased |= bool(compare_with_labels([checks], matches, audited=True))
        checks.correction.add(place, confidence[fresh], hits[fresh])
        trusted.append(checks.trusted)
        checks.correction.close(window, confidence[window * n : (window + 1) * n])
        checks.predict()
    return Outcome(np.array(trusted), case.changed, biased)


def matches_of(rows: Ints, window: Ints, block: Ints, confidence: Floats, hits: NDArray[np.bool_]) -> Matches:
    """Return first labels of these rows of the one series."""
    ones, flags = np.ones(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
    right = hits[rows]
    return Matches(
        series=0 * ones,
        window=window,
        labelled=ones,
        correct=right.astype(np.int64),
        sequence=rows,
        weight=np.ones(len(rows)),
        confidence=confidence[rows],
        right=right,
        id=rows.astype(np.uint64),
        label=right.astype(np.int64),
        replaced=flags,
        block=block,
        predicted=0 * ones,
    )


def table(lives: int = 40) -> Iterator[str]:
    """Yield all of it, a line at a time."""
    yield f"Trust in the corrected accuracy, {lives} lives a row (python -m tests.fidelity.trust_predicted)"
    yield "                    labels in         lose   until  until back    flaps in        untrusted"
    yield "stream           ref a window  late  trust    lost  mean  90 % 100 windows  most   windows  biased"
    for case in CASES:
        yield row_of(case, [life(case, seed) for seed in range(lives)])


def row_of(case: Case, lived: list[Outcome]) -> str:
    """Return one line of the table."""
    lost = [one for one in lived if len(one.losses)]
    after = [one.until_lost for one in lost if not np.isnan(one.until_lost)]
    back = np.array([one.until_back for one in lost])
    until = f"{back.mean():6.1f}{np.quantile(back, 0.9):6.1f}" if lost else f"{'-':>6}{'-':>6}"
    again = np.array([max(len(one.losses) - 1, 0) for one in lived])
    untrusted = np.mean([~one.trusted for one in lived])
    return (
        f"{case.stream:15s}{case.reference:5,}{case.share * case.window:9.0f}{case.late:6d}"
        f"{100 * len(lost) / len(lived):5.0f} %{f'{np.mean(after):.1f}' if after else '-':>8}{until}"
        f"{100 * again.mean() / len(lived[0].trusted):12.2f}{again.max():6d}{100 * untrusted:8.1f} %"
        f"{100 * np.mean([one.biased for one in lived]):6.0f} %"
    )


if __name__ == "__main__":
    run(table)
