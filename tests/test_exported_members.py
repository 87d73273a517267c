"""The public door of each package: one sorted list, every name documented and really there."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import monitor

PACKAGES = ["monitor", "monitor.cli.demo", "monitor.testing", "connectors", "connectors.kafka"]


def public(package: str) -> list[str]:
    return list(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PACKAGES[1:])
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
    """Return the thing itself and, of a class, its public methods and properties."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return []
    pairs: list[tuple[str, object]] = [("", thing)]
    if inspect.isclass(thing):
        pairs += [
            (name, member)
            for name, member in vars(thing).items()
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
        ]
    return pairs


def test_the_door_of_notebooks_has_the_same_names() -> None:
    door = importlib.import_module("blindsight")
    assert door.__all__ == monitor.__all__
    assert [name for name in door.__all__ if getattr(door, name) is not getattr(monitor, name)] == []
    assert {*door.__all__} <= {*dir(door)}
    with pytest.raises(AttributeError, match="has no attribute 'Monitors'"):
        _ = door.Monitors


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="No monitor attribute SSMEE"):
        _ = monitor.SSMEE
    assert {*monitor.__all__} <= {*dir(monitor)}


def test_importing_the_door_imports_no_array() -> None:
    script = "import sys, monitor; from monitor import Estimate; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_contract_of_the_specification_is_exported() -> None:
    from monitor import Estimate, PoissonBinomial, Unknown, average_confidence, average_confidence_many

    assert list(inspect.signature(average_confidence).parameters) == ["confidence", "level"]
    assert list(inspect.signature(average_confidence_many).parameters)[:2] == ["confidence", "level"]
    assert inspect.signature(average_confidence).parameters["level"].default == 0.95
    assert [*inspect.signature(Estimate).parameters] == ["value", "lower", "upper", "level", "n"]
    assert [*inspect.signature(Unknown).parameters] == ["reason"]
    from monitor import ESTIMATORS, SSME

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
