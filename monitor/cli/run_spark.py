"""The command `blindsight run --engine spark`: a stream from Kafka on Spark, and the driver's metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.base.errors import ConfigError, InUseError
from monitor.cli.daemon import signals
from monitor.cli.outputs import exporter
from monitor.cli.spark_outputs import Outputs, refuse_nowhere
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.config.root import Config, KafkaSourceConfig
from monitor.export.http.server import HttpServer
from monitor.export.page.routes import page_routes
from monitor.export.page.windows import RecentWindows
from monitor.export.prometheus.collector import registry
from monitor.export.sinks.line_file import cannot_write
from monitor.reports.reader import from_json
from monitor.reports.views import AgentView, EngineView, LabelOutcome, SourceView
from monitor.store.lock import FolderLock

if TYPE_CHECKING:
    from connectors.spark.ledger import Committed
    from connectors.spark.streaming import Steps

log = logging.getLogger("blindsight")

_WAKE_SECONDS = 0.2
_LOOK_SECONDS = 1.0  # the shortest time between checks for old windows in a stream without messages
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
"""The package of Spark's reader of Kafka, in the version of the installed pyspark."""


@dataclass(frozen=True, slots=True)
class StreamOnSpark:
    """The settings of a stream on Spark.

    Parameters
    ----------
    checkpoint : Path
        Folder of the state.
    out : Path or None
        Folder of the windows; None if they go to a topic only.
    master : str
    settings : sequence of str
        Settings of Spark, as ``key=value``.
    batch : int
        The largest number of messages in a batch.
    every_seconds : float
        Time between the starts of two batches.
    once : bool
        True to end after the messages that existed at the start.
    """

    checkpoint: Path
    out: Path | None
    master: str = "local[*]"
    settings: Sequence[str] = ()
    batch: int = 1_000_000
    every_seconds: float = 10.0
    once: bool = False


def run_on_spark(config_path: str, where: StreamOnSpark) -> int:
    """Read the configured topics until a signal, or with `once` until their end, and return the exit code.

    Raises
    ------
    ConfigError, MissingExtraError
        The configuration, a folder, Spark or Java cannot be used. Nothing was read.
    SinkError
        A batch's windows could not be written. The next start computes the batch again.
    ClusterError
        Spark could not be reached, or failed.
    """
    config = load_config(config_path)
    source = only_source(config)
    refuse_nowhere(where.out, config)

    from connectors.spark.session import check_ready, settings_from, started

    check_ready()

    from connectors.spark.ledger import CheckpointLedger
    from connectors.spark.messages import Stream
    from connectors.spark.reader_options import reader_options
    from connectors.spark.streaming import Steps, started_query

    spark_settings = _with_kafka(settings_from(where.settings))
    reader_options(source)
    stream = Stream(config, ReferenceTrial(config).engine_settings(event_time=True), source)
    stopping = threading.Event()
    with signals(stopping, threading.Event()), ExitStack() as stack:
        stack.callback(_locked(where.checkpoint).release)
        ledger = CheckpointLedger(where.checkpoint.resolve(), config)
        outputs = Outputs(where.out, config, ledger, stopping)
        stack.callback(outputs.close)
        recent = RecentWindows()
        steps = Steps(
            stream, ledger, outputs.write, lambda batch: recent.add([from_json(x) for x in batch.lines])
        )
        session = stack.enter_context(started(where.master, spark_settings, "blindsight run"))
        steps.redo(session)
        query = started_query(session, steps, where.batch, where.every_seconds, where.once)
        stack.callback(query.stop)
        stack.callback(outputs.interrupt)  # first: a batch that waits for brokers must end
        server = _served(steps, query, recent, outputs)
        stack.callback(server.stop)
        log.info("Running: metrics on port %d of %s.", server.port, config.export.listen.rsplit(":", 1)[0])
        _wait(steps, session, query, stopping, None if where.once else where.every_seconds)
        log.info("Stopping: %s.", "asked to" if stopping.is_set() else "all is read")
    return 0


def _wait(
    steps: Steps, session: Any, query: Any, stopping: threading.Event, every_seconds: float | None
) -> None:
    """Wait until the stream ends or must stop. Every `every_seconds`, close the windows that are too old.

    With None, no window closes because of its age.
    """
    from connectors.spark.streaming import Quiet, lag_of

    quiet, look_at = Quiet(), 0.0
    while not stopping.is_set() and not query.awaitTermination(_WAKE_SECONDS):
        if every_seconds is not None and time.monotonic() >= look_at:
            steps.pass_time(session, quiet.now(steps.ledger.committed, lag_of(query)))
            look_at = time.monotonic() + max(every_seconds, _LOOK_SECONDS)


def only_source(config: Config) -> KafkaSourceConfig:
    """Return the only source of a configuration, which must be a Kafka source.

    Raises
    ------
    ConfigError
        The configuration has no source or several sources, or the source is of another kind.
    """
    kinds = [source.kind for source in config.sources]
    source = config.sources[0] if len(config.sources) == 1 else None
    if not isinstance(source, KafkaSourceConfig):
        raise ConfigError(
            f"sources: on Spark expected one of kind kafka, got {', '.join(kinds) or 'none'}; list all "
            "topics in one source, and run other sources in a separate process"
        )
    return source


def view_of(steps: Steps, lag: int | None, up: bool) -> AgentView:
    """Return the state of the stream after the last committed batch.

    If the models of a task are computed separately, each model counts all labels of the task, so the sum over
    the models would be too large. Therefore the counts of labels of such a task are left out, except the
    count of rejected labels.
    """
    from connectors.spark.streaming import SEED

    committed, settings = steps.ledger.committed, steps.stream.source
    source = settings.label
    views = [view for (_, model), view in sorted(steps.views.items(), key=str) if model != SEED]
    whole = [view for (_, model), view in steps.views.items() if model is None]
    engine = EngineView(
        series=tuple(one for view in views for one in view.series),
        tasks=tuple(one for view in views for one in view.tasks),
        labels=_labels_of(committed, steps.stream.config, whole),
        labels_waiting={key: count for view in whole for key, count in view.labels_waiting.items()},
        label_lag_seconds={key: lag for view in whole for key, lag in view.label_lag_seconds.items()},
        refits={key: refit for view in whole for key, refit in view.refits.items()},
        received={source: committed.received},
        labels_received={source: committed.labels_received},
        rejected={(source, reason): count for reason, count in committed.rejected.items()},
        shed={source: committed.shed + sum(sum(view.shed.values()) for view in views)},
        labels_unrevised=_summed(view.labels_unrevised for view in views),
        answers_forgotten=_summed(view.answers_forgotten for view in views),
        ignored={source: committed.ignored},
        rows_left={source: committed.rows_left},
        series_dropped=len(committed.dropped) + sum(view.series_dropped for view in views),
    )
    reasons = () if up else ("The stream has ended.",)
    return AgentView(
        engine=engine,
        sources=(SourceView(source, up, lag, reads_events=settings.reads_events),),
        ready=up,
        healthy=up,
        reasons=reasons,
        checkpoint_time=committed.time,
    )


def _labels_of(
    committed: Committed, config: Config, whole: Sequence[EngineView]
) -> dict[tuple[str, LabelOutcome], int]:
    counts = {key: count for view in whole for key, count in view.labels.items()}
    only = next(iter(config.tasks)) if len(config.tasks) == 1 else ""
    for task, count in committed.labels_rejected.items():
        key = (task or only, LabelOutcome.REJECTED)
        counts[key] = counts.get(key, 0) + count
    return counts


def _summed(mappings: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums = Counter[str]()
    for each in mappings:
        sums.update(each)
    return dict(sums)


def _served(steps: Steps, query: Any, recent: RecentWindows, outputs: Outputs) -> HttpServer:
    from connectors.spark.streaming import lag_of

    server: HttpServer
    config = steps.stream.config

    def view() -> AgentView:
        agent_view = view_of(steps, lag_of(query), query.isActive)
        outside = config.export.external_url or ""
        return replace(agent_view, sinks=(*outputs.views, server.view), external_url=outside)

    metrics = registry(view, config.export.max_series, distributions=config.export.distributions)
    server = exporter(config.export, view, metrics, page_routes(view, recent))
    server.start()
    return server


def _locked(folder: Path) -> FolderLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FolderLock(folder)
    except OSError as error:
        raise ConfigError(f"--checkpoint: {cannot_write(str(folder), error)}") from error
    except InUseError as error:
        raise InUseError(
            f"--checkpoint: {folder} is in use by another driver; stop it, or give this driver another folder"
        ) from error


def _with_kafka(settings: dict[str, str]) -> dict[str, str]:
    """Return Spark's settings with its reader of Kafka, from Maven unless they name jars."""
    import pyspark

    if settings.keys() & {"spark.jars", "spark.jars.packages"}:
        return settings
    return settings | {"spark.jars.packages": f"{PACKAGE}:{pyspark.__version__}"}
