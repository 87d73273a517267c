"""`blindsight replay`: the same bytes every time, whatever the files' format, and pictures beside them."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from monitor.base.errors import ConfigError, SourceError
from monitor.base.state_changes import Changes
from monitor.cli.accounts import Accounts, LabelCounts, table
from monitor.cli.replay import Replayed, file_name, replay
from monitor.config.file import load_config
from monitor.reports.reader import from_json
from monitor.store import Store
from tests.daemon import command, command_here, configuration, ndjson, read_windows, write_configuration
from tests.streams import answers

SVG = "{http://www.w3.org/2000/svg}"
Record = dict[str, Any]
UNSURE = (0.5, 0.4, 0.1)


def stream() -> list[Record]:
    """Return two models in turn, labelled, the second with a group, and one gap that closes a window by
    age.
    """
    rng = np.random.default_rng(6)
    erm = answers(rng, 730, labelled=True)
    irm = answers(rng, 730, model="irm", labelled=True, groups={"region": "eu"})
    late = [record | {"time": record["time"] + 5000} for record in erm[700:]]
    return [record for pair in zip(erm[:700], irm[:700], strict=True) for record in pair] + late


def config(folder: Path) -> str:
    task = {"groups": ["region"], "metrics": ["accuracy"], "objective": {"accuracy": {"min": 0.8}}}
    return str(write_configuration(folder, configuration(task=task)))


def replayed(folder: Path, *files: Path, out: str = "out") -> Replayed:
    return replay(config(folder), files, folder / out, lambda path, size: None)


def without_positions(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in window.items() if k != "positions"} for window in read_windows(path)]


def as_csv(records: list[Record], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "time", "model", "scores.ok", "scores.bad", "label", "groups.region"])
        for r in records:
            region = r.get("groups", {}).get("region", "")
            writer.writerow([r["id"], r["time"], r["model"], *map(repr, r["scores"]), r["label"], region])


def as_parquet(records: list[Record], path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ("id", "time", "model", "scores", "label")
    columns = {name: [record[name] for record in records] for name in names}
    columns["groups.region"] = [record.get("groups", {}).get("region") for record in records]
    parquet.write_table(arrow.table(columns), path)


def as_zstandard(records: list[Record], path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.compress(ndjson(records)))


WRITERS: dict[str, Callable[[list[Record], Path], None]] = {
    "a.csv": as_csv,
    "a.parquet": as_parquet,
    "a.ndjson.gz": lambda records, path: path.write_bytes(gzip.compress(ndjson(records))) and None,
    "a.ndjson.zst": as_zstandard,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Replayed]:
    """Return the folder and the outcome of a replay of plain NDJSON."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "a.ndjson").write_bytes(ndjson(stream()))
    return folder, replayed(folder, folder / "a.ndjson")


def test_every_answer_is_in_one_window_of_its_model_and_of_its_group(
    plain: tuple[Path, Replayed],
) -> None:
    windows = read_windows(plain[0] / "out" / "windows.ndjson")
    sizes = {
        who: [w["size"] for w in windows if (w["model"], w["group"]) == who]
        for who in [("erm", ""), ("irm", ""), ("irm", "region=eu")]
    }
    assert sizes == {
        ("erm", ""): [100] * 7 + [30],
        ("irm", ""): [100] * 7,
        ("irm", "region=eu"): [100] * 7,
    }
    assert plain[1].windows == len(windows) == 22
    assert plain[1].unused.first == []


def test_the_same_files_give_the_same_bytes(plain: tuple[Path, Replayed]) -> None:
    folder, _ = plain
    again = replayed(folder, folder / "a.ndjson", out="again")
    assert len(again.pictures) == 3
    for path in (folder / "out").iterdir():
        assert path.read_bytes() == (folder / "again" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("name", WRITERS)
def test_the_format_of_the_file_does_not_matter(name: str, plain: tuple[Path, Replayed]) -> None:
    folder, _ = plain
    WRITERS[name](stream(), folder / name)
    done = replayed(folder, folder / name, out=name + ".out")
    assert done.unused.first == []
    expected = without_positions(folder / "out" / "windows.ndjson")
    assert without_positions(folder / (name + ".out") / "windows.ndjson") == expected


def test_several_files_are_one_stream(plain: tuple[Path, Replayed]) -> None:
    folder, _ = plain
    for name, part in (("1.ndjson", stream()[:633]), ("2.ndjson", stream()[633:])):
        (folder / name).write_bytes(ndjson(part))
    replayed(folder, folder / "1.ndjson", folder / "2.ndjson", out="parts")
    expected = without_positions(folder / "out" / "windows.ndjson")
    assert without_positions(folder / "parts" / "windows.ndjson") == expected
    split = [w for w in read_windows(folder / "parts" / "windows.ndjson") if len(w["positions"]) == 2]
    assert len(split) == 3, "a window of each series lies across the two files"


def test_labels_in_a_file_after_their_answers_are_said_to_come_after_all_windows(tmp_path: Path) -> None:
    records = stream()
    labels = [{key: record[key] for key in ("id", "label", "time")} for record in records]
    alone = [{key: record[key] for key in record if key != "label"} for record in records]
    answered, labelled, both = (tmp_path / f"{name}.ndjson" for name in ("answers", "labels", "both"))
    answered.write_bytes(ndjson(alone))
    labelled.write_bytes(ndjson([*labels, {"id": "unreadable"}]))
    both.write_bytes(ndjson([*alone[:50], *labels]))

    note = (
        f"Files are read one after another: the labels of {labelled} came after all answers of {answered}, "
        "so every window closed without them. To replay them when they came, put answers and labels into "
        "one file, sorted by time."
    )
    assert replayed(tmp_path, answered, labelled, labelled).notes == (note,)
    assert replayed(tmp_path, answered).notes == ()
    assert replayed(tmp_path, labelled, answered).notes == (), "they wait, and are there as windows close"
    assert replayed(tmp_path, answered, both).notes == ()


def test_a_window_ages_by_the_records_own_times(tmp_path: Path) -> None:
    early, late = stream()[0::2][:50], stream()[-30:]
    (tmp_path / "a.ndjson").write_bytes(ndjson([*early, *late]))
    replayed(tmp_path, tmp_path / "a.ndjson")
    windows = read_windows(tmp_path / "out" / "windows.ndjson")
    assert [(w["size"], w["closed_by"]) for w in windows] == [(50, "age"), (30, "end")]


def test_the_pictures_are_svg_and_name_their_model(plain: tuple[Path, Replayed]) -> None:
    names = {path.name: path for path in plain[1].pictures}
    assert set(names) == {"t-erm.svg", "t-irm.svg", "t-irm-region=eu.svg"}
    for name, path in names.items():
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        text = " ".join(node.text or "" for node in root.iter(f"{SVG}text"))
        assert ("irm" if "irm" in name else "erm") in text
        assert "accuracy" in text


def test_models_whose_names_differ_only_in_signs_keep_a_picture_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    wide = "模" * 80
    rows = [row for model in ("a/b", "a_b", "a b", wide) for row in answers(rng, 200, model=model)]
    (tmp_path / "a.ndjson").write_bytes(ndjson(rows))
    done = replayed(tmp_path, tmp_path / "a.ndjson")
    assert len({path.name for path in done.pictures}) == 4
    assert all(path.is_file() for path in done.pictures)


def test_a_files_name_is_short_in_bytes() -> None:
    name = file_name("t", "模" * 200, "")
    assert len(name.encode()) <= 150
    assert set(name) == {"t", "-", "模"}
    assert file_name(".t", "../../etc", "") == "t-.._.._etc"


def test_what_could_not_be_used_is_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    broken = [b"\xff\xfe{}", b'{"id": 1}', b"x" * 10_000_000, *[b"[1]"] * 9]
    (tmp_path / "a.ndjson").write_bytes(ndjson([*stream()[:100], *broken, *stream()[100:200]]))
    done = replayed(tmp_path, tmp_path / "a.ndjson")
    assert sum(done.view.rejected.values()) == 12
    assert len(done.unused.first) == 5
    assert done.unused.answers == {"encoding": 1, "no_label": 1, "too_large": 1, "wrong_type": 9}
    start = len(ndjson(stream()[:100]))
    assert done.unused.first[1].startswith(f"{tmp_path}/a.ndjson: byte {start + 5}: $")
    assert not done.unused.everything
    assert done.rejects is None
    assert sum(w["size"] for w in read_windows(tmp_path / "out" / "windows.ndjson") if not w["group"]) == 200


def test_the_command_prints_a_summary_and_nothing_else_where_nobody_looks(tmp_path: Path) -> None:
    rows = [row | {"model": "[red]erm[/red]"} for row in stream()[:400:2]]
    bad = [b"not JSON", b'{"id": "a", "label": "none of them"}']
    (tmp_path / "a [b].ndjson").write_bytes(ndjson([*rows, *bad]))
    done = command("replay", config(tmp_path), tmp_path / "a [b].ndjson", "--out", tmp_path / "o [u]")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "[red]erm[/red]" in done.stdout
    assert "\x1b" not in done.stdout
    assert f"Windows: 2, in {tmp_path}/o [u]/windows.ndjson. Pictures beside it: 1." in lines
    assert sum(line.startswith(("answers rejected", "labels rejected")) for line in lines) == 2
    assert {"answers rejected: malformed             1", "labels rejected: unknown class          1"} <= set(
        lines
    )
    start = len(ndjson(rows))
    assert sum(line.startswith(f"  {tmp_path}/a [b].ndjson: byte {start}: ") for line in lines) == 1
    assert sum(line.startswith(f"  {tmp_path}/a [b].ndjson: byte {start + 9}: ") for line in lines) == 1
    assert lines[-1] == "For all of them, name a file under `rejects:` in the configuration."


def test_rows_that_a_mapping_leaves_are_counted(tmp_path: Path) -> None:
    rows = [{"id": row["id"], "time": row["time"], "p": [row["scores"]] * 3} for row in stream()[:100]]
    (tmp_path / "a.ndjson").write_bytes(ndjson(rows))
    settings = json.loads(Path(config(tmp_path)).read_text())
    mapping = {"id": "id", "time": "time", "scores": "p[0]", "constants": {"model": "erm"}}
    settings["sources"] = [{"kind": "file", "path": "a.ndjson", "mapping": mapping}]
    path = write_configuration(tmp_path, settings)
    done = command("replay", path, tmp_path / "a.ndjson", "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "The mapping reads p[0] alone, and leaves 200 rows that stand beside it." in done.stdout.splitlines()
    )


def test_a_table_names_rows_instead_of_bytes(tmp_path: Path) -> None:
    rows = stream()[:20]
    as_csv([*rows, rows[0] | {"id": "other", "label": "none of them"}], tmp_path / "a.csv")
    done = replayed(tmp_path, tmp_path / "a.csv")
    assert [line.partition(": $")[0] for line in done.unused.first] == [f"{tmp_path}/a.csv: row 20"]


def worse(folder: Path) -> Path:
    """Return twelve good windows of 100, then eight in which the model is sure of little; half of them
    labelled.
    """
    rng = np.random.default_rng(11)
    rows = answers(rng, 1200, labelled=True) + answers(rng, 800, weights=(0.5, 0.4, 0.1), start=1.8e9)
    (folder / "a.ndjson").write_bytes(ndjson(rows))
    return folder / "a.ndjson"


def test_the_summary_tells_alarms_objectives_and_what_realised_rests_on(tmp_path: Path) -> None:
    task = {"objective": {"accuracy": {"min": 0.9}}}
    path = write_configuration(tmp_path, configuration(task=task))
    done = command("replay", path, worse(tmp_path), "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    windows = read_windows(tmp_path / "out" / "windows.ndjson")
    latched = [bool(w["charts"]) and w["charts"][0]["out_of_control"] for w in windows]
    first = latched.index(True)
    assert first >= 12
    assert f"  t erm: 1 accuracy alarm, the first in window {first} (to {stamp(windows[first])})" in lines
    row = next(line for line in lines if line.startswith("erm"))
    assert re.search(r"out of control: accuracy +\d+\.\d \(.*\) +\d+\.\d \(.*\) of 100", row), row
    assert lines.index("Objectives at risk or breached:") == lines.index("  t erm: accuracy at risk") - 1
    assert "Realised is of the newest window that labels have reached, and of how many labels." in lines
    assert max(map(len, lines[: lines.index(row) + 1])) <= 80
    audit = lines.index("Newest batches of 30 labelled rows within the exact interval of their confidences:")
    # The labels of windows 9 to 11: the calibration that estimates window 9 has seen all earlier ones.
    assert [w["calibration"]["version"] for w in windows if not w["revision"]][8:10] == [1, 2]
    assert re.fullmatch(r"  t erm: \d+ % of 10 \(right confidences: 95 % or more\)", lines[audit + 1])


def fallen(folder: Path) -> Path:
    """Return three models that answer in turn, and are sure of little in two stretches, the last one to the
    end.
    """
    rng, rows = np.random.default_rng(12), []
    parts = ((1500, None), (600, UNSURE), (2400, None), (500, UNSURE))
    for model in ("erm", "irm", "coral"):
        start = 1.7e9
        for length, weights in parts:
            more = {} if weights is None else {"weights": weights}
            rows += answers(rng, length, model, start=start, **more)
            start += length
    rows.sort(key=lambda row: (row["time"], row["model"]))
    (folder / "a.ndjson").write_bytes(ndjson(rows))
    return folder / "a.ndjson"


@pytest.mark.slow
def test_the_summary_the_document_and_the_reports_have_changes_that_models_share(tmp_path: Path) -> None:
    config = configuration()
    path, file = write_configuration(tmp_path, config), fallen(tmp_path)
    document, *others = (
        command_here("replay", path, file, "--out", tmp_path / f"out-{count}", "--processes", count, *more)
        for count, more in ((1, ["--json"]), (2, ["--json"]), (3, []))
    )
    shared = json.loads(document.stdout)["shared"]
    assert json.loads(others[0].stdout)["shared"] == shared
    lines = others[1].stdout.splitlines()
    at = lines.index("Changes that models share:") + 1
    assert lines[at : at + 2] == [f"  {each['statement']}" for each in shared]
    past, now = shared
    assert re.fullmatch(
        r"all 3 models of t: accuracy fell by \d+\.\d points from 2023-11-14 22:\d\d UTC to "
        r"2023-11-14 \d\d:\d\d UTC, a change that they shared",
        past["statement"],
    )
    assert now["statement"].endswith(" UTC, a change that they share")
    assert now["until"] is None
    assert set(past["changes"]) == {"erm", "irm", "coral"} == set(now["changes"])
    pages = [(tmp_path / f"out-{count}" / "report.html").read_text(encoding="utf-8") for count in (1, 2, 3)]
    assert pages[0] == pages[1] == pages[2]
    assert pages[0].count(now["statement"].partition(": ")[2]) == 2, "first, and among the changes"
    lines_of_windows = (tmp_path / "out-1" / "windows.ndjson").read_bytes().splitlines()
    store = Store(tmp_path / "state")
    saved = load_config(str(path)).model_dump_json(include={"tasks"})
    store.commit(Changes({}, []), [from_json(line) for line in lines_of_windows], config=saved)
    store.close()
    done = command_here("report", tmp_path / "state", "--out", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    assert past["statement"] in (tmp_path / "r.html").read_text(encoding="utf-8")
    config["tasks"]["t"]["chart"] = {"sigmas": 3, "shared": False}
    none = command_here("replay", write_configuration(tmp_path, config), file, "--out", tmp_path / "none")
    assert "Changes that models share" not in none.stdout


def stamp(window: Record) -> str:
    return str(window["end_time"])[:19].replace("T", " ") + " UTC"


def test_a_replay_without_alarm_and_without_rejects_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ndjson(answers(np.random.default_rng(1), 300)))
    done = command("replay", config(tmp_path), tmp_path / "a.ndjson", "--out", tmp_path / "out")
    assert "No alarm was raised." in done.stdout.splitlines()
    assert "rejected" not in done.stdout


def test_when_nothing_could_be_used_the_command_fails_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(ndjson([b"[1]", b"{", b'{"id": "a", "label": "none of them"}']))
    done = command("replay", config(tmp_path), tmp_path / "a.ndjson", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr == (
        "blindsight: not one of the 3 answers and labels could be used; compare the first messages with the "
        f"tasks in {tmp_path}/config.yaml\n"
    )
    assert "answers rejected: malformed             1" in done.stdout.splitlines()
    assert "Warning: 100 % of the answers were not used (rejected)" in done.stdout.splitlines()


def test_an_empty_file_is_no_failure_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b"")
    done = command("replay", config(tmp_path), tmp_path / "a.ndjson", "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "There was no record in what was read." in done.stdout.splitlines()


def test_rejects_are_written_beside_the_windows_where_the_configuration_wants_them(tmp_path: Path) -> None:
    theirs = tmp_path / "the-daemons.ndjson"
    path = write_configuration(tmp_path, configuration(rejects={"path": str(theirs)}))
    (tmp_path / "a.ndjson").write_bytes(ndjson([*stream()[:50], *[b"[1]"] * 7000]))
    out = tmp_path / "out"
    out.mkdir()
    (out / "rejects.ndjson").write_text("of an earlier replay\n")
    done = command("replay", path, tmp_path / "a.ndjson", "--out", out)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == (
        f"All of them, as far as rejects.max_bytes allows: {out}/rejects.ndjson"
    )
    written = [json.loads(line) for line in (out / "rejects.ndjson").read_text().splitlines()]
    start = len(ndjson(stream()[:50]))
    assert [line["position"] for line in written] == [start + 4 * place for place in range(7000)]
    assert {line["reason"] for line in written} == {"wrong_type"}
    assert not theirs.exists()


def test_rejects_never_replace_a_file_that_is_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rejects.ndjson"
    path.write_bytes(ndjson(stream()[:50]))
    with pytest.raises(ConfigError, match=r"--out: rejects\.ndjson would replace .*give another folder"):
        replayed(tmp_path, path, out=".")
    assert path.read_bytes() == ndjson(stream()[:50])


def test_a_missing_file_is_told_before_anything_is_replaced(plain: tuple[Path, Replayed]) -> None:
    folder, _ = plain
    before = (folder / "out" / "windows.ndjson").read_bytes()
    missing = folder / "none.ndjson"
    done = command("replay", config(folder), folder / "a.ndjson", missing, "--out", folder / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"blindsight: There is no file {missing}; correct the path\n"
    assert (folder / "out" / "windows.ndjson").read_bytes() == before


def test_a_folder_that_cannot_be_written(plain: tuple[Path, Replayed]) -> None:
    folder, _ = plain
    with pytest.raises(ConfigError) as file:
        replayed(folder, folder / "a.ndjson", out="a.ndjson")
    assert str(file.value) == f"--out: '{folder}/a.ndjson' is not a folder; give another path"
    with pytest.raises(ConfigError) as below:
        replayed(folder, folder / "a.ndjson", out="a.ndjson/out")
    assert str(below.value) == (
        f"--out: cannot write '{folder}/a.ndjson/out/windows.ndjson': "
        f"'{folder}/a.ndjson/out' is not a folder; give another path"
    )


def test_the_reports_never_replace_a_file_that_is_to_be_read(plain: tuple[Path, Replayed]) -> None:
    folder, _ = plain
    reports = folder / "out" / "windows.ndjson"
    before = reports.read_bytes()
    with pytest.raises(ConfigError, match=r"--out: windows.ndjson would replace .*give another folder"):
        replayed(folder, reports)
    assert reports.read_bytes() == before


def test_a_damaged_file_is_a_failure_that_keeps_the_windows_before_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    whole = gzip.compress(ndjson(answers(rng, 40_000)))
    (tmp_path / "a.ndjson.gz").write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(SourceError, match=r"a\.ndjson\.gz is damaged after byte"):
        replayed(tmp_path, tmp_path / "a.ndjson.gz")
    written = read_windows(tmp_path / "out" / "windows.ndjson")
    assert [w["window"] for w in written] == list(range(len(written)))
    assert len(written) > 100


def test_windows_json_is_one_object_a_line_in_the_order_of_closing(plain: tuple[Path, Replayed]) -> None:
    lines = (plain[0] / "out" / "windows.ndjson").read_text().splitlines()
    assert list(json.loads(lines[0])) == [
        *("task", "model", "group", "version", "window", "revision", "size", "closed_by"),
        *("start_time", "end_time", "calibration", "estimates", "charts", "objectives", "positions"),
    ]
    ends = [json.loads(line)["end_time"] for line in lines if json.loads(line)["closed_by"] == "size"]
    assert ends == sorted(ends)


def test_the_warning_names_what_may_be_wrong_with_labels() -> None:
    accounts = Accounts(used=10, labels=LabelCounts(matched=1, unmatched=5), named=5)
    assert list(table(accounts, Counter(), Counter(unknown_class=4)))[-1] == (
        "Warning: 90 % of the labels were not used (unmatched, rejected): labels join the answer with their "
        "id; `blindsight doctor` compares ids; 5 name a model: answers without scores are read as labels; "
        "`blindsight doctor` proposes label_values for labels that are no classes"
    )


def test_the_report_shows_the_state_that_the_terminal_shows(tmp_path: Path) -> None:
    """Labels that came after the last window contradict the estimates; no window's line says so."""
    rng = np.random.default_rng(3)
    (tmp_path / "reference.ndjson").write_bytes(ndjson(answers(rng, 2000, labelled=True)))
    stream = answers(rng, 1000)
    false = [{"id": each["id"], "time": each["time"] + 10, "label": "ok"} for each in stream[500:]]
    (tmp_path / "in.ndjson").write_bytes(ndjson(stream))
    (tmp_path / "labels.ndjson").write_bytes(ndjson(false))
    config = write_configuration(
        tmp_path, configuration(task={"reference": {"path": "reference.ndjson"}, "metrics": ["accuracy"]})
    )
    files = ("in.ndjson", "labels.ndjson")
    done = command_here("replay", config, *files, "--out", "out", "--processes", "1", cwd=tmp_path)
    verdict = "1 model is untrusted: labels contradict its estimate."
    assert re.search(r"^(t +)?erm +10 +untrusted ", done.stdout, re.MULTILINE)
    assert f"\n{verdict}\n" in done.stdout
    assert f">{verdict}<" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert all("untrusted" not in window for window in read_windows(tmp_path / "out" / "windows.ndjson"))
