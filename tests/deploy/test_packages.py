"""The packages: the source distribution is the whole tree; a wheel made of it has all that commands need."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import yaml

from monitor import __version__
from tests.daemon import DaemonProcess, configuration
from tests.services.process import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]


Words = list[str | Path]


def python_with_pip(folder: Path) -> Path:
    """Return this Python, or a new one in the folder where this one has no pip, whose installation takes
    seconds.
    """
    if importlib.util.find_spec("pip") is not None:
        return Path(sys.executable)
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Words:
    """Return a command to be followed by ``--python`` and an environment's Python, which needs no pip."""
    return [python_with_pip(tmp_path_factory.mktemp("pip")), "-m", "pip", "--python"]


@pytest.fixture(scope="module")
def builder(pip: Words, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with what builds packages: made once, and not by pip for each."""
    folder = tmp_path_factory.mktemp("builder")
    venv.create(folder)
    python = folder / "bin" / "python"
    words = [*pip, python, "install", "-q", "--no-compile", "hatchling", "editables"]
    subprocess.run(words, check=True, timeout=PATIENCE_SECONDS)
    return python


@pytest.fixture(scope="module")
def unpacked(builder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution of what git tracks, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    build = "import sys; from hatchling.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run(
        [builder, "-c", build, folder], cwd=ROOT, check=True, timeout=PATIENCE_SECONDS, capture_output=True
    )
    [archive] = folder.glob("blindsight-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def installed(pip: Words, builder: Path, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel that is made from it; what it depends on is this environment's."""
    target = tmp_path_factory.mktemp("wheel")
    words = [*pip, builder, "install", "-q", "--no-deps", "--no-build-isolation", "--target", target]
    subprocess.run([*words, unpacked], check=True, timeout=PATIENCE_SECONDS)
    return target


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (__version__, "Apache-2.0")


def test_the_workflow_runs_what_ci_runs() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]["tests"]
    assert "bash .ci/run ${{ matrix.python }}" in [step.get("run") for step in job["steps"]]
    supported = re.search(
        r"^supported=\((.+)\)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert supported is not None
    assert sorted(supported[1].split()) == sorted(job["strategy"]["matrix"]["python"])


def blindsight(installed: Path, *arguments: str | Path) -> list[str | Path]:
    return ["env", f"PYTHONPATH={installed}", sys.executable, "-m", "monitor.cli", *arguments]


def test_the_source_distribution_has_every_file_that_git_tracks(unpacked: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout: what it should hold is not known")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    packed = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert set(listed.stdout.splitlines()) - packed == set()
    assert not [name for name in packed if re.search(r"\.pyc$|(^|/)(state|\.venv)/", name)]


def test_the_client_is_a_wheel_of_its_own_that_needs_nothing(
    pip: Words, builder: Path, installed: Path, tmp_path: Path
) -> None:
    assert not list(installed.rglob("blindsight_client*")), "a serving image would get numpy with it"
    python = tmp_path / "venv" / "bin" / "python"
    venv.create(tmp_path / "venv")
    client = ROOT / "connectors" / "client"
    words = [*pip, builder, "wheel", "-q", "--no-build-isolation", "--wheel-dir", tmp_path, client]
    subprocess.run(words, check=True, timeout=PATIENCE_SECONDS)
    wheels = list(tmp_path.glob("*.whl"))
    subprocess.run([*pip, python, "install", "-q", *wheels], check=True, timeout=PATIENCE_SECONDS)
    code = (
        "from blindsight_client import Client; c = Client('http://127.0.0.1:9'); c.log('a', 0.5); c.close(0)"
    )
    subprocess.run([python, "-I", "-c", code], check=True, timeout=PATIENCE_SECONDS, cwd=tmp_path)
    listed = [*pip, python, "list", "--format=freeze"]
    done = subprocess.run(listed, check=True, timeout=PATIENCE_SECONDS, capture_output=True, text=True)
    assert done.stdout.split() == ["blindsight-client==0.1.0"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["version"], "blindsight "),
        (["schema"], '"$defs"'),
        (["check", "config.example.yaml"], "The configuration is valid."),
        (["rules", "config.example.yaml"], "alert: BlindsightObjectiveBreached"),
        (["rules", "--format", "operator"], "kind: PrometheusRule"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_wheel_made_from_it_has_what_a_command_needs(
    installed: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    shutil.copy(ROOT / "config.example.yaml", tmp_path)
    words = blindsight(installed, *arguments)
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


DOOR = (
    "import blindsight as bs, numpy as np; p = np.random.default_rng(0).random(600); truth = p > 0.5;"
    "monitor = bs.Monitor([False, True]).fit({'p': p, 'truth': truth}, scores='p', label='truth');"
    "print(bs.__file__, bs.__version__, monitor.estimate({'p': p}), sep='\\n')"
)


def opened_door(python: str | Path, site: Path, folder: Path) -> list[str]:
    """Return the output of a script that imports `blindsight`; its other packages are this environment's."""
    paths = os.pathsep.join([str(site), *(path for path in sys.path if path.endswith("site-packages"))])
    done = subprocess.run(
        ["env", f"PYTHONPATH={paths}", python, "-c", DOOR],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_wheel_has_the_door_of_notebooks(installed: Path, tmp_path: Path) -> None:
    place, version, result = opened_door(sys.executable, installed, tmp_path)
    assert (Path(place), version) == (installed / "blindsight.py", __version__)
    assert result.startswith("MonitorResult: 1 model ")


def test_an_editable_installation_has_it_too(pip: Words, builder: Path, tmp_path: Path) -> None:
    words = [*pip, builder, "install", "-q", "--no-deps", "--no-build-isolation", "-e", ROOT]
    subprocess.run(words, check=True, timeout=PATIENCE_SECONDS)
    [site] = builder.parents[1].glob("lib/python3*/site-packages")
    place, version, result = opened_door(builder, site, tmp_path)
    assert (Path(place), version) == (site / "blindsight.py", __version__)
    assert (ROOT / "monitor" / "notebook" / "blindsight.py").read_bytes() == Path(place).read_bytes()
    assert result.startswith("MonitorResult: 1 model ")


def test_its_daemon_serves_the_page_with_the_files_that_it_asks_for(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").touch()
    config = configuration(sources=[{"kind": "file", "path": "in.ndjson", "follow": True}])
    program = [str(word) for word in blindsight(installed, "run", tmp_path / "config.yaml")]
    with DaemonProcess(tmp_path, config, program=program) as daemon:
        page = daemon.get("/")[1]
        assets = set(re.findall(r'(?:src|href)="(assets/[^"]+)"', page))
        assert len(assets) >= 2
        assert [daemon.get(f"/{name}")[0] for name in assets] == [200] * len(assets)
        assert "<h2>BlindsightAgentDown</h2>" in daemon.get("/runbooks/BlindsightAgentDown")[1]
