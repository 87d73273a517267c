"""The positions of partitions: what may be committed, and what still has to be waited for."""

from __future__ import annotations

from connectors.kafka.source.ledger import PositionLedger


def test_a_partition_goes_on_after_what_was_handed_out_else_at_the_opening_position() -> None:
    ledger = PositionLedger({"t-0": 10})
    ledger.record_handed_out("t-0", 10, 15)
    ledger.record_handed_out("t-1", 0, 3)
    assert [ledger.resume_position(name) for name in ("t-0", "t-1", "t-2")] == [15, 3, None]


def test_only_what_is_absorbed_is_committed_and_each_position_once() -> None:
    ledger = PositionLedger({})
    ledger.record_handed_out("t-0", 0, 10)
    assert ledger.positions_to_commit(["t-0"]) == {}
    ledger.absorb({"t-0": 4})
    assert ledger.positions_to_commit(["t-0"]) == {"t-0": 4}
    assert ledger.positions_to_commit([]) == {}
    ledger.record_committed({"t-0": 4})
    assert ledger.positions_to_commit(["t-0"]) == {}


def test_a_partition_is_outstanding_until_all_that_was_handed_out_is_absorbed() -> None:
    ledger = PositionLedger({"t-1": 5})
    assert not ledger.has_outstanding(["t-0", "t-1"])
    ledger.record_handed_out("t-0", 0, 10)
    ledger.absorb({"t-0": 9})
    assert ledger.has_outstanding(["t-0"])
    ledger.absorb({"t-0": 10})
    assert not ledger.has_outstanding(["t-0"])


def test_a_position_that_was_not_handed_out_is_left_aside() -> None:
    ledger = PositionLedger({"t-0": 80})
    ledger.absorb({"t-0": 80, "t-9": 1})
    assert ledger.positions_to_commit(["t-0", "t-9"]) == {}
    ledger.record_handed_out("t-0", 150, 160)
    ledger.absorb({"t-0": 80})
    assert ledger.positions_to_commit(["t-0"]) == {}


def test_a_partition_that_another_member_took_further_has_nothing_to_commit() -> None:
    ledger = PositionLedger({})
    ledger.record_handed_out("t-0", 0, 10)
    ledger.absorb({"t-0": 7})
    ledger.record_takeover("t-0", 50)
    assert ledger.resume_position("t-0") == 50
    assert ledger.positions_to_commit(["t-0"]) == {}
    assert not ledger.has_outstanding(["t-0"])


def test_a_topic_made_anew_forgets_the_old_positions() -> None:
    ledger = PositionLedger({})
    ledger.record_handed_out("t-0", 0, 1000)
    ledger.absorb({"t-0": 1000})
    ledger.record_committed({"t-0": 1000})
    ledger.record_handed_out("t-0", 0, 5)
    assert ledger.has_outstanding(["t-0"])
    ledger.absorb({"t-0": 5})
    assert ledger.positions_to_commit(["t-0"]) == {"t-0": 5}


def test_where_reading_begins_is_committed_before_any_record_came() -> None:
    ledger = PositionLedger({})
    ledger.record_start("t-0", 15)
    assert ledger.resume_position("t-0") == 15
    assert ledger.positions_to_commit(["t-0"]) == {"t-0": 15}
    assert not ledger.has_outstanding(["t-0"])
    ledger.record_committed({"t-0": 15})
    assert ledger.positions_to_commit(["t-0"]) == {}
    ledger.record_handed_out("t-0", 15, 20)
    ledger.absorb({"t-0": 20})
    assert ledger.positions_to_commit(["t-0"]) == {"t-0": 20}


def test_what_is_told_of_a_partition_after_it_was_dropped_is_left_aside() -> None:
    ledger = PositionLedger({})
    for name in ("t-0", "t-1"):
        ledger.record_handed_out(name, 0, 10)
    ledger.drop("t-0")
    ledger.absorb({"t-0": None, "t-1": 10})
    ledger.record_committed({"t-0": 10})
    assert ledger.names() == ["t-1"]
    assert ledger.positions_to_commit(["t-0", "t-1"]) == {"t-1": 10}
