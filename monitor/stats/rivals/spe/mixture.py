"""The fit of a mixture of two densities to scores: one for the rows of a class, one for all other rows.

Positive rows are those of the class. The fit maximises the posterior of the mixture's parameters
(`Pair.log_posterior`), and draws the parameters by importance sampling around that maximum. `fit_mixture`
does this for several pairs of families of densities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy
from numpy.typing import NDArray

from monitor.base.records import Floats, Ints
from monitor.stats.rivals.spe.families import DensityFamily

POINTS = 512
"""Number of points that represent the rows of one kind (unlabelled, negative, positive) in a fit."""
COARSE = 64
"""Number of these points during the comparison of families."""
KEPT = 2
"""Number of pairs of families that are searched from every start."""
AVERAGED = 8
"""Number of the most likely pairs of families whose parameters are sampled."""
PROPOSALS = 600
"""Number of proposals in each of the two rounds of importance sampling."""
_STEP = 1e-5  # central differences; their error, 1e-10 times a third derivative, is below the tolerance
_CURVE_STEP = 1e-3
_FREEDOM = 5.0  # degrees of freedom of the proposal, whose tails are heavier than the posterior's
_ODDS = (-9.0, 9.0)
_SCREEN = 25  # iterations in the comparison of families, from a near start
_LOWEST = -1e12


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """A summary of many scores as m points, each with the number of rows that it represents.

    Parameters
    ----------
    scores : (m,) float64
        Scores in (0, 1].
    unlabelled, negative, positive : (m,) float64
        The numbers of unlabelled, negative and positive rows at each score.
    """

    scores: Floats
    unlabelled: Floats
    negative: Floats
    positive: Floats

    @classmethod
    def from_scores(cls, scores: Floats, labels: Ints, most: int) -> Points:
        """Return at most `most` points each for unlabelled, negative and positive rows.

        A point is the mean of neighbouring scores. All points for one kind of row represent equally many
        rows.

        Parameters
        ----------
        scores : (n,) float64
        labels : (n,) int64
            1 for the positive class, 0 for the others, −1 if unknown.
        most : int
        """
        kinds = [_thinned(np.sort(scores[labels == kind]), most) for kind in (-1, 0, 1)]
        place = np.concatenate([at for at, _ in kinds])
        counts = np.zeros((3, len(place)))
        first = 0
        for kind, (at, count) in enumerate(kinds):
            counts[kind, first : first + len(at)] = count
            first += len(at)
        return cls(place, counts[0], counts[1], counts[2])


def _thinned(ordered: Floats, most: int) -> tuple[Floats, Floats]:
    if len(ordered) <= most:
        return ordered, np.ones(len(ordered))
    cuts = np.linspace(0, len(ordered), most + 1).astype(np.int64)
    count = np.diff(cuts).astype(np.float64)
    return np.add.reduceat(ordered, cuts[:-1]) / count, count


@dataclass(frozen=True, slots=True)
class Pair:
    """A mixture (1 − π) p₀(s | θ₀) + π p₁(s | θ₁) of two families of densities over scores s.

    π is the share of positive rows, p₀ and p₁ are the densities of negative and positive rows, and θ₀ and θ₁
    are their parameters. The p parameters of the mixture are log π/(1 − π), followed by θ₀ and θ₁. The
    methods accept d sets of parameters at once, as a (d, p) array.

    Parameters
    ----------
    negative, positive : DensityFamily
        The families of p₀ and p₁.
    """

    negative: DensityFamily
    positive: DensityFamily

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The lower and upper bound of each parameter."""
        return [_ODDS, *self.negative.bounds, *self.positive.bounds]

    def parts(self, parameters: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the (d, 1) log odds of the positive class, and the parameters of each density."""
        cut = 1 + len(self.negative.bounds)
        return parameters[:, :1], parameters[:, 1:cut], parameters[:, cut:]

    def log_joint(self, parameters: Floats, scores: Floats) -> tuple[Floats, Floats]:
        """Return the (d, n) logarithms of (1 − π) p₀ and of π p₁ at n scores."""
        odds, first, second = self.parts(parameters)
        low = self.negative.log_density(first, scores) - np.logaddexp(0.0, odds)
        high = self.positive.log_density(second, scores) - np.logaddexp(0.0, -odds)
        return low, high

    def log_likelihood(self, parameters: Floats, points: Points) -> Floats:
        """Return the (d,) log-likelihoods of parameters (d, p): equation (2) of the paper."""
        low, high = self.log_joint(parameters, points.scores)
        seen: Floats = (
            np.logaddexp(low, high) * points.unlabelled + low * points.negative + high * points.positive
        ).sum(axis=1)  # a matrix product this small would cost less than the threads of the BLAS
        return np.where(np.isfinite(seen), seen, _LOWEST)

    def log_posterior(self, parameters: Floats, points: Points) -> Floats:
        """Return the (d,) log posteriors of parameters (d, p), up to a constant: equation (3) of the paper.

        π has a flat prior, and the parameters have the priors of the families.
        """
        odds, first, second = self.parts(parameters)
        flat = -np.logaddexp(0.0, odds[:, 0]) - np.logaddexp(0.0, -odds[:, 0])
        prior = flat + self.negative.log_prior(first) + self.positive.log_prior(second)
        return self.log_likelihood(parameters, points) + prior

    def chance(self, parameters: Floats, scores: Floats) -> Floats:
        """Return the (d, n) probabilities of the positive class at each score."""
        low, high = self.log_joint(parameters, scores)
        share: Floats = scipy.special.expit(np.clip(high - low, -700.0, 700.0))
        return share

    def survival(self, parameters: Floats, scores: Floats) -> tuple[Floats, Floats]:
        """Return the (d, n) probabilities of a larger score in the negative and in the positive class."""
        _, first, second = self.parts(parameters)
        return self.negative.survival(first, scores), self.positive.survival(second, scores)


@dataclass(frozen=True, slots=True, eq=False)
class MixtureFit:
    """The mixture fitted to one model's scores for one class: samples of the posterior of its parameters.

    Parameters
    ----------
    pair : Pair
        The most likely families.
    samples : tuple of (Pair, (d, p) float64)
        Equally weighted draws of the posterior for each pair; their number is proportional to the pair's
        probability.
    effective : float
        Effective number of independent draws among the `PROPOSALS` draws of importance sampling for `pair`.
    iterations : int
    converged : bool
    """

    pair: Pair
    samples: tuple[tuple[Pair, Floats], ...]
    effective: float
    iterations: int
    converged: bool

    def chance(self, scores: Floats) -> Floats:
        """Return the probability of the positive class at each of n scores, for each draw, (draws, n)."""
        return np.concatenate([pair.chance(parameters, scores) for pair, parameters in self.samples])

    def shares(self) -> Floats:
        """Return the (draws, 1) shares π of the positive class."""
        return np.concatenate([scipy.special.expit(parameters[:, :1]) for _, parameters in self.samples])


@dataclass(frozen=True, slots=True, eq=False)
class _Maximum:
    """The result of a search for the most probable parameters of a pair."""

    pair: Pair
    mode: Floats
    value: float
    iterations: int
    converged: bool


def fit_mixture(
    scores: Floats,
    labels: Ints,
    families: Sequence[DensityFamily],
    guesses: Floats,
    draws: int,
    seed: Sequence[int],
) -> MixtureFit:
    """Fit all pairs of families, and draw parameters of the most likely pairs.

    First, every pair is fitted on `COARSE` points, from the best of the start values. Then the `AVERAGED`
    most likely pairs are fitted on `POINTS` points, from their maximum; the first `KEPT` of them also from
    all start values. The paper uses only one pair. The coverage of its 95 % intervals is then 65 to 70 %,
    even if the right pair is among the 64. Here each pair gets a share of the draws by Schwarz's criterion.

    Parameters
    ----------
    scores : (n,) float64
        Scores in (0, 1], not all equal.
    labels : (n,) int64
        1 for the positive class, 0 for the others, −1 if unknown.
    families : sequence of DensityFamily
    guesses : (starts, n) float64
        Start values: for each start, the probability that each row is positive.
    draws : int
        The number of draws of parameters, over all pairs.
    seed : sequence of int
    """
    coarse, fine = (Points.from_scores(scores, labels, most) for most in (COARSE, POINTS))
    first = Pair(families[0], families[0])
    tried = [_climb(first, _begin(first, scores, guess), coarse) for guess in guesses]
    best = max(tried, key=lambda maximum: maximum.value)
    guess = first.chance(best.mode[None], scores)[0]
    guess[labels >= 0] = labels[labels >= 0]
    pairs = [Pair(*both) for both in product(families, families)]
    screened = [_climb(pair, _begin(pair, scores, guess), coarse, _SCREEN) for pair in pairs]
    screened.sort(key=lambda each: -float(each.pair.log_likelihood(each.mode[None], coarse)[0]))
    refined = [
        max(
            (
                _climb(maximum.pair, start, fine)
                for start in (maximum.mode, *(_begin(maximum.pair, scores, other) for other in guesses))
            ),
            key=lambda climbed: climbed.value,
        )
        for maximum in screened[:KEPT]
    ]
    refined += [_climb(maximum.pair, maximum.mode, fine) for maximum in screened[KEPT:AVERAGED]]
    evidence = np.array([_evidence(maximum, fine, len(scores)) for maximum in refined])
    chosen = refined[int(np.argmax(evidence))]
    rng = np.random.default_rng(seed)
    parts, effective = [], 0.0
    for maximum, count in zip(refined, allotted(evidence, draws), strict=True):
        if count:
            sample, worth = importance_sample(maximum.pair, maximum.mode, fine, count, rng)
            parts.append((maximum.pair, sample))
            effective = worth if maximum is chosen else effective
    steps = sum(maximum.iterations for maximum in [*tried, *screened, *refined])
    return MixtureFit(chosen.pair, tuple(parts), effective, steps, chosen.converged)


def _evidence(maximum: _Maximum, points: Points, rows: int) -> float:
    """Return the logarithm of the weight of a pair, by G. Schwarz's criterion.

    The criterion ignores the priors, whose scales differ between the families.
    """
    likelihood = float(maximum.pair.log_likelihood(maximum.mode[None], points)[0])
    return likelihood - 0.5 * len(maximum.mode) * float(np.log(rows))


def allotted(evidence: Floats, draws: int) -> Ints:
    """Return the number of draws for each pair, in proportion to its weight `exp(evidence)`.

    The numbers add up to exactly `draws`.
    """
    weight = np.exp(evidence - evidence.max())
    reached = np.round(draws * np.cumsum(weight) / weight.sum()).astype(np.int64)
    counts: Ints = np.diff(reached, prepend=0)
    return counts


def _begin(pair: Pair, scores: Floats, guess: Floats) -> Floats:
    chance = np.clip(guess, 1e-3, 1.0 - 1e-3)
    share = float(chance.mean())
    return np.concatenate(
        [
            [np.log(share / (1 - share))],
            pair.negative.start(scores, 1 - chance),
            pair.positive.start(scores, chance),
        ]
    )


def _climb(pair: Pair, start: Floats, points: Points, most: int = 200) -> _Maximum:
    """Maximise the posterior by L-BFGS-B; one vectorised call computes a whole gradient."""
    steps = np.concatenate(
        [np.zeros((1, len(start))), _STEP * np.eye(len(start)), -_STEP * np.eye(len(start))]
    )

    def downhill(parameters: Floats) -> tuple[float, Floats]:
        values = -pair.log_posterior(parameters + steps, points)
        slope = (values[1 : len(start) + 1] - values[len(start) + 1 :]) / (2 * _STEP)
        return float(values[0]), slope

    done = scipy.optimize.minimize(
        downhill, start, jac=True, method="L-BFGS-B", bounds=pair.bounds, options={"maxiter": most}
    )
    return _Maximum(pair, np.asarray(done.x), -float(done.fun), int(done.nit), bool(done.nit < most))


def importance_sample(
    pair: Pair, mode: Floats, points: Points, draws: int, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Return (draws, p) draws of the posterior by importance sampling, and their effective number.

    In the first round, the proposal distribution is Student's t around the mode, with the curvature of the
    posterior. A second round uses the weighted mean and covariance of the first round's draws, unless these
    have few effective draws. The paper's normal proposal with a diagonal covariance has a smaller effective
    number, because locations and scales are correlated.
    """
    centre, covariance = mode, _covariance(pair, mode, points)
    proposals, weight = _weighted(pair, centre, covariance, points, rng)
    # With fewer effective draws their moments are worse than the curvature.
    if 1.0 / float(weight @ weight) > 4 * len(mode):
        centre = weight @ proposals
        off = proposals - centre
        covariance = (off * weight[:, None]).T @ off + 1e-10 * np.eye(len(mode))
        proposals, weight = _weighted(pair, centre, covariance, points, rng)
    places = (np.arange(draws) + rng.random()) / draws
    picked = np.minimum(np.searchsorted(np.cumsum(weight), places), len(weight) - 1)
    return proposals[picked], 1.0 / float(weight @ weight)


def _weighted(
    pair: Pair, centre: Floats, covariance: Floats, points: Points, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return proposals and their weights (equation 7), which sum to 1 and are 0 outside the bounds."""
    size = len(centre)
    root = np.linalg.cholesky(covariance)
    normal = rng.standard_normal((PROPOSALS, size))
    stretch = rng.chisquare(_FREEDOM, PROPOSALS) / _FREEDOM
    proposals: Floats = centre + (normal @ root.T) / np.sqrt(stretch)[:, None]
    low, high = np.array(pair.bounds).T
    inside: NDArray[np.bool_] = ((proposals >= low) & (proposals <= high)).all(axis=1)
    distance = (normal**2).sum(axis=1) / stretch
    proposed = -(_FREEDOM + size) / 2 * np.log1p(distance / _FREEDOM)
    log_posterior = pair.log_posterior(np.clip(proposals, low, high), points)
    log_weight = np.where(inside, log_posterior - proposed, -np.inf)
    if not inside.any():
        return np.clip(centre[None], low, high), np.ones(1)
    weight = np.exp(log_weight - log_weight.max())
    return proposals, weight / weight.sum()


def _covariance(pair: Pair, mode: Floats, points: Points) -> Floats:
    """Return the inverse of the posterior's curvature at the mode, with bounded eigenvalues."""
    size = len(mode)
    step = _CURVE_STEP * np.eye(size)
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    moved = np.stack([a * step[i] + b * step[j] for i in range(size) for j in range(size) for a, b in signs])
    values = pair.log_posterior(mode + moved, points).reshape(size, size, 4)
    curve = -(values @ np.array([1.0, -1.0, -1.0, 1.0])) / (4 * _CURVE_STEP**2)
    # At a bound the posterior may rise outwards: a floor keeps the proposal finite.
    eigenvalues, axes = np.linalg.eigh((curve + curve.T) / 2)
    return np.asarray((axes / np.clip(eigenvalues, 1.0, 1e8)) @ axes.T)
