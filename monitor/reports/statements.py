"""Plain sentences about the state of a model, for alerts, the page, reports and notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from monitor.base.names import (
    AVERAGE_CONFIDENCE,
    DOUBLY_ROBUST,
    RATIO,
    REALISED,
    REALISED_COHORT,
    REALISED_HORIZON,
)
from monitor.base.registry import METRICS, SHARES, metric_words
from monitor.base.results import Estimate
from monitor.reports import attribution, features
from monitor.reports.attribution import Attribution, FeaturePart, PartChange
from monitor.reports.shared import SharedView
from monitor.reports.trust import Bias, Trust
from monitor.reports.views import (
    ChartView,
    MetricEstimate,
    ObjectiveState,
    ObjectiveView,
    SeriesState,
    SeriesView,
)
from monitor.reports.window_report import WindowReport, finite, rfc3339, rounded
from monitor.reports.window_view import leading_estimate

_View = TypeVar("_View", ChartView, ObjectiveView)
_BY_LABELS = (REALISED_HORIZON, REALISED_COHORT, REALISED)  # the one with most labels first
_MOST_FEATURES = 2
_MOST_MODELS = 5
RATIOS = (None, RATIO)
"""The units of metrics that are shown in per cent."""

_MOSTLY, _PARTLY = 0.5, 0.2  # the least share of a change for which a part is named with this word


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact about a model, with an explanation and a recommendation.

    Parameters
    ----------
    subject : str
        The task and the model (``toxicity/erm``), followed by the group if the fact is about a group.
    fact : str
        A clause without a full stop, with the newest figures. It follows the subject and a colon.
    details : str
        Sentences about the beginning of the change, its size, the part that changed most, and the labels.
    check : str
        A sentence that recommends a first check; ``""`` if there is nothing to check.

    Examples
    --------
    >>> str(Statement("toxicity/erm", "no answers since 2026-11-20 12:21 UTC", "The figures are old.", ""))
    'toxicity/erm: no answers since 2026-11-20 12:21 UTC'
    """

    subject: str
    fact: str
    details: str = ""
    check: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.fact}"

    @property
    def explanation(self) -> str:
        """The details of the fact, followed by the first recommended check."""
        return " ".join(filter(None, (self.details, self.check)))


def describe(one: SeriesView) -> Statement:
    """Describe the most urgent problem of a model or a group, or say that there is none.

    The page, the report and the notebook show the result. An alert shows the same fact, because both use the
    function of this module that describes the alert's condition. The problems, from the most urgent: a broken
    feature, labels that contradict the estimates, a breached objective, labels that contradict the estimated
    errors, an alarm, no answers, an objective at risk, features that drifted, labels that contradict each
    other, a missing baseline, and an improvement.

    Examples
    --------
    The page shows `fact` in the row of the model, and `explanation` in the line below the row:

    >>> from monitor.reports.window_view import CalibrationView
    >>> silent = SeriesView("toxicity", "erm", "", "", SeriesState.SILENT, 500, 0, 0, 0, 0, None,
    ...     CalibrationView("none", 0, False, None), (), (), (), {})
    >>> describe(silent).fact
    'no answers yet'
    """
    breached, at_risk = (
        [each for each in _accuracy_first(one.objectives) if each.state is state]
        for state in (ObjectiveState.BREACHED, ObjectiveState.AT_RISK)
    )
    alarmed = [chart for chart in _accuracy_first(one.charts) if chart.verdict.out_of_control]
    better = [chart for chart in _accuracy_first(one.charts) if chart.verdict.improved]
    if one.state is SeriesState.UNTRUSTED and one.broken_features:
        return describe_broken_features(one)
    if one.state is SeriesState.UNTRUSTED:
        return describe_distrust(one)
    if breached:
        return describe_objective(one, breached[0])
    if one.lost_trust_in_errors is not None and one.state is not SeriesState.SILENT:
        return describe_distrust_in_errors(one, one.lost_trust_in_errors)
    if alarmed and one.state is not SeriesState.SILENT:
        return describe_alarm(one, alarmed[0])
    if one.state is SeriesState.SILENT:
        return describe_silence(one)
    if at_risk:
        return describe_objective(one, at_risk[0])
    if any(one.feature_alarms.values()):
        return describe_drifted_features(one)
    if one.recalibrations is not None and one.recalibrations.held:
        return describe_held_labels(subject(one), one.recalibrations.refused)
    if one.state is SeriesState.WARMING_UP:
        closed = f"{count(one.windows_closed, 'window')} closed"
        return Statement(subject(one), f"no baseline to compare with yet, {closed}")
    return describe_alarm(one, better[0]) if better else _nothing(one)


def describe_objective(one: SeriesView, objective: ObjectiveView) -> Statement:
    """Describe an objective that is breached or at risk."""
    metric = objective.metric
    chart = next((each for each in one.charts if each.metric == metric), None)
    details = [*_change(one, metric, chart), *_pooled(objective), *_labels(one, metric)]
    return Statement(
        subject(one), _estimated(one, metric, objective), _text(details), _check(one, metric, chart)
    )


def describe_alarm(one: SeriesView, chart: ChartView) -> Statement:
    """Describe the alarm of a chart, or an improvement that the chart shows."""
    metric, verdict = chart.metric, chart.verdict
    if not verdict.out_of_control:
        fact = _moved(one, metric, chart)
        if _is_away(one, chart):
            fact += ", a change for the better"
        return Statement(subject(one), fact, _text(_labels(one, metric)))
    objective = next((each for each in one.objectives if each.metric == metric), None)
    fact = _moved(one, metric, chart)
    if objective is not None and objective.state is not None:
        fact += f", must be {bound_in_words(objective)}"
    where, since = _where(one, metric) if _is_away(one, chart) else "", _since(one, metric)
    begin = f"{since}{f', {where}' if since and where else where}"
    details = [*([f"{begin[0].upper()}{begin[1:]}."] if begin else []), *_labels(one, metric)]
    return Statement(subject(one), fact, _text(details), _check(one, metric, chart))


def describe_broken_features(one: SeriesView) -> Statement:
    """Describe the broken features of a model. Because of them, its estimates are not trusted."""
    names = list(dict.fromkeys(each.feature for each in one.broken_features))
    shown = [each for each in one.broken_features if each.feature in names[:_MOST_FEATURES]]
    more = len(names) - _MOST_FEATURES
    fact = features.sentence(shown) + (
        f"; {count(more, 'more feature')} {'is' if more == 1 else 'are'} broken" if more > 0 else ""
    )
    until = "Estimates do not count until this is repaired"
    distrust = [f"{until}, and labels contradict them."] if one.contradicted else [f"{until}."]
    details = [*distrust, *_labels(one, one.share)]
    check = f"Check what computes {_named(names)}, and its latest releases."
    return Statement(subject(one), fact, _text(details), check)


def describe_drifted_features(one: SeriesView) -> Statement:
    """Describe the features that differ from the reference by more than `chart.features` allows."""
    names = [name for name, alarm in one.feature_alarms.items() if alarm]
    verb = "has" if len(names) == 1 else "have"
    fact = f"{_named(names)} {verb} other values than in the reference"
    details = ["Estimates still count.", *_labels(one, one.share)]
    check = "Check what computes these values; if they are right, take a newer reference."
    return Statement(subject(one), fact, _text(details), check)


def describe_distrust(one: SeriesView) -> Statement:
    """Describe how labels contradict the estimates of a model or group."""
    check = "Use the values by labels meanwhile, and check whether the meaning of the labels has changed."
    fact = _distrust(one.trust, metric_words(one.share))
    return Statement(subject(one), fact, _text(_labels(one, one.share)), check)


def describe_distrust_in_errors(one: SeriesView, trust: Trust) -> Statement:
    """Describe how labels contradict the estimated errors of a model or group."""
    check = "Use the realised errors meanwhile, and check whether the meaning of the labels has changed."
    return Statement(subject(one), error_sentence(one, trust), "", check)


def describe_silence(one: SeriesView) -> Statement:
    """Describe a model that has stopped answering."""
    since = f" since {_moment(one.window_end_time)}" if one.window_end_time else " yet"
    details = "The figures are from then." if one.window_end_time else ""
    check = "Check whether the model answers requests, and whether its answers reach the agent."
    return Statement(subject(one), f"no answers{since}", details, check)


def describe_held_labels(name: str, refused: str | None) -> Statement:
    """Describe labels that contradict each other, and therefore prevent a recalibration or refit.

    Parameters
    ----------
    name : str
        The task, or the `subject` of the model.
    refused : str or None
        The reason, with the numbers of labels.
    """
    fact = "labels contradict each other, so no fit on labels begins"
    reason = f"{refused[0].upper()}{refused[1:]}." if refused else ""
    return Statement(name, fact, reason, "Check who sends other labels for answers that have one.")


def describe_shared(one: SharedView) -> Statement:
    """Describe a change for the worse that the models of a task share.

    Examples
    --------
    >>> fallen = SharedView("delay", "accuracy", ("a", "b", "c"), (("b", -0.04), ("a", -0.031), ("c", -0.03)))
    >>> str(describe_shared(fallen))
    'all 3 models of delay: accuracy fell by 3.1 points, a change that they share'
    >>> describe_shared(fallen).details
    'Points by model: b -4.0, a -3.1 and c -3.0.'
    >>> missed = SharedView("delay", "accuracy", ("a", "b", "c"), fallen.changes, breached=("b", "a"))
    >>> describe_shared(missed).details
    'The objective is missed by b and a. Points by model: b -4.0, a -3.1 and c -3.0.'
    """
    moved, compared, change = len(one.changes), len(one.models), one.change
    models = f"all {compared:,}" if moved == compared else f"{moved:,} of {compared:,}"
    by = "has changed"
    if change is not None:
        by = f"{'fell' if change < 0 else 'rose'} by {100 * abs(change):.1f} points"
    times = f" since {_moment(one.since)}" if one.since is not None else ""
    if one.until is not None:
        times = f"{times.replace('since', 'from')}{' to' if times else ' until'} {_moment(one.until)}"
    share = "share" if one.until is None else "shared"
    fact = f"{metric_words(one.metric)} {by}{times}, a change that they {share}"
    known = [f"{model} {100 * change:+.1f}" for model, change in one.changes if change is not None]
    details = [f"Points by model: {_first_models(known)}."] if known else []
    if one.breached:
        fact += ", and an objective is missed"
        details.insert(0, f"The objective is missed by {_first_models(one.breached)}.")
    check = "Check first what the models have in common: features, clients, traffic, a release."
    return Statement(f"{models} models of {one.task}", fact, _text(details), check)


class SharedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A change for the worse that the models of a task share, in JSON.

    Parameters
    ----------
    task, metric : str
    statement : str
        The change in words.
    models : list of str
        The compared models.
    changes : mapping of str to float or None
        For each model that shares the change, the difference of its estimate from its baseline, -1 to 1; None
        if the estimate is unknown. The largest change for the worse is first.
    since, until : str or None
        RFC 3339. `until` is None while the change is on.
    breached : list of str
        The models that share the change and whose objective is breached.
    """

    task: str
    metric: str
    statement: str
    models: list[str]
    changes: dict[str, float | None]
    since: str | None
    until: str | None
    breached: list[str]

    @classmethod
    def from_view(cls, one: SharedView) -> SharedLine:
        """Return the JSON of a shared change."""
        return cls(
            task=one.task,
            metric=one.metric,
            statement=str(describe_shared(one)),
            models=list(one.models),
            changes={model: None if change is None else rounded(change) for model, change in one.changes},
            since=None if one.since is None else rfc3339(one.since),
            until=None if one.until is None else rfc3339(one.until),
            breached=list(one.breached),
        )


def _first_models(models: Sequence[str]) -> str:
    """Return the first models in words, followed by the number of the others."""
    more = [f"{len(models) - _MOST_MODELS:,} more"] if len(models) > _MOST_MODELS else []
    return listed([*models[:_MOST_MODELS], *more])


def subject(one: SeriesView) -> str:
    """Return the task and the model, followed by the group if there is one.

    Examples
    --------
    `toxicity/erm`, or `toxicity/erm, region=eu`.
    """
    return f"{one.task}/{one.model}" + (f", {one.group}" if one.group else "")


def listed(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def is_unchecked(one: SeriesView, metric: str) -> bool:
    """Return whether no label, or too few labels, checked the estimate of a metric since a change.

    A change is a version of the model for which the calibration was not fitted, or an alarm or improvement
    that the chart of the metric shows now. An alarm or improvement that labels decide about is no such
    change, and neither is one of an error, whose estimate the test of trust checks all the time.
    """
    of_error = any(each.metric == metric for each in one.values)
    trust = one.trust_in_errors if of_error else one.trust
    unlabelled = trust is None or not trust.labels
    if one.calibration.foreign and one.predictions and unlabelled:  # a report does not know the tested labels
        return True
    chart = next((each for each in one.charts if each.metric == metric), None)
    if of_error or chart is None or chart.by_labels is not None:
        return False
    return chart.verdict.out_of_control or chart.verdict.improved


def _accuracy_first(views: Iterable[_View]) -> list[_View]:
    return sorted(views, key=lambda each: each.metric not in SHARES)


def _text(sentences: Iterable[str]) -> str:
    return " ".join(sentences)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which is in the plural unless the number is 1.

    Examples
    --------
    >>> count(1, "label"), count(1200, "label")
    ('1 label', '1,200 labels')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_unit(estimate: Estimate, unit: str) -> str:
    """Return an estimate with its interval and its unit, with three digits of the larger end, or in per cent.

    Examples
    --------
    >>> in_unit(Estimate(12.34, 11.2, 13.5, 0.95, 500), "minutes")
    '12.3 (11.2 to 13.5) minutes'
    >>> in_unit(Estimate(0.0, -1.5, 1.5, 0.95, 9), "")
    '0.00 (-1.50 to 1.50)'
    >>> in_unit(Estimate(0.8534, 0.821, 0.88, 0.95, 500), "ratio")
    '85.3 % (82.1 to 88.0)'
    """
    ends = estimate.value, estimate.lower, estimate.upper
    if unit == RATIO:
        return "{:.1f} % ({:.1f} to {:.1f})".format(*(100.0 * end for end in ends))
    value, lower, upper = three_digits(*ends)
    return f"{value} ({lower} to {upper}) {unit}".rstrip()


def error_sentence(one: SeriesView | WindowReport, trust: Trust) -> str:
    """Return a clause that says how far labels contradict the estimated errors, in the unit of the target."""
    verb = "contradicted" if trust.on_probation else "contradict"
    what = f"labels {verb} the estimated {trust.metric}: " + "a fresh test has begun, " * trust.on_probation
    if trust.bias is None or trust.predicted is None:
        return f"{what}no label yet"
    numbers = trust.predicted, trust.predicted + trust.bias.value
    predicted, labelled = (
        "+" * (trust.metric == "bias" and number > 0) + text
        for number, text in zip(numbers, three_digits(*numbers), strict=True)
    )
    unit = next((f" {each.unit}" for each in one.values if each.unit not in ("", RATIO)), "")
    return f"{what}predicted {predicted}{unit}, {count(trust.bias.rows, 'labelled row')} {labelled}"


def three_digits(*numbers: float) -> list[str]:
    """Format numbers with as many decimals as the largest of them needs for three digits.

    Examples
    --------
    >>> three_digits(12.34, 9.876), three_digits(-1234.5)
    (['12.3', '9.9'], ['-1,230'])
    """
    largest = max(map(abs, numbers))
    decimals = 2 - math.floor(math.log10(largest)) if largest else 2
    form = f",.{max(decimals, 0)}f" if -12 < decimals < 9 else ".3g"  # longer numbers are hard to read
    return [format(round(each, decimals) + 0.0, form) for each in numbers]


def limits_in_words(chart: ChartView) -> str:
    """Return the control limits of a chart, in per cent or in the unit of the metric.

    Examples
    --------
    >>> from monitor.stats.charts.base import Verdict
    >>> verdict = Verdict(11.7, 9.84, 13.9, (), False)
    >>> limits_in_words(ChartView("mae", verdict, unit="minutes"))
    '9.8 to 13.9 minutes'
    """
    verdict = chart.verdict
    if chart.unit in RATIOS:
        return f"{100 * verdict.lower:.1f} to {100 * verdict.upper:.1f} %"
    lower, upper = three_digits(verdict.lower, verdict.upper)
    return f"{lower} to {upper} {chart.unit}".rstrip()


def bound_in_words(objective: ObjectiveView) -> str:
    """Return the bound of an objective, in per cent or in the unit of the metric.

    Examples
    --------
    >>> bound_in_words(ObjectiveView("mae", 12.0, False, None, unit="minutes"))
    'at most 12 minutes'
    """
    return f"{'at least' if objective.is_floor else 'at most'} {_limit(objective)}"


def shown_estimate(one: SeriesView, metric: str) -> MetricEstimate | None:
    """Return the estimate of a metric to show first.

    The result is the estimate corrected by labels, or the estimate that the chart judges if there is no
    corrected one.
    """
    judged = DOUBLY_ROBUST if metric in METRICS and METRICS[metric].scale != "ratio" else AVERAGE_CONFIDENCE
    by = next((chart.estimator for chart in one.charts if chart.metric == metric), judged)
    return leading_estimate((*one.estimates, *one.values), metric, by)


def value_by_labels(one: SeriesView, metric: str) -> Estimate | None:
    """Return the value of a metric from the largest number of labels; None if there is no such value."""
    for estimator in _BY_LABELS:
        for each in (*one.estimates, *one.values):
            result = finite(each.result)
            if (each.metric, each.estimator) == (metric, estimator) and isinstance(result, Estimate):
                return result
    return None


def _estimate(one: SeriesView, metric: str) -> Estimate | None:
    """Return the estimate of a metric to show first; None if its value is unknown."""
    leading = shown_estimate(one, metric)
    result = None if leading is None else finite(leading.result)
    return result if isinstance(result, Estimate) else None


def _estimated(one: SeriesView, metric: str, objective: ObjectiveView) -> str:
    """Return a clause with the newest estimate of a metric and the bound of its objective."""
    estimate = _estimate(one, metric)
    value = "unknown"
    if estimate is not None:
        numbers = (estimate.value, estimate.lower, estimate.upper, objective.bound)
        shown, unit = _in_words(objective.unit, *numbers)
        value = f"about {shown[0]}{unit} ({shown[1]} to {shown[2]})"
    if objective.labels and objective.pooled is not None:
        shown, unit = _in_words(objective.unit, *objective.pooled, objective.bound)
        value = f"{shown[0]} to {shown[1]}{unit} by {count(objective.labels, 'label')} of the last windows"
    must = f"must be {bound_in_words(objective)}"
    if objective.state is ObjectiveState.AT_RISK:
        must = f"may be {'below' if objective.is_floor else 'above'} {_limit(objective)}"
    return f"{metric_words(metric)} {value}, {must}"


def _limit(objective: ObjectiveView) -> str:
    if objective.unit in RATIOS:
        return f"{round(100 * objective.bound, 4):g} %"
    return f"{objective.bound:g} {objective.unit}".rstrip()


def _in_words(unit: str | None, *values: float) -> tuple[list[str], str]:
    """Return numbers in per cent, or in the unit of a metric of errors, and what follows them."""
    if unit in RATIOS:
        return _percents(*values), " %"
    return three_digits(*values), f" {unit}" if unit else ""


def _moved(one: SeriesView, metric: str, chart: ChartView) -> str:
    """Return the distance of a metric from the baseline. Use labels if they decide about its alarm."""
    words, by, estimate = metric_words(metric), chart.by_labels, _estimate(one, metric)
    if by is not None and not math.isnan(by.value):
        value, lower, upper = _percents(by.value, by.lower, by.upper)
        side = "below" if by.value < by.lower else "above" if by.value > by.upper else "within"
        labels = count(by.labels, "label")
        return f"{words} is {value} % by {labels}, {side} the {lower} to {upper} % of the baseline"
    if estimate is None:
        return f"{words} has changed"
    before = chart.verdict.center
    shown, unit = _in_words(chart.unit, estimate.value, before, estimate.lower, estimate.upper)
    now, then, lower, upper = shown
    if not _is_away(one, chart):
        return f"{words} is back at about {now}{unit} ({lower} to {upper}), was {then}{unit}"
    verb = "fell" if estimate.value < before else "rose"
    return f"{words} {verb} from {then} to about {now}{unit} ({lower} to {upper})"


def _is_away(one: SeriesView, chart: ChartView) -> bool:
    """Return whether the newest figures still show the change for which a chart has an alarm or improvement.

    An alarm stays on for some windows after the values are back.
    """
    by, estimate, better = chart.by_labels, _estimate(one, chart.metric), METRICS[chart.metric].better
    if by is not None and not math.isnan(by.value):
        return not by.lower <= by.value <= by.upper
    if estimate is None or not (chart.verdict.out_of_control or chart.verdict.improved):
        return True
    change = estimate.value - chart.verdict.center
    expected = better if chart.verdict.improved else -better
    return change * expected > 0 if better else change != 0


def _change(one: SeriesView, metric: str, chart: ChartView | None) -> Iterator[str]:
    """Yield a sentence about the change of a metric since the baseline, or that there was no change."""
    if chart is None:
        return
    if not (chart.verdict.out_of_control or any(each.metric == metric for each in one.attributions)):
        (before,), unit = _in_words(chart.unit, chart.verdict.center)
        yield f"Its chart shows no change from the baseline, {before}{unit}."
        return
    since, where = _since(one, metric), _where(one, metric)
    moved = _moved(one, metric, chart)
    words = f"{since} {moved}" if since else f"{moved[0].upper()}{moved[1:]}"
    yield f"{words}{f', {where}' if where and _is_away(one, chart) else ''}."


def _since(one: SeriesView, metric: str) -> str:
    since = one.alarmed_since.get(metric)
    return f"Since {_moment(since)}" if since else ""


def _pooled(objective: ObjectiveView) -> Iterator[str]:
    if objective.pooled is not None and not objective.labels:
        near, far = objective.pooled[::-1] if objective.is_floor else objective.pooled
        shown, unit = _in_words(objective.unit, near, far, objective.bound)
        lower, upper = shown[1::-1] if objective.is_floor else shown[:2]
        yield f"The last windows together: {lower} to {upper}{unit}."


def _where(one: SeriesView, metric: str) -> str:
    """Return the part and the feature that contribute most to a change, such as "mostly region=eu"."""
    split = _attribution(one, metric)
    if split is None:
        return ""
    part, feature = _top_part(split), _top_feature(split)
    words = []
    if feature is not None and split.features is not None:
        words.append(f"{_how_much(feature.change, split.features.change)} feature {feature.feature}")
    if part is not None:
        words.append(f"{_how_much(part.change, split.change)} {attribution.part_name(part.part, split.by)}")
    return ", ".join(words)


def _attribution(one: SeriesView, metric: str) -> Attribution | None:
    return next((each for each in one.attributions if each.metric == metric), None)


def _top_part(split: Attribution) -> PartChange | None:
    named = [] if split.alike else attribution.top_parts(split)
    return next((each for each in named if each.change / split.change >= _PARTLY), None)


def _top_feature(split: Attribution) -> FeaturePart | None:
    by_feature = split.features
    if by_feature is None or not by_feature.change:
        return None
    named = attribution.top_features(by_feature)
    return next((each for each in named if each.change / by_feature.change >= _PARTLY), None)


def _how_much(change: float, whole: float) -> str:
    return "mostly" if change / whole >= _MOSTLY else "partly"


def _check(one: SeriesView, metric: str, chart: ChartView | None) -> str:
    """Return a sentence that recommends a first check."""
    split = _attribution(one, metric)
    if split is None or (chart is not None and chart.verdict.improved):
        stable = chart is not None and not chart.verdict.out_of_control
        return "Check the objective." if stable else "Check releases of the model and its features first."
    feature, part = _top_feature(split), _top_part(split)
    if feature is not None:
        return f"Check what computes feature {feature.feature} first, then releases of the model."
    if part is not None and split.by == attribution.GROUP:
        return f"Check what changed for {attribution.part_name(part.part, split.by)} first."
    return "Check releases of the model and its features first."


def _labels(one: SeriesView, metric: str) -> Iterator[str]:
    """Yield a sentence about the value of a metric by labels."""
    result = value_by_labels(one, metric)
    if result is not None:
        (value, lower, upper), unit = _in_words(_unit(one, metric), result.value, result.lower, result.upper)
        words = f"{metric_words(metric)} {value}{unit} ({lower} to {upper})"
        yield f"{count(result.n, 'label')} say{'s' if result.n == 1 else ''}: {words}."
    elif not one.group and one.predictions and not one.labelled:  # a report does not count them
        yield "No labels yet."


def _unit(one: SeriesView, metric: str) -> str | None:
    """Return the unit of a metric of errors; None for a ratio."""
    return next((each.unit for each in one.values if each.metric == metric), None)


def _distrust(trust: Trust | None, metric: str) -> str:
    bias = trust.bias if trust is not None else None
    if trust is None or (bias is None and not trust.on_probation):
        return f"labels contradict the estimated {metric}"
    if trust.on_probation:
        so_far = f"{count(bias.rows, 'label')} so far" if bias is not None else "no label yet"
        return f"labels contradicted the estimated {metric}; a new test has {so_far}"
    return _bias(bias, metric)


def _bias(bias: Bias | None, metric: str) -> str:
    assert bias is not None
    low, high = sorted((abs(bias.lower), abs(bias.upper)))
    ends = f" ({100 * low:.1f} to {100 * high:.1f})" if bias.lower * bias.upper > 0 else ""
    points = f"{100 * abs(bias.value):.1f} points {'lower' if bias.value < 0 else 'higher'} than estimated"
    return f"{metric} is {points}{ends}, by {count(bias.rows, 'label')}"


def _nothing(one: SeriesView) -> Statement:
    """Describe a model that needs no attention, by its accuracy or its first metric."""
    metric = next((each.metric for each in _accuracy_first(one.charts)), one.share)
    estimate = _estimate(one, metric)
    moved = any(chart.confidences_moved for chart in one.charts)
    changed = "confidences moved, but labels show no change" if moved else "nothing has changed"
    if one.alarmed_since and not one.charts:
        changed = "an alarm is on, but the newest window has too few answers to judge"
    if estimate is None:
        return Statement(subject(one), changed, _text(_labels(one, metric)))
    (value, lower, upper), unit = _in_words(
        _unit(one, metric), estimate.value, estimate.lower, estimate.upper
    )
    states = {each.state for each in one.objectives}
    objective = ""
    if ObjectiveState.NOT_PROVEN in states:
        objective = ", too uncertain to say whether the objective is met"
    elif ObjectiveState.MET in states:
        objective = ", objective met"
        if any(is_unchecked(one, each.metric) for each in one.objectives):
            objective += " by the estimate, with too few labels to check it since the change"
    fact = f"{metric_words(metric)} about {value}{unit} ({lower} to {upper}), {changed}{objective}"
    return Statement(subject(one), fact, _text(_labels(one, metric)))


def _percents(value: float, *others: float) -> list[str]:
    """Format ratios in per cent, as whole numbers unless another ratio would look like the first one."""
    tenths = [f"{100 * each:.1f}" for each in (value, *others)]
    whole = [f"{100 * each:.0f}" for each in (value, *others)]
    alike = any(
        short == whole[0] and long != tenths[0] for short, long in zip(whole[1:], tenths[1:], strict=True)
    )
    return tenths if alike else whole


def _moment(seconds: float) -> str:
    return rfc3339(seconds)[:16].replace("T", " ") + " UTC"


def _named(names: list[str]) -> str:
    shown = names[:_MOST_FEATURES] if len(names) > _MOST_FEATURES + 1 else names
    more = len(names) - len(shown)
    every = listed([*shown, f"{more:,} more"] if more else shown)
    return f"feature {every}" if len(names) == 1 else f"features {every}"
