"""The agent's threads around the engine: order, clock, failure, backpressure, draining."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.formats.decode.decoder import Decoder
from connectors.formats.wires.mapped import MappedWire
from monitor.agent import agent as agent_module
from monitor.agent import feeder as feeder_module
from monitor.agent.unjoined import UnjoinedLabels
from monitor.base.errors import SourceError
from monitor.base.records import Chunk, SampleIds
from monitor.base.source import Source
from monitor.cli import daemon as daemon_module
from monitor.config.layouts import layouts
from monitor.config.mapping import Constants, FieldMapping
from monitor.engine.engine import Engine, EngineSettings
from monitor.reports.views import EngineView, LabelOutcome
from monitor.testing import ListSource, Marker
from tests.agents import TASKS, Broken, Counting, Gated, Rigged, Stumbling, records, until
from tests.daemon import ROOT, configuration, ndjson, write_configuration
from tests.services.process import PATIENCE_SECONDS
from tests.streams import Rig, lines, task


@pytest.fixture
def rigged() -> Iterator[Callable[..., Rigged]]:
    """Yield a function that makes agents, and stop them after the test."""
    made: list[Rigged] = []

    def new(*sources: Source, **rest: Any) -> Rigged:
        made.append(Rigged(*sources, **rest))
        return made[-1]

    yield new
    for each in made:
        each.agent.stop()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ticks, pictures and retries come in hundredths of a second."""
    monkeypatch.setattr(agent_module, "_TICK_SECONDS", 0.02)
    monkeypatch.setattr(agent_module, "_VIEW_SECONDS", 0.01)
    monkeypatch.setattr(feeder_module, "_REOPEN_SECONDS", 0.05)


New = Callable[..., Rigged]


def test_the_windows_are_those_of_the_engine_alone_however_a_source_pauses(rigged: New) -> None:
    stream = records(1250, labelled=True)
    pieces = [*stream[:333], Marker.PAUSE, *stream[333:340], Marker.PAUSE, *stream[340:], Marker.END]
    source = ListSource(pieces, per_read=77)
    rig = rigged(source)
    rig.agent.start()
    rig.finish()
    alone = Rig(TASKS, event_time=False)
    expected = [*alone.feed(stream, now=rig.clock()), *alone.engine.finish()]
    assert [window.size for window in rig.sinks.windows] == [100] * 12 + [50]
    got = [line.split(b'"positions"')[0] for line in lines(rig.sinks.windows)]
    assert got == [line.split(b'"positions"')[0] for line in lines(expected)]
    assert source.used == 1252, "every record and both pauses"
    assert rig.agent.failure is None


def test_the_positions_of_all_windows_cover_every_record_once(rigged: New) -> None:
    rig = rigged(ListSource([*records(1250), Marker.END], per_read=77))
    rig.agent.start()
    rig.finish()
    ranges = [window.positions["list"] for window in rig.sinks.windows]
    assert ranges == [(start, min(start + 99, 1249)) for start in range(0, 1250, 100)]


def test_an_agent_on_an_old_snapshot_goes_on_after_the_last_record_that_was_absorbed(rigged: New) -> None:
    stream = records(500)
    before = Rig(TASKS, event_time=False)
    before.engine.absorb(first_chunk(stream[:260]), 1.7e9)
    source = ListSource([*stream, Marker.END])
    second = rigged(source, engine=EngineSettings(TASKS).build(before.engine.snapshot()))
    second.agent.start()
    second.finish()
    assert [window.positions["list"] for window in second.sinks.windows] == [
        (200, 299),
        (300, 399),
        (400, 499),
    ]
    assert second.agent.view().engine.received == {"list": 500}


def first_chunk(stream: Sequence[Mapping[str, Any]]) -> Chunk:
    source = ListSource(stream, per_read=len(stream))
    source.open({})
    return Decoder(layouts(TASKS), "list").decode(source.read(0.0))


def test_a_crash_ends_the_process_at_once_with_nothing_drained(tmp_path: Path) -> None:
    script = tmp_path / "crash.py"
    script.write_text(
        "from pathlib import Path\n"
        "from monitor.export.sinks.reports_file import ReportWriter\n"
        "from monitor.export.sinks.sinks import AgentSinks, SinkSet\n"
        "from monitor.testing import ListSource, Marker\n"
        "from tests.agent.test_agent import Rigged, records\n"
        "sinks = AgentSinks(SinkSet([ReportWriter('windows.ndjson')]))\n"
        "sinks.start()\n"
        "rig = Rigged(ListSource([*records(250), *[Marker.PAUSE] * 100, Marker.CRASH]), sinks=sinks)\n"
        "rig.agent.start()\n"
        "rig.finish()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 137, done.stderr
    written = (tmp_path / "windows.ndjson").read_bytes()
    assert b'"end"' not in written
    assert written.count(b"\n") <= 2
    assert not written or written.endswith(b"\n"), "whole lines or none"


@pytest.mark.usefixtures("hurried")
def test_a_window_closes_by_age_when_the_clock_says_so(rigged: New) -> None:
    rig = rigged(ListSource(records(30)))
    rig.agent.start()
    until(lambda: pending(rig) == 30, "30 answers wait")
    rig.clock.advance(59)
    settle(rig)
    assert rig.sizes == []
    rig.clock.advance(2)
    until(lambda: bool(rig.sizes), "the window closed")
    assert rig.sizes == [(30, "age")]


@pytest.mark.usefixtures("hurried")
def test_a_clock_that_jumps_back_makes_no_window_older_or_younger(rigged: New) -> None:
    source = ListSource([*records(100), *records(30, seed=2, start=1.8e9)], per_read=100)
    gated = Gated()
    rig = rigged(source, engine=gated)
    rig.agent.start()
    rig.clock.advance(-500)
    gated.gate.set()
    until(lambda: pending(rig) == 30, "30 answers wait")
    rig.clock.advance(530)  # 30 s after the start; 530 s after what the clock said when they came
    settle(rig)
    assert rig.sizes == [(100, "size")]
    rig.clock.advance(31)
    until(lambda: len(rig.sizes) == 2, "the window closed")
    assert rig.sizes[1] == (30, "age")


def pending(rig: Rigged) -> int:
    return sum(series.pending for series in rig.agent.view().engine.series)


def settle(rig: Rigged) -> None:
    """Let the engine's thread make some twenty ticks."""
    threading.Event().wait(0.4)
    assert rig.agent.view().healthy


def test_stopping_drains_what_was_read_and_tells_the_source(rigged: New) -> None:
    gated = Gated()
    source = Counting(records(1000), per_read=100)
    rig = rigged(source, engine=gated)
    rig.agent.start()
    until(lambda: source.reads >= 5, "five chunks wait")
    rig.agent.stop()
    gated.gate.set()
    rig.finish()
    used = 100 * source.reads
    assert rig.agent.view().engine.received == {"list": used}
    assert source.used == used
    assert not source.up, "closed"
    assert sum(size for size, _ in rig.sizes) == used


def test_an_empty_agent_ends_at_once(rigged: New) -> None:
    rig = rigged()
    rig.agent.start()
    rig.finish()
    assert rig.sizes == []
    assert rig.agent.failure is None


def test_an_engine_that_fails_ends_the_agent_unhealthy_with_its_sources_closed(
    rigged: New, caplog: pytest.LogCaptureFixture
) -> None:
    source = ListSource(records(10))
    rig = rigged(source, engine=Broken())
    rig.agent.start()
    rig.finish()
    view = rig.agent.view()
    assert isinstance(rig.agent.failure, ZeroDivisionError)
    assert (view.healthy, view.ready) == (False, False)
    assert "The engine has failed: 0 of 0." in view.reasons
    assert not source.up
    assert source.used is None, "what was not absorbed is not said to be"
    assert "The engine has failed; the agent stops." in caplog.text


def test_run_ends_with_1_when_the_engine_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in.ndjson").write_bytes(ndjson(records(10)))
    config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
    monkeypatch.setattr(Engine, "absorb", Broken.absorb)
    caplog.set_level(logging.INFO, "blindsight")
    assert daemon_module.run(str(write_configuration(tmp_path, config))) == 1
    assert "Stopping: the engine has failed." in caplog.text


@pytest.mark.usefixtures("hurried")
def test_an_engine_that_makes_no_step_is_unhealthy_until_it_does(
    rigged: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_STALLED_SECONDS", 0.2)
    gated = Gated()
    rig = rigged(ListSource(records(10)), engine=gated)
    rig.agent.start()
    until(lambda: not rig.agent.view().healthy, "it is seen to stall")
    view = rig.agent.view()
    assert view.reasons == ("The engine has made no step for 0 s.",)
    assert not view.ready
    gated.gate.set()
    until(lambda: rig.agent.view().healthy, "it is healthy again")
    assert rig.agent.view().ready


@pytest.mark.usefixtures("hurried")
def test_a_source_that_fails_is_shown_down_and_tried_again_while_others_go_on(
    rigged: New, caplog: pytest.LogCaptureFixture
) -> None:
    lame = Stumbling([SourceError("The disk is gone")] * 100_000, records(120), name="lame")
    sound = ListSource(records(150, seed=2, model="irm"), name="sound")
    rig = rigged(lame, sound)
    rig.agent.start()
    until(lambda: rig.agent.view().engine.received.get("sound") == 150, "the sound one is read")
    view = rig.agent.view()
    assert lame.failures, "the lame one is still failing"
    assert [(source.name, source.up) for source in view.sources] == [("lame", False), ("sound", True)]
    assert view.reasons == ("Source lame is not connected: The disk is gone",)
    assert (view.ready, view.healthy) == (False, True)
    lame.failures.clear()
    until(lambda: rig.agent.view().engine.received.get("lame") == 120, "the lame one is read")
    assert rig.agent.view().ready
    assert caplog.text.count("lame: The disk is gone. Trying again every 0 s.") == 1, "once, not every time"


@pytest.mark.usefixtures("hurried")
def test_a_failure_of_ours_in_one_source_does_not_end_the_others(
    rigged: New, caplog: pytest.LogCaptureFixture
) -> None:
    lame = Stumbling([KeyError("bug")], [*records(120), Marker.END], name="lame")
    sound = ListSource([*records(150, seed=2, model="irm"), Marker.END], name="sound")
    rig = rigged(lame, sound)
    rig.agent.start()
    rig.finish()
    assert rig.agent.view().engine.received == {"lame": 120, "sound": 150}
    assert "lame: has failed; it reads on." in caplog.text
    assert rig.agent.failure is None


def test_a_slow_engine_bounds_the_queue_and_keeps_the_source_alive(rigged: New) -> None:
    gated = Gated()
    source = Counting([*records(2000), Marker.END], per_read=10)
    rig = rigged(source, engine=gated)
    rig.agent.start()
    until(lambda: source.kept_alive > 5, "the source is kept alive")
    most = agent_module._QUEUE_CHUNKS + 1  # one more is in the engine's hands
    assert source.reads == most
    gated.gate.set()
    rig.finish()
    assert source.reads == 200
    assert rig.agent.view().engine.received == {"list": 2000}


def test_the_end_of_the_agent_is_no_trouble_of_its_sources(rigged: New) -> None:
    rig = rigged(ListSource([*records(150), Marker.END], name="one"), ListSource(records(30), name="two"))
    rig.agent.start()
    until(lambda: rig.agent.view().engine.received == {"one": 150, "two": 30}, "both are read")
    assert not rig.agent.view().ended
    rig.agent.stop()
    rig.finish()
    view = rig.agent.view()
    assert (view.ended, view.healthy, view.ready) == (True, True, False)
    assert [reason.split(" at ")[0] for reason in view.reasons] == [
        "Source one was read to its end",
        "Source two was read to its end",
    ]
    assert [reason.split(": ")[1] for reason in view.reasons] == ["150 answers.", "30 answers."]


def test_it_is_not_ready_before_its_sources_are(rigged: New) -> None:
    class Away(ListSource):
        there = False

        @property
        def up(self) -> bool:
            return self.there and super().up

    source = Away(records(10))
    rig = rigged(source)
    assert not rig.agent.view().ready, "not started"
    rig.agent.start()
    until(lambda: rig.agent.view().engine.received == {"list": 10}, "it reads")
    assert rig.agent.view().reasons == ("Source list is not connected.",)
    assert not rig.agent.view().ready
    source.there = True
    assert rig.agent.view().ready
    assert rig.agent.view().reasons == ()


def test_a_source_that_cannot_be_had_stops_the_start_and_closes_the_others(rigged: New) -> None:
    class Absent(ListSource):
        def open(self, positions: Mapping[str, int]) -> None:
            raise SourceError("There is no such feed")

    first = ListSource(records(10), name="first")
    rig = rigged(first, Absent([], name="absent"))
    with pytest.raises(SourceError, match="There is no such feed"):
        rig.agent.start()
    assert not first.up


def test_a_source_that_cannot_be_closed_does_not_keep_the_agent(
    rigged: New, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(ListSource):
        def close(self) -> None:
            raise OSError("stuck")

    last = ListSource([Marker.END], name="last")
    rig = rigged(Stuck([Marker.END], name="stuck"), last)
    rig.agent.start()
    rig.finish()
    assert not last.up
    assert "stuck: could not be closed cleanly." in caplog.text


def test_engines_are_replaced_in_order_between_two_chunks(rigged: New) -> None:
    stream = records(150)
    rig = rigged(ListSource(stream))
    rig.agent.start()
    until(lambda: pending(rig) == 50, "50 answers wait")
    narrow = EngineSettings({"t": task(window={"size": 40})})
    level = EngineSettings({"t": task(window={"size": 40}, level=0.8)})
    rig.agent.reconfigure(lambda engine: engine.reconfigured(narrow, {"t"}))
    rig.agent.reconfigure(lambda engine: engine.reconfigured(level, set()))
    stream += records(40, seed=2, start=1.8e9)
    until(lambda: len(rig.sizes) == 3, "a window of the new size is closed")
    assert rig.sizes == [(100, "size"), (50, "end"), (40, "size")]
    levels = [window.estimates[0].result.level for window in rig.sinks.windows]
    assert levels == [0.95, 0.95, 0.8]


def test_how_a_reload_went_is_in_the_view(rigged: New) -> None:
    rig = rigged()
    rig.clock.advance(5)
    rig.agent.note_reload(successful=False)
    assert (rig.agent.view().reload_successful, rig.agent.view().reload_time) == (False, 1.7e9)
    rig.agent.note_reload(successful=True)
    assert (rig.agent.view().reload_successful, rig.agent.view().reload_time) == (True, 1.7e9 + 5)


def test_a_view_never_waits_for_the_engine(rigged: New) -> None:
    gated = Gated()
    rig = rigged(ListSource(records(10)), engine=gated)
    rig.agent.start()
    view = rig.agent.view()
    assert view.engine.received == {}
    assert view.healthy
    gated.gate.set()


def test_rows_that_a_mapping_leaves_are_told_once_and_counted(
    rigged: New, hurried: None, caplog: pytest.LogCaptureFixture
) -> None:
    stream = records(20)
    several = [{"id": row["id"], "predictions": [row["scores"], row["scores"]]} for row in stream]
    source = ListSource([*several, Marker.PAUSE, *several, Marker.END])
    mapping = FieldMapping(id="id", scores="predictions[0]", constants=Constants(model="m"))
    rig = rigged(source, wire=MappedWire(mapping))
    rig.agent.start()
    rig.finish()
    lines = [each.getMessage() for each in caplog.records if "several rows" in each.getMessage()]
    assert lines == [
        "list: records hold several rows, of which the mapping reads predictions[0] alone. The others are "
        "counted in blindsight_rows_left_total, and not used. `blindsight doctor` looks for a format that "
        "takes them all; or write one row a record."
    ]
    assert rig.agent.view().engine.rows_left == {"list": 40}


def test_labels_that_name_requests_of_several_rows_are_told_too(caplog: pytest.LogCaptureFixture) -> None:
    notice = UnjoinedLabels()
    notice.note(Chunk("a", ids={"t": SampleIds(answer="r-1:0")}))
    notice.note(Chunk("b", ids={"t": SampleIds(label="r-1")}))
    for ambiguous in (49, 50, 60):
        notice.check(EngineView(labels={("t", LabelOutcome.AMBIGUOUS): ambiguous}))
    (line,) = caplog.messages
    assert line.startswith(
        'Task t: 50 labels have come, and none has found an answer so far: answers have "r-1:0" (a-9:9), '
        'labels "r-1" (a-9).'
    )


def labels_of(stream: list[dict[str, Any]], id_: str) -> list[dict[str, Any]]:
    return [{"id": id_.format(row["id"]), "label": "bad"} for row in stream]


@pytest.mark.parametrize(
    ("n", "id_", "ended", "sentence"),
    [
        (60, "order-{}", False, "60 labels have come, and none has found an answer so far"),
        (60, "{}", False, ""),
        (49, "order-{}", False, ""),
        (2, "order-{}", True, "2 labels have come, and none has found an answer so far"),
        (1, "order-{}", True, "1 label has come"),
    ],
)
def test_labels_that_never_join_are_told_once_with_what_the_ids_look_like(
    rigged: New, hurried: None, caplog: pytest.LogCaptureFixture, n: int, id_: str, ended: bool, sentence: str
) -> None:
    stream = records(n)
    labels = labels_of(stream, id_)
    source = ListSource([*stream, *labels, Marker.PAUSE, *labels, *([Marker.END] if ended else [])])
    rig = rigged(source)
    rig.agent.start()
    if not ended:
        until(lambda: source.used == 3 * n + 1, "everything is used")
        before = rig.agent.view().engine
        until(lambda: rig.agent.view().engine is not before, "it is looked at again")
        rig.agent.stop()
    rig.finish()
    lines = [each.getMessage() for each in caplog.records if "none has found" in each.getMessage()]
    assert len(lines) == bool(sentence)
    for line in lines:
        assert line.startswith(f"Task t: {sentence}")
        assert f'answers have "{stream[0]["id"]}" (a-9-9), labels "order-erm-1700000000-' in line
        assert "`blindsight doctor` compares the sources" in line
