"""No key of the configuration is left out of the tests of what a reload makes of it."""

from __future__ import annotations

from monitor.config.reload import CONSEQUENCES, Consequence
from tests.config.test_reload_arenas import OF_ARENAS
from tests.config.test_reload_keys import AT_ONCE, CAME_OR_WENT, NEW_BASELINE, of
from tests.config.test_reload_numbers import BEGINS_A_BASELINE, OF_NUMBERS
from tests.config.test_reload_restart import RESTART


def at_once() -> set[str]:
    """Return keys whose change holds at once and is tried, also those of other kinds of tasks."""
    return {*AT_ONCE, *(f"tasks.*.{key}" for key in (*OF_ARENAS, *OF_NUMBERS))}


def new_baseline() -> set[str]:
    """Return keys whose change begins a new baseline and is tried, also those of other kinds of tasks."""
    return {*NEW_BASELINE, *(f"tasks.*.{key}" for key in BEGINS_A_BASELINE)}


def test_every_entry_of_the_table_of_consequences_is_tried() -> None:
    tried = [*at_once(), *new_baseline(), *RESTART]
    assert [key for key in CONSEQUENCES if not any(f"{each}.".startswith(f"{key}.") for each in tried)] == []


def test_every_key_is_tried() -> None:
    assert at_once() == of(Consequence.AT_ONCE)
    assert new_baseline() == of(Consequence.NEW_BASELINE)
    assert set(RESTART) - CAME_OR_WENT == of(Consequence.RESTART)
