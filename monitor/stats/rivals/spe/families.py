"""The families of densities that SPE compares for the scores of one class, scaled into (0, 1].

All parameters are real numbers without a sign constraint, which simplifies the search: a location (or its
logarithm), the logarithm of a scale, and for Student's t the logarithm of its degrees of freedom. Truncated
densities are normalised above 0. The Gumbel densities are not truncated: a left-skewed Gumbel density
truncated at 0 would be the Gompertz density.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy

from monitor.base.records import Floats

_LOG_2PI = float(np.log(2.0 * np.pi))
_EULER = 0.5772156649015329
_GUMBEL_SD = float(np.pi / np.sqrt(6.0))
_FLOOR = 1e-300
_SCALES = (float(np.log(0.01)), 0.0)
"""Bounds of the logarithm of a scale; with a smaller scale a component would be a spike on tied scores."""
_LOCATIONS = (-1.0, 2.0)
_LOG_LOCATIONS = (float(np.log(0.01)), float(np.log(2.0)))
_LOG_RATIOS = (float(np.log(0.02)), float(np.log(2.0)))
_LOG_FREEDOM = (float(np.log(2.0)), float(np.log(100.0)))

Bounds = tuple[float, float]
_Density = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class DensityFamily:
    """A parametric family of densities of scores in (0, 1].

    Parameters
    ----------
    name : str
    short : str
        The paper's abbreviation (figure 4).
    bounds : tuple of (float, float)
        Bounds of each parameter: location, logarithm of the scale, and so on.
    log_location : bool
        True if the location is on the scale of the score's logarithm.
    log_density : callable
        Function from parameters (d, p) and scores (n,) to log densities (d, n).
    survival : callable
        Function of the same arguments to the probabilities of a larger score (d, n).
    moments : callable
        Function from the mean and standard deviation of the scores (with `log_location`, of their logarithms)
        to parameters.

    Examples
    --------
    >>> normal = FAMILIES["truncated_normal"]
    >>> normal.survival(np.array([[0.5, np.log(0.1)]]), np.array([0.5])).round(3).tolist()
    [[0.5]]
    """

    name: str
    short: str
    bounds: tuple[Bounds, ...]
    log_location: bool
    log_density: _Density
    survival: _Density
    moments: Callable[[float, float], tuple[float, ...]]

    def start(self, scores: Floats, weights: Floats) -> Floats:
        """Return start values (p,) within the bounds, from the weighted moments of the (n,) scores."""
        values = np.log(scores) if self.log_location else scores
        mean = float(np.average(values, weights=weights))
        spread = float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))
        low, high = np.array(self.bounds).T
        begun: Floats = np.clip(np.array(self.moments(mean, max(spread, 0.02))), low + 1e-6, high - 1e-6)
        return begun

    def log_prior(self, parameters: Floats) -> Floats:
        """Return the (d,) log prior of parameters (d, p), up to a constant.

        The priors follow the paper's example. The location has a normal prior with mean 0.5 and standard
        deviation 0.5 (for the location of a logarithm: log 0.4 and 1). The scale has a Gamma prior with shape
        2 and mean 0.2 (for the scale of a logarithm: 0.4). The logarithm of the degrees of freedom has a
        normal prior with mean log 8 and standard deviation 0.7. Together the priors have as much influence as
        a few rows.
        """
        centre, spread, rate = (np.log(0.4), 1.0, 5.0) if self.log_location else (0.5, 0.5, 10.0)
        log: Floats = -0.5 * ((parameters[:, 0] - centre) / spread) ** 2
        log = log + 2.0 * parameters[:, 1] - rate * np.exp(parameters[:, 1])
        if parameters.shape[1] == 3:
            log = log - 0.5 * ((parameters[:, 2] - np.log(8.0)) / 0.7) ** 2
        return log


def _split(parameters: Floats) -> tuple[Floats, Floats]:
    return parameters[:, :1], np.exp(parameters[:, 1:2])


def _normal_density(parameters: Floats, s: Floats) -> Floats:
    mean, sd = _split(parameters)
    density: Floats = (
        -0.5 * ((s - mean) / sd) ** 2 - 0.5 * _LOG_2PI - np.log(sd) - scipy.special.log_ndtr(mean / sd)
    )
    return density


def _normal_survival(parameters: Floats, s: Floats) -> Floats:
    mean, sd = _split(parameters)
    share: Floats = np.exp(
        scipy.special.log_ndtr((mean - np.maximum(s, 0.0)) / sd) - scipy.special.log_ndtr(mean / sd)
    )
    return share


def _t_density(parameters: Floats, s: Floats) -> Floats:
    mean, sd = _split(parameters)
    freedom = np.exp(parameters[:, 2:3])
    constant = (
        scipy.special.gammaln((freedom + 1) / 2)
        - scipy.special.gammaln(freedom / 2)
        - 0.5 * np.log(freedom * np.pi)
        - np.log(sd)
    )
    kept = np.log(scipy.special.stdtr(freedom, mean / sd))
    density: Floats = constant - (freedom + 1) / 2 * np.log1p(((s - mean) / sd) ** 2 / freedom) - kept
    return density


def _t_survival(parameters: Floats, s: Floats) -> Floats:
    mean, sd = _split(parameters)
    freedom = np.exp(parameters[:, 2:3])
    share: Floats = scipy.special.stdtr(freedom, (mean - np.maximum(s, 0.0)) / sd) / scipy.special.stdtr(
        freedom, mean / sd
    )
    return share


def _shape_and_rate(parameters: Floats) -> tuple[Floats, Floats]:
    """Return shape and rate of a Gamma density from the logarithms of its mean and of sd / mean."""
    shape = np.exp(-2.0 * parameters[:, 1:2])
    return shape, shape / np.exp(parameters[:, :1])


def _gamma_density(parameters: Floats, s: Floats) -> Floats:
    shape, rate = _shape_and_rate(parameters)
    density: Floats = shape * np.log(rate) - scipy.special.gammaln(shape) + (shape - 1) * np.log(s) - rate * s
    return density


def _gamma_survival(parameters: Floats, s: Floats) -> Floats:
    shape, rate = _shape_and_rate(parameters)
    share: Floats = scipy.special.gammaincc(shape, rate * np.maximum(s, 0.0))
    return share


def _log_normal_density(parameters: Floats, s: Floats) -> Floats:
    mean, sd = _split(parameters)
    log = np.log(s)
    density: Floats = -0.5 * ((log - mean) / sd) ** 2 - 0.5 * _LOG_2PI - np.log(sd) - log
    return density


def _log_normal_survival(parameters: Floats, s: Floats) -> Floats:
    mean, sd = _split(parameters)
    share: Floats = np.exp(scipy.special.log_ndtr((mean - np.log(np.maximum(s, _FLOOR))) / sd))
    return share


def _gumbel_right_density(parameters: Floats, s: Floats) -> Floats:
    mode, scale = _split(parameters)
    z = (s - mode) / scale
    density: Floats = -z - np.exp(-z) - np.log(scale)
    return density


def _gumbel_right_survival(parameters: Floats, s: Floats) -> Floats:
    mode, scale = _split(parameters)
    share: Floats = -np.expm1(-np.exp(-(s - mode) / scale))
    return share


def _gumbel_left_density(parameters: Floats, s: Floats) -> Floats:
    mode, scale = _split(parameters)
    z = (s - mode) / scale
    density: Floats = z - np.exp(z) - np.log(scale)
    return density


def _gumbel_left_survival(parameters: Floats, s: Floats) -> Floats:
    mode, scale = _split(parameters)
    share: Floats = np.exp(-np.exp((s - mode) / scale))
    return share


def _frechet_density(parameters: Floats, s: Floats) -> Floats:
    density: Floats = _gumbel_right_density(parameters, np.log(s)) - np.log(s)
    return density


def _frechet_survival(parameters: Floats, s: Floats) -> Floats:
    return _gumbel_right_survival(parameters, np.log(np.maximum(s, _FLOOR)))


def _gompertz_density(parameters: Floats, s: Floats) -> Floats:
    mode, scale = _split(parameters)
    density: Floats = _gumbel_left_density(parameters, s) + np.exp(-mode / scale)
    return density


def _gompertz_survival(parameters: Floats, s: Floats) -> Floats:
    mode, scale = _split(parameters)
    share: Floats = np.exp(np.exp(-mode / scale) - np.exp((np.maximum(s, 0.0) - mode) / scale))
    return share


def _same(mean: float, sd: float) -> tuple[float, ...]:
    return mean, float(np.log(sd))


def _right(mean: float, sd: float) -> tuple[float, ...]:
    scale = sd / _GUMBEL_SD
    return mean - _EULER * scale, float(np.log(scale))


def _left(mean: float, sd: float) -> tuple[float, ...]:
    scale = sd / _GUMBEL_SD
    return mean + _EULER * scale, float(np.log(scale))


_LINEAR = (_LOCATIONS, _SCALES)
_LOGARITHMIC = (_LOG_LOCATIONS, _LOG_RATIOS)
_ALL = (
    DensityFamily("truncated_normal", "n", _LINEAR, False, _normal_density, _normal_survival, _same),
    DensityFamily(
        "truncated_t",
        "t",
        (*_LINEAR, _LOG_FREEDOM),
        False,
        _t_density,
        _t_survival,
        lambda mean, sd: (*_same(mean, sd), float(np.log(8.0))),
    ),
    DensityFamily("gamma", "g", _LOGARITHMIC, True, _gamma_density, _gamma_survival, _same),
    DensityFamily("log_normal", "ln", _LOGARITHMIC, True, _log_normal_density, _log_normal_survival, _same),
    DensityFamily(
        "gumbel_right", "gu-r", _LINEAR, False, _gumbel_right_density, _gumbel_right_survival, _right
    ),
    DensityFamily("gumbel_left", "gu-l", _LINEAR, False, _gumbel_left_density, _gumbel_left_survival, _left),
    DensityFamily("frechet", "f-r", _LOGARITHMIC, True, _frechet_density, _frechet_survival, _right),
    DensityFamily("gompertz", "gz", _LINEAR, False, _gompertz_density, _gompertz_survival, _left),
)
FAMILIES: Mapping[str, DensityFamily] = {family.name: family for family in _ALL}
"""All families by name."""
