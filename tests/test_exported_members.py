"""The public door of each package: one sorted list, every name documented and really there."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

PACKAGES = [
    "monitor",
    "monitor.stats.calibration",
    "monitor.stats.charts",
    "monitor.cli.demo",
    "monitor.stats.estimate",
    "monitor.stats.labelled",
    "monitor.testing",
    "connectors",
    "connectors.kafka",
]


def public(package: str) -> list[str]:
    return list(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_names_are_sorted_and_there(package: str) -> None:
    names = public(package)
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert len(set(names)) == len(names)
    module = importlib.import_module(package)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_class_and_function_is_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert inspect.getdoc(module)
    silent = [
        f"{name}.{member}" if member else name
        for name in public(package)
        for member, thing in members(getattr(module, name))
        if not inspect.getdoc(thing)
    ]
    assert silent == []


def members(thing: object) -> list[tuple[str, object]]:
    """The thing itself and, of a class, its public methods and properties."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return []
    found: list[tuple[str, object]] = [("", thing)]
    if inspect.isclass(thing):
        found += [
            (name, member)
            for name, member in vars(thing).items()
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
        ]
    return found


@pytest.mark.parametrize(
    "package",
    ["monitor.stats.estimate", "monitor.stats.calibration", "monitor.stats.charts", "monitor.stats.labelled"],
)
def test_nothing_comes_through_the_door_that_the_list_leaves_out(package: str) -> None:
    module = importlib.import_module(package)
    inside = {name for _, name, _ in pkgutil.iter_modules(module.__path__)}
    listed = [getattr(module, name) for name in public(package)]
    bases = {base for thing in listed if inspect.isclass(thing) for base in inspect.getmro(thing)}
    stray = {
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and name not in inside
        and name not in public(package)
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing not in bases
        and getattr(thing, "__module__", "").startswith(package)
    }
    assert stray == set()


def test_the_contract_of_the_specification_is_exported() -> None:
    from monitor import Estimate, Unknown
    from monitor.stats.estimate import PoissonBinomial, average_confidence, average_confidence_many

    assert list(inspect.signature(average_confidence).parameters) == ["confidence", "level"]
    assert list(inspect.signature(average_confidence_many).parameters)[:2] == ["confidence", "level"]
    assert inspect.signature(average_confidence).parameters["level"].default == 0.95
    assert [*inspect.signature(Estimate).parameters] == ["value", "lower", "upper", "level", "n"]
    assert [*inspect.signature(Unknown).parameters] == ["reason"]
    from monitor.stats.labelled import ESTIMATORS, SSME

    assert ESTIMATORS["ssme"] is SSME
    for estimator in ESTIMATORS.values():
        fit = inspect.signature(estimator.fit).parameters
        assert list(fit) == ["self", "scores", "labels", "predicted", "weights", "acquisition"]
        assert {p.kind for p in list(fit.values())[3:]} == {inspect.Parameter.KEYWORD_ONLY}
        assert list(inspect.signature(estimator.estimate).parameters)[1:] == [
            "metric",
            "model",
            "where",
            "level",
        ]
    for name in ("pmf", "cdf", "mean", "variance", "quantile", "interval"):
        assert hasattr(PoissonBinomial, name)
