"""`blindsight demo --full` on a sixth of the flights: what it prints, what it leaves, what it refuses."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from monitor.base.records import Ints
from monitor.cli.demo.flights import Flights
from monitor.cli.demo.live import free_address, poured
from monitor.cli.demo.stream import DemoData, prepare
from tests.daemon import command, read_windows
from tests.services.process import PATIENCE_SECONDS, programs_a_core

_WATCHED = """
import pickle, sys
from rich.console import Console
from monitor.cli.demo_screen import watch
if __name__ == "__main__":
    data = pickle.loads(open(sys.argv[1], "rb").read())
    console = Console(width=80, force_terminal=False)
    raise SystemExit(watch(console, data, "127.0.0.1:0", 0, explain=True, stay=True))
"""


@dataclass(frozen=True)
class Shown:
    """The prepared stream, and the output of a demo of it at 80 columns, its last page, and its exit code
    after Ctrl-C.
    """

    data: DemoData
    stream: bytes
    text: str
    page: httpx.Response
    code: int


@pytest.fixture(scope="module")
def shown(
    flights: Flights, take: Callable[[Ints], Flights], tmp_path_factory: pytest.TempPathFactory
) -> Shown:
    """Show every sixth flight, whose windows may be older."""
    some = take(np.arange(0, len(flights), 6))
    folder = tmp_path_factory.mktemp("demo")
    data = prepare(folder / "shown", seed=3, flights=some)
    config = data.config.read_text(encoding="utf-8")
    assert "max_age_seconds: 172800" in config
    data.config.write_text(config.replace("172800", "864000"), encoding="utf-8")
    stream = data.stream.read_bytes()
    (folder / "data.pickle").write_bytes(pickle.dumps(data))
    (folder / "watched.py").write_text(_WATCHED, encoding="utf-8")
    words = [sys.executable, str(folder / "watched.py"), str(folder / "data.pickle")]
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        text = ""
        try:
            while "Ctrl-C ends the demo" not in text:
                line = demo.stdout.readline()
                assert line, f"it ended before: {text}"
                text += line
            [*_, address] = re.findall(r"The page is still there: (\S+)", text)
            page = httpx.get(address, timeout=PATIENCE_SECONDS * programs_a_core())
        finally:
            demo.send_signal(signal.SIGINT)
        return Shown(data, stream, text, page, demo.wait(PATIENCE_SECONDS * programs_a_core()))


def test_the_live_table_and_the_summary_agree_on_alarms(shown: Shown) -> None:
    data, text = shown.data, shown.text
    alarm_texts = dict(re.findall(r"\* (\w+): its 95 %.*? off by \d+\.\d\. (.*?)\.", " ".join(text.split())))
    windows = read_windows(data.reports)
    for model in data.models:
        for metric, name in (("accuracy", "accuracy"), ("ece", "ECE")):
            own = [w["charts"] for w in windows if w["model"] == model]
            flags = [next(c["out_of_control"] for c in charts if c["metric"] == metric) for charts in own]
            alarms = sum(flag and not before for flag, before in zip(flags, [False, *flags], strict=False))
            plural = "s" if alarms > 1 else ""
            expected = f"{alarms} {name} alarm{plural}," if alarms else f"no {name} alarm"
            assert expected.lower() in alarm_texts[model].lower(), (model, alarm_texts[model])


def test_every_metric_has_its_picture_with_a_chart_a_model(shown: Shown) -> None:
    data, text = shown.data, shown.text
    for name, metric in (("control-charts.svg", "accuracy"), ("control-charts-ece.svg", "ece")):
        picture = (data.config.parent / name).read_text()
        assert [f"{model}: {metric} of delay predictions" in picture for model in data.models] == [True] * 4
        assert "turned out (all flights)" in picture
        assert str(data.config.parent / name) in text


def test_the_stream_keeps_its_name_and_the_positions_lead_into_it(
    shown: Shown,
) -> None:
    data, stream = shown.data, shown.stream
    assert data.stream.read_bytes() == stream
    for window in read_windows(data.reports)[:8]:
        ((path, (first, last)),) = window["positions"].items()
        assert path == str(data.stream)
        for position in (first, last):
            assert position == 0 or stream[position - 1 : position] == b"\n"
            assert stream[position : position + 1] == b"{"
    assert sorted(path.name for path in data.config.parent.iterdir()) == [
        *("config.yaml", "control-charts-ece.svg", "control-charts.svg", "flights.ndjson"),
        *("reference.ndjson", "report.html", "truth.npz", "windows.ndjson"),
    ]


def test_what_is_left_on_the_disk_is_told(shown: Shown) -> None:
    data, text = shown.data, shown.text
    size = sum(path.stat().st_size for path in data.config.parent.rglob("*") if path.is_file()) / 1e6
    assert f"stay in {data.config.parent}: {size:.0f} MB. Delete the folder" in text


def test_no_table_and_no_sentence_is_cut_at_80_columns(shown: Shown) -> None:
    data, text = shown.data, shown.text
    lines = [line.rstrip() for line in text.splitlines() if str(data.config.parent) not in line]
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    intervals = re.findall(r"\d\d\.\d \(\d\d\.\d–\d\d\.\d\)|\d\d\.\d \(\d\d\.\d–100\.0\)", text)
    assert len(intervals) == len(data.models)
    of_models = 9 + 1  # by month, and in the row of the year
    assert text.count(" → ") == of_models * len(data.models) + 1, "and a heading"


def test_the_report_stands_beside_the_windows(shown: Shown) -> None:
    data, text = shown.data, shown.text
    report = (data.config.parent / "report.html").read_text(encoding="utf-8")
    assert all(f"{model}</" in report for model in data.models)
    assert f"Report: {data.config.parent / 'report.html'}" in text


def test_the_page_stays_until_ctrl_c(shown: Shown) -> None:
    assert shown.page.status_code == 200
    assert all(model in shown.page.text for model in shown.data.models)
    assert shown.code == 0


def test_a_row_a_model_says_how_the_estimates_did(shown: Shown) -> None:
    for model in shown.data.models:
        row = rf"{model} +[▁▂▃▄▅▆▇█]{{9}} +[▁▂▃▄▅▆▇█]{{9}} +\d+ % +\d+, \d+ +\d+\.\d → \d+\.\d points\n"
        assert len(re.findall(row, re.sub(" +\n", "\n", shown.text))) == 1, model


def test_an_interrupted_demo_leaves_the_whole_stream(tmp_path: Path) -> None:
    stream = tmp_path / "flights.ndjson"
    stream.write_bytes(b"x" * 1_000_000)
    halves = []
    with suppress(KeyboardInterrupt), poured(stream, 3600):
        halves.append(stream.stat().st_size)
        raise KeyboardInterrupt
    assert halves[0] < 1_000_000
    assert stream.read_bytes() == b"x" * 1_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["flights.ndjson"]


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("9999", "--listen: expected an address and a port from 0 to 65535, such as '127.0.0.1:9109' or"),
        ("127.0.0.1:99999", "--listen: expected an address and a port"),
        ("192.0.2.1:9109", "--listen: cannot listen on '192.0.2.1:9109': "),
    ],
)
def test_an_address_that_cannot_be_is_refused_before_anything_is_written(
    listen: str, message: str, tmp_path: Path
) -> None:
    done = command("demo", "--listen", listen, "--out", tmp_path / "demo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"blindsight: {message}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_somebody_has_is_not_waited_for() -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        listen = f"127.0.0.1:{occupied.getsockname()[1]}"
        assert free_address(listen) == "127.0.0.1:0"
    assert free_address(listen) == listen
