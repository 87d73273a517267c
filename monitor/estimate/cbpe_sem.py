"""NannyML's band around an estimate: three standard errors from a labelled reference, for comparison."""

from __future__ import annotations

from math import sqrt

from monitor.result import Estimate, Result, Unknown

STANDARD_ERRORS = 3.0
"""Half the width of the band, as in NannyML."""


def cbpe_sem(found: Result, row_sd: float, standard_errors: float = STANDARD_ERRORS) -> Result:
    """The estimate with NannyML's band in the place of its interval.

    The band is ± `standard_errors` × `row_sd` / √n, cut to 0 and 1. It is as wide for every window of n rows,
    whatever its confidences say, and covers something else than an interval: how far the realised metric of
    n rows of the reference lies from the reference's. It stands here to be compared with: on calibrated
    data it covers 98.9 to 100 % where the exact interval covers 94 to 98 %
    (`tests/fidelity/output/metrics_coverage.txt`).

    Parameters
    ----------
    found : Estimate or Unknown
        Of a window, such as `classification_estimates` gives; Unknown stays so.
    row_sd : float
        What one labelled row of the reference adds to the realised metric, 0 or more:
        ``classification_details(certain, predicted, [metric], ranking=scores)[metric].row_sd`` with the
        labels as certain scores.
    standard_errors : float
        Above 0. The paper takes 1.96 for a fair comparison.

    Returns
    -------
    Estimate or Unknown
        Its level stays as it was given: the band has none of its own.

    Raises
    ------
    ValueError
        `row_sd` or `standard_errors` is out of range.

    References
    ----------
    Kivimäki et al., *Confidence-based Estimators for Predictive Performance in Model Monitoring*,
    section 5.1.3, equation 3. For the accuracy and precision `row_sd` is exactly NannyML's standard
    deviation of the reference; for the other metrics NannyML has formulas or resampling of its own, and
    `row_sd` is the first-order standard deviation that they all approach.

    Examples
    --------
    >>> cbpe_sem(Estimate(0.9, 0.88, 0.92, level=0.95, n=900), row_sd=0.3)
    Estimate(value=0.9, lower=0.87, upper=0.93, level=0.95, n=900)
    """
    if not row_sd >= 0.0:
        raise ValueError(f"row_sd must be a number of 0 or more, got {row_sd}")
    if not standard_errors > 0.0:
        raise ValueError(f"standard_errors must be above 0 (3 is NannyML's), got {standard_errors}")
    if isinstance(found, Unknown):
        return found
    half = standard_errors * row_sd / sqrt(found.n)
    lower, upper = max(found.value - half, 0.0), min(found.value + half, 1.0)
    return Estimate(found.value, lower, upper, found.level, found.n)
