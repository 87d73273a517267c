"""The command line: `blindsight run`, `demo`, `replay`, `check`, `rebaseline` and so on.

The exit code is 0 for success, 1 for a failure while running or for a port or folder that another process
uses, and 2 for wrong usage or a wrong configuration. An error that a user can correct is printed as one
sentence on standard error. With `--debug`, the traceback is shown.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import traceback
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from monitor import __version__
from monitor.base.collector import postpone_collector
from monitor.base.errors import BlindsightError, ConfigError, MissingExtraError
from monitor.cli.process import leave_if_abandoned, one_heap, one_thread_for_matrices, print_any_text
from monitor.export.rules import SELECTOR, Format


class _Command(TyperCommand):
    """A command whose help shows no type beside an option that takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    """A group of commands whose help shows no type beside an option that takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


app = typer.Typer(
    name="blindsight",
    cls=_Group,
    help="Estimate how good deployed models are now, without waiting for labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

command = partial(app.command, cls=_Command)

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="The configuration, a YAML file.")]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text; see `blindsight schema`.")
]

_debug = False


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debugging lines.")] = False,
) -> None:
    global _debug
    _debug = debug
    level = logging.DEBUG if debug else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(message)s")
    if not debug:
        # kafka-python logs every attempt to reconnect as an error; the source says each outage once.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("blindsight").setLevel(logging.DEBUG if debug else logging.INFO)


class DocumentName(StrEnum):
    """The documents whose schema `blindsight schema` prints."""

    CONFIG = "config"
    CHECK = "check"
    DOCTOR = "doctor"
    REPLAY = "replay"
    BACKTEST = "backtest"
    LABELS = "labels"
    VERIFY = "verify"


class EngineName(StrEnum):
    """The values of ``--engine``: windows are computed by processes of this machine, or on Spark."""

    PROCESS = "process"
    SPARK = "spark"


EngineChoice = Annotated[EngineName, typer.Option(help="This process, or Spark.")]
Master = Annotated[
    str | None, typer.Option(help="Spark's master; default local[*], all cores of this machine.")
]
SparkConf = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark.")]


@command()
def run(
    config: ConfigPath,
    engine: EngineChoice = EngineName.PROCESS,
    master: Master = None,
    spark_conf: SparkConf = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Spark: folder of the state; required.")] = None,
    out: Annotated[Path | None, typer.Option(help="Spark: folder for windows-….parquet.")] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Spark: maximum number of messages in a batch.")
    ] = 1_000_000,
    every: Annotated[float, typer.Option(min=0, help="Spark: seconds between batches.")] = 10,
    once: Annotated[bool, typer.Option("--once", help="Spark: end after the present messages.")] = False,
) -> None:
    """Run the daemon: read the sources, publish metrics, write the reports."""
    from monitor.base.collector import tune_collector
    from monitor.cli.daemon import run as run_daemon
    from monitor.cli.process import put_off_imports, trim_heap

    put_off_imports()
    tune_collector()
    trim_heap()
    if engine is EngineName.SPARK:
        from monitor.cli.run_spark import StreamOnSpark, run_on_spark

        if checkpoint is None:
            raise ConfigError("--engine spark needs --checkpoint FOLDER, for its state")
        master = master or "local[*]"
        where = StreamOnSpark(checkpoint, out, master, spark_conf or (), batch, every, once)
        raise typer.Exit(run_on_spark(config, where))
    if master or spark_conf or checkpoint or out or once:
        raise ConfigError(
            "--master, --spark-conf, --checkpoint, --out and --once are Spark's; add --engine spark"
        )
    raise typer.Exit(run_daemon(config))


@command()
def replay(
    config: ConfigPath,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="NDJSON, CSV or Parquet; folders too on Spark.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for windows.ndjson and the pictures.")],
    engine: EngineChoice = EngineName.PROCESS,
    master: Master = None,
    spark_conf: SparkConf = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Processes that read and compute; default the cores, 1 for small input."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the windows of files as fast as possible, and draw a picture for each model."""
    from monitor.cli.process import processes_for, start_fork_server, trim_heap

    if engine is EngineName.PROCESS and processes_for(files, processes) > 1:
        start_fork_server()

    from monitor.base.collector import tune_collector
    from monitor.cli.replay_screen import print_results, refuse_unusable, replay_with_progress

    tune_collector()
    trim_heap()
    spark = None
    if engine is EngineName.SPARK:
        from monitor.cli.replay_spark import OnSpark

        if processes is not None:
            raise ConfigError("--processes is not for Spark; leave it out, or leave --engine spark out")
        spark = OnSpark(master or OnSpark().master, spark_conf or ())
    elif master or spark_conf:
        raise ConfigError("--master and --spark-conf are Spark's; add --engine spark")
    done = replay_with_progress(config, files, out, spark, processes)
    print_results(done, out, as_json)
    refuse_unusable(done, config)


@command()
def backtest(
    config: ConfigPath,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="NDJSON, CSV or Parquet.")],
    drop: Annotated[
        list[float] | None,
        typer.Option(metavar="POINTS", help="A drop of accuracy in percentage points; default 1, 3 and 5."),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME|SHARE%",
            help="Where drops begin: a time, or a share of the files; default 25%, 50% and 75%.",
        ),
    ] = None,
    incident: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="START END",
            help="No drops: was this period seen, when, and what would have seen it sooner?",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for a report and a picture.")] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other wrong answers.")] = 0,
    processes: Annotated[
        int | None, typer.Option(help="Number of processes; default the cores, 1 for small files.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay files with injected drops of accuracy: how soon are they detected, how many alarms are false."""
    from monitor.base.collector import tune_collector
    from monitor.cli.backtest.backtest import DEFAULT_DROPS, DEFAULT_STARTS, BacktestOptions
    from monitor.cli.backtest.screen import run_and_print
    from monitor.cli.process import trim_heap

    tune_collector()
    trim_heap()
    points = drop or DEFAULT_DROPS, at or DEFAULT_STARTS
    run_and_print(BacktestOptions(config, files, *points, seed, processes, incident), out, as_json)


@command()
def init(
    predictions: Annotated[
        Path, typer.Option("--from", metavar="FILE", help="Predictions: NDJSON, CSV or Parquet.")
    ],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels, by the ids of the predictions.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The configuration to write.")] = Path(
        "blindsight.yaml"
    ),
    task: Annotated[str, typer.Option(help="The name of the task; default that of the file.")] = "",
    model: Annotated[
        str, typer.Option(help="The name of the model of records that name none; default that of the file.")
    ] = "",
    label: Annotated[str, typer.Option(metavar="COLUMN", help="The field with the true class.")] = "",
) -> None:
    """Write a configuration for the stream that a file of predictions shows."""
    from monitor.cli.init import InitOptions, write_configuration

    text, complete = write_configuration(InitOptions(predictions, labels, task, model, label), out)
    typer.echo(text)
    raise typer.Exit(0 if complete else 2)


@command()
def check(config: ConfigPath, as_json: AsJson = False) -> None:
    """Check a configuration, and predict how many false alarms a week its charts will raise."""
    from monitor.cli.check.text import render
    from monitor.cli.checking import check_configuration

    report = check_configuration(config)
    if as_json:
        from monitor.cli.documents import check_document, to_json

        typer.echo(to_json(check_document(report)))
    else:
        typer.echo(render(report))
        if any(chart.metric == "accuracy" for chart in report.charts):
            typer.echo(f"How soon they see a drop in your history: blindsight backtest {config} FILE…")
            typer.echo("Whether they saw an incident of the past: add --incident START END")
        elif report.charts:
            see = f"blindsight backtest {config} FILE… --incident START END"
            typer.echo(f"Whether they saw an incident of the past: {see}")


@command()
def doctor(
    config: ConfigPath,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Look at a captured body of a post instead, with or without its headers.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a hundred records of each source; show fields, errors, a mapping that reads them; then check."""
    from monitor.cli.check.text import render
    from monitor.cli.checking import check_configuration
    from monitor.cli.doctor import diagnose_sample, diagnose_sources

    diagnosis = diagnose_sources(config) if sample is None else diagnose_sample(config, sample)
    if not as_json:
        typer.echo(diagnosis)
    report, problem = None, None
    try:
        report = check_configuration(config) if sample is None and diagnosis.well else None
    except BlindsightError as error:  # the diagnosis is printed all the same
        problem = error
    if as_json:
        from monitor.cli.documents import doctor_document, to_json

        typer.echo(to_json(doctor_document(diagnosis, report)))
    elif report is not None:
        typer.echo(f"\n{render(report)}")
    if problem is not None:
        raise problem
    raise typer.Exit(0 if diagnosis.well else 1)


@command()
def backup(
    config: ConfigPath,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; it must not exist.")],
) -> None:
    """Copy the last checkpoint of the store; the daemon may run meanwhile."""
    from monitor.cli.state import back_up

    typer.echo(back_up(config, target))


@command()
def rebaseline(
    config: ConfigPath,
    model: Annotated[str, typer.Option(help="The model, as in its records.")],
    metric: Annotated[str, typer.Option(help="A metric of the task, such as accuracy.")],
    reason: Annotated[str, typer.Option(help="The reason, for readers of the reports.")],
    task: Annotated[str, typer.Option(help="The task; optional if there is only one.")] = "",
    group: Annotated[str, typer.Option(help="A group such as region=eu; default the whole model.")] = "",
    wait: Annotated[float, typer.Option(min=0, max=3600, help="Seconds to wait for the agent.")] = 15,
) -> None:
    """Release a chart's alarm, and take a new baseline from the next windows."""
    from monitor.cli.asking import ask_for_baseline

    typer.echo(ask_for_baseline(config, task, model, group, metric, reason, wait))


@command()
def forget(
    config: ConfigPath,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID…", help="Ids, or - to read one a line from standard input.")
    ],
    task: Annotated[str, typer.Option(help="The task; default every task.")] = "",
    wait: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to wait for the agent.")] = 60,
) -> None:
    """Remove the stored data of records with these ids; counts of closed windows stay."""
    from monitor.cli.forgetting import forget_ids

    for line in forget_ids(config, ids, task, wait):
        typer.echo(line)


labels_app = typer.Typer(cls=_Group, help="Choose the answers to label next.", no_args_is_help=True)
app.add_typer(labels_app, name="labels")


@labels_app.command("ask", cls=_Command)
def labels_ask(
    config: ConfigPath,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="NDJSON, CSV or Parquet.")],
    number: Annotated[
        int, typer.Option("-n", help="Number of labels for each model; with --for for each task.")
    ] = 50,
    task: Annotated[str, typer.Option(help="The task; default every task.")] = "",
    model: Annotated[str, typer.Option(help="The model; default every model.")] = "",
    seed: Annotated[int, typer.Option(help="Another seed draws other answers.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")] = None,
    estimator: Annotated[
        str,
        typer.Option("--for", help="active_testing: draw requests one after another, for this estimator."),
    ] = "",
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            "--continue", metavar="FILE", help="Continue the round in this earlier output of --for."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the answers to label next, with their probabilities, and predict the width of the interval."""
    from monitor.cli.drawing import ask_for_estimator
    from monitor.cli.labels_ask import write

    selection = ask_for_estimator(estimator, config, files, number, task, model, seed, earlier or [])
    if out is not None or not as_json:
        write(selection.lines, out)
    if as_json:
        from monitor.cli.documents import labels_document, to_json

        typer.echo(to_json(labels_document(selection)))
    else:
        for sentence in selection.sentences:
            typer.echo(sentence, err=True)


@command()
def verify(
    config: ConfigPath,
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="The store's folder, a backup of it, or a configuration (.yaml)."
        ),
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE…", help="The raw input, with its original name.")
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A partition's file, or a topic's dump; see docs/verify.md."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the reported windows from the raw input, and compare them with the reports."""
    from monitor.cli.verifying import findings_table
    from monitor.cli.verifying import verify as verify_files

    findings = verify_files(config, store, files or [], partition or [])
    if as_json:
        from monitor.cli.documents import to_json, verify_document

        typer.echo(to_json(verify_document(findings)))
    else:
        typer.echo(findings_table(findings))
    raise typer.Exit(0 if findings.clean else 1)


@command()
def report(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="The store's folder, a backup of it, or a configuration (.yaml)."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML file.")],
    since: Annotated[str, typer.Option(help="A date or a time, in UTC; default the oldest window.")] = "",
    until: Annotated[str, typer.Option(help="A date or a time; selects windows that end before it.")] = "",
    external_url: Annotated[
        str, typer.Option(help="Address of the agent's page: the models' names link to it; default no links.")
    ] = "",
) -> None:
    """Write the windows of a period to one HTML file; the daemon may run meanwhile."""
    from monitor.cli.reporting import report as write_report

    lines = write_report(store, out, since, until, external_url)
    typer.echo(f"{out}: from {lines:,} lines of the store.")


@command()
def schema(
    document: Annotated[
        DocumentName,
        typer.Argument(metavar="NAME", help="config, or a command with --json: check, doctor and so on."),
    ] = DocumentName.CONFIG,
) -> None:
    """Print the JSON Schema of the configuration, for editors, or of what a command prints with --json."""
    if document is DocumentName.CONFIG:
        from monitor.config.file import schema as config_schema

        typer.echo(json.dumps(config_schema(), indent=2))
    else:
        from monitor.cli.documents import schema as document_schema

        typer.echo(json.dumps(document_schema(document), indent=2))


@command()
def rules(
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="The configuration, a YAML file; default: rules for the default configuration.",
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Rule file or PrometheusRule.")
    ] = Format.PROMETHEUS,
    selector: Annotated[str, typer.Option(help="Label matchers that pick the agents.")] = SELECTOR,
    runbooks: Annotated[
        str,
        typer.Option(help="Folder or URL of the runbooks; default: the agent's own, by export.external_url."),
    ] = "",
    dashboard: Annotated[str, typer.Option(help="URL of the model dashboard; default none.")] = "",
    time_scale: Annotated[float, typer.Option(help="Factor for every duration, to try the rules.")] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Write to this folder instead of printing.")] = None,
) -> None:
    """Print the alert rules for a configuration's models and for the agent itself."""
    from monitor.cli.rules import rules_text, settings_of

    settings = settings_of(config, selector, runbooks, dashboard, time_scale)
    typer.echo(rules_text(settings, form, out))
    if settings.missing:
        where = config or "a configuration, give it to this command"
        key = 'export: {external_url: "https://models.example/blindsight"}'
        typer.echo(f"{settings.missing}. Write {key} in {where}, and print the rules again.", err=True)


@command()
def version() -> None:
    """Print the version."""
    typer.echo(f"blindsight {__version__}")


@command()
def demo(
    folder: Annotated[
        Path, typer.Option("--out", help="Folder for the stream, the reports and the picture.")
    ] = Path("blindsight-demo"),
    listen: Annotated[
        str, typer.Option(help="Address of the page and /metrics during the demo.")
    ] = "127.0.0.1:9109",
    seconds: Annotated[
        float, typer.Option(min=0, max=3600, help="Duration of the stream; 0 is as fast as possible.")
    ] = 12,
    full: Annotated[
        bool, typer.Option("--full", help="Compare the estimates of four models with the truth over a year.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="With --full: say where the estimates were wrong, and why.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="In a terminal, serve the page until Ctrl-C.")
    ] = True,
) -> None:
    """Show an incident on real flights: one airport sends a feature in another unit."""
    from monitor.base.collector import tune_collector

    tune_collector()
    if full or explain:
        from monitor.cli.demo_screen import run_demo

        raise typer.Exit(run_demo(folder, listen, seconds, explain, page))
    from monitor.cli.incident_screen import run_incident

    raise typer.Exit(run_incident(folder, listen, seconds, page))


def main() -> None:
    """Run the command line. An error that a user can correct becomes a sentence and an exit code."""
    postpone_collector()
    one_thread_for_matrices()
    one_heap()
    print_any_text()
    signal.signal(signal.SIGTERM, _exit_by_signal)
    try:
        _command()
    except SystemExit as end:
        leave_if_abandoned(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
        raise


def _exit_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Exit as a shell reports a signal, so that temporary files are removed and other processes end."""
    sys.exit(128 + number)


def _command() -> None:
    try:
        app()
    except BlindsightError as error:
        if _debug:
            traceback.print_exc()
        typer.echo(f"blindsight: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError | MissingExtraError) else 1)
