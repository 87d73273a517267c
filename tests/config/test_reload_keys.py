"""Every key of the configuration, changed under a running engine or daemon: it takes what the docs say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest

from monitor.cli.check.check import check
from monitor.config.file import schema
from monitor.config.regression import Regression
from monitor.config.reload import Consequence, classify, consequence
from monitor.config.root import Config, Metric
from monitor.engine.reference import Reference
from monitor.engine.refit.job import RefitJob
from monitor.reports.window_report import WindowReport
from tests.numbers import predictions, reference_of_numbers, stated
from tests.streams import CLASSES, Record, Rig, answers, reference_of

SCHEMA = schema()
CAME_OR_WENT = {"tasks.*", "tasks.*.models.*"}
"""Keys that hold others, and change themselves where a name comes or goes."""
WHOLE = {"kafka", "basic_auth", "tls"}
"""Sections of sinks that are one key here."""

Task = dict[str, Any]


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield keys of the schema that hold a value, `*` for a name; `sources` and `WHOLE` are one each."""
    definitions = SCHEMA["$defs"]
    while choice := node.get("anyOf", node.get("allOf")) or "$ref" in node:
        node = choice[0] if isinstance(choice, list) else definitions[node["$ref"].rsplit("/", 1)[1]]
    if "discriminator" in node:
        yield from dict.fromkeys(key for choice in node["oneOf"] for key in leaves(choice, path))
        return
    inner = dict(node.get("properties", {}))
    if isinstance(node.get("additionalProperties"), dict):
        inner["*"] = node["additionalProperties"]
    if not inner or WHOLE & {*path[-1:]}:
        yield ".".join(path)
        return
    for key, child in inner.items():
        yield from leaves(child, (*path, key))


def of(kind: Consequence) -> set[str]:
    return {key for key in leaves(SCHEMA) if consequence(tuple(key.split("."))) is kind}


def test_each_key_of_the_schema_has_one_effect() -> None:
    effects = [of(kind) for kind in Consequence]
    assert all(effects)
    assert sum(map(len, effects)) == len(set(leaves(SCHEMA)))


# ── at once and new baseline: the same stream through two engines, of which one is reloaded ──


def settings(**changed: Any) -> Task:
    base = {
        "classes": CLASSES,
        "window": {"size": 100, "min_size": 20, "max_age_seconds": 1e9},
        "reference": {"first_windows": 5},
        "metrics": ["accuracy"],
        "chart": {"sigmas": 3},
    }
    return base | changed


def reference() -> dict[str, Reference]:
    rows = answers(np.random.default_rng(1), 1000, labelled=True, start=1.6e9)
    return reference_of(Config(tasks={"t": settings()}).tasks["t"], rows)


def rig(task: Task) -> Rig:
    config = Config(tasks={"t": task})
    scored = config.scored_tasks
    known = {"t": reference()} if scored and scored["t"].reference.path else {}
    if scored and isinstance(scored["t"], Regression):
        numbers = predictions(1, 500, start=1.6e9)
        numbers = stated(numbers) if scored["t"].quantiles else numbers
        known = {"t": reference_of_numbers(scored["t"], numbers)}
    return Rig(dict(config.tasks), known)


def reload(engine_rig: Rig, key: str, old: Task, new: Task) -> list[WindowReport]:
    """Classify and reconfigure, as SIGHUP does; return the windows that this closed."""
    before, after = Config(tasks={"t": old}), Config(tasks={"t": new})
    plan = classify(before, after)
    named = {path for paths in (plan.at_once, plan.new_baseline, plan.restart) for path in paths}
    wanted = key.replace("tasks.*", "tasks.t").replace("models.*", "models.erm")
    assert {path for path in named if not f"{wanted}.".startswith(f"{path}.")} <= set(also(key))
    assert any(f"{wanted}.".startswith(f"{path}.") for path in named), named
    assert not plan.restart
    engine_rig.settings = rig(new).settings
    engine_rig.engine, reports = engine_rig.engine.reconfigured(engine_rig.settings, plan.fresh_tasks)
    return reports


def also(key: str) -> tuple[str, ...]:
    """Return the keys that must change with a key: one of two that exclude each other."""
    return {"tasks.*.reference.path": ("tasks.t.reference.first_windows",)}.get(key, ())


def rows(n: int, confidence: float | None = None, start: float = 1.71e9, **more: Any) -> list[Record]:
    records = answers(np.random.default_rng(6), n, start=start, **more)
    if confidence is None:
        return records
    return [record | {"scores": [round(1 - confidence, 6), confidence]} for record in records]


def labels(n: int) -> list[Record]:
    return [{"id": f"early-{i}", "label": "ok", "time": 1.7e9} for i in range(n)]


def contradicted(records: list[Record]) -> list[Record]:
    """Return these answers, and for each of their labels one of the other class."""
    other = dict(zip(CLASSES, reversed(CLASSES), strict=True))
    return [*records, *({"id": r["id"], "label": other[r["label"]], "time": r["time"]} for r in records)]


def bounds(reports: list[WindowReport], _: Rig) -> Any:
    return [(o.metric, o.is_floor, o.bound) for o in reports[-1].objectives]


def bounded(metric: str, side: str) -> tuple[Any, ...]:
    metrics = {"metrics": list(get_args(Metric))}
    return metrics, {"objective": {metric: {side: 0.5}}}, rows(100), rows(100, start=1.72e9), bounds


REFITS = {
    # the value before, and after
    "models": (["erm", "irm"], ["erm"]), "every_windows": (30, 1), "every_labels": (999, 1),
    "every_seconds": (1e9, 60), "max_rows": (300, 120), "fit_rows": (300, 120), "max_labelled": (300, 100),
    "seconds": (5, 6), "memory_bytes": (200_000_000, 300_000_000),
}  # fmt: skip


def refitted(key: str, before: Any, after: Any) -> tuple[Any, ...]:
    """Return the cases of one refit after two windows and after the next, each row labelled."""
    base = {"models": ["erm"], "every_windows": 1, "every_labels": 99_999}
    rare = {"every_windows": 99} if key in ("every_labels", "every_seconds") else {}
    old, new = ({"ssme": base | rare | {key: value}} for value in (before, after))
    estimators = {"estimators": ["average_confidence", "ensemble"]}
    early, late = rows(200, labelled=key == "max_labelled"), rows(100, start=1.72e9, labelled=True)
    return estimators | old, new, early, late, lambda _, rig: looked_at(key, rig)


def looked_at(key: str, rig: Rig) -> Any:
    if key in ("seconds", "memory_bytes"):
        return getattr(rig.settings.tasks["t"].ssme, key)
    jobs = [job for job in rig.engine.refits() if isinstance(job, RefitJob)]
    if not key.startswith(("m", "fit")):
        return len(jobs)
    [job] = jobs
    if key == "models":
        return len(job.models)
    return int((job.labels >= 0).sum()) if key == "max_labelled" else len(job.labels)


def hours(n: int, every: int, **more: Any) -> list[Record]:
    """Return answers with a feature that is another one in one of `every` rows."""
    return [r | {"features": {"hour": str(i % every == 0)}} for i, r in enumerate(rows(n, **more))]


WITH_FEATURES = {"features": {"hour": "text"}, "models": {"erm": {"answers_per_day": 9000}}}

AT_ONCE: dict[str, tuple[Any, ...]] = {
    # what else is set, what changes, records before, records after, what is looked at
    "tasks.*.level": (
        {}, {"level": 0.8}, rows(150), rows(100, start=1.72e9),
        lambda reports, _: reports[-1].estimates[0].result.level,
    ),
    "tasks.*.interval": (
        {"reference": {"path": "reference.ndjson"}}, {"interval": "poisson_binomial"},
        rows(150), rows(100, start=1.72e9), lambda reports, _: reports[-1].calibration.interval,
    ),
    "tasks.*.estimators": (
        {}, {"estimators": ["average_confidence"]}, rows(150), rows(100, start=1.72e9),
        lambda reports, _: [e.estimator for e in reports[-1].estimates],
    ),
    **{f"tasks.*.objective.{metric}.{side}": bounded(metric, side)
       for metric in get_args(Metric) for side in ("min", "max")},
    "tasks.*.objective.windows": (
        {"objective": {"accuracy": {"min": 0.9}, "windows": 5}},
        {"objective": {"accuracy": {"min": 0.9}, "windows": 1}},
        rows(400, 0.99), rows(100, 0.8, start=1.72e9),
        lambda reports, _: reports[-1].objectives[0].state.value,
    ),
    "tasks.*.labels.horizon_days": (
        {"labels": {"horizon_days": 30}}, {"labels": {"horizon_days": 1}},
        rows(50), [r | {"time": r["time"] + 2 * 86_400} for r in rows(50)],
        lambda _, rig: rig.engine.view().series[0].duplicates,
    ),
    "tasks.*.labels.max_answers": (
        {"labels": {"max_answers": 2000}}, {"labels": {"max_answers": 1000}}, rows(1500), rows(100),
        lambda _, rig: rig.engine.view().series[0].duplicates,
    ),
    "tasks.*.labels.max_waiting": (
        {"labels": {"max_waiting": 2000}}, {"labels": {"max_waiting": 1000}}, labels(1500), rows(10),
        lambda _, rig: len(rig.engine.snapshot().tasks["t"].join.labels.keys),
    ),
    "tasks.*.labels.max_bytes": (
        {"labels": {"max_answers": 1000}}, {"labels": {"max_answers": 1000, "max_bytes": 1_000_000}},
        rows(900), rows(100), lambda _, rig: rig.engine.view().series[0].duplicates,
    ),
    "tasks.*.labels.max_replaced": (
        {"labels": {"max_replaced": 1}, "calibration": {"refit_labels": 60}}, {"labels": {"max_replaced": 0}},
        contradicted(rows(100, labelled=True)), rows(100, start=1.72e9, labelled=True),
        lambda _, rig: rig.engine.refits() == [] and rig.engine.view().series[0].recalibrations.held,
    ),
    "tasks.*.labels.weights": (
        refitted("models", ["erm"], ["erm"])[0] | {"estimators": ["average_confidence", "labelled"]},
        {"labels": {"weights": "estimated"}}, *refitted("models", ["erm"], ["erm"])[2:4],
        lambda _, rig: [j.label_weights for j in rig.engine.refits() if isinstance(j, RefitJob)],
    ),
    "tasks.*.calibration.refit_labels": (
        {"calibration": {"refit_labels": 999}}, {"calibration": {"refit_labels": 60}},
        rows(150), rows(100, start=1.72e9, labelled=True), lambda _, rig: len(rig.engine.refits()),
    ),
    **{f"tasks.*.ssme.{key}": refitted(key, before, after) for key, (before, after) in REFITS.items()},
    "tasks.*.chart.features.false_alarms_per_week": (
        WITH_FEATURES, {"chart": {"sigmas": 3, "features": {"false_alarms_per_week": 0.2}}},
        hours(600, 2), hours(100, 5, start=1.72e9),
        lambda _, rig: dict(rig.engine.view().series[0].feature_alarms),
    ),
    "tasks.*.chart.shared": (
        {"chart": {"sigmas": 3, "shared": False}}, {"chart": {"sigmas": 3}}, rows(50), rows(50, start=1.72e9),
        lambda _, rig: rig.engine.view().series[0].shared_seconds,
    ),
    "tasks.*.max_series": (
        {"max_series": 1}, {"max_series": 2}, rows(50), rows(50, model="irm"),
        lambda _, rig: len(rig.engine.view().series),
    ),
}  # fmt: skip

SEEN = {
    "tasks.*.level": (0.95, 0.8),
    "tasks.*.interval": ("predictive", "poisson_binomial"),
    "tasks.*.estimators": (["average_confidence", "realised"], ["average_confidence"]),
    "tasks.*.objective.windows": ("met", "breached"),
    "tasks.*.labels.horizon_days": (50, 0),
    "tasks.*.labels.max_answers": (100, 0),
    "tasks.*.labels.max_waiting": (1500, 1000),
    "tasks.*.chart.features.false_alarms_per_week": ({}, {"hour": True}),
    "tasks.*.chart.shared": (0.0, 3e9),
    "tasks.*.max_series": (1, 2),
    "tasks.*.labels.max_replaced": (False, True),
    "tasks.*.labels.weights": (["given"], ["estimated"]),
    "tasks.*.labels.max_bytes": (100, 0),
    "tasks.*.calibration.refit_labels": (0, 1),
    "tasks.*.ssme.models": (2, 1),
    "tasks.*.ssme.every_windows": (0, 1),
    "tasks.*.ssme.every_labels": (0, 1),
    "tasks.*.ssme.every_seconds": (0, 1),
    "tasks.*.ssme.max_rows": (300, 220),
    "tasks.*.ssme.fit_rows": (300, 220),
    "tasks.*.ssme.max_labelled": (300, 100),
    "tasks.*.ssme.seconds": (5.0, 6.0),
    "tasks.*.ssme.memory_bytes": (200_000_000, 300_000_000),
} | {
    f"tasks.*.objective.{metric}.{side}": ([], [(metric, side == "min", 0.5)])
    for metric in ("accuracy", "ece", "class_ece")
    for side in ("min", "max")
}
"""What is seen without the reload, and with it."""


@pytest.mark.parametrize("key", SEEN)
def test_what_holds_at_once_is_seen_in_the_next_window_and_closes_none(key: str) -> None:
    base, change, before, after, look = AT_ONCE[key]
    old, new = settings(**base), settings(**{**base, **change})
    left, reloaded = rig(old), rig(old)
    seen = []
    for each in (left, reloaded):
        each.feed(before)
        pending = each.engine.view().series[0].pending if each.engine.view().series else 0
        if each is reloaded:
            assert reload(each, key, old, new) == []
            series = each.engine.view().series
            assert (series[0].pending if series else 0) == pending, "no row is lost"
        seen.append(look(each.feed(after), each))
    assert tuple(seen) == SEEN[key]


def test_expected_traffic_is_taken_over_at_once_and_changes_no_window() -> None:
    key = "tasks.*.models.*.answers_per_day"
    old, new = (settings(models={"erm": {"answers_per_day": n}}) for n in (1000, 9000))
    left, reloaded = rig(old), rig(old)
    assert left.feed(rows(150)) == reloaded.feed(rows(150))
    assert reload(reloaded, key, old, new) == []
    assert left.feed(rows(400, start=1.72e9)) == reloaded.feed(rows(400, start=1.72e9))
    assert check(Config(tasks={"t": old}), {}) != check(Config(tasks={"t": new}), {}), (
        "`check` reckons with it"
    )


AT_ONCE["tasks.*.models.*.answers_per_day"] = ()


OLD_AGE = {"size": 100, "min_size": 20, "max_age_seconds": 45}
OF_THREE = {"classes": [*CLASSES, "worse"], "metrics": ["accuracy", "recall"]}
JUDGED_BY_DOC = {"reference": {"path": "r"}, "estimators": ["average_confidence", "doc", "realised"]}
NEW_BASELINE: dict[str, tuple[Task, Task]] = {
    # what else is set, what changes
    "tasks.*.window.size": ({}, {"window": {"size": 50, "min_size": 20, "max_age_seconds": 1e9}}),
    "tasks.*.window.min_size": ({"window": OLD_AGE}, {"window": OLD_AGE | {"min_size": 60}}),
    "tasks.*.window.max_age_seconds": ({}, {"window": OLD_AGE}),
    "tasks.*.reference.path": ({}, {"reference": {"path": "r"}}),
    "tasks.*.reference.first_windows": ({}, {"reference": {"first_windows": 7}}),
    "tasks.*.calibration.method": ({"reference": {"path": "r"}},
                                   {"reference": {"path": "r"}, "calibration": {"method": "none"}}),
    "tasks.*.metrics": ({}, {"metrics": ["accuracy", "ece"]}),
    "tasks.*.average": (OF_THREE, {"average": "micro"}),
    "tasks.*.chart.estimator": (JUDGED_BY_DOC, JUDGED_BY_DOC | {"chart": {"sigmas": 3, "estimator": "doc"}}),
    "tasks.*.chart.kind": ({}, {"chart": {"sigmas": 3, "kind": "shewhart_p"}}),
    "tasks.*.chart.arl0": ({"chart": {"arl0": 370}}, {"chart": {"arl0": 100}}),
    "tasks.*.chart.sigmas": ({}, {"chart": {"sigmas": 2}}),
    "tasks.*.chart.min_change": (
        {"chart": {"sigmas": 3, "min_change": 0.1}},
        {"chart": {"sigmas": 3, "min_change": 0.5}},
    ),
    "tasks.*.chart.rules": ({}, {"chart": {"sigmas": 3, "rules": [1, 2]}}),
    "tasks.*.chart.shift": ({"chart": {"kind": "cusum"}}, {"chart": {"kind": "cusum", "shift": 2}}),
    "tasks.*.chart.weight": ({"chart": {"kind": "ewma"}}, {"chart": {"kind": "ewma", "weight": 0.5}}),
    "tasks.*.chart.season": ({}, {"chart": {"sigmas": 3, "season": "hour_of_week"}}),
    "tasks.*.chart.time_zone": (
        {"chart": {"sigmas": 3, "season": "hour_of_week"}},
        {"chart": {"sigmas": 3, "season": "hour_of_week", "time_zone": "Europe/Berlin"}},
    ),
}  # fmt: skip


def fitting(records: list[Record], task: Task) -> list[Record]:
    """Return the records with a score a class: of three, the second's is shared with the third."""
    if len(task["classes"]) == 2:
        return records
    shared = [(record["scores"][0], 0.7 * record["scores"][1]) for record in records]
    return [{**r, "scores": [one, two, 1 - one - two]} for r, (one, two) in zip(records, shared, strict=True)]


def shown(reports: list[WindowReport], rig: Rig) -> Any:
    """Return the effects of a baseline and settings on windows, whatever their numbers."""
    series = rig.engine.view().series[0]
    windows = [
        (r.size, r.closed_by, r.calibration.method, [e.metric for e in r.estimates],
         [(c.metric, c.verdict) for c in r.charts if c.metric == "accuracy"])
        for r in reports
    ]  # fmt: skip
    return windows, sorted(series.violations), series.seasons


@pytest.mark.slow
@pytest.mark.parametrize("key", NEW_BASELINE)
def test_what_begins_a_new_baseline_closes_the_open_window_and_is_as_if_begun_with_it(key: str) -> None:
    base, change = NEW_BASELINE[key]
    old, new = settings(**base), settings(**{**base, **change})
    left, reloaded, fresh = rig(old), rig(old), rig(new)
    before, after = (fitting(each, new) for each in (rows(1030), rows(1250, start=1.71e9 + 1030)))
    for each in (left, reloaded):
        each.feed(before)
        assert each.engine.view().series[0].charts
    pending = reloaded.engine.view().series[0].pending
    assert pending
    assert [(r.size, r.closed_by) for r in reload(reloaded, key, old, new)] == [(pending, "end")]
    state = reloaded.engine.view().series[0]
    by_reference = Config(tasks={"t": new}).tasks["t"].reference.path is not None
    assert (state.state, state.charts) == ("in_control" if by_reference else "warming_up", ())
    actual = shown(reloaded.feed(after), reloaded)
    assert actual == shown(fresh.feed(after), fresh)
    assert actual != shown(left.feed(after), left), "the change is seen"


def test_a_new_baseline_counts_the_fits_of_the_calibration() -> None:
    old, new = settings(reference={"path": "r"}), settings(reference={"path": "r"}, chart={"sigmas": 2})
    engine_rig = rig(old)
    [first] = engine_rig.feed(rows(100))
    reload(engine_rig, "tasks.*.chart.sigmas", old, new)
    engine_rig.restart()
    [second] = engine_rig.feed(rows(100, start=1.72e9))
    assert (first.calibration.version, second.calibration.version) == (1, 2)
