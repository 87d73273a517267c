"""The output, exit codes and errors of the command line; every mistake is one message, no traceback."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import __version__
from monitor.cli.main import main
from monitor.store.lock import FolderLock
from tests.daemon import ROOT, command, command_here, configuration, ndjson, write_configuration
from tests.services.process import PATIENCE_SECONDS
from tests.streams import answers

Run = Callable[..., tuple[int, str]]

SOURCES = [{"kind": "file", "path": "in.ndjson"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.ndjson").write_bytes(ndjson(answers(np.random.default_rng(1), 120)))
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield `run` in this process, which spares a second a test; `test_a_typing_error…` holds a real one
    to it.
    """
    level, by_sigterm = logging.getLogger("blindsight").level, signal.getsignal(signal.SIGTERM)

    def in_this_process(**config: Any) -> tuple[int, str]:
        path = write_configuration(folder, configuration(**{"sources": SOURCES, **config}))
        monkeypatch.setattr(sys, "argv", ["blindsight", "run", str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "Traceback" not in captured.err
        return ended.value.code, captured.err

    yield in_this_process
    logging.getLogger("blindsight").setLevel(level)
    signal.signal(signal.SIGTERM, by_sigterm)


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version(word: str) -> None:
    done = command(word)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"blindsight {__version__}\n", "")


def test_schema_is_json_schema_of_every_section() -> None:
    done = command("schema")
    assert done.returncode == 0
    sections = {"tasks", "sources", "decoders", "reports", "rejects", "store", "alertmanager", "export"}
    assert set(json.loads(done.stdout)["properties"]) == sections


def test_check_says_what_the_example_will_do() -> None:
    done = command("check", ROOT / "config.example.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The configuration is valid. False alarms to expect")
    assert "All charts together:" in done.stdout


@pytest.mark.parametrize("name", ["run", "check"])
def test_a_typing_error_in_the_configuration(folder: Path, name: str) -> None:
    config = write_configuration(folder, "tasks:\n  t:\n    window: {siz: 200}\n")
    done = command(name, config)
    allowed = "size, min_size, max_age_seconds"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"blindsight: {config} cannot be used:\n"
        f"  tasks.t.window.siz: unknown key; did you mean 'size'? Allowed: {allowed} (line 3)\n"
    )


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    done = command("run", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert done.stderr == (
        f"blindsight: {tmp_path}/none.yaml: there is no such file; give the path of a configuration file\n"
    )


def test_a_source_that_is_not_there(run: Run, folder: Path) -> None:
    code, text = run(sources=[{"kind": "file", "path": "no.ndjson"}])
    assert code == 2
    assert text == (
        f"blindsight: There is no file {folder}/no.ndjson; correct the path, or set follow to wait for it\n"
    )


def test_no_source_at_all(run: Run, folder: Path) -> None:
    assert run(sources=[]) == (
        2,
        "blindsight: sources: there are none; `run` needs one, or use `replay` for files\n",
    )


def test_two_sources_of_one_name(run: Run, folder: Path) -> None:
    code, text = run(sources=[*SOURCES, {"kind": "file", "path": "other/in.ndjson"}])
    assert code == 2
    assert (
        "sources[1].name: expected another name than sources[0], got 'in.ndjson' for both: set name" in text
    )


def test_a_port_in_use(run: Run, folder: Path) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        listen = f"127.0.0.1:{occupied.getsockname()[1]}"
        assert run(export={"listen": listen}) == (
            1,
            f"blindsight: export.listen: cannot listen on {listen}: the port is in use; "
            "stop the program that has it, or take another port (0 takes a free one)\n",
        )


def test_a_store_in_use_is_no_wrong_configuration(run: Run, folder: Path) -> None:
    """systemd tries an agent again that ends with 1, and not one that ends with 2."""
    (folder / "state").mkdir()
    lock = FolderLock(folder / "state")
    try:
        code, text = run(store={"path": "state"})
    finally:
        lock.release()
    assert code == 1
    assert f"state is in use by another agent (process {os.getpid()}); stop it, or give this agent" in text


def test_a_reports_folder_that_is_not_there(run: Run, folder: Path) -> None:
    assert run(reports={"path": "none/windows.ndjson"}) == (
        2,
        f"blindsight: reports.path: cannot write '{folder}/none/windows.ndjson': "
        f"there is no folder '{folder}/none'; make it or give another path\n",
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_reports_folder_that_may_not_be_written(run: Run, folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o500)
    assert run(reports={"path": "closed/windows.ndjson"}) == (
        2,
        f"blindsight: reports.path: cannot write '{folder}/closed/windows.ndjson': "
        "this user may not; change the permissions or give another path\n",
    )


def test_a_rejects_path_that_is_a_folder(run: Run, folder: Path) -> None:
    assert run(rejects={"path": "."}) == (
        2,
        f"blindsight: rejects.path: cannot write '{folder}': it is a folder; give the path of a file\n",
    )


@pytest.mark.parametrize("name", ["run", "check"])
def test_an_arl0_out_of_reach_of_its_rules(folder: Path, name: str) -> None:
    task = {"chart": {"arl0": 1_000_000, "rules": [1, 2, 3, 4]}, "reference": {"first_windows": 20}}
    config = write_configuration(folder, configuration(sources=SOURCES, task=task))
    done = command(name, config)
    assert done.returncode == 2
    assert done.stderr.startswith("blindsight: tasks.t.chart: arl0: got 1e+06, but with 20 reference windows")
    assert done.stderr.endswith("; lower arl0, leave out we4, or give sigmas\n")


def test_a_reference_without_labels(run: Run, folder: Path) -> None:
    assert run(task={"reference": {"path": "ref.ndjson"}}, sources=[{"kind": "stdin"}])[0] == 2
    (folder / "ref.ndjson").write_bytes((folder / "in.ndjson").read_bytes())
    assert run(task={"reference": {"path": "ref.ndjson"}}) == (
        2,
        f"blindsight: {folder}/ref.ndjson: no row of task t has a label; "
        "a reference file needs label on every line\n",
    )


def test_a_reference_with_a_row_that_cannot_be_used(run: Run, folder: Path) -> None:
    good = answers(np.random.default_rng(1), 600, labelled=True)
    bad = {"model": "erm", "scores": [0.1, 0.2], "label": "ok"}
    (folder / "ref.ndjson").write_bytes(ndjson([*good, bad]))
    assert run(task={"reference": {"path": "ref.ndjson"}}) == (
        2,
        f"blindsight: {folder}/ref.ndjson: 1 row of the reference cannot be used: line 601: "
        "$.scores: expected probabilities that sum to 1 within 0.001, got a sum of 0.3\n",
    )


def test_a_reference_that_cannot_carry_its_calibration_is_refused_before_the_start(
    run: Run, folder: Path
) -> None:
    row = {"model": "erm", "scores": [0.1, 0.9], "label": "bad"}
    (folder / "ref.ndjson").write_bytes(ndjson([row] * 600))
    code, text = run(task={"reference": {"path": "ref.ndjson"}})
    assert code == 2
    assert text.startswith("blindsight: tasks.t.reference, model erm: isotonic calibration needs")


def test_standard_input_that_is_closed(folder: Path) -> None:
    settings = configuration(task={"interval": "poisson_binomial"}, sources=[{"kind": "stdin"}])
    config = write_configuration(folder, settings)
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, "-m", "monitor.cli", "run", str(config)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "blindsight: Standard input is closed; pipe records into the command, or use a file source\n",
    )


def test_debug_shows_where_it_came_from(folder: Path) -> None:
    config = write_configuration(folder, "tasks: {}\n")
    done = command("--debug", "run", config)
    assert done.returncode == 2
    assert "Traceback (most recent call last):" in done.stderr
    assert "monitor.base.errors.ConfigError" in done.stderr
    assert done.stderr.splitlines()[-2].startswith("blindsight: ")


@pytest.mark.parametrize("words", [["run"], ["bogus"], ["replay", "config.yaml", "in.ndjson"]])
def test_wrong_usage(words: list[str]) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert "Usage:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_names_every_command(word: str) -> None:
    done = command(word)
    assert done.returncode == 0
    for name in ("run", "demo", "replay", "check", "labels", "rules", "schema", "version"):
        assert f"│ {name} " in done.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [("blindsight re", ["replay", "rebaseline", "report"]), ("blindsight run --onc", ["--once"])],
)
def test_bash_completes_commands_and_options(words: str, completed: list[str]) -> None:
    variables = {
        "_BLINDSIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    program = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'blindsight'; from monitor.cli.main import main; main()",
    ]
    done = subprocess.run(
        program,
        env=os.environ | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout.split() == completed, done.stderr


def test_help_of_a_command_has_a_short_form_too() -> None:
    done = command("check", "-h")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    assert "CONFIG" in done.stdout


@pytest.mark.parametrize("words", [[], ["run"], ["demo"], ["labels"], ["labels", "ask"]])
def test_help_shows_a_type_only_beside_an_option_that_takes_a_value(words: list[str]) -> None:
    shown = command_here(*words, "--help").stdout
    (line,) = (line for line in shown.splitlines() if "--help" in line)
    assert "Show this message" in line
    assert "bool" not in shown


def test_check_says_which_files_cannot_be_written(folder: Path) -> None:
    config = configuration(
        sources=SOURCES, reports={"path": "no/windows.ndjson"}, rejects={"path": "rejects.ndjson"}
    )
    done = command("check", write_configuration(folder, config))
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        f"  reports.path: cannot write '{folder}/no/windows.ndjson': there is no folder '{folder}/no'; "
        "make it or give another path\n"
    ) in done.stdout
    assert "rejects.path" not in done.stdout
    assert not (folder / "rejects.ndjson").exists(), "it only looks"


def test_check_says_which_tokens_and_certificates_cannot_be_used(folder: Path) -> None:
    (folder / "short.token").write_text("short")
    (folder / "server.pem").write_text("no certificate")
    tls = {"cert": "server.pem", "key": "server.pem"}
    http = {"kind": "http", "listen": "127.0.0.1:0", "spool": {"path": "spool"}, "tls": tls}
    config = configuration(
        sources=[http | {"tokens": [{"token_file": "short.token"}]}],
        export={"listen": "127.0.0.1:0", "tokens": [{"token_file": "none.token"}], "tls": tls},
    )
    done = command("check", write_configuration(folder, config))
    assert (done.returncode, done.stderr) == (0, "")
    unusable = f"tls: the certificate {folder}/server.pem and the key {folder}/server.pem cannot be used: "
    for message in (
        f"  export.tokens: The token file {folder}/none.token cannot be read: No such file or directory; "
        "correct token_file, or create it",
        f"  export.{unusable}",
        f"  sources[0].tokens: The token file {folder}/short.token: expected at least 16 characters, got 5: ",
        f"  sources[0].{unusable}",
    ):
        assert message in done.stdout
    assert not (folder / "spool").exists(), "it only looks"


def test_check_and_run_tell_a_model_that_the_reference_lacks(folder: Path) -> None:
    (folder / "ref.ndjson").write_bytes(ndjson(answers(np.random.default_rng(1), 600, labelled=True)))
    task = {"reference": {"path": "ref.ndjson"}, "models": {"erm": {}, "shadow": {}}}
    warning = (
        "tasks.t.models.shadow: the reference has no rows of this model: it will not be calibrated; add rows"
    )
    config = write_configuration(folder, configuration(sources=SOURCES, task=task))
    assert f"  {warning}\n" in command("check", config).stdout
    done = command("run", config)
    assert done.returncode == 0
    assert done.stderr.count(f"WARNING {warning}.\n") == 1


def test_a_port_alone_is_answered_with_the_address_to_write(run: Run) -> None:
    code, text = run(export={"listen": 9109})
    assert code == 2
    assert "export.listen: expected text, got 9109: write '127.0.0.1:9109'" in text
