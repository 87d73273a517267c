"""Requests to a running agent: each done once, whatever is killed when; none of them stops it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.agent.agent import Agent
from monitor.agent.checkpoints import CheckpointWriter
from monitor.agent.requests import MOST_BYTES, OperatorRequest, RequestFolder, RequestHandler
from monitor.agent.resume import resume, tasks_as_json
from monitor.agent.shards import Kept
from monitor.base.errors import RequestError
from monitor.base.results import Outcome
from monitor.base.source import Input
from monitor.config.layouts import layouts
from monitor.engine.engine import Engine
from monitor.store import Store
from monitor.testing import ListSinks, ListSource
from tests.services.process import PATIENCE_SECONDS, wait_until
from tests.streams import Rig, answers

AN_ID = "01700000000000000000-0123abcd"


@pytest.fixture
def folder(tmp_path: Path) -> RequestFolder:
    return RequestFolder(tmp_path)


def count(engine: Engine, request: OperatorRequest) -> str:
    """Return a handler whose effect shows how often it ran: the sequence is saved with everything else."""
    if request.body.get("refuse"):
        raise RequestError("it may not be")
    if request.body.get("fail"):
        raise ZeroDivisionError("0 of 0")
    engine._labels_rejected["asked"] += 1
    return f"Counted {request.body.get('what', '')}."


class Running:
    """An agent with a store and a desk, on a list."""

    def __init__(self, store: Path) -> None:
        rig = Rig()
        opened = Store(store)
        self.engine = resume(rig.settings, opened.load()).engine
        self.keeper = CheckpointWriter(opened)
        self.keeper.start()
        source = ListSource(answers(np.random.default_rng(0), 30))
        inputs = [Input(source, Decoder(layouts(dict(rig.settings.tasks)), source.name).decode)]
        desk = RequestHandler(RequestFolder(store), {"count": count})
        kept = Kept(self.keeper, 60.0, tasks_as_json(dict(rig.settings.tasks)), (), desk)
        self.agent = Agent(self.engine, inputs, ListSinks(), store=kept)

    def __enter__(self) -> Running:
        self.agent.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.stop()
        assert self.agent.wait(PATIENCE_SECONDS)
        self.keeper.close(5)


def counted(store: Path) -> tuple[int, dict[str, list]]:
    """Return how often the handler ran, and the kept answers, at the last checkpoint."""
    opened = Store(store)
    engine = opened.load().parts["engine"]
    opened.close()
    return engine["labels_rejected"].get("asked", 0), engine["answered"]


def test_requests_are_private_files_in_their_order(folder: RequestFolder) -> None:
    numbers = [folder.place("count", {"what": i}, now=1.7e9 + i) for i in (2, 1, 3)]
    assert folder.waiting() == [numbers[1], numbers[0], numbers[2]]
    assert folder.read(numbers[0]) == OperatorRequest(numbers[0], "count", 1.7e9 + 2, {"what": 2})
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()}
    assert modes == {f"{number}.json": 0o600 for number in numbers}


def test_no_folder_is_no_request(folder: RequestFolder) -> None:
    assert folder.waiting() == []


def test_a_request_that_is_too_long_is_refused_where_it_is_asked(folder: RequestFolder) -> None:
    with pytest.raises(RequestError, match=r"the request has 1,048,6\d\d bytes; at most 1,048,576 can be"):
        folder.place("count", {"what": "x" * MOST_BYTES})
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "damaged: Input data was truncated"),
        (b'{"kind": "count", "time": 1.0, "bo', "damaged: Input data was truncated"),
        (b'{"kind": "count", "time": 1.0}', "damaged: Object missing required field `body`"),
        (b'{"kind": 3, "time": 1.0, "body": {}}', "damaged: Expected `str`, got `int` - at `$.kind`"),
        (b'{"kind": "count", "time": 1, "body": {}, "x": 1}', "Object contains unknown field `x`"),
        (b"\xff\xfe", "damaged: "),
        (b" " * (MOST_BYTES + 1), "longer than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_request_is_refused_with_the_reason(
    folder: RequestFolder, content: bytes, why: str
) -> None:
    folder.path.mkdir()
    (folder.path / f"{AN_ID}.json").write_bytes(content)
    with pytest.raises(RequestError, match=f"request {AN_ID} is ") as refused:
        folder.read(AN_ID)
    assert why in str(refused.value)


def test_neither_a_link_nor_a_pipe_nor_a_folder_is_read(folder: RequestFolder, tmp_path: Path) -> None:
    folder.path.mkdir()
    place, secret = folder.path / f"{AN_ID}.json", tmp_path / "secret"
    secret.write_text('{"kind": "count", "time": 1, "body": {}}')
    place.symlink_to(secret)
    with pytest.raises(RequestError, match=r"cannot be read: .*ask as the agent's user"):
        folder.read(AN_ID)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(RequestError, match="is not a plain file"):
        folder.read(AN_ID)
    place.unlink()
    place.mkdir()
    with pytest.raises(RequestError, match=r"is not a plain file|cannot be read: Is a"):
        folder.read(AN_ID)


def test_answers_that_nobody_collects_are_bounded(folder: RequestFolder) -> None:
    folder.path.mkdir()
    for i in range(103):
        folder.answer(f"{i:020d}-00000000", Outcome(True, str(i)))
    assert len(list(folder.path.glob("*.done"))) == 100
    assert folder.collect(f"{102:020d}-00000000", 0) == Outcome(True, "102")
    assert folder.collect(f"{2:020d}-00000000", 0) is None


def test_an_agent_acts_once_saves_answers_and_clears_up(tmp_path: Path, folder: RequestFolder) -> None:
    with Running(tmp_path) as running:
        numbers = [folder.place("count", {"what": i}) for i in range(3)]
        outcomes = [folder.collect(number, PATIENCE_SECONDS) for number in numbers]
        assert outcomes == [Outcome(True, f"Counted {i}.") for i in range(3)]
        wait_until(lambda: not folder.waiting(), "the requests are removed")
        assert running.agent.view().healthy
    assert counted(tmp_path)[0] == 3
    assert list(folder.path.iterdir()) == []


def test_refusals_failures_and_unknown_kinds_are_answered_and_stop_nothing(
    tmp_path: Path, folder: RequestFolder, caplog: pytest.LogCaptureFixture
) -> None:
    with Running(tmp_path) as running:
        requests = [
            ("count", {"refuse": 1}),
            ("count", {"fail": 1}),
            ("cuont", {}),
            ("zap", {}),
            ("count", {}),
        ]
        outcomes = [folder.collect(folder.place(kind, body), PATIENCE_SECONDS) for kind, body in requests]
        assert running.agent.view().healthy
    assert [answer.text for answer in outcomes if not answer.done] == [
        "it may not be.",
        "It failed with ZeroDivisionError('0 of 0'); the agent's log has the details.",
        "kind: 'cuont' is not known to this agent; did you mean count? Use the command of the agent's own "
        "version.",
        "kind: 'zap' is not known to this agent; known are count. Use the command of the agent's own "
        "version.",
    ]
    assert outcomes[4] == Outcome(True, "Counted .")
    assert "Asked for count, refused: it may not be." in caplog.text


def test_damaged_and_misnamed_files_are_put_aside(
    tmp_path: Path, folder: RequestFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.path.mkdir()
    (folder.path / f"{AN_ID}.json").write_bytes(b"{")
    (folder.path / "mine.json").write_bytes(b"{}")
    (folder.path / "notes.txt").write_bytes(b"not ours")
    with Running(tmp_path):
        damaged = folder.collect(AN_ID, PATIENCE_SECONDS)
        assert folder.collect(folder.place("count", {}), PATIENCE_SECONDS) == Outcome(True, "Counted .")
    assert damaged is not None
    assert not damaged.done
    assert f"request {AN_ID} is damaged: Input data was truncated; ask again" in damaged.text
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == [f"{AN_ID}.refused", "mine.refused", "notes.txt"]
    assert "A request was refused: request" in caplog.text


def test_requests_wait_while_nothing_can_be_saved(tmp_path: Path, folder: RequestFolder) -> None:
    with Running(tmp_path) as running:
        commit = running.keeper._store.commit

        def refuse(*_: object) -> int:
            from monitor.base.errors import StoreError

            raise StoreError("no room")

        running.keeper._store.commit = refuse
        number = folder.place("count", {})
        wait_until(lambda: running.agent.view().store_failures > 0, "saving fails")
        assert folder.collect(number, 0.3) is None, "what is not saved is not said to be done"
        running.keeper._store.commit = commit
        running.agent.stop()  # which saves
        assert folder.collect(number, PATIENCE_SECONDS) == Outcome(True, "Counted .")
    assert counted(tmp_path)[0] == 1


KILLED = """
    import os, sys
    from pathlib import Path
    from monitor.agent.requests import RequestFolder
    from monitor.store import Store
    import tests.agent.test_requests as own
    owner = {"commit": Store, "answer": RequestFolder, "remove": RequestFolder, "count": own}[sys.argv[2]]
    whole = getattr(owner, sys.argv[2])

    def killing(*arguments):
        if sys.argv[3] == "before":
            os._exit(137)
        found = whole(*arguments)
        os._exit(137)

    setattr(owner, sys.argv[2], killing)
    with own.Running(Path(sys.argv[1])) as running:
        running.agent.wait(own.PATIENCE_SECONDS)
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["count", "commit", "answer", "remove"])
def test_a_kill_around_any_step_does_it_once(
    tmp_path: Path, folder: RequestFolder, step: str, when: str
) -> None:
    with Running(tmp_path):
        pass  # a store with a state in it
    number = folder.place("count", {})
    arguments = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), step, when]
    assert subprocess.run(arguments, check=False, timeout=PATIENCE_SECONDS).returncode == 137
    with Running(tmp_path):
        assert folder.collect(number, PATIENCE_SECONDS) == Outcome(True, "Counted .")
        wait_until(lambda: not folder.waiting(), "the request is removed")
        time.sleep(1.2)  # another look: nothing is done again
    assert counted(tmp_path)[0] == 1
