"""The HTTP source as a whole: restarts, ports, its accounts, and whatever is posted to it."""

from __future__ import annotations

import gzip
import json
import queue
import threading
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.formats.decode.decoder import Decoder
from connectors.http import HttpSource
from monitor.agent.feeder import Feeder
from monitor.base.errors import SourceError
from monitor.base.source import Input
from monitor.config.layouts import layouts
from monitor.config.root import Config
from monitor.engine.engine import EngineSettings
from monitor.export.prometheus.collector import BlindsightCollector
from monitor.reports.views import AgentView
from tests.examples import examples
from tests.posting import HAM, SPAM, Posted, label, ndjson, posting, rest_of, row
from tests.services.process import PATIENCE_SECONDS, wait_until

# --- the whole source -----------------------------------------------------------------------------------


def test_it_goes_on_where_the_engine_was_and_deletes_what_is_used(tmp_path: Path) -> None:
    with posting(tmp_path / "spool") as posted:
        posted.post([row(1), row(2)])
        (raw,) = posted.source.read(1.0)
        position = raw.start + len(raw.data)  # type: ignore[union-attr]
        posted.post(row(3))
    again = Posted(tmp_path / "spool")
    again.open({"spool": position})
    assert (again.source.lag, again.read_rows()) == (1, [row(3)])
    again.close()
    assert not again.source.up


def test_a_port_in_use_is_told_and_the_spool_let_go(posted: Posted, tmp_path: Path) -> None:
    other = Posted(tmp_path / "other", listen=f"127.0.0.1:{posted.source.port}")
    with pytest.raises(SourceError, match=r"listen: cannot listen on 127.0.0.1:.*: the port is in use; stop"):
        other.open()
    assert not other.source.up
    third = Posted(tmp_path / "other")
    third.open()
    third.close()


def test_a_post_in_flight_is_answered_when_it_stops(posted: Posted, held: threading.Event) -> None:
    held.clear()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(posted.post(row(1)).status_code))
    thread.start()
    wait_until(lambda: posted.source._posts._in_memory == 1, "the post waits for the disk")  # type: ignore[union-attr]
    idle = posted.connect()
    timer = threading.Timer(0.2, held.set)
    timer.start()
    posted.source.close()
    thread.join()
    assert answers == [202]
    with idle:
        assert rest_of(idle) == b""


def test_a_server_that_failed_is_started_again_by_the_next_read(posted: Posted) -> None:
    server = posted.source._server
    assert server is not None
    server.stop()
    assert not posted.source.up
    posted.source.read(0.0)
    assert posted.source.up
    assert httpx.post(f"http://127.0.0.1:{posted.source.port}/v1/predictions", json=row(1)).status_code == 202


def test_received_is_used_pending_duplicate_rejected_and_shed_in_the_metrics(tmp_path: Path) -> None:
    """The accounting identity of SPEC section 3, with posts of every kind and the real engine and feeder."""
    spam = {"classes": ["no", "yes"], "window": {"size": 10, "min_size": 10}}
    config = Config(tasks={"spam": spam, "ham": {"classes": ["no", "yes"]}})
    engine = EngineSettings(config.tasks).build()
    spool = {"path": str(tmp_path / "spool"), "max_bytes": 1_000_000}
    with posting(tmp_path, spool=spool, max_body_bytes=250_000) as posted:
        posted.post([row(i) for i in range(25)])
        posted.post([row(3), row(30, scores=[9, 9]), row(31)])
        posted.post(b"nope")
        posted.post([label(i) for i in range(4)], "/v1/labels")
        posted.post([row(40), label(41)])
        lost = {"id": "5", "task": "spam", "model": "m"}
        answer = posted.post([label(5), lost], "/v1/labels").json()
        assert [each["reason"] for each in answer["errors"]] == ["no_label"]
        big = [row(i, padding="x" * 1900) for i in range(1000, 1100)]
        statuses = [posted.post(big).status_code for _ in range(6)]
        assert statuses.count(429) >= 1
        chunks: queue.Queue = queue.Queue()
        feeder = Feeder(Input(posted.source, Decoder(layouts(config.tasks), "http").decode), chunks, 8)
        feeder.start()
        while (seen := engine.view()).received != {"http": 629} or seen.labels_received != {"http": 6}:
            engine.absorb(chunks.get(timeout=PATIENCE_SECONDS)[1], 0.0)
        feeder.stop()
        feeder.join(PATIENCE_SECONDS)
        view = AgentView(engine=engine.view(), sources=(feeder.view(),), reload_time=1.0)
    families = {each.name: each for each in BlindsightCollector(lambda: view, 1000).collect()}

    def total(name: str) -> float:
        return sum(sample.value for sample in families[f"blindsight_{name}"].samples)

    shed = 100 * statuses.count(429)
    assert total("shed") == shed == posted.source.refusals.shed
    assert total("answers_received") == 25 + 3 + 1 + 600
    assert total("rejected") == 2
    assert total("duplicates") == 1 + 100 * (statuses.count(202) - 1)
    parts = ("predictions", "answers_pending", "duplicates", "rejected", "shed")
    assert total("answers_received") == sum(map(total, parts))
    spam_labels = [each for each in families["blindsight_labels"].samples if each.labels["task"] == "spam"]
    outcomes = {each.labels["outcome"]: each.value for each in spam_labels}
    assert (outcomes["matched"], outcomes["rejected"]) == (5, 1)


@settings(examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from([row(1), label(2), {"id": 3}, 7, None]), max_size=4).map(
            lambda rows: json.dumps(rows).encode()
        ),
        st.lists(st.sampled_from([row(1), row(2, scores=[1, 1])]), max_size=4).map(ndjson),
    ),
    path=st.sampled_from(["/v1/predictions", "/v1/labels"]),
    packed=st.booleans(),
    cut=st.integers(0, 20),
)
def test_whatever_is_posted_is_answered_and_handed_out_if_acknowledged(
    posted: Posted, content: bytes, path: str, packed: bool, cut: int
) -> None:
    data = gzip.compress(content, mtime=0) if packed else content
    data = data[: len(data) - cut] if cut < len(data) else data
    answer = posted.post(data, path, content_encoding="gzip" if packed else "identity")
    assert answer.status_code in (202, 400)
    body = answer.json()
    if "accepted" not in body:
        assert answer.status_code == 400
        assert posted.lines() == []
        return
    assert (body["accepted"] > 0) == (answer.status_code == 202)
    raws = posted.source.read(5.0)
    chunk = Decoder([SPAM, HAM], "http").decode(raws)
    good = chunk.labels if path == "/v1/labels" else chunk.batches
    assert body["accepted"] == sum(map(len, good))
    assert body["rejected"] == sum(max(each.answers, 1) for each in chunk.rejects)


def test_it_is_a_source_without_state_before_it_is_opened(tmp_path: Path) -> None:
    source = HttpSource(Posted(tmp_path / "spool").settings, [SPAM])
    assert (source.up, source.lag, source.refusals.shed, source.refusals.labels_shed) == (False, 0, 0, {})
    assert (source.refusals.ignored, set(source.refusals.requests.values())) == (0, {0})
    assert not (tmp_path / "spool").exists()
