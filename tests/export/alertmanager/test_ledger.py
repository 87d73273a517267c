"""The times at which Alertmanager is sent an alert that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monitor.export.alertmanager.holding import BREACHED, CONFLICT, UNTRUSTED, Condition
from monitor.export.alertmanager.ledger import RESOLVED_SECONDS, AlertLedger
from monitor.reports.statements import Statement
from tests.export.alertmanager.test_pusher import PATIENCE, RESEND, patience

# ── when it is told ──


def breach(windows: int, patient: bool = True) -> Condition:
    who = (("task", "t"), ("model", "m"), ("metric", "accuracy"))
    return Condition(
        BREACHED if patient else UNTRUSTED, who, Statement("t/m", f"after {windows}"), windows, patient
    )


class Talk:
    """A ledger whose Alertmanager takes everything at once; what it was told of, look by look."""

    def __init__(self) -> None:
        self.ledger = AlertLedger(RESEND, patience)
        self.look([], 0, 0.0)

    def look(self, conditions: Sequence[Condition], windows: int, now: float) -> list[tuple[float, float]]:
        self.ledger.update(conditions, {("t", "m", ""): windows}, now)
        due = self.ledger.due(now)
        if due:
            self.ledger.delivered(due, now)
        return [(alert.starts, alert.ends) for alert in due]


def test_one_window_is_a_blip() -> None:
    talk = Talk()
    assert talk.look([breach(7)], 7, 1.0) == []
    assert talk.look([breach(7)], 7, 500.0) == []
    assert talk.look([], 8, 501.0) == []
    assert talk.look([breach(9)], 9, 502.0) == []


def test_a_condition_at_once_is_an_alert_in_its_first_window_and_ends_after_two_without() -> None:
    talk = Talk()
    sudden = replace(breach(7), at_once=True)
    assert talk.look([sudden], 7, 1.0) == [(1.0, 241.0)]
    assert talk.look([], 8, 2.0) == []
    assert talk.look([], 9, 3.0) == [(1.0, 3.0)]


def test_two_windows_are_an_alert_that_is_told_again_and_again() -> None:
    talk = Talk()
    talk.look([breach(7)], 7, 1.0)
    assert talk.look([breach(8)], 8, 2.0) == [(2.0, 242.0)]
    assert talk.look([breach(9)], 9, 61.9) == []
    assert talk.look([breach(9)], 9, 62.0) == [(2.0, 302.0)]


def test_it_ends_after_two_windows_without_and_its_end_is_told_for_five_minutes() -> None:
    talk = Talk()
    talk.look([breach(7)], 7, 1.0)
    talk.look([breach(8)], 8, 2.0)
    assert talk.look([], 9, 3.0) == [], "one good window is a blip, too"
    assert talk.look([], 10, 4.0) == [(2.0, 4.0)]
    assert talk.look([], 10, 63.9) == []
    assert talk.look([], 10, 64.0) == [(2.0, 4.0)]
    talk.look([], 10, 4.0 + RESOLVED_SECONDS)
    assert talk.look([], 10, 4.1 + RESOLVED_SECONDS + RESEND) == []


def test_where_answers_stop_two_windows_worth_of_time_are_enough() -> None:
    talk = Talk()
    talk.look([breach(7)], 7, 1.0)
    assert talk.look([breach(7)], 7, 0.9 + PATIENCE) == []
    assert talk.look([breach(7)], 7, 1.0 + PATIENCE) == [(1801.0, 2041.0)]
    assert talk.look([], 8, 1802.0) == []
    end = 1801.0 + PATIENCE
    assert talk.look([], 8, end - 0.1) == [(1801.0, end - 0.1 + 4 * RESEND)], "told again, not ended"
    assert talk.look([], 8, end) == [(1801.0, end)]


def test_an_alert_that_flaps_stays_one() -> None:
    talk = Talk()
    talk.look([breach(7)], 7, 1.0)
    talk.look([breach(8)], 8, 2.0)
    looks = [talk.look([breach(n)] if n % 2 else [], n, float(n)) for n in range(9, 40)]
    assert [each for each in looks if each] == []


def test_what_needs_no_patience_is_told_at_once() -> None:
    talk = Talk()
    assert talk.look([breach(7, patient=False)], 7, 1.0) == [(1.0, 241.0)]
    assert talk.look([], 7, 2.0) == [(1.0, 2.0)]


def test_what_holds_at_the_start_held_before() -> None:
    ledger = AlertLedger(RESEND, patience)
    ledger.update([breach(7)], {("t", "m", ""): 7}, 1.0)
    assert len(ledger.due(1.0)) == 1


def test_a_series_that_is_gone_ends_its_alerts() -> None:
    talk = Talk()
    talk.look([breach(7)], 7, 1.0)
    talk.look([breach(8)], 8, 2.0)
    talk.ledger.update([], {}, 3.0)
    assert [alert.ends for alert in talk.ledger.due(3.0)] == [3.0]


def test_an_alert_on_a_task_ends_without_a_model() -> None:
    talk = Talk()
    conflict = Condition(CONFLICT, (("task", "t"),), Statement("t", "labels contradict"), 0, patient=False)
    assert talk.look([conflict], 7, 1.0)
    assert talk.look([], 7, 2.0) == [(1.0, 2.0)]


def test_what_was_not_taken_stays_due_and_is_told_as_it_stands_then() -> None:
    ledger = AlertLedger(RESEND, patience)
    ledger.update([breach(7)], {("t", "m", ""): 7}, 1.0)
    assert ledger.waiting == 1
    ledger.update([], {("t", "m", ""): 9}, 5.0)
    assert [(alert.starts, alert.ends) for alert in ledger.due(1000.0)] == [(1.0, 5.0)]
    ledger.update([], {("t", "m", ""): 9}, 1000.0)
    assert len(ledger.due(1000.0)) == 1, "an end is not forgotten before it was told"
    ledger.delivered(ledger.due(1000.0), 1000.0)
    assert ledger.waiting == 0
