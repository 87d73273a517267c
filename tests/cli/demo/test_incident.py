"""`blindsight demo`: its incident is real, and the agent names the cause before any label, in plain words."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from monitor.cli.demo.flights import Flights
from monitor.cli.demo.incident import (
    BROKEN,
    FEATURE,
    LARGE_SEATS,
    ORIGIN,
    REPAIRED,
    TASK,
    WINDOW_SIZE,
    Incident,
    moment_of,
    prepare_incident,
)
from monitor.cli.incident_screen import PICTURE
from monitor.config.file import load_config
from monitor.reports.window_report import rfc3339
from monitor.stats.charts.latch import RELEASE_WINDOWS
from tests.daemon import read_windows
from tests.recipes.page import blocks
from tests.services.process import PATIENCE_SECONDS, programs_a_core

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
DAY = 86_400
_WATCHED = """
import pickle, sys
from rich.console import Console
from monitor.cli.incident_screen import watch_incident
if __name__ == "__main__":
    incident = pickle.loads(open(sys.argv[1], "rb").read())
    console = Console(width=100, force_terminal=False)
    raise SystemExit(watch_incident(console, incident, "127.0.0.1:0", 0, stay=True))
"""


@dataclass(frozen=True)
class Shown:
    """The incident, what the demo prints about it, its page at the end, and its exit code after Ctrl-C."""

    incident: Incident
    text: str
    page: httpx.Response
    ready: httpx.Response
    metrics: str
    code: int


@pytest.fixture(scope="module")
def shown(flights: Flights, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("incident")
    incident = prepare_incident(folder / "shown", flights=flights)
    (folder / "incident.pickle").write_bytes(pickle.dumps(incident))
    (folder / "watched.py").write_text(_WATCHED, encoding="utf-8")
    words = [sys.executable, str(folder / "watched.py"), str(folder / "incident.pickle")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    patience = PATIENCE_SECONDS * programs_a_core()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        text = ""
        try:
            while "Ctrl-C ends the demo" not in text:
                line = demo.stdout.readline()
                assert line, f"it ended before: {text}"
                text += line
            [address] = re.findall(r"The page is still there: (\S+)", text)
            page, ready, metrics = (
                httpx.get(f"{address}{path}", timeout=patience) for path in ("", "-/ready", "metrics")
            )
        finally:
            demo.send_signal(signal.SIGINT)
        return Shown(incident, text, page, ready, metrics.text, demo.wait(patience))


def events(text: str) -> list[tuple[str, str]]:
    """Return the moments of the events, and what happened."""
    return re.findall(r"^(\d+ \w+ \d\d:\d\d) +(.+?) *$", text, re.MULTILINE)


def test_only_the_airports_features_of_those_days_are_in_another_unit(shown: Shown, flights: Flights) -> None:
    incident = shown.incident
    wrong = incident.time[incident.wrong_feature]
    assert moment_of(BROKEN) <= wrong.min() < wrong.max() < moment_of(REPAIRED) + DAY
    records = msgspec.json.Decoder().decode_lines(incident.stream.read_bytes())
    answers = [record for record in records if "scores" in record]
    assert [record["groups"]["origin"] == ORIGIN for record in answers] >= incident.wrong_feature.tolist()
    minutes = dict(zip(flights.ids(np.arange(len(flights))), flights.duration.tolist(), strict=True))
    for record, wrong in zip(answers, incident.wrong_feature.tolist(), strict=True):
        sent, true = record["features"][FEATURE], minutes[record["id"]]
        assert sent == (round(true / 60, 2) if wrong else true)


def test_the_labels_are_what_flew_and_come_two_days_later(shown: Shown, flights: Flights) -> None:
    seats = dict(zip(flights.ids(np.arange(len(flights))), flights.seats.tolist(), strict=True))
    records = msgspec.json.Decoder().decode_lines(shown.incident.stream.read_bytes())
    labels = [record for record in records if "label" in record]
    assert len(labels) == len(shown.incident)
    assert all((seats[one["id"]] > LARGE_SEATS) == (one["label"] == "large") for one in labels)
    wait = shown.incident.labelled - shown.incident.time
    assert 30 * 3600 <= wait.min() < wait.max() < 3 * DAY, "within the horizon"


def test_the_first_window_with_the_fault_raises_the_alarm_and_names_feature_and_airport(shown: Shown) -> None:
    windows = [
        each for each in read_windows(shown.incident.reports) if each["model"] and not each.get("group")
    ]
    closed = [each for each in windows if not each.get("revision")]
    wrong = [
        bool(shown.incident.wrong_feature[w["window"] * WINDOW_SIZE :][: w["size"]].mean() > 0.1)
        for w in closed
    ]
    alarmed = [w["charts"][0]["out_of_control"] for w in closed]
    assert alarmed.index(True) == wrong.index(True)
    [(alarm, words)] = [each for each in events(shown.text) if each[1].startswith("ALARM")]
    assert alarm.startswith("16 July")
    assert words.endswith(f"It comes from {FEATURE} at {ORIGIN}.")
    assert not alarmed[-1]


def test_the_screen_says_that_the_estimates_do_not_count_and_why(shown: Shown) -> None:
    closed = [each for each in read_windows(shown.incident.reports) if not each.get("revision")]
    broken = [each for each in closed if each.get("broken_features")]
    [(moment, words)] = [each for each in events(shown.text) if each[1].startswith("UNTRUSTED")]
    assert {(one["feature"], one["fault"]) for each in broken for one in each["broken_features"]} == {
        (FEATURE, "out_of_range")
    }
    assert words.startswith(f"UNTRUSTED: {FEATURE} is out of range. ")
    assert moment == "16 July 18:24"


def test_every_alarm_ends_after_eight_windows_as_before(shown: Shown) -> None:
    """The alarm of the airport, which labels decide, lasts no longer than the one by confidences."""
    closed = [each for each in read_windows(shown.incident.reports) if not each.get("revision")]
    for group in ("", f"origin={ORIGIN}"):
        own = [each for each in closed if each.get("group", "") == group]
        ends = [each["window"] for each in own if each["charts"][0]["out_of_control"]][-1] + 1
        whole = next(each["window"] for each in own if each["start_time"] >= rfc3339(moment_of(REPAIRED)))
        assert ends - whole == RELEASE_WINDOWS - 1, group


def test_estimates_without_labels_agree_with_the_truth_before_and_after(shown: Shown) -> None:
    windows = read_windows(shown.incident.reports)
    for window in windows:
        if window.get("group") or window.get("revision") or window["size"] < WINDOW_SIZE:
            continue
        rows = slice(window["window"] * WINDOW_SIZE, (window["window"] + 1) * WINDOW_SIZE)
        if shown.incident.wrong_feature[rows].any():
            continue
        [estimate] = [e for e in window["estimates"] if e["estimator"] == "average_confidence"]
        error = 4 * (0.25 / WINDOW_SIZE) ** 0.5 * 0.6  # four binomial standard errors at an accuracy of 0.9
        assert estimate["value"] == pytest.approx(shown.incident.right[rows].mean(), abs=error)


def test_the_readme_shows_its_events(shown: Shown) -> None:
    [block] = [block.text for block in blocks(ROOT / "README.md") if block.text.startswith("8 July")]
    assert events(block) == events(shown.text)
    assert len(events(block)) == 7


def test_it_is_one_screen_in_plain_words(shown: Shown) -> None:
    lines = shown.text.splitlines()
    assert len(lines) <= 20
    assert max(len(line.rstrip()) for line in lines if str(shown.incident.config.parent) not in line) <= 100
    words = "confidence", "interval", "calibrat", "chart", "drift", "control", "sigma", "points", "%"
    assert [word for word in words if word in shown.text] == []


def test_the_page_is_ready_and_nothing_is_red_after_the_incident(shown: Shown) -> None:
    assert shown.page.status_code == shown.ready.status_code == 200
    assert TASK in shown.page.text
    red = re.findall(r"^(blindsight_(?:group_)?(?:out_of_control|untrusted)\{.*\}) 1\.0", shown.metrics, re.M)
    assert red == []
    assert shown.code == 0


def test_the_picture_shows_estimates_and_truth(shown: Shown) -> None:
    picture = (shown.incident.config.parent / PICTURE).read_text(encoding="utf-8")
    assert f"{ORIGIN} sends {FEATURE} in hours" in picture
    assert "true (known two days later)" in picture
    assert (shown.incident.config.parent / "report.html").stat().st_size > 0


def test_the_readme_shows_that_picture(shown: Shown) -> None:
    """A point may move by a hundredth of the picture where another version of the forest answers."""
    number = re.compile(r"-?\d+\.?\d*")
    of_readme, own = (
        path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "demo.svg", shown.incident.config.parent / PICTURE)
    )
    assert number.sub("0", of_readme) == number.sub("0", own), f"copy {PICTURE} of `demo` to docs/demo.svg"
    where = [[float(each) for each in number.findall(text)] for text in (of_readme, own)]
    assert where[0] == pytest.approx(where[1], abs=4)


def test_the_configuration_is_accepted(shown: Shown) -> None:
    assert load_config(shown.incident.config).tasks[TASK].window.size == WINDOW_SIZE
