"""An arena in a real daemon: kill -9, a restart, replays of every format, the page, the report, `verify`."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.accounting import answers_account, labels_account
from tests.daemon import DaemonProcess, command, ndjson, read_windows, write_configuration
from tests.services.process import end_of, free_ports
from tests.streams import Record, compared


def stream(n: int = 1200) -> list[Record]:
    """Return comparisons whose verdicts come a hundred records later; every 20th comes twice."""
    rng = np.random.default_rng(0)
    records = compared(rng, n, models=("alpha", "beta", "gamma"))
    timed: list[tuple[float, Record]] = []
    for i, record in enumerate(records):
        if "winner" in record:
            verdict = {"id": record["id"], "winner": record.pop("winner"), "time": record["time"] + 100}
            timed.append((i + 100.5, verdict))
        timed += [(i, record)] + ([(i + 7.5, record)] if i % 20 == 0 else [])
    return [record for _, record in sorted(timed, key=lambda row: row[0])]


def config(**rest: Any) -> dict[str, Any]:
    return {
        "tasks": {"chat": {"kind": "arena", "window": {"size": 200}, "models": ["alpha"]}},
        "sources": [{"kind": "file", "path": "in.ndjson", "follow": True}],
        "reports": {"path": "windows.ndjson"},
        "store": {"path": "state", "every_seconds": 0.05},
        "export": {"listen": "127.0.0.1:0"},
    } | rest


def until_used(daemon: DaemonProcess, count: int) -> None:
    daemon.until(
        lambda: daemon.metrics().total("answers_received_total") >= count, f"{count} comparisons are used"
    )


def test_killed_and_restarted_it_writes_the_lines_of_one_left_alone(tmp_path: Path) -> None:
    records = stream()
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "in.ndjson").write_bytes(ndjson(records))
    sources = [{"kind": "file", "path": "in.ndjson"}]
    with DaemonProcess(whole, config(sources=sources)) as daemon:
        assert end_of(daemon.process) == 0, daemon.log
    # Positions are by the path of the file.
    expected = (whole / "windows.ndjson").read_bytes().replace(bytes(whole), bytes(tmp_path))
    assert expected.count(b"\n") == 6

    cuts = [0, 331, 777, len(records)]
    compared_ones = ["model_a" in record for record in records]
    for start, stop in itertools.pairwise(cuts):
        with (tmp_path / "in.ndjson").open("ab") as file:
            file.write(ndjson(records[start:stop]))
        last = stop == len(records)
        with DaemonProcess(tmp_path, config(sources=sources) if last else config()) as daemon:
            if last:
                assert end_of(daemon.process) == 0, daemon.log
                continue
            until_used(daemon, sum(compared_ones[:stop]))
            answers_account(daemon.metrics()).assert_adds_up()
            labels_account(daemon.metrics()).assert_adds_up()
            daemon.send(signal.SIGKILL)
            end_of(daemon.process)
    assert (tmp_path / "windows.ndjson").read_bytes() == expected

    done = command("report", "state", "--out", "report.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "Arena chat" in page
    assert "Models of chat" in page
    done = command("verify", "config.yaml", "state", "in.ndjson", cwd=tmp_path)
    assert "6: windows of arenas are not recomputed" in done.stdout


def test_metrics_and_the_page_say_how_the_models_stand_also_after_a_restart(tmp_path: Path) -> None:
    records = stream(500)
    (tmp_path / "in.ndjson").write_bytes(ndjson(records))
    count = sum("model_a" in record for record in records)
    scrapes = []
    for _ in range(2):
        with DaemonProcess(tmp_path, config()) as daemon:
            until_used(daemon, count)
            metrics = daemon.metrics()
            page = daemon.get("/")[1]
            ranks = tuple(f"rank{by}_{end}" for by in ("", "_chi_square") for end in ("best", "worst"))
            names = ("arena_coefficient", *ranks, "arena_comparisons", "comparisons_total")
            scrapes.append({name: metrics.all(name, task="chat") for name in names})
            assert metrics.value("arena_coefficient", task="chat", model="alpha") == 0.0
            assert "Arena chat" in page
            assert "0, the reference" in page
            assert page.index(">gamma<") < page.index(">alpha<"), "the best first"
    assert scrapes[0]["comparisons_total"] == {(("task", "chat"),): 400.0}
    assert len(scrapes[0]["rank_best"]) == len(scrapes[0]["rank_chi_square_worst"]) == 3
    first, second = ({k: list(v) for k, v in each.items()} for each in scrapes)
    assert first == second
    for name, values in scrapes[0].items():
        assert list(scrapes[1][name].values()) == pytest.approx(list(values.values()), abs=1e-6)


def test_replays_of_every_format_write_the_same_windows(tmp_path: Path) -> None:
    records = stream(600)
    write_configuration(tmp_path, config(sources=[]))
    (tmp_path / "a.ndjson").write_bytes(ndjson(records))
    names = sorted({name for record in records for name in record})
    rows = [",".join(names)] + [",".join(str(r.get(name, "")) for name in names) for r in records]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {name: [record.get(name) for record in records] for name in names}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    replays = []
    for name in ("a.ndjson", "a.csv", "a.parquet"):
        done = command("replay", "config.yaml", name, "--out", name + ".out", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Arena chat" in (tmp_path / f"{name}.out" / "report.html").read_text()
        lines = read_windows(tmp_path / f"{name}.out" / "windows.ndjson")
        replays.append([{k: v for k, v in line.items() if k != "positions"} for line in lines])
    assert replays[0] == replays[1] == replays[2]
    assert [line["size"] for line in replays[0]] == [200, 200, 200]
    assert {m["model"] for m in replays[0][-1]["models"]} == {"alpha", "beta", "gamma"}


def test_comparisons_and_verdicts_are_posted_over_http(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    source = {"kind": "http", "listen": f"127.0.0.1:{port}", "spool": {"path": "spool"}}
    with DaemonProcess(tmp_path, config(sources=[source])) as daemon:
        daemon.until_value(1, "source_up", source="http")
        pair = {"id": "1", "model_a": "alpha", "model_b": "beta", "judge_b": 0.5}
        for path, record, status in (
            ("predictions", pair, 202),
            ("labels", {"id": "1", "winner": "tie"}, 202),
            ("labels", pair, 400),
            ("predictions", {"id": "1", "winner": "nobody"}, 400),
        ):
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/{path}", json=record)
            assert answer.status_code == status, answer.text
        daemon.until_value(1, "labels_total", task="chat", outcome="matched")
        daemon.until_value(1, "comparisons_pending", task="chat")
