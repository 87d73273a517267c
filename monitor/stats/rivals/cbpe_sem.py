"""NannyML's band of three standard errors around an estimate, for comparison."""

from __future__ import annotations

from math import sqrt

from monitor.base.results import Estimate, Result, Unknown

STANDARD_ERRORS = 3.0
"""Half width of the band in standard errors, as in NannyML."""


def cbpe_sem(result: Result, row_sd: float, standard_errors: float = STANDARD_ERRORS) -> Result:
    """Return an estimate with NannyML's band instead of its interval.

    The band is ± `standard_errors` × `row_sd` / √n, clipped to 0 and 1. Its width is the same for every
    window of n rows, whatever the confidences are. The band is not a confidence interval. It describes the
    usual distance between the realised metric of n rows of the reference and the metric of the whole
    reference. On calibrated data, the coverage of the band is 98.9 to 100 %, and the coverage of the exact
    interval is 94 to 98 % (`tests/fidelity/output/metrics_coverage.txt`).

    Parameters
    ----------
    result : Estimate or Unknown
        For example, an estimate by `classification_estimates`. Unknown stays Unknown.
    row_sd : float
        √n times the standard error of the realised metric of n labelled rows, 0 or more: see
        `labelled_row_sd`.
    standard_errors : float
        Half width of the band in standard errors, above 0. The paper uses 1.96 for a fair comparison.

    Returns
    -------
    Estimate or Unknown
        The level is that of `result`, because the band has none.

    Raises
    ------
    ValueError
        `row_sd` or `standard_errors` is out of range.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*, section
    5.1.3, equation 3. For accuracy and precision `row_sd` is exactly NannyML's standard deviation of the
    reference; for the other metrics NannyML has its own formulas or resampling, and `row_sd` is the
    first-order standard deviation that they approach.

    Examples
    --------
    >>> cbpe_sem(Estimate(0.9, 0.88, 0.92, level=0.95, n=900), row_sd=0.3)
    Estimate(value=0.9, lower=0.87, upper=0.93, level=0.95, n=900)
    """
    if not row_sd >= 0.0:
        raise ValueError(f"row_sd must be a number of 0 or more, got {row_sd}")
    if not standard_errors > 0.0:
        raise ValueError(f"standard_errors must be above 0 (3 is NannyML's), got {standard_errors}")
    if isinstance(result, Unknown):
        return result
    half = standard_errors * row_sd / sqrt(result.n)
    lower, upper = max(result.value - half, 0.0), min(result.value + half, 1.0)
    return Estimate(result.value, lower, upper, result.level, result.n)
