from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from monitor.base.errors import ConfigError, StoreError
from monitor.cli.state import back_up
from monitor.store import Store
from monitor.store.store import FILE, copy_store
from tests.daemon import DaemonProcess, command, configuration, ndjson, read_lines
from tests.services.kafka_topics import read_topic
from tests.streams import answers

CONFIG = "tasks: {t: {classes: [ok, bad]}}\n"


def test_a_backup_is_a_whole_store(tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG + "store: {path: state}\n")
    store = Store(tmp_path / "state")
    message = back_up(str(tmp_path / "c.yaml"), tmp_path / "copy")
    store.close()
    assert message.endswith(
        "copy: the store as of its last checkpoint. To restore it, put it back as blindsight.sqlite."
    )
    connection = sqlite3.connect(tmp_path / "copy")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_who_reads_a_backup_leaves_nothing_beside_it(tmp_path):
    Store(tmp_path / "state").close()
    (tmp_path / "kept").mkdir()
    copy_store(tmp_path / "state" / FILE, tmp_path / "kept" / "copy")
    with closing(sqlite3.connect(f"file:{tmp_path / 'kept' / 'copy'}?mode=ro", uri=True)) as reader:
        assert reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["copy"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["copy"]


def test_what_cannot_be_backed_up_is_said(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigError, match="store: there is none in this configuration"):
        back_up(str(path), tmp_path / "copy")
    path.write_text(CONFIG + "store: {path: state}\n")
    with pytest.raises(StoreError, match="there is no store"):
        back_up(str(path), tmp_path / "copy")
    with pytest.raises(ConfigError, match="exists already; give a new file"):
        back_up(str(path), path)


def add(path, models, first, count):
    """Append `count` answers of each model, from the place `first` in their streams on."""
    with path.open("ab") as file:
        for place, model in enumerate(models):
            file.write(ndjson(answers(np.random.default_rng(place), first + count, model)[first:]))


def kept(lines):
    """Return the lines that a reader keeps by the rules of docs/reports.md."""
    newest = {}
    for line in lines:
        series = line["task"], line["model"], line["group"]
        if line.get("kind") == "restore":
            newest = {
                key: held for key, held in newest.items() if key[:3] != series or key[3] < line["window"]
            }
        else:
            newest[*series, line["window"]] = line
    return newest


def marks(lines):
    return sorted((line["model"], line["window"]) for line in lines if line.get("kind") == "restore")


def test_after_a_restore_each_sink_tells_once_which_windows_come_again(tmp_path, kafka_broker):
    kafka_broker.create_topic("restored-windows", 3)
    feed, reports, copy = tmp_path / "in.ndjson", tmp_path / "windows.ndjson", tmp_path / "copy"
    feed.touch()
    config = configuration(
        sources=[{"kind": "file", "path": str(feed), "follow": True}],
        reports={
            "path": str(reports),
            "kafka": {"brokers": [kafka_broker.address], "topic": "restored-windows"},
        },
        store={"path": str(tmp_path / "state"), "every_seconds": 0.1},
    )

    def run(windows, step=None):
        """Run until both sinks have this many lines; return the output."""
        with DaemonProcess(tmp_path, config) as daemon:
            if step is not None:
                step(daemon)
            daemon.until(lambda: len(read_lines(reports)) >= windows, f"{windows} lines in the file")
            daemon.until(lambda: len(read_topic(kafka_broker, "restored-windows")) >= windows, "and sent")
            assert daemon.end()[0] == 0
            return daemon.log

    def back_up_between(daemon):
        add(feed, ("erm", "irm"), 0, 250)
        daemon.until(lambda: len(read_lines(reports)) == 4, "two windows each")
        assert command("backup", daemon.config, copy).returncode == 0
        add(feed, ("erm", "irm"), 250, 200)
        add(feed, ("new",), 0, 150)

    assert "restore" not in run(9, back_up_between)
    before = read_lines(reports)
    (tmp_path / "state").rename(tmp_path / "old")
    (tmp_path / "state").mkdir()
    copy.rename(tmp_path / "state" / FILE)

    output = run(9 + 2 + 5)

    assert "what was reported since may be reported again; lines of kind restore tell readers" in output
    lines = read_lines(reports)
    assert (lines[:9], marks(lines)) == (before, [("erm", 2), ("irm", 2)])
    assert marks(lines[9:11]) == marks(lines), "they come before all that is reported again"
    assert [line["revision"] for line in lines[9:11]] == [-1, -1]
    assert kept(lines) == kept(before)
    messages = read_topic(kafka_broker, "restored-windows")
    sent = [json.loads(each.value) for each in messages]
    assert (len(sent), marks(sent), kept(sent)) == (len(lines), marks(lines), kept(before))
    numbered = {(each.headers["blindsight-store"], each.headers["blindsight-report"]) for each in messages}
    assert (len(numbered), len({store for store, _ in numbered})) == (len(messages), 2)
    places = {(json.loads(each.value)["model"], each.partition) for each in messages}
    assert len(places) == 3, "a series and its mark are in one partition"

    add(feed, ("erm",), 450, 100)
    assert "restore" not in run(9 + 2 + 5 + 1)
    assert marks(read_lines(reports)) == marks(lines), "they come once"
    assert command("report", tmp_path / "state", "--out", tmp_path / "report.html").returncode == 0
