"""`blindsight verify` of windows between whose rows another member of a group read: several stretches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from connectors.formats.decode.decoder import Decoder
from monitor.base.source import RawMessages
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.engine.engine import EngineSettings
from monitor.reports.window_report import WindowReport
from monitor.store import Store
from tests.cli.verify.test_verify import clean, counts, verify
from tests.daemon import configuration, write_configuration
from tests.streams import Record, answers

pytestmark = pytest.mark.process

OTHERS = ((130, 175), (260, 310), (330, 360), (700, 750))
"""Messages that another member used: two stretches of them fall into one window."""

SETTINGS = configuration(store={"path": "state"}, sources=[{"kind": "stdin"}])


def messages(n: int, seed: int = 3) -> list[bytes]:
    rows: list[Record] = answers(np.random.default_rng(seed), n)
    return [msgspec.json.encode(row) for row in rows]


def used_in_turns(folder: Path, values: list[bytes], partition: str = "topic-0") -> list[WindowReport]:
    """Return an engine that uses what no other member did, and the store of it."""
    config = Config.model_validate(SETTINGS)
    decode = Decoder(layouts(config.tasks), "kafka").decode
    engine = EngineSettings(config.tasks, {}).build()
    store = Store(folder / "state")
    reports: list[WindowReport] = []
    edges = [0, *(edge for stretch in OTHERS for edge in stretch), len(values)]
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        raw = RawMessages(values[start:stop], partition, list(range(start, stop)), after_others=start > 0)
        reports += engine.absorb(decode([raw]), 1.8e9)
    store.commit(engine.changes(), reports)
    store.close()
    return reports


def dump(folder: Path, values: list[bytes], partition: int = 0) -> str:
    """Write messages as Kafka's console consumer prints them, with partition and offset."""
    lines = [b"Partition:%d\tOffset:%d\t%s\n" % (partition, i, value) for i, value in enumerate(values)]
    (folder / "dump.txt").write_bytes(b"".join(lines))
    return "topic=dump.txt"


@pytest.fixture
def ran(tmp_path: Path) -> tuple[Path, list[bytes], list[WindowReport]]:
    values = messages(1000)
    write_configuration(tmp_path, SETTINGS)
    return tmp_path, values, used_in_turns(tmp_path, values)


Ran = tuple[Path, list[bytes], list[WindowReport]]


def test_windows_of_several_stretches_verify_clean(ran: Ran) -> None:
    folder, values, reports = ran
    assert {len(report.positions["topic-0"]) for report in reports} == {2, 4, 6}
    done = verify(folder, "--partition", dump(folder, values))
    assert (counts(done), done.returncode, done.stderr) == (clean(len(reports)), 0, "")


def test_what_another_member_used_may_say_anything(ran: Ran) -> None:
    folder, values, reports = ran
    for start, stop in OTHERS:
        values[start:stop] = messages(stop - start, seed=start)
    done = verify(folder, "--partition", dump(folder, values))
    assert (counts(done), done.returncode) == (clean(len(reports)), 0)


@pytest.mark.parametrize(("first", "last"), [(120, 129), (175, 176), (255, 259), (310, 311), (329, 329)])
def test_a_changed_row_at_the_end_of_any_stretch_is_found(ran: Ran, first: int, last: int) -> None:
    folder, values, _ = ran
    for i in range(first, last + 1):
        record: dict[str, Any] = json.loads(values[i])
        values[i] = msgspec.json.encode(record | {"scores": [0.5, 0.5]})
    done = verify(folder, "--partition", dump(folder, values))
    assert (counts(done)["different"], done.returncode) == (1, 1)
    assert "estimates.accuracy.value was reported as" in done.stdout


def test_a_row_that_is_gone_shortens_its_stretch(ran: Ran) -> None:
    folder, values, _ = ran
    values[129] = b"{}"
    done = verify(folder, "--partition", dump(folder, values))
    assert counts(done)["different"] == 1
    assert "size was reported as 100, recomputed as 99" in done.stdout
