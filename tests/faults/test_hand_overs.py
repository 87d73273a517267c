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
    result = hand_over(tmp_path, kafka_broker, "daemons-handed", hand_overs=3, driver=kafka_driver, rate=RATE)
    assert result.account.exact
    assert result.taken_over > 0, "the one that came back knew of what the other had used"
    assert result.split > 0, "some windows went on after another had read the partition"


def test_what_two_daemons_used_after_a_kill_is_bounded_and_counted(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path
) -> None:
    result = kill_owners(tmp_path, kafka_broker, "daemons-killed", kills=1, driver=kafka_driver, rate=RATE)
    assert result.account.lost == 0
    assert result.account.doubled <= min(sum(result.ahead), result.overlap)
    assert result.account.used == result.account.answers + result.account.doubled
