"""The assignment of models to the processes of a replay, and of shares to the models' processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monitor.config.task import Task
from monitor.engine.engine import EngineSettings
from monitor.parallel.orders import Piece, Slice
from monitor.parallel.owners import Owners
from monitor.parallel.planning import Facts
from tests.streams import CLASSES


def settings_of(**tasks: dict[str, Any]) -> EngineSettings:
    plain: dict[str, Any] = {"classes": CLASSES, "reference": {"first_windows": 5}}
    return EngineSettings({name: Task.model_validate(plain | task) for name, task in tasks.items()})


def piece(rows: dict[tuple[str, str], int], labels: Sequence[tuple[str, str]] = ()) -> Piece:
    """Return answers by task and model, and labels by task and the model that they came along with."""
    facts = Facts(models={name: [i, n] for i, (name, n) in enumerate(rows.items())})
    shares = [Slice(task, model, "", 0, 0) for task, model in rows]
    shares += [Slice(task, "", besides, 0, 0) for task, besides in labels]
    return Piece(0, True, Path("p"), facts, tuple(shares), Slice("", "", "", 0, 0), 0, (), "f")


def test_models_are_shared_out_by_their_answers() -> None:
    sampled = Facts(
        models={("t", name): [i, n] for i, (name, n) in enumerate(zip("abcd", (90, 40, 30, 10), strict=True))}
    )
    owners = Owners(settings_of(t={}), 2, [sampled], {})
    assert owners.order == {("t", "a"): 0, ("t", "b"): 1, ("t", "c"): 1, ("t", "d"): 1}


def test_labels_go_to_every_process_with_a_model_of_the_task_but_that_which_has_them() -> None:
    owners = Owners(settings_of(t={}, u={}), 3, [Facts(models={("t", "a"): [0, 9], ("t", "b"): [1, 8]})], {})
    by_process = owners.routed(piece({("t", "a"): 1}, labels=[("t", ""), ("t", "a")]))
    assert {process: [s.besides for s in shares] for process, shares in by_process.items()} == {
        0: ["", ""],
        1: ["", "a"],
    }
    assert [s.model for s in by_process[0]] == ["a", ""], "its own label came along with its answer"


def test_a_new_model_goes_where_the_labels_before_it_went() -> None:
    owners = Owners(settings_of(t={}), 3, [Facts(models={("t", "a"): [0, 9]})], {})
    owners.routed(piece({("t", "b"): 1}))
    assert owners.order["t", "b"] != owners.order["t", "a"], "no label has come yet"
    homes = set(owners.order.values())
    owners.routed(piece({}, labels=[("t", "")]))
    owners.routed(piece({("t", name): 1 for name in "cdefgh"}))
    assert set(owners.order.values()) == homes
    assert owners.routed(piece({("t", "i"): 1}, labels=[("t", "")])).keys() == homes


def test_labels_before_any_answer_wait_in_one_process() -> None:
    owners = Owners(settings_of(t={}), 3, [], {})
    (home,) = owners.routed(piece({}, labels=[("t", "")]))
    owners.routed(piece({("t", "a"): 1, ("t", "b"): 1}))
    assert set(owners.order.values()) == {home}
