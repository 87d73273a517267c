"""Spark sessions: the checks before the start, the start and end, and messages about errors of Spark."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from monitor.base.errors import (
    BlindsightError,
    ClusterError,
    ConfigError,
    MissingExtraError,
    SinkError,
    SourceError,
)

MAJOR = 4
LEAST_JAVA = 17

_SETTINGS = {
    "spark.ui.enabled": "false",
    # One plan for one input: we distribute the rows ourselves, by their number for each model.
    "spark.sql.adaptive.enabled": "false",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.ui.showConsoleProgress": "false",
}
_SETTINGS_HERE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Java only moves bytes: within minutes, its second compiler costs more CPU time than it saves.
_SETTINGS_OF_REPLAYS = {
    f"spark.{who}.defaultJavaOptions": "-XX:TieredStopAtLevel=1" for who in ("driver", "executor")
}
TOO_NEW = (3, 14)  # pyarrow 20, the last version for pyspark 4.0, has no wheel for it
_HERE = re.compile(r"local(\[.*\]|-cluster\[.*\])?$|spark://(localhost|127\.0\.0\.1):\d+$")


def check_ready() -> None:
    """Raise an error if Spark cannot be started.

    Raises
    ------
    MissingExtraError
        pyspark or pyarrow is not installed.
    ConfigError
        pyspark has another major version, there is no suitable Java, or this Python is too new for pyspark.
    """
    try:
        import pyarrow  # noqa: F401 - pyspark alone does not install it
        import pyspark
    except ImportError as error:
        if sys.version_info >= TOO_NEW:
            raise ConfigError(
                "--engine spark: pyspark 4.0 cannot be installed on Python 3.14; "
                "use Python 3.11, 3.12 or 3.13"
            ) from error
        raise MissingExtraError("--engine spark", "spark") from error
    refuse_version(pyspark.__version__)
    refuse_java(os.environ)


def refuse_version(version: str) -> None:
    """Raise a ConfigError for a pyspark of another major version.

    Examples
    --------
    >>> refuse_version("3.5.1")
    Traceback (most recent call last):
    ...
    monitor.base.errors.ConfigError: --engine spark: pyspark 3.5.1 is installed, 4.x is needed: pip install 'blindsight[spark]'
    """  # noqa: E501 - the example shows a long line
    if version.partition(".")[0] != str(MAJOR):
        raise ConfigError(
            f"--engine spark: pyspark {version} is installed, {MAJOR}.x is needed: "
            "pip install 'blindsight[spark]'"
        )


def refuse_java(environment: Mapping[str, str]) -> None:
    """Raise a ConfigError if this environment has no Java, or a Java that is too old for Spark."""
    home = environment.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home, "bin")) if home else environment.get("PATH", ""))
    advice = f"install Java {LEAST_JAVA} or later and set JAVA_HOME to its folder"
    if path is None:
        where = f"in JAVA_HOME, {home}" if home else "on PATH"
        raise ConfigError(f"--engine spark needs Java, and there is none {where}; {advice}")
    try:
        output = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        raise ConfigError(f"--engine spark: {path} cannot be run ({error.strerror}); {advice}") from error
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < LEAST_JAVA:
        what = f"is of version {version[1]}" if version else "does not tell its version"
        raise ConfigError(f"--engine spark needs Java {LEAST_JAVA} or later, but {path} {what}; {advice}")


def settings_from(pairs: Sequence[str]) -> dict[str, str]:
    """Return the settings of Spark from texts of the form `key=value`.

    Raises
    ------
    ConfigError
        A text has another form.

    Examples
    --------
    >>> settings_from(["spark.executor.memory=4g"])
    {'spark.executor.memory': '4g'}
    """
    settings = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.startswith("spark."):
            raise ConfigError(
                f"--spark-conf: expected KEY=VALUE with a key of Spark's such as spark.executor.memory=4g, "
                f"got {pair!r}"
            )
        settings[key] = value
    return settings


@contextmanager
def started(master: str, settings: Mapping[str, str], name: str, is_replay: bool = False) -> Iterator[Any]:
    """Start a Spark session, stop it at the end, and convert its errors to errors of this package.

    Parameters
    ----------
    master : str
        ``local[*]``, ``spark://host:7077`` and so on.
    settings : mapping of str to str
        Settings of Spark. They override Blindsight's settings.
    name : str
        The name of the application in Spark.
    is_replay : bool
        True if the session is for a replay, which ends within minutes or hours.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every call
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = dict(_SETTINGS)
    if _HERE.match(master):  # the whole cluster is on this machine
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        ours |= _SETTINGS_HERE | (_SETTINGS_OF_REPLAYS if is_replay else {})
    session = None
    try:
        builder = SparkSession.builder.master(master).appName(name)
        for key, value in (ours | dict(settings)).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
    except (Py4JError, PySparkException) as error:
        raise meaning(str(error), master) from error
    finally:
        if session is not None:
            _stop(session)


def _stop(session: Any) -> None:
    """Stop Spark, which may have died, and the Java process that pyspark would keep until Python ends."""
    from py4j.protocol import Py4JError

    gateway = session.sparkContext._gateway
    with suppress(Py4JError, OSError):
        session.stop()
    end_java(gateway)


def end_java(gateway: Any) -> None:
    """End the Java process of a gateway if it still runs, so that the next session starts a new process."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    with suppress(Py4JError, OSError):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # ends the process
        process.wait()
    SparkContext._gateway = SparkContext._jvm = None


_OWN: Mapping[str, type[BlindsightError]] = {
    **{kind.__name__: kind for kind in (SourceError, SinkError, ConfigError, ClusterError)},
    "DamagedFileError": SourceError,  # its text has the position in the file
}
"""The errors of this package that executors may raise; only the text of an error reaches the driver."""

_PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.+)")
"""A pattern for a Python traceback; its group matches the error."""

_MEMORY = (
    r"MemoryError|OutOfMemoryError|Cannot allocate memory|[Ee]xit (code|status):? ?137|code 137"
    r"|exit code 52\b|Python worker exited unexpectedly|PythonWorkerFactory\.createWorker"
    r"|exceeding (physical )?memory limits"
    r"|beyond (the )?(physical|virtual) memory"
)


def meaning(text: str, master: str) -> BlindsightError:
    """Convert an error of Spark to an error of this package with a message for the user, and return it.

    Parameters
    ----------
    text : str
        The text of the error, with the errors of executors.
    master : str

    Examples
    --------
    >>> print(meaning("... monitor.base.errors.SourceError: p.parquet cannot be read: no", "local[*]"))
    p.parquet cannot be read: no
    """
    own = re.search(r"(?:monitor\.base\.errors|connectors\.formats\.files\.compressed)\.(\w+): (.+)", text)
    if own is not None:
        return _OWN.get(own[1], ClusterError)(own[2].strip())
    for pattern, sentence in _SENTENCES:
        if re.search(pattern, text):
            return ClusterError(sentence.format(master=master))
    errors = _PYTHON_ERROR.findall(text)
    if errors:
        return ClusterError(
            f"an executor's Python failed: {errors[-1][:300]}; --debug shows where; please report it"
        )
    lines = (line.strip(": ") for line in text.splitlines() if not line.startswith("An error occurred while"))
    first = next((line for line in lines if line), "no reason given")
    return ClusterError(f"Spark gave up: {first[:300]}; --debug shows all that it said")


_SENTENCES = (
    (
        _MEMORY,
        "an executor ran out of memory: give each more (--spark-conf spark.executor.memory=4g, and "
        "spark.executor.memoryOverhead for its Python), or fewer cores to share it (spark.executor.cores), "
        "or bound what a task keeps (labels.max_answers, labels.max_bytes)",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "a disk is full: that of --checkpoint, or the one where Spark keeps what it moves (spark.local.dir); "
        "make room and start again: what is committed is whole",
    ),
    (
        r"SaslAuthenticationException|SslAuthenticationException|SSLHandshakeException",
        "the Kafka brokers refuse the login or the certificate, or theirs is not trusted; check the source's "
        "options (sasl_…, ssl_…); --debug shows what Kafka's client said",
    ),
    (
        r"UnknownTopicOrPartitionException",
        "a topic of the source is not there; make it, or correct its name",
    ),
    (
        r"node assignment|No resolvable bootstrap urls|kafka.*TimeoutException",
        "no Kafka broker of the source answers, or it wants another security_protocol; start it, or correct "
        "its brokers and options",
    ),
    (
        r"JAVA_GATEWAY_EXITED",
        "Spark's Java ended as it was started; above stands what it said: most often it cannot have the "
        "memory that it asks for (--spark-conf spark.driver.memory=1g), or JAVA_HOME or SPARK_HOME is wrong",
    ),
    (
        r"All masters are unresponsive|Failed to connect to master|Connection refused",
        "no Spark master answers at {master}; start it, or correct --master",
    ),
    (
        r"InvalidClassException|local class incompatible|UnsupportedClassVersionError",
        f"the Spark at {{master}} is not of the version that is installed here; both must be the same "
        f"{MAJOR}.x",
    ),
    (
        r"No module named '(connectors|monitor|msgspec|numpy|pyarrow)'",
        "the executors have no Blindsight: install the same 'blindsight[spark]' on each worker, and name its "
        "Python in PYSPARK_PYTHON",
    ),
    (
        r"PYTHON_VERSION_MISMATCH|different version .*than that in driver",
        "the executors run another Python than this one; name the same in PYSPARK_PYTHON on every worker",
    ),
    (
        r"Could not parse Master URL",
        "--master: Spark cannot read {master!r}; give local[*], local[4] or spark://HOST:7077",
    ),
    (
        r"Master removed our application",
        "the workers of {master} could not start an executor; see their logs, and give each no more memory "
        "and cores than a worker has (--spark-conf spark.executor.memory=1g)",
    ),
    (
        r"ExecutorLostFailure|Job aborted due to stage failure: .*exited",
        "executors were lost more often than Spark tries again (spark.task.maxFailures); see their logs: "
        "most often memory is short: --spark-conf spark.executor.memory=4g",
    ),
)
