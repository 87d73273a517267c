"""The short form of the hand-overs between two daemons of one consumer group."""

from __future__ import annotations

from pathlib import Path

from tests.faults.hand_overs import hand_over, kill_owners
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import Driver

RATE = 500.0  # answers a second: hand-overs take as long with few as with many


def test_partitions_handed_over_between_two_daemons_lose_and_double_nothing(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path
) -> None:
    found = hand_over(tmp_path, kafka_broker, "daemons-handed", hand_overs=3, driver=kafka_driver, rate=RATE)
    assert found.account.exact
    assert found.taken_over > 0, "the one that came back knew of what the other had used"
    assert found.split > 0, "some windows went on after another had read the partition"


def test_what_two_daemons_used_after_a_kill_is_bounded_and_counted(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path
) -> None:
    found = kill_owners(tmp_path, kafka_broker, "daemons-killed", kills=1, driver=kafka_driver, rate=RATE)
    assert found.account.lost == 0
    assert found.account.doubled <= min(sum(found.ahead), found.overlap)
    assert found.account.used == found.account.answers + found.account.doubled
