"""The short form of the kills over Kafka, and the judge of the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kafka_kills import many_partitions, one_partition
from tests.faults.ranges import Answer, Window, account
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import Driver

ERM = ("erm", "")


def test_a_daemon_killed_over_one_partition_writes_what_one_left_alone_writes(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path
) -> None:
    result = one_partition(
        kafka_broker, tmp_path, "kills-one", records=10_000, kills=4, seed=0, driver=kafka_driver
    )
    assert result.kills >= 1
    assert result.account.windows > 125


@pytest.mark.parametrize("seed", [2, 3], ids=["keyed", "unkeyed"])
def test_a_daemon_killed_over_six_partitions_uses_every_answer_in_one_window(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path, seed: int
) -> None:
    result = many_partitions(
        kafka_broker, tmp_path, f"kills-six-{seed}", records=10_000, kills=3, seed=seed, driver=kafka_driver
    )
    assert result.kills >= 1
    assert result.account.answers == 2 * 10_000, "each counts in its model and in its group"


def window(size: int, *ends: int, number: int = 0, agent: str = "a") -> Window:
    return Window(agent, ERM, number, size, {"p": ends})


def sent(*ids: str) -> dict[str, list[Answer | None]]:
    """Return a partition with these answers; ``""`` is no answer."""
    return {"p": [Answer(each, (ERM,)) if each else None for each in ids]}


def test_the_judge_sees_what_is_whole_lost_or_doubled() -> None:
    rows = sent("1", "", "2", "3", "3", "4")
    assert account(rows, [window(2, 0, 2), window(2, 3, 5, number=1)]).exact
    assert account(rows, [window(4, 0, 2, 3, 5)]).exact
    lost = account(rows, [window(3, 0, 3)])
    assert (lost.exact, lost.lost, lost.used) == (False, 1, 3)
    doubled = account(rows, [window(3, 0, 4), window(3, 2, 5, agent="b")])
    assert (doubled.exact, doubled.doubled, doubled.used) == (False, 1, 6)


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ([window(1, 0, 2)], "has 2 to 2 answers in its ranges"),
        ([window(6, 0, 5)], "has 3 to 5 answers in its ranges"),
        ([window(2, 0, 2), window(2, 2, 5, number=1)], "goes back before 2"),
        ([window(2, 0, 2, number=1)], r"windows \[1\]"),
        ([window(2, 0, 2), window(2, 3, 5)], r"windows \[0, 0\]"),
    ],
)
def test_the_judge_refuses_windows_that_cannot_be(windows: list[Window], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        account(sent("1", "", "2", "3", "3", "4"), windows)
