"""A filter on the logit bias of the confidences, from the labels that arrive with the stream.

**The model.** The calibration's error is a bias b that all later rows share. It starts with the reference's
uncertainty (variance 1/I_ref, and the components' variance of the reference's own mean), and may stay, walk
or jump. There are sixteen hypotheses: a walk of q logits² in 10,000 rows, q = 0, 0.003, 0.03 or 0.3, with a
noise of variance f = 0, 0.1, 0.4 or 1.6 logits² that is forgotten over 300 rows; each has a jump (Laplace,
0.5 logits) once in a million rows. At the start, 90 % of the weight is on no movement beyond the reference's;
the others share the rest. The laws of motion may change too: 5 % of the weight returns to the first shares in
10,000 rows, so a year of stability does not promise another.

**Labels.** A block's labelled rows have the exact likelihood of their outcomes at every bias
(`monitor.stats.estimate.bias_law` has the lattice), after the block's own noise: the components' variation
between windows, and f. Hypotheses gain and lose weight by it. One block outweighs the others by at most 1 :
10⁵, so a batch of wrong labels cannot silence the rest.

**No width for nothing.** One more hypothesis stands beside them: the bias is the calibration's own error, and
stays. Until labels are three times as likely under the sixteen together, it alone is believed; labels then
only narrow what the calibration's rows left open, and the reference's own lasting drift stays as wide as
without labels. As both kinds begin with the same weight and the sixteen contain it, the labels of a stream
without change reach this ratio in at most one of three streams.

**Late labels** count at their row's position in the stream. Blocks of rows, 64 of them open, hold the sums of
their rows' log-likelihoods, and the filter runs over the blocks in the stream's order. A label whose block is
more than 63 blocks older than the newest labelled one counts in the oldest open block. Sums are in units of
2⁻³⁰ nats, so the order of rows and the cuts of batches do not change the result.

**Assumptions:** as for the test of trust, labelling does not depend on whether the answer was right, given
its confidence. Rows picked with known probabilities need no weights; rows must not be picked by their true
class. If the bias is not one shift in logits, a window must have the mix of confidences of the labelled rows.

**When it misleads.** On a stable stream it costs no width (`tests/fidelity/output/labels_help_models.txt`).
It is slow with few labels: 1 % of 10,000 rows hold a tenth of the evidence that proves a jump of five points;
until labels speak for a change, the interval is nearly that of the reference. The test of trust
(`monitor.engine.labels.trust`) uses the same rows, so its evidence does not count here a second time.

Sources: the mixture over laws of motion is a switching state-space model (H. A. P. Blom, Y. Bar-Shalom, IEEE
Transactions on Automatic Control 33, 1988, who use Kalman filters); on a lattice, it is the filter of R. S.
Bucy and K. D. Senne, *Digital synthesis of nonlinear filters*, Automatica 7 (1971). The hypotheses and their
weights are ours, fixed on simulated streams and on the flights of April to June; on those of July to December
labels of 5 % cover 95 to 100 %, the reference alone 44 to 96 %
(`tests/fidelity/output/predictive_flights.txt`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.base.errors import ConfigError
from monitor.base.records import Floats, Ints
from monitor.stats.estimate.bias_law import (
    LATTICE,
    NODES,
    STEP,
    UNIT,
    BiasLaw,
    cosines,
    damped,
    decays,
    gains_of,
    on_lattice,
    spread,
)
from monitor.stats.estimate.variance_components import Components, remembered

WALKS = (0.0, 0.003, 0.03, 0.3)
"""Variances of the walk, in logits² in 10,000 rows."""

NOISES = (0.0, 0.1, 0.4, 1.6)
"""Variances of the noise, in logits², forgotten over 300 rows."""

BLOCK_ROWS = 500
BLOCKS_OPEN = 64

_NOISE_LENGTH = 300.0
_STABLE = 0.9
_PER = 10_000.0  # the unit of rates, in rows
_JUMPS, _JUMP_SIZE = 0.01, 0.5  # in so many rows; logits
_RETURN = 0.05  # of the weight, in so many rows
_LEAST = 1e-5  # of a block's likelihood
_KEPT = 1e-12  # of the weights: so much the still hypothesis has at least
_SPEAKS = 3.0  # so many times as likely must labels be if the bias moves
_CACHED, _CACHED_EVERY = 4, 8  # blocks whose state is kept: the newest, and every eighth
_BY_NOISE = np.append(np.tile(np.arange(len(NOISES)), len(WALKS)), len(NOISES))
"""Of each hypothesis, its noise; the still one counts as another."""


@lru_cache(maxsize=1)
def _hypotheses() -> tuple[Floats, Floats, Floats]:
    """Weight and noise of each hypothesis, and the decay per row of each cosine of the lattice.

    The last is the still one: it has a weight of its own, as large as that of all others together.
    """
    _, slow = cosines()
    wave = np.cos(np.pi * np.arange(len(LATTICE)) / len(LATTICE))
    near = math.exp(-STEP / _JUMP_SIZE)
    jump = 1 - (1 - near) ** 2 / (1 - 2 * near * wave + near**2)  # of the Laplace distribution on a lattice
    walk, noise = np.repeat(WALKS, len(NOISES)), np.tile(NOISES, len(WALKS))
    weight = np.full(len(walk), (1 - _STABLE) / (len(walk) - 1))
    weight[0] = _STABLE
    rates = (walk[:, None] * slow + _JUMPS * jump) / _PER
    return np.append(weight, 1.0), np.append(noise, 0.0), np.vstack([rates, np.zeros_like(slow)])


@lru_cache(maxsize=64)
def _decays_in(rows: float) -> Floats:
    """What of each cosine is left after so many rows, by hypothesis: most blocks are one block apart."""
    _, _, rates = _hypotheses()
    found: Floats = np.exp(-rows * rates)
    return found


@dataclass(frozen=True, slots=True)
class BiasFilter:
    """Settings of the filter of one model under one calibration.

    Parameters
    ----------
    variance : float
        Variance of the bias at the calibration's fit, in logits², 0 or more: 1/I_ref and the lasting part of
        drift.
    components : Components or None
        The variation between windows; None if unknown.
    block_rows : int
        Rows in a block, 1 or more; at least a window if positions are known no finer.
    since : int
        The first row under this calibration; the filter ignores earlier ones.

    Raises
    ------
    ConfigError
        A number is out of its range.

    Examples
    --------
    >>> logic = BiasFilter(variance=0.01, components=None).build()
    >>> rows = np.arange(0, 20_000, 4)
    >>> logic.push(rows, np.full(5000, 0.9), rows // 4 % 10 > 1)  # 80 % are right
    >>> law = logic.of_window(start=20_000, n=500, information=45.0)
    >>> round(law.mean, 2), round(law.variance ** 0.5, 2)         # ln(0.8 / 0.2) - ln(0.9 / 0.1) = -0.81
    (-0.81, 0.04)
    """

    variance: float
    components: Components | None
    block_rows: int = BLOCK_ROWS
    since: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.variance < math.inf:
            raise ConfigError(f"variance must be 0 or more logits², got {self.variance}; see of_reference")
        if self.block_rows < 1:
            raise ConfigError(f"block_rows must be 1 row or more, got {self.block_rows}")
        if self.since < 0:
            raise ConfigError(f"since must be a row of the stream, 0 or more, got {self.since}")

    @classmethod
    def of_reference(
        cls, confidence: Floats, components: Components | None, block_rows: int = BLOCK_ROWS, since: int = 0
    ) -> BiasFilter:
        """The filter for a calibration fitted on a reference with these confidences, (N,) float64."""
        information = max(float((confidence * (1 - confidence)).sum()), 1.0)  # as of trust's epsilon
        lasting = components.lasting if components else 0.0
        return cls(1 / information + lasting, components, block_rows, since)

    def build(self, resume: BiasFilterState | None = None) -> BiasFilterLogic:
        """The filter, from the start or from a snapshot."""
        return BiasFilterLogic(self, resume)


class BiasFilterState(msgspec.Struct, frozen=True):
    """The state of the filter: 28 kB at most, and far less before 64 blocks have labels.

    Parameters
    ----------
    labelled, newest : int
    base : (hypotheses, lattice) float64 or None
        Weights after the closed blocks; None: no block is closed. Older stores lack the last hypothesis.
    at : float or None
        The row of `base`; None: the start.
    blocks : list of int
    gains : (blocks, nodes) int64
        Log-likelihoods of the open blocks.
    """

    labelled: int = 0
    newest: int = -1
    base: Floats | None = None
    at: float | None = None
    blocks: list[int] = []
    gains: Ints = msgspec.field(default_factory=lambda: np.zeros((0, len(NODES)), dtype=np.int64))


class BiasFilterLogic:
    """The state and the steps of the bias filter."""

    def __init__(self, settings: BiasFilter, resume: BiasFilterState | None = None) -> None:
        state = resume or BiasFilterState()
        self._settings = settings
        self._labelled, self._newest, self._base = state.labelled, state.newest, state.base
        if self._base is not None and len(self._base) == len(WALKS) * len(NOISES):
            self._base = np.vstack([self._base, self._base.sum(axis=0)])
        self._at = float(settings.since) if state.at is None else state.at
        columns = zip(state.blocks, state.gains, strict=True)
        self._gains: dict[int, Ints] = {block: gains.copy() for block, gains in columns}
        self._cache: list[tuple[int, Floats]] = []
        weight, noise, self._rates = _hypotheses()
        self._weight, self._noise = weight[:, None], noise
        self._still = np.arange(len(weight)) == len(weight) - 1
        self._lasting = settings.components.lasting if settings.components else 0.0
        # Hypotheses with one noise have one likelihood: its decays, and the still hypothesis' own.
        apart = [*range(len(NOISES)), -1]
        self._decays = decays(self._varying(settings.block_rows, math.inf)[apart])

    @property
    def labelled(self) -> int:
        """The number of labelled rows so far."""
        return self._labelled

    def speaks(self, start: int, n: int) -> bool:
        """Whether labels speak for a bias that is not the calibration's own error, in a window."""
        return not _still(self._in_window(start, n))

    def beyond(self, of: Components | None) -> float:
        """Variance of a group's lasting drift beyond the model's, in logits²."""
        return max(of.lasting - self._lasting, 0.0) if of else 0.0

    @property
    def shared_variance(self) -> float:
        """Variance of the calibration's error as a shift, 1/I_ref in logits²: labels can reduce this part."""
        components = self._settings.components
        return max(self._settings.variance - (components.lasting if components else 0.0), 0.0)

    def push(self, position: Ints, confidence: Floats, right: NDArray[np.bool_]) -> None:
        """Add rows with their first labels, in any order and in any pieces.

        Parameters
        ----------
        position : (n,) int64
            Position in the stream of the model's answers, from 0; rows before `since` are ignored.
        confidence : (n,) float64
            The confidence in the report of the answer; rows with NaN are ignored.
        right : (n,) bool
        """
        kept = (position >= self._settings.since) & ~np.isnan(confidence)
        if not kept.any():
            return
        position, confidence = position[kept], np.ascontiguousarray(confidence[kept])
        self._labelled += len(position)
        block = position // self._settings.block_rows
        newest = np.maximum(np.maximum.accumulate(block), self._newest)
        block = np.maximum(block, newest - (BLOCKS_OPEN - 1))
        self._newest = int(newest[-1])
        units = gains_of(confidence, right[kept])
        for one in np.unique(block).tolist():
            self._gains[one] = self._gains.get(one, 0) + units[block == one].sum(axis=0)
        changed = int(block.min())
        self._cache = [(one, joint) for one, joint in self._cache if one < changed]
        self._close_old_blocks()

    def of_window(
        self, start: int, n: int, information: float, variance: float = 0.0, of: Components | None = None
    ) -> BiasLaw:
        """The distribution of a window's mean bias, from the labels of rows up to its end.

        Parameters
        ----------
        start : int
            Position of its first row.
        n : int
            Its rows, 1 or more.
        information : float
            Σ c(1 − c) over them.
        variance : float
            Other variance of the bias of these very rows, in logits².
        of : Components, optional
            Of a group, whose rows these are; its lasting part counts up to that of the model.
        """
        joint = self._in_window(start, n)
        still = _still(joint)
        variance += still * (self._lasting if of is None else min(self._lasting, of.lasting))
        variances = self._varying(n, information, of) + variance
        if still:
            # Beside a row of zeros: the product of a single row is rounded otherwise than that of several.
            joint, variances = joint[-2:] * self._still[-2:, None], variances[-2:]
        else:
            joint, variances = joint[:-1], variances[:-1]
        mass = spread(joint, variances).sum(axis=0)
        return BiasLaw(mass / mass.sum())

    def snapshot(self) -> BiasFilterState:
        """The state from which another filter can go on (`resume`)."""
        blocks = sorted(self._gains)
        taken = BiasFilterState(
            self._labelled, self._newest, None if self._base is None else self._base.copy(), self._at, blocks
        )
        if not blocks:
            return taken
        return msgspec.structs.replace(taken, gains=np.stack([self._gains[one] for one in blocks]))

    def _in_window(self, start: int, n: int) -> Floats:
        """The weights at the middle of a window, from the labels of rows up to its end."""
        at, joint = self._up_to(start + n)
        return self._moved(joint, start + n / 2 - at)

    def _varying(self, n: int, information: float, of: Components | None = None) -> Floats:
        """The variance between one stretch of n rows and another, for each hypothesis."""
        components = of or self._settings.components
        known = components.moving(n, information) if components else 0.0
        return known + self._noise * remembered(n, _NOISE_LENGTH)

    def _at_start(self) -> Floats:
        point = np.zeros(len(LATTICE))
        point[len(LATTICE) // 2] = 1.0
        # Spreading masses evenly between lattice points adds a variance, subtracted in advance.
        start = self._settings.variance - self._lasting * self._still
        return self._weight * spread(point, np.maximum(start - STEP**2 / 6, 0.0))

    def _centre(self, block: int) -> float:
        return max((block + 0.5) * self._settings.block_rows, float(self._settings.since))

    def _moved(self, joint: Floats, rows: float) -> Floats:
        """The weights so many rows later, without labels."""
        if rows <= 0:
            return joint
        joint = damped(joint, _decays_in(rows))
        kept = math.exp(-_RETURN * rows / _PER)
        moving, still = joint[:-1], joint[-1:]
        moving = kept * moving + (1 - kept) * self._weight[:-1] * moving.sum(axis=0)
        return np.vstack([moving, still])

    def _after(self, joint: Floats, at: float, block: int) -> Floats:
        """The weights after a block's labels."""
        joint = self._moved(joint, self._centre(block) - at)
        gains = on_lattice(self._gains[block].astype(np.float64) * UNIT)
        alike = np.broadcast_to(np.exp(gains - gains.max()), self._decays.shape)
        likelihood = damped(alike, self._decays)
        joint = joint * (likelihood / likelihood.max() + _LEAST)[_BY_NOISE]
        joint /= joint.sum()
        joint[-1] *= max(1.0, _KEPT / joint[-1].sum())
        return joint

    def _up_to(self, position: int) -> tuple[float, Floats]:
        """The filter's row and weights after the last block whose middle is at or before `position`."""
        return self._after_blocks([one for one in sorted(self._gains) if self._centre(one) <= position])

    def _after_blocks(self, blocks: list[int]) -> tuple[float, Floats]:
        """The filter's row and weights after the first blocks of those whose labels are kept."""
        cached = [each for each in self._cache if blocks and each[0] <= blocks[-1]]
        if cached:
            last, joint = max(cached, key=lambda each: each[0])
            at = self._centre(last)
            blocks = [one for one in blocks if one > last]
        else:
            at, joint = self._at, self._at_start() if self._base is None else self._base
        for one in blocks:
            joint = self._after(joint, at, one)
            at = self._centre(one)
            self._remember(one, joint)
        return at, joint

    def _remember(self, block: int, joint: Floats) -> None:
        """Keep this state: late labels change only later blocks."""
        every = [*(each for each in self._cache if each[0] != block), (block, joint)]
        newest = sorted(one for one, _ in every)[-_CACHED:]
        self._cache = [each for each in every if each[0] in newest or each[0] % _CACHED_EVERY == 0]

    def _close_old_blocks(self) -> None:
        """Let go of the labels of blocks that no label reaches any more, up to every eighth block.

        Its state is mostly kept: then nothing has to be computed again.
        """
        last = (self._newest - BLOCKS_OPEN) // _CACHED_EVERY * _CACHED_EVERY
        old = sorted(one for one in self._gains if one <= last)
        if not old:
            return
        self._at, self._base = self._after_blocks(old)
        for one in old:
            del self._gains[one]
        self._cache = [each for each in self._cache if each[0] > last]


def _still(joint: Floats) -> bool:
    return bool(joint[:-1].sum() < _SPEAKS * joint[-1].sum())
