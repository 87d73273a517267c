"""blindsight verify of records that were read from Kafka."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.cli.verify.test_verify import clean, config, counts, records, verify
from tests.daemon import DaemonProcess, ndjson, read_windows
from tests.services.kafka_broker import KafkaBroker
from tests.services.kafka_reading import JOIN_FAST
from tests.services.process import PATIENCE_SECONDS


def dump(broker: KafkaBroker, topic: str, messages: int, *more: str) -> bytes:
    """Return the output of Kafka's own console consumer on a topic that has `messages` messages."""
    words = ["--bootstrap-server", broker.address, "--topic", topic, "--from-beginning"]
    words += ["--max-messages", str(messages)]
    shown = [word for each in ("partition", "offset") for word in ("--property", f"print.{each}=true")]
    program = broker._java("org.apache.kafka.tools.consumer.ConsoleConsumer", *words, *shown, *more)
    return subprocess.run(program, capture_output=True, timeout=PATIENCE_SECONDS, check=True).stdout


def test_two_partitions_verify_from_what_kafkas_own_consumer_prints(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("checked", 2)
    rows = records(2000)
    plain = [ndjson([row]).rstrip(b"\n") for row in rows[:1500]]
    # Messages of many records: windows are full in the middle of one. Arrays, and lines.
    usable = [row for row in rows[1500:] if not isinstance(row, bytes)]
    many = [
        json.dumps(usable[i : i + 37]).encode() if i % 74 else ndjson(usable[i : i + 37]).rstrip(b"\n")
        for i in range(0, len(usable), 37)
    ]
    # The same id in the other partition, windows later: it was used once.
    sent = [*plain, *many, plain[0], plain[1]]
    kafka_broker.produce("checked", sent, partitions=2)
    source = {"kind": "kafka", "brokers": [kafka_broker.address], "topics": ["checked"], "options": JOIN_FAST}
    settings = config(tmp_path, [source])
    with DaemonProcess(tmp_path, settings) as daemon:
        daemon.until(
            lambda: (
                daemon.metrics().value("source_lag_records", source="checked") == 0
                or daemon.metrics().total("predictions_total", model="erm") >= 900
            ),
            "it is read",
        )
        daemon.end()
    windows = read_windows(tmp_path / "windows.ndjson")
    assert any(len(w["positions"]) == 2 for w in windows)
    (tmp_path / "dump.txt").write_bytes(dump(kafka_broker, "checked", len(sent)))
    done = verify(tmp_path, "--partition", "checked=dump.txt")
    assert (counts(done), done.returncode) == (clean(len(windows)), 0), done.stdout
    for n in range(2):
        part = dump(kafka_broker, "checked", len(sent[n::2]), "--partition", str(n))
        (tmp_path / f"dump-{n}.txt").write_bytes(part)
    each = [word for n in range(2) for word in ("--partition", f"checked=dump-{n}.txt")]
    assert counts(verify(tmp_path, *each)) == clean(len(windows)), "a dump a partition"
    first = counts(verify(tmp_path, "--partition", "checked=dump-0.txt"))
    assert (first["different"], first["rows missing"] > 0) == (0, True)
    text = (tmp_path / "dump.txt").read_bytes()
    (tmp_path / "cut.txt").write_bytes(b"".join(text.splitlines(keepends=True)[200:]))
    cut = counts(verify(tmp_path, "--partition", "checked=cut.txt"))
    assert (cut["different"], cut["rows missing"] > 0) == (0, True)
