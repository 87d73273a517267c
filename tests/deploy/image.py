"""Builds the container image and runs it: first scrape, health check, refit, SIGTERM, a second start.

    python -m tests.deploy.image

Needs Linux, root, the Debian packages buildah and debootstrap, and what apt and pip fetch from; no container
engine and no registry of images. The image is that of `deploy/docker/Dockerfile`, built by buildah in chroot
isolation: as it is, with pyarrow, and with a driver for PostgreSQL. What it is based on is made of Debian's
packages (Python, and pip as a virtual environment in /usr/local), from where apt of this machine has its own;
pip has its settings here.

The image runs as its configuration says, as user 65532 in namespaces of its own for processes and mounts: its
root is read-only, and so is the folder of the configuration; only the folder of the state can be written, and
not even that where the state is in PostgreSQL.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.agent.test_refit_daemon import append, config, until_refitted
from tests.daemon import DaemonProcess, configuration, ndjson, read_windows
from tests.harness import ROOT, run
from tests.services.postgres_server import PostgresServer
from tests.services.process import free_ports
from tests.streams import answers

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
BASE = "localhost/blindsight-base"
PACKAGES = "python3,python3-venv,ca-certificates"
STATE = Path("/var/lib/blindsight")
EXTRAS = ("kafka-codecs", "files,kafka-codecs", "kafka-codecs,postgres")

_WRITABLE = r"find / \( -path /proc -o -path /dev \) -prune -o -type d -writable -print -prune 2>&- || true"
"""Prints the folders that this user may write to."""

_SETUP = """
mount --bind "$1" "$1"
mount --bind "$2" "$1/etc/blindsight"
mount -o remount,bind,ro "$1/etc/blindsight"
mount --bind "$3" "$1/var/lib/blindsight"
if [ "$4" = no ]; then mount -o remount,bind,ro "$1/var/lib/blindsight"; fi
mount --bind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -o remount,bind,ro "$1"
user=$5 root=$1
shift 5
exec setpriv --no-new-privs chroot --userspec="$user" --groups= "$root" env -i "$@"
"""
"""Mounts what `docker run --read-only` with two volumes would, or none that is writable; becomes the user."""


def _output(*words: str | Path, **rest: Any) -> str:
    """Return the output of a command; raise AssertionError with all of it where it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **rest)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


class Images:
    """buildah with images and containers of its own.

    Parameters
    ----------
    folder : Path
        For all that it keeps.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kept = ("--root", folder / "images", "--runroot", folder / "run", "--storage-driver", "vfs")
        self._words = ("buildah", *kept)

    def buildah(self, *words: str | Path) -> str:
        """Return the output of buildah."""
        return _output(*self._words, *words, env={**os.environ, "TMPDIR": str(self._folder)}).strip()

    def container(self, image: str) -> tuple[str, Path]:
        """Return a container's name, and where its files are."""
        name = self.buildah("from", "--pull=never", image)
        return name, Path(self.buildah("mount", name))

    def make_base(self) -> None:
        """Make the Dockerfile's `BASE`: `python`, and a pip that can be taken away."""
        name, root = self.container("scratch")
        release = dict(re.findall(r'^(\w+)="?(.*?)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
        filters = ("Created-By: Packages", "Component: main", f"Release: {release['VERSION_CODENAME']}")
        [mirror, *_] = _output("apt-get", "indextargets", "--format", "$(REPO_URI)", *filters).splitlines()
        words = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", release["VERSION_CODENAME"])
        _output(*words, root, mirror)
        _output("chroot", root, "python3", "-m", "venv", "/usr/local")
        for rest in ("var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / rest)
        self.buildah("commit", "--quiet", "--rm", name, BASE)

    def build(self, extras: str) -> str:
        """Return the image with these extras."""
        name = f"localhost/blindsight:{extras.replace(',', '-')}"
        pip = self._folder / "pip.conf"
        settings = pip_settings()
        pip.write_text("\n".join(["[global]", *(f"{key} = {value}" for key, value in settings.items())]))
        files = {value for value in settings.values() if os.path.isfile(value)}
        volumes = [f"{each}:{each}:ro" for each in files] + [f"{pip}:/etc/pip.conf:ro"]
        words = ["build", "--isolation", "chroot", "--pull=never", "--format", "docker", "--tag", name]
        words += [word for volume in volumes for word in ("--volume", volume)]
        words += ["--build-arg", f"BASE={BASE}", "--build-arg", f"EXTRAS={extras}"]
        ignored = DOCKERFILE.with_name("Dockerfile.dockerignore")
        self.buildah(*words, "--ignorefile", ignored, "--file", DOCKERFILE, ROOT)
        return name

    def layers(self, image: str) -> list[int]:
        """Return the bytes of each layer; the first are the base's."""
        manifest = json.loads(json.loads(self.buildah("inspect", "--type", "image", image))["Manifest"])
        return [layer["size"] for layer in manifest["layers"]]

    def settings(self, image: str) -> dict[str, Any]:
        """Return the image's settings of how it runs."""
        config: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", image))["Docker"]
        return config["config"]  # type: ignore[no-any-return]


def pip_settings() -> dict[str, str]:
    """Return the settings of pip here, from files and the environment."""
    output = _output(sys.executable, "-m", "pip", "config", "list")
    return dict(re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", output, re.MULTILINE))


def words_in(
    root: Path, folder: Path, settings: dict[str, Any], command: Sequence[str], writable: bool = True
) -> list[str]:
    """Return a command line that runs a command in the image; `folder` has its configuration, its `state`
    the state.

    `writable` says whether it may write to the state. The process is the child of the one that is started,
    and the first of its namespace, as in a container.
    """
    own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _SETUP, "sh"]
    own += [str(root), str(folder), str(folder / "state"), "yes" if writable else "no", settings["User"]]
    return [*own, f"--chdir={settings['WorkingDir']}", *settings["Env"], *command]


def process_in(daemon: DaemonProcess) -> int:
    """Return the id of the process in the image."""
    pid = daemon.process.pid
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return int(child)


def works(root: Path, settings: dict[str, Any], folder: Path) -> Iterator[str]:
    """Run an image; what came of it."""
    state = folder / "state"
    state.mkdir()
    folder.chmod(0o755)  # for the image's user
    append(state, 0, 400)
    os.chown(state, *map(int, settings["User"].split(":")))
    (root / "etc" / "blindsight").mkdir()
    program = words_in(root, folder, settings, [*settings["Entrypoint"], *settings["Cmd"]])
    for number, rows in enumerate((400, 800)):
        began = time.monotonic()
        with DaemonProcess(folder, _config(), program=program) as daemon:
            daemon.metrics()
            scraped = time.monotonic() - began
            pid = process_in(daemon)
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            assert re.search(r"^Uid:\t65532\t65532\t65532\t65532$", status, re.MULTILINE), status
            assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE), status
            if number:
                append(state, 400, 400)
            until_refitted(daemon, rows)
            check = settings["Healthcheck"]["Test"]
            assert check[0] == "CMD"
            healthy = [word.replace("9109", str(daemon.port)) for word in check[1:]]
            _output(*words_in(root, folder, settings, healthy))
            os.kill(pid, signal.SIGTERM)
            code = daemon.process.wait(60)
        assert code == 0, daemon.log
        summary = f"scraped after {scraped:.1f} s, healthy, {rows} rows refitted, SIGTERM: exit code {code}"
        yield f"  start {number + 1}: {summary}"
    assert len(read_windows(state / "windows.ndjson")) == 16
    writable = _output(*words_in(root, folder, settings, ["sh", "-c", _WRITABLE])).split()
    assert writable == [str(STATE)]
    yield f"  may write to: {', '.join(writable)}"


def works_without_a_folder(root: Path, settings: dict[str, Any], folder: Path) -> Iterator[str]:
    """Run an image that may write nowhere, with all that it keeps in a real PostgreSQL; what came of it."""
    (folder / "state").mkdir()
    folder.chmod(0o755)
    (root / "etc" / "blindsight").mkdir()
    (port,) = free_ports(1)
    rows = answers(np.random.default_rng(0), 300)
    program = words_in(root, folder, settings, [*settings["Entrypoint"], *settings["Cmd"]], writable=False)
    with PostgresServer() as server:
        store = {"postgres": server.dsn, "prefix": "image", "every_seconds": 600, "lease_seconds": 2}
        config = configuration(sources=[{"kind": "http", "listen": f"127.0.0.1:{port}"}], store=store)
        with DaemonProcess(folder, config, program=program) as daemon:
            daemon.metrics()
            url, headers = f"http://127.0.0.1:{port}/v1/predictions", {"content-type": "application/x-ndjson"}
            status = httpx.post(url, content=ndjson(rows), headers=headers, timeout=60).status_code
            os.kill(process_in(daemon), signal.SIGKILL)
        yield f"  start 1: {len(rows)} rows posted, answer {status}, SIGKILL before the first checkpoint"
        with DaemonProcess(folder, config, program=program) as daemon:
            daemon.until_used(len(rows))
            os.kill(process_in(daemon), signal.SIGTERM)
            code = daemon.process.wait(60)
        assert code == 0, daemon.log
        yield f"  start 2: {len(rows)} rows used, SIGTERM: exit code {code}"
    words = words_in(root, folder, settings, ["sh", "-c", _WRITABLE], writable=False)
    assert _output(*words).split() == []
    yield "  may write nowhere"


def _config() -> dict[str, Any]:
    return {**config(STATE), "store": {"path": str(STATE / "store")}}


def table() -> Iterator[str]:
    """Yield the image as it is, with pyarrow, and with a driver for PostgreSQL."""
    with tempfile.TemporaryDirectory() as folder:
        images = Images(Path(folder))
        images.make_base()
        for extras in EXTRAS:
            image = images.build(extras)
            layers, name = images.layers(image), f"EXTRAS={extras}"
            yield f"{name}: {sum(layers[1:]) / 1e6:.0f} MB on a base of {layers[0] / 1e6:.0f} MB"
            container, root = images.container(image)
            work = Path(folder, extras)
            work.mkdir()
            tried = works_without_a_folder if "postgres" in extras else works
            yield from tried(root, images.settings(image), work)
            images.buildah("rm", container)


if __name__ == "__main__":
    run(table, keep=False)
