"""Stores of older versions, kept as those versions wrote them, are opened and gone on with."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitor.agent.resume import resume
from monitor.base.codec import pack, restored, unpack
from monitor.base.results import Estimate, Reason, Unknown
from monitor.base.state_changes import assemble
from monitor.config.root import Task
from monitor.engine.labels.tally import Tally, TallyState
from monitor.reports.views import EngineView
from monitor.store import Store
from monitor.store.schema import MIGRATIONS, VERSION, from_version_1
from monitor.store.store import FILE
from tests.nearly import nearly
from tests.store.kept.make_store import (
    CUT,
    EVERYTHING_CUT,
    STEP,
    everything,
    everything_records,
    records,
    settings,
)
from tests.streams import Rig, lines

KEPT = Path(__file__).parent / "kept"


@pytest.fixture(params=range(1, VERSION))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the folder of a store of an older version."""
    return unpacked(request.param, tmp_path)


def unpacked(version: int, folder: Path, kind: str = "") -> Path:
    """Return a folder with the store that is kept of this version."""
    with (
        gzip.open(KEPT / f"v{version}" / kind / f"{FILE}.gz") as source,
        (folder / FILE).open("wb") as target,
    ):
        shutil.copyfileobj(source, target)
    assert version_of(folder) == version
    return folder


def version_of(folder: Path) -> int:
    connection = sqlite3.connect(folder / FILE)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(version)


def went_on(folder: Path, task: Task) -> Rig:
    """Return an engine that has taken what the store holds."""
    rig = Rig(task)
    store = Store(folder)
    resumed = resume(rig.settings, store.load())
    store.close()
    assert (resumed.reports, resumed.forgotten) == ([], [])
    rig.engine, rig.offset = resumed.engine, CUT
    return rig


def uninterrupted() -> Rig:
    """Return an engine of this version that has taken the same records."""
    rig = Rig(settings())
    for start in range(0, CUT, STEP):
        rig.feed(records()[start : start + STEP])
    return rig


def test_there_is_a_way_from_every_older_version_and_a_kept_store_of_each() -> None:
    assert sorted(MIGRATIONS) == list(range(1, VERSION))
    assert sorted(path.parent.name for path in KEPT.glob(f"*/{FILE}.gz")) == [
        f"v{n}" for n in range(1, VERSION + 1)
    ]


def test_every_piece_of_a_store_from_before_state_had_types_is_taken_over(tmp_path: Path) -> None:
    rig, store = everything(), Store(unpacked(VERSION, tmp_path))
    saved = store.load()
    store.close()
    resumed = resume(rig.settings, saved)
    assert (resumed.reports, resumed.forgotten) == ([], [])
    states = resumed.engine.snapshot(), assemble(saved.parts, saved.rings)
    migrated, expected = (unpack(pack(state)) for state in states)
    for name, task in expected["tasks"].items():
        del (
            task["revisions"]["names"],
            migrated["tasks"][name]["revisions"]["names"],
        )  # to find lines in a store
        for _, _, series in task["series"]:
            (series["recalibration"] or {}).pop("tried", None)  # each loss of trust is noticed now
        for _, _, series in migrated["tasks"][name]["series"]:
            assert (series["recalibration"] or {}).pop("held", False) is False
            assert series["windows"].pop("first_row") == 0
            shown = series["last"] or {}
            assert not any(shown.pop("deviations", {}).values()), "of windows, which it did not store"
        for state in (migrated, expected):
            for _, group, series in state["tasks"][name]["series"]:
                series.pop("errors", None)  # of labels by predicted class, which it did not count
                (series["last"] or {}).pop("improved", None)  # by which charts
                for shown in ("shares", "confidences"):  # of the rows of the newest window
                    (series["last"] or {}).pop(shown, None)
                (series["calibration"] or {}).pop("baseline", None)  # by which they judge calibration errors
                series.pop("bias", None)
                series.pop("deviation", None)  # by which groups' calibrations were shifted
                series.pop("prediction", None)  # which that version did not test
                if group:  # what its calibration excuses, by which its labels are tested now
                    del series["trust"]["epsilon"]
        trusts = (
            [series["trust"] for *_, series in state["tasks"][name]["series"]]
            for state in (migrated, expected)
        )
        for now, before in zip(*trusts, strict=True):  # what cost the trust has another name
            assert (now.pop("beyond") is None) == (before.pop("found") is None)
            now.pop("found")
        for column in ("replaced", "block"):
            assert not migrated["tasks"][name]["join"]["answers"]["columns"].pop(column, np.zeros(1)).any()
    refits = migrated["tasks"]["pooled"]["refits"]
    assert not refits["pool"]["columns"].pop("replaced").any()
    view = refits["view"]
    assert view.pop("held") is False
    assert (view.pop("number"), view.pop("under_way")) == (refits["schedule"]["number"], False)
    draws = refits.pop("draws")
    assert (len(draws["keys"]), expected["tasks"]["pooled"]["refits"].pop("draws")) == (0, None)
    for arena in migrated["arenas"].values():
        assert not arena["join"]["answers"]["columns"].pop("block").any()
        assert arena["window"].pop("first_row") == 0
    np.testing.assert_equal(known(migrated), known(expected))


def known(state: Any) -> Any:
    """Return a state without entries that are None, False or empty: older versions left them out."""
    if isinstance(state, dict):
        return {
            key: known(value)
            for key, value in state.items()
            if not (value is None or value is False or (isinstance(value, dict | list | str) and not value))
        }
    return [known(each) for each in state] if isinstance(state, list) else state


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "before_corrected"])
def test_an_older_store_with_every_piece_is_gone_on_with(tmp_path: Path, kind: str) -> None:
    rig, whole, store = everything(), everything(), Store(unpacked(VERSION, tmp_path, kind))
    rig.engine, rig.offset = resume(rig.settings, store.load()).engine, EVERYTHING_CUT
    store.close()
    for start in range(0, EVERYTHING_CUT, STEP):
        whole.feed(everything_records()[start : min(start + STEP, EVERYTHING_CUT)])
    rest = everything_records()[EVERYTHING_CUT:]
    written, expected = (lines(one.feed(rest) + one.engine.finish()) for one in (rig, whole))
    strip = uncorrected if kind else without_trust
    assert_lines_are_close(*map(strip, (written, expected)))
    reports = [msgspec.json.decode(line) for line in written]
    assert any(e["estimator"] == "corrected" for line in reports for e in line.get("estimates", ()))
    assert {line["task"] for line in reports} == {"scored", "pooled", "chat"}
    assert any(line.get("untrusted") for line in reports)
    assert any(line["revision"] for line in reports)


def without_trust(written: Sequence[bytes]) -> list[bytes]:
    """Return the lines without trust: that version set other stakes, its baselines had no parts.

    An improvement was an alarm, which the store keeps on for eight windows. Charts judged calibration errors
    by the calibration in force, as the reports of that version still say.
    """
    reports = [msgspec.json.decode(line) for line in uncorrected(written)]
    for line in reports:
        for chart in line.get("charts", ()):
            chart.pop("out_of_control", None)
            chart.pop("improved", None)
        line["charts"] = [chart for chart in line.get("charts", ()) if chart["metric"] != "ece"]
    return [msgspec.json.encode(line) for line in reports]


def uncorrected(written: Sequence[bytes]) -> list[bytes]:
    """Return the lines without corrections: those begin with the first window that closes in this version.

    Windows that an older version closed have the intervals of that version, which labels moved. The test of
    its predictions begins with it. Labels shifted the calibrations of its groups, and do not widen the
    intervals of precision and the like here.
    """
    reports = [msgspec.json.decode(line) for line in written]
    for line in reports:
        line.pop("untrusted", None)
        if "estimates" in line:
            line["estimates"] = [e for e in line["estimates"] if e["estimator"] != "corrected"]
            for estimate in line["estimates"]:
                of_classes = estimate["metric"] not in ("accuracy", "ece", "class_ece")
                if estimate["estimator"] == "average_confidence" and (line["revision"] or of_classes):
                    for key in ("lower", "upper", "labels"):
                        estimate.pop(key, None)
        line.pop("objectives", None)
        line.pop("attributions", None)  # those of breached objectives
        for chart in line.get("charts", ()):
            if chart["metric"] == "accuracy":  # labels decide on its alarm once the correction has begun
                for key in ("out_of_control", "improved", "by_labels"):
                    chart.pop(key, None)
        for key in ("estimates", "charts", "calibration") if line.get("group") else ():
            line.pop(key, None)
    return [msgspec.json.encode(line) for line in reports]


def assert_lines_are_close(actual: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """Check that lines agree; the processor that wrote the store may have rounded its last bits in another
    way.
    """
    numbers = (numbers_in([msgspec.json.decode(line) for line in each]) for each in (actual, expected))
    np.testing.assert_allclose(*numbers, atol=2e-6)


def numbers_in(value: Any) -> list[float]:
    """Return every number in a JSON value, in order; text counts by its bytes, None as infinite."""
    if isinstance(value, dict):
        return [n for key, each in value.items() for n in (*numbers_in(key), *numbers_in(each))]
    if isinstance(value, list):
        return [n for each in value for n in numbers_in(each)]
    if isinstance(value, str):
        return [float(byte) for byte in value.encode()]
    return [np.inf if value is None else float(value)]


@pytest.mark.slow
def test_an_engine_goes_on_from_an_older_store_as_if_this_version_had_written_it(old: Path) -> None:
    rig, whole = went_on(old, settings()), uninterrupted()
    assert comparable(rig.engine.view()) == nearly(comparable(whole.engine.view()))
    rest = records()[CUT:]
    migrated, expected = (
        [r for r in one.feed(rest) + one.engine.finish() if not r.revision] for one in (rig, whole)
    )
    # That version revised no window: those it closed stay as they are.
    assert_lines_are_close(*map(uncorrected, (lines(migrated), lines(expected))))
    assert rig.engine.labelled() == whole.engine.labelled()
    assert version_of(old) == VERSION


def test_what_an_older_store_could_not_know_is_not_known(old: Path) -> None:
    new, whole = (unpack(pack(rig.engine.snapshot())) for rig in (went_on(old, settings()), uninterrupted()))
    migrated, expected = new["tasks"]["t"]["join"], whole["tasks"]["t"]["join"]
    for join in (migrated, expected):  # that version wrote a 0 for an outcome that never came
        join["outcomes"] = {outcome: count for outcome, count in join["outcomes"].items() if count}
    assert np.isnan(migrated["answers"]["columns"].pop("confidence")).all()
    assert not np.isnan(expected["answers"]["columns"].pop("confidence")).any()
    # That version kept no scores to fit calibrations again on, nor the ids that tell that they are there.
    assert not migrated["answers"]["columns"].pop("id").any()
    assert expected["answers"]["columns"].pop("id").all()
    for columns in (migrated["answers"]["columns"], expected["answers"]["columns"]):
        columns.pop("scores")
        columns.pop("replaced")
    assert not migrated["answers"]["columns"].pop("block").any()
    assert expected["answers"]["columns"].pop("block").any()
    # Of a label that was changed, that version kept the place of the change alone.
    came = migrated["labels"]["columns"].pop("first_sequence")
    assert (came >= expected["labels"]["columns"].pop("first_sequence")).all()
    assert (came == migrated["labels"]["columns"]["sequence"]).all()
    assert len(new["tasks"]["t"].pop("revisions")["window"]) == 0
    assert len(whole["tasks"]["t"].pop("revisions")["window"]) > 0
    old_tallies, tallies = tallies_of(new), tallies_of(whole)
    assert [(t.windows(), t.closed) for t in old_tallies] == [(t.windows(), t.closed) for t in tallies]
    assert {t.realised_horizon(0.95) for t in old_tallies} == {Unknown(Reason.NO_LABELS)}
    assert all(isinstance(t.realised_horizon(0.95), Estimate) for t in tallies)
    # Without the confidences there was nothing to hold against the labels.
    audits = [state["tasks"]["t"]["series"][0][2].pop("audit") for state in (new, whole)]
    assert [len(audit["right"]) + 30 * len(audit["covered"]) > 0 for audit in audits] == [False, True]
    trusts = [state["tasks"]["t"]["series"][0][2]["trust"] for state in (new, whole)]
    assert [trust["seen"] > 0 for trust in trusts] == [False, True]
    # That version counted no confidences; this one counts on from none.
    counted = [sum(state["tasks"]["t"]["series"][0][2]["confidences"]["counts"]) for state in (new, whole)]
    assert [count > 0 for count in counted] == [False, True]
    for state in (new, whole):
        for place, (_, group, series) in enumerate(state["tasks"]["t"]["series"]):
            for counts in ("confidences", "curve"):
                series.pop(counts)
            series.pop("trust")
            series.pop("prediction")
            series.pop("recalibration")
            assert bool(series.pop("correction")) is (state is whole)
            assert bool(series["windows"].pop("first_row")) is (state is whole)
            series["last"].pop("estimates")  # of which the corrected one is missing
            # That version kept nothing of the rows of the newest window.
            is_known = state is whole and not group
            assert bool(series["last"].pop("shares")) is is_known
            assert (sum(series["last"].pop("confidences")["counts"]) > 0) is is_known
            assert bool(series["judge"].pop("parts")) is (state is whole)  # that version kept none
            series["judge"].pop("warming_parts")
            series["judge"].pop("attributions")
            series["windows"].pop("groups")  # of the open window's rows, that version kept none
            if place:
                series.pop("audit")
    assert new == nearly(whole)


def comparable(view: EngineView) -> EngineView:
    """Return a view without the values that that version lacked: confidences, classes, trust, corrections."""
    series = []
    for one in view.series:
        estimates = tuple(each for each in one.estimates if each.estimator != "corrected")
        lacking = {"trust": None, "distributions": None, "confusion": None}
        series.append(replace(one, estimates=estimates, **lacking))
    return replace(view, series=tuple(series))


def tallies_of(snapshot: dict[str, Any]) -> list[Tally]:
    """Taken out of an engine's snapshot."""
    horizon = settings().labels.horizon_seconds
    return [
        Tally(1000, horizon, restored(series.pop("tally"), TallyState))
        for _, _, series in snapshot["tasks"]["t"]["series"]
    ]


def test_a_migration_that_fails_leaves_the_older_store_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(connection: sqlite3.Connection) -> None:
        from_version_1(connection)
        raise sqlite3.OperationalError("disk I/O error")

    before = ring_rows(old)
    monkeypatch.setitem(MIGRATIONS, 1, half)
    with pytest.raises(Exception, match="disk I/O error"):
        Store(old)
    assert version_of(old) == 1
    assert before == ring_rows(old)


def ring_rows(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return connection.execute("SELECT ring, first, rows FROM ring_rows").fetchall()
