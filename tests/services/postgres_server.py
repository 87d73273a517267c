"""A real PostgreSQL (Debian's package `postgresql`), its data in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

from tests.services.process import PATIENCE_SECONDS, ServiceUnavailable, free_ports, started, stop

PASSWORD = "hunter2-reader"
_LOGINS = "host all reader 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
_QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "autovacuum=off")


def _programs() -> Path:
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    program = shutil.which("initdb")
    if program is None:
        raise ServiceUnavailable("`initdb` of PostgreSQL is missing: run .ci/install-services.sh")
    return Path(program).resolve().parent


class PostgresServer:
    """One PostgreSQL. A context manager: it answers inside, and is gone outside.

    It refuses to run as root; there it runs as the user `postgres`, whom its package has made. The user
    `reader` needs `PASSWORD`, all others none.
    """

    def __init__(self) -> None:
        self._programs = _programs()
        (self.port,) = free_ports(1)
        self._as_user: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="blindsight-postgres-"))
        self._data = self._folder / "data"
        if os.getuid() == 0:
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                raise ServiceUnavailable("there is no user postgres to run PostgreSQL as") from None
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
            self._as_user = ["setpriv", *ids, "--clear-groups"]

    @property
    def dsn(self) -> str:
        """The address of the server, for its owner."""
        return f"host=127.0.0.1 port={self.port} user=owner dbname=postgres"

    @property
    def pid(self) -> int:
        """The process id of its first process."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if its first process is there."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> PostgresServer:
        words = ["--auth=trust", "--username=owner", "--encoding=UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            [*self._as_user, str(self._programs / "initdb"), "-D", str(self._data), *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            cwd=self._folder,
            check=False,
        )
        assert made.returncode == 0, f"PostgreSQL's initdb failed: {made.stdout}{made.stderr}"
        (self._data / "pg_hba.conf").write_text(_LOGINS)
        self.start()
        self.execute(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it with the data that it has."""
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", *_QUICK]
        words = [word for setting in settings for word in ("-c", setting)]
        program = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        log = self._folder / "postgres.log"
        self._process = started("PostgreSQL", [*self._as_user, *program, *words], log, self._ready)

    def halt(self) -> None:
        """End it at once, with all its connections; committed data is kept."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGINT)  # its fast shutdown; SIGTERM would wait for clients
            self._process.wait(PATIENCE_SECONDS)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Hold all its processes still inside the block: connections stay open and nothing answers."""
        pids = [self.pid, *map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop it, and remove its data."""
        self.halt()
        stop(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def replica(self) -> Iterator[PostgresServer]:
        """Yield a server with a copy of the data that only reads, as a replica does whose primary is gone."""
        self.halt()
        made = PostgresServer()
        try:
            subprocess.run(["cp", "-a", str(self._data), str(made._data)], check=True)
            (made._data / "standby.signal").touch()
            self.start()
            made.start()
            yield made
        finally:
            made.close()

    def connection(self) -> psycopg.Connection[Any]:
        """Return a connection for the test's own use, which commits what its block does."""
        return psycopg.connect(self.dsn)

    def execute(self, statement: str, *values: Any) -> None:
        """Do something, and commit it."""
        with self.connection() as connection:
            connection.execute(statement.encode(), values or None)

    def dump(self, schema: str, file: Path) -> None:
        """Back a schema up."""
        self._tool("pg_dump", "--format=custom", f"--schema={schema}", f"--file={file}")

    def restore(self, file: Path) -> None:
        """Put a schema back that is not there."""
        self._tool("pg_restore", "--exit-on-error", "--dbname=postgres", str(file))

    def _tool(self, name: str, *words: str) -> None:
        where = ["--host=127.0.0.1", f"--port={self.port}", "--username=owner"]
        if name == "pg_dump":
            where.append("postgres")
        program = str(self._programs / name)
        subprocess.run([program, *words, *where], check=True, timeout=PATIENCE_SECONDS)

    def _ready(self) -> bool:
        try:
            self.connection().close()
        except psycopg.Error:
            return False
        return True
