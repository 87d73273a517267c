"""Three agents of one consumer group over a topic keyed by model; one is killed: docs/several-agents.md."""

from __future__ import annotations

from pathlib import Path

from tests.faults.hand_overs import Agents, pouring
from tests.faults.kills import MODELS
from tests.faults.ranges import account
from tests.services.kafka_broker import KafkaBroker
from tests.services.process import Driver, wait_until

Counts = dict[tuple[str, str], float]
"""By agent and model, the answers in closed windows."""


def counts_of(agents: Agents) -> Counts:
    """Return the counts of the agents that run."""
    return {
        (name, dict(labels)["model"]): value
        for name, daemon in agents.daemons.items()
        if daemon.process.poll() is None
        for labels, value in daemon.metrics().all("predictions_total").items()
    }


def moving(agents: Agents, since: Counts) -> bool:
    """Return whether each model's counter has grown on one of the agents."""
    grown = {
        model for (name, model), value in counts_of(agents).items() if value > since.get((name, model), 0)
    }
    return grown == set(MODELS)


def test_of_three_agents_one_is_killed_and_every_answer_is_in_one_window_or_counted(
    kafka_broker: KafkaBroker, kafka_driver: Driver, tmp_path: Path
) -> None:
    with Agents(
        tmp_path, kafka_broker, "three-agents", kafka_driver, count=3, session_timeout_ms=4000
    ) as agents:
        for each in agents.names:
            agents.launch(each)
        for daemon in agents.daemons.values():
            daemon.until_value(1, "source_up", source="kafka")
        with pouring(agents.topic, seed=0, keyed=True, rate=500.0):
            wait_until(lambda: moving(agents, {}), "each model has an agent")
            shown = counts_of(agents)
            killed = next(name for name, model in shown if model == MODELS[0])
            agents.kill(killed)
            wait_until(lambda: moving(agents, shown), "the others took over what it had")
            # Not until it uses something: its share may be the two partitions that no model's key leads to.
            agents.launch(killed).until_value(1, "source_up", source="kafka")
            for each in agents.names:
                if each != killed:
                    agents.stop(each)  # so that the one that was killed meets again all that it had
            agents.until_all_move(killed)
        agents.until_used_up()
        agents.stop(killed)
        windows = agents.windows()

    assert len(shown) == len(MODELS), f"each model is one agent's: {shown}"
    assert {name for name, _ in shown} > {killed}, f"several work: {shown}"
    tally = account(agents.topic.sent, windows)
    assert tally.lost == 0
    assert tally.doubled <= min(sum(agents.ahead), agents.overlap)
    assert tally.used == tally.answers + tally.doubled
    for window in windows:
        assert set(window.positions) == {f"three-agents-{MODELS.index(window.series[0])}"}, (
            "one model, one key"
        )
