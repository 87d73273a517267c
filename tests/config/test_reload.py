"""The effects of a changed configuration, key by key."""

import pytest

from monitor.config.file import schema
from monitor.config.reload import CONSEQUENCES, Consequence, ReloadPlan, classify, consequence
from monitor.config.root import Config

TASK = {"classes": ["a", "b"], "models": {"erm.v1": {"answers_per_day": 5}}}


def config(task=None, **rest) -> Config:
    return Config(tasks={"t": {**TASK, **(task or {})}}, **rest)


def test_the_same_values_are_no_change_however_they_are_written():
    spelt_out = {"window": {"size": 500.0}, "chart": {"rules": [1]}, "level": 0.95}
    plan = classify(config(), config(spelt_out, sources=[], export={"listen": "127.0.0.1:9109"}))
    assert plan == ReloadPlan((), (), ())
    assert not plan.changes


@pytest.mark.parametrize(
    ("task", "paths"),
    [
        ({"level": 0.9}, ["tasks.t.level"]),
        ({"estimators": ["average_confidence"]}, ["tasks.t.estimators"]),
        ({"objective": {"accuracy": {"min": 0.9}}}, ["tasks.t.objective.accuracy"]),
        ({"labels": {"horizon_days": 3}}, ["tasks.t.labels.horizon_days"]),
        ({"labels": {"max_bytes": 5_000_000}}, ["tasks.t.labels.max_bytes"]),
        ({"max_series": 3}, ["tasks.t.max_series"]),
        (
            {"models": {"erm.v1": {"answers_per_day": 6}}},
            ['tasks.t.models["erm.v1"].answers_per_day'],
        ),
    ],
)
def test_what_holds_at_once(task, paths):
    assert classify(config(), config(task)) == ReloadPlan(tuple(paths), (), ())


@pytest.mark.parametrize(
    ("task", "paths"),
    [
        ({"window": {"size": 600, "min_size": 60}}, ["tasks.t.window.size", "tasks.t.window.min_size"]),
        (
            {"reference": {"path": "r"}},
            ["tasks.t.reference.path", "tasks.t.reference.first_windows"],
        ),
        ({"calibration": {"method": "none"}}, ["tasks.t.calibration.method"]),
        ({"metrics": ["accuracy"]}, ["tasks.t.metrics"]),
        ({"chart": {"sigmas": 3, "rules": [1, 2]}}, ["tasks.t.chart.sigmas", "tasks.t.chart.rules"]),
    ],
)
def test_what_begins_a_new_baseline(task, paths):
    plan = classify(config(), config(task))
    assert plan == ReloadPlan((), tuple(paths), (), frozenset({"t"}))
    assert plan.changes


def test_a_task_whose_name_holds_dots_is_named_whole():
    plan = classify(
        Config(tasks={"a.b": {}, "c": {}}), Config(tasks={"a.b": {"chart": {"arl0": 90}}, "c": {}})
    )
    assert plan == ReloadPlan((), ('tasks["a.b"].chart.arl0',), (), frozenset({"a.b"}))


@pytest.mark.parametrize(
    ("new", "paths"),
    [
        (config({"classes": ["b", "a"]}), ["tasks.t.classes"]),
        (config({"positive": "a"}), ["tasks.t.positive"]),
        (config({"groups": ["region"]}), ["tasks.t.groups"]),
        (
            config({"models": {"irm": {}}}),
            ['tasks.t.models["erm.v1"]', "tasks.t.models.irm"],
        ),
        (Config(tasks={"t": TASK, "u": {}}), ["tasks.u"]),
        (Config(tasks={"u": TASK}), ["tasks.t", "tasks.u"]),
        (config(sources=[{"kind": "stdin"}]), ["sources"]),
        (config(reports={"path": "w"}), ["reports"]),
        (config(rejects={"path": "r"}), ["rejects"]),
        (config(store={"path": "s"}), ["store"]),
        (config(export={"listen": "127.0.0.1:0"}), ["export.listen"]),
        (config(export={"max_series": 200}), ["export.max_series"]),
    ],
)
def test_what_needs_a_restart(new, paths):
    assert classify(config(), new) == ReloadPlan((), (), tuple(paths))


def test_a_plan_sorts_what_changed_together():
    new = config({"level": 0.9, "chart": {"arl0": 100}}, export={"listen": "127.0.0.1:0", "max_series": 200})
    assert classify(config(), new) == ReloadPlan(
        ("tasks.t.level",),
        ("tasks.t.chart.arl0",),
        ("export.listen", "export.max_series"),
        frozenset({"t"}),
    )


def test_a_part_of_a_source_that_changed_names_the_sources():
    old = config(sources=[{"kind": "file", "path": "a"}], reports={"path": "w"})
    new = config(sources=[{"kind": "file", "path": "a", "follow": True}], reports={"path": "v"})
    assert classify(old, new).restart == ("sources", "reports.path")


SCHEMA = schema()


def keys(node, path=()):
    definitions = SCHEMA["$defs"]
    while choice := node.get("anyOf", node.get("allOf")) or "$ref" in node:
        node = choice[0] if isinstance(choice, list) else definitions[node["$ref"].rsplit("/", 1)[1]]
    for choice in node.get("oneOf", ()) if "discriminator" in node else ():
        yield from keys(choice, path)
    inner = dict(node.get("properties", {}))
    if isinstance(node.get("additionalProperties"), dict):
        inner["a name"] = node["additionalProperties"]
    for key, child in inner.items():
        yield (*path, key)
        yield from keys(child, (*path, key))


def test_every_key_of_the_schema_has_its_consequence():
    paths = [path for path in keys(SCHEMA) if path not in (("tasks",), ("export",))]
    assert {consequence(path) for path in paths} == set(Consequence)
    assert len(paths) > 35
    with pytest.raises(KeyError, match="nothing"):
        consequence(("nothing", "path"))


def test_every_consequence_is_of_a_key_of_the_schema():
    patterns = {".".join("*" if part == "a name" else part for part in path) for path in keys(SCHEMA)}
    assert set(CONSEQUENCES) <= patterns
