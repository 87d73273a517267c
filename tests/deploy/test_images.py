"""The image and the unit of systemd: linted, hardened, and the image's steps run in a fresh environment."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.agent.test_refit_daemon import append, config, until_refitted, workers
from tests.daemon import DaemonProcess, configuration
from tests.deploy.confined import allowed, setting
from tests.deploy.test_packages import python_with_pip
from tests.services.process import PATIENCE_SECONDS, in_ci

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
UNIT = ROOT / "deploy" / "systemd" / "blindsight.service"


def steps() -> list[tuple[str, str]]:
    """Return instruction and what it says, continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def tool(name: str) -> str:
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert path or not in_ci(), f"{name} is missing: it comes with the extra `test`"
    if path is None:
        pytest.skip(f"{name} is missing: it comes with the extra `test`")
    return path


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(
        [tool("hadolint"), str(DOCKERFILE)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    # It would find something: here a tag that moves.
    moved = DOCKERFILE.read_text(encoding="utf-8").replace("FROM ${BASE}", "FROM python:latest")
    worse = subprocess.run(
        [tool("hadolint"), "-"],
        input=moved,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert "DL3007" in worse.stdout


def test_the_last_stage_is_not_roots_has_no_installer_and_says_whether_it_is_well() -> None:
    words = [word for word, _ in steps()]
    last = steps()[len(words) - 1 - words[::-1].index("FROM") :]
    instructions = dict(last)
    assert words.count("FROM") == 2
    assert all(rest.startswith("${BASE}") for word, rest in steps() if word == "FROM")
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-[a-z]+", steps()[0][1])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instructions["USER"])
    assert "pip uninstall --yes pip" in instructions["RUN"]
    assert "install" not in instructions["RUN"].replace("uninstall", "").replace("install -d", "")
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /opt/blindsight /opt/blindsight"]
    assert json.loads(instructions["ENTRYPOINT"]) == ["blindsight"]
    assert "HEALTHCHECK" in instructions


def test_all_that_the_image_copies_is_sent_and_nothing_else() -> None:
    lines = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name
        for word, rest in steps()
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    assert sent == copied
    assert "*" in lines
    assert all((ROOT / name).exists() for name in copied)


def test_the_images_steps_install_an_agent_that_runs_and_answers_its_health_check(tmp_path: Path) -> None:
    """Both stages as one folder: `/src`, `/opt` lie in the test's. The long form is `tests.deploy.image`."""
    source = tmp_path / "src"
    source.mkdir()
    for word, rest in steps():
        if word == "COPY" and not rest.startswith("--from"):
            *names, _ = rest.split()
            for name in names:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, source / name)
    builder = python_with_pip(tmp_path / "builder")
    [build, final] = [rest for word, rest in steps() if word == "RUN"]
    [_, arguments] = [rest for word, rest in steps() if word == "ARG"]
    line = build.replace("/opt/blindsight", str(tmp_path / "blindsight"))
    environment = {"PATH": f"{builder.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "PIP_NO_COMPILE": "1"}
    name, _, value = arguments.partition("=")
    subprocess.run(
        ["/bin/sh", "-ec", line], cwd=source, env=environment | {name: value}, check=True, timeout=600
    )
    assert "pip uninstall" in final

    python = tmp_path / "blindsight" / "bin" / "python"
    missing = subprocess.run(
        [python, "-m", "pip"], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert "No module named pip" in missing.stderr
    shutil.rmtree(source)
    program = [
        "env",
        "-u",
        "PYTHONPATH",
        str(tmp_path / "blindsight" / "bin" / "blindsight"),
        "run",
        str(tmp_path / "config.yaml"),
    ]
    (tmp_path / "in.ndjson").touch()
    config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
    with DaemonProcess(tmp_path, config, program=program) as daemon:
        [check] = [rest for word, rest in steps() if word == "HEALTHCHECK"]
        words = json.loads(check[check.index("[") :])
        code = words[2].replace("9109", str(daemon.port))
        assert subprocess.run([python, "-c", code], timeout=PATIENCE_SECONDS, check=False).returncode == 0
    assert (
        subprocess.run(
            [python, "-c", code], timeout=PATIENCE_SECONDS, check=False, capture_output=True
        ).returncode
        == 1
    )


def unit(tmp_path: Path) -> Path:
    """Return the unit with a program that is there."""
    path = tmp_path / "blindsight.service"
    text = UNIT.read_text(encoding="utf-8")
    path.write_text(text.replace("/opt/blindsight/bin/blindsight", "/bin/true"), encoding="utf-8")
    return path


def test_systemd_reads_the_unit_and_finds_it_well_confined(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is missing: it comes with systemd")
    words = [program, "verify", str(unit(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # Its scale: 0 is confined, 10 is not; "OK" ends at 5.
    words = [program, "security", "--offline=true", "--threshold=20", str(unit(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process had at once."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert match is not None
    return 1024 * int(match[1])


def test_the_daemon_refits_under_the_units_filter_and_within_its_memory(tmp_path: Path) -> None:
    """Its filter forbids to change priorities, which the worker of the refits does elsewhere."""
    if shutil.which("systemd-analyze") is None or find_library("seccomp") is None:
        pytest.skip("systemd-analyze or libseccomp.so.2 is missing: both come with systemd")
    assert {"setpriority", "nice"} & allowed(UNIT) == set(), "what is tested here is still forbidden"
    append(tmp_path, 0, 400)
    words = [sys.executable, "-m", "tests.deploy.confined", str(UNIT), sys.executable, "-m", "monitor.cli"]
    words += ["run", str(tmp_path / "config.yaml")]
    try:
        with DaemonProcess(tmp_path, config(tmp_path), program=words) as daemon:
            until_refitted(daemon, 400)
            pids = [daemon.process.pid, *workers(daemon)]
            for pid in pids:
                assert "Seccomp:\t2\n" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            peaks = [peak_bytes(pid) for pid in pids]
            assert daemon.metrics().value("refit_failures_total", task="t") == 0
            assert daemon.end()[0] == 0
    finally:
        with suppress(OSError):  # there is one where this user may make one
            (Path("/sys/fs/cgroup/memory") / f"blindsight-{daemon.process.pid}").rmdir()
    [bound] = setting(UNIT, "MemoryMax")
    print(json.dumps({"MemoryMax": bound, "peak_bytes": peaks}), re.findall("memory bound: .*", daemon.log))
    assert bound == "2G"
    assert len(peaks) == 2
    assert sum(peaks) < 2 << 30


def test_the_units_commands_are_commands_of_ours() -> None:
    settings = dict(
        line.split("=", 1)
        for line in UNIT.read_text(encoding="utf-8").splitlines()
        if line.startswith("Exec")
    )
    assert shlex.split(settings["ExecStart"])[1] == "run"
    assert shlex.split(settings["ExecStartPre"])[1] == "check"
    assert "-HUP $MAINPID" in settings["ExecReload"]
