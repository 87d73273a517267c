"""Spark for tests: whether this machine can run it, a standalone master with workers, killing an executor."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree

from connectors.spark.session import end_java
from tests.services.kafka_broker import fetched
from tests.services.process import (
    CACHE,
    PATIENCE_SECONDS,
    ServiceUnavailable,
    answers,
    descendants,
    free_ports,
    java_words,
    locked,
    started,
    stop,
    tail,
    wait_until,
)

KAFKA_POM = Path(__file__).with_name("spark-kafka.xml")
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def check_spark() -> None:
    """Raise `ServiceUnavailable` where Spark cannot run."""
    if importlib.util.find_spec("pyspark") is None and sys.version_info >= (3, 14):
        raise ServiceUnavailable("Spark needs pyspark 4.0, whose pyarrow < 21 has no wheel for Python 3.14")
    if importlib.util.find_spec("pyspark") is None:
        raise ServiceUnavailable("Spark needs pyspark: pip install '.[spark]'")
    if shutil.which("java") is None:
        raise ServiceUnavailable("Spark needs `java` 17: run .ci/install-services.sh")


def spark_home() -> Path:
    """Return the installed Spark, copied to a place that stays; for `SPARK_HOME`.

    An archive of classes fits the jars of one path and time alone, and each clone installs its own.
    """
    import pyspark

    installed = Path(str(pyspark.__file__)).parent
    home = CACHE / f"spark-{pyspark.__version__}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / f"{home.name}.lock"):
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                for name in ("bin", "jars", "python"):
                    shutil.copytree(installed / name, Path(scratch, "home", name))
                # Workers of a local cluster leave there what they gave to their executors.
                Path(scratch, "home", "work").symlink_to(tempfile.gettempdir())
                Path(scratch, "home").rename(home)
    return home


def short_lived() -> dict[str, str]:
    """Return the environment in which the Javas of a Spark that is started are told that they work for
    seconds.
    """
    home = spark_home()
    return {"SPARK_HOME": str(home), **_environment(java_words(home.name, home / "jars", _use))}


@contextmanager
def one_java() -> Iterator[None]:
    """Start one Java for all Sparks that this process starts inside the block, one after the other.

    It has loaded and compiled most of what the second one needs. `short_lived` is in the environment.
    """
    from pyspark import SparkConf, SparkContext

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = SparkConf(loadDefaults=False)
    with suppress(ServiceUnavailable):
        settings.set("spark.jars", kafka_jars())  # later it loads no more
    SparkContext._ensure_initialized(conf=settings)
    try:
        yield
    finally:
        end_java(SparkContext._gateway)


def _environment(words: Sequence[str]) -> dict[str, str]:
    text = " ".join(words)
    executors = f'-Dspark.executor.extraJavaOptions="{text}"'
    return {"SPARK_SUBMIT_OPTS": f"{text} {executors}", "SPARK_DAEMON_JAVA_OPTS": text}


_USE = """
import sys
from connectors.spark.session import started

with started("local[1]", {}, "used") as session:
    rows = session.range(100).selectExpr("id", "id % 3 as k")
    rows = rows.mapInArrow(lambda given: given, "id long, k long")
    rows.repartition(2, "k").sortWithinPartitions("id").write.parquet(sys.argv[1])
    stream = session.readStream.schema("id long, k long").parquet(sys.argv[1])
    batches = stream.writeStream.foreachBatch(lambda rows, number: rows.collect())
    batches.trigger(availableNow=True).start().awaitTermination()
"""


def _use(words: Sequence[str]) -> None:
    """Do a little of all that the tests do with Spark, its driver's Java with these options."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", _USE, f"{folder}/table"],
            env={**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_SUBMIT_OPTS": " ".join(words)},
            capture_output=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        )


_LACKING = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")


def kafka_jars() -> str:
    """Return the jars with which Spark reads Kafka, fetched by Maven where they are not there yet; for
    `spark.jars`.

    Raises
    ------
    ServiceUnavailable
        Maven is missing, or they cannot be fetched.
    """
    version = ElementTree.parse(KAFKA_POM).findtext("{*}properties/{*}spark.version")
    folder = fetched(KAFKA_POM, CACHE / f"spark-kafka-{version}")
    return ",".join(str(path) for path in sorted(folder.iterdir()) if path.name.startswith(_LACKING))


class SparkCluster:
    """A standalone master and workers of one core and 1 GiB each, on 127.0.0.1; to be entered.

    Parameters
    ----------
    workers : int

    Raises
    ------
    ServiceUnavailable
        pyspark or Java is missing.
    """

    def __init__(self, workers: int = 2) -> None:
        check_spark()
        self._workers = workers
        self._folder = Path(tempfile.mkdtemp(prefix="blindsight-spark-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port, self._page, *self._pages = free_ports(2 + workers)

    @property
    def master(self) -> str:
        """Its address, for `--master`."""
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> SparkCluster:
        try:
            words = ["master.Master", "--host", "127.0.0.1", "--port", str(self.port)]
            self._start("master", [*words, "--webui-port", str(self._page)], lambda log: answers(self.port))
            for number, page in enumerate(self._pages):
                words = ["worker.Worker", self.master, "--host", "127.0.0.1", "-c", "1", "-m", "1g"]
                words += ["-d", str(self._folder), "--webui-port", str(page)]
                self._start(f"worker-{number}", words, lambda log: "Successfully registered" in tail(log, 50))
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, name: str, words: Sequence[str], ready: Callable[[Path], bool]) -> None:
        home = spark_home()
        log = self._folder / f"{name}.log"
        settings = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        java = ["env", *(f"{key}={value}" for key, value in settings.items()), f"{home}/bin/spark-class"]
        words = [*java, f"org.apache.spark.deploy.{words[0]}", *words[1:]]
        process = started(f"Spark's {name}", words, log, lambda: ready(log))
        self._processes.append(process)

    def close(self) -> None:
        """End the workers, then the master."""
        for process in reversed(self._processes):
            stop(process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def executors(ancestor: int) -> list[int]:
    """Return the process ids of executors among the descendants of a process."""
    return [pid for pid in descendants(ancestor) if is_executor(pid)]


def pythons(ancestor: int) -> list[int]:
    """Return the process ids of the Pythons that run tasks: those that Spark's own Python has forked."""
    daemons = [pid for pid in descendants(ancestor) if b"pyspark.daemon" in words_of(pid)]
    return [pid for daemon in daemons[:1] for pid in descendants(daemon)[1:]]


def is_executor(pid: int) -> bool:
    """Return whether a process is the Java of an executor."""
    words = words_of(pid)
    return _EXECUTOR in words and words.split(b"\0")[0].endswith(b"java")


def words_of(pid: int) -> bytes:
    """Return the command line of a process, its words ended by NUL; nothing of one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill_an_executor() -> int:
    """Kill one of this process's executors, as soon as there is one; its process id."""
    wait_until(lambda: bool(executors(os.getpid())), "an executor is there")
    pid = executors(os.getpid())[0]
    os.kill(pid, signal.SIGKILL)
    return pid


def kill_pythons(enough: threading.Event) -> None:
    """Kill each of the Pythons that run tasks of this process until it is enough; one may be done already."""
    while not enough.wait(0.01):
        for pid in pythons(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
