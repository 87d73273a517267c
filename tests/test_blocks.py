"""Every block of code of every page is run, or read by what reads it in earnest, or says why it is not."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer
import yaml

from connectors.formats.decode.decoder import Decoder
from monitor.base.records import TaskLayout
from monitor.base.source import RawBlock
from monitor.cli.main import app
from monitor.cli.verify.verifier import Difference, Findings
from monitor.cli.verifying import findings_table
from monitor.config.file import config_from, schema
from monitor.reports.reader import from_json
from monitor.reports.window_report import RestoreMark
from monitor.stats.labelled.active_testing import lure_weights
from tests.connectors.formats.test_stacks import SAMPLES
from tests.daemon import DaemonProcess, command_here, configuration, ndjson
from tests.nearly import nearly
from tests.posting import posting
from tests.recipes.page import Block, blocks
from tests.recipes.stacks import STACKS
from tests.services.process import PATIENCE_SECONDS, ServiceUnavailable, end_of
from tests.services.prometheus_server import binary, promtool_check_rules
from tests.streams import answers

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
TOXICITY = TaskLayout("toxicity", ("ok", "toxic"), models=("erm", "irm"))


class Case(NamedTuple):
    """A block, and the page where it stands."""

    page: str
    block: Block

    def begins(self, page: str, text: str) -> bool:
        """Return whether it is the block of that page that begins so."""
        return self.page == page and self.block.text.startswith(text)


CASES = [Case(str(path.relative_to(ROOT)), block) for path in PAGES for block in blocks(path)]
RUN_BY = {
    ("README.md", "import pandas"): "tests/test_readme.py",
    ("README.md", "$ blindsight"): "tests/test_readme.py",
    ("README.md", "8 July"): "tests/cli/demo/test_incident.py",
    ("docs/alerts.md", "receivers:"): "tests/deploy/test_hooks.py",
    ("docs/arena.md", '{"id"'): "tests/connectors/formats/test_records_page.py",
    ("docs/records.md", '{"id"'): "tests/connectors/formats/test_records_page.py",
    ("docs/commands.md", "$ blindsight"): "tests/test_readme.py",
    ("docs/deployment.md", "# kustomization.yaml"): "tests/deploy/test_kustomize.py",
    ("docs/commands.md", "blindsight_estimate_ratio"): "tests/test_readme.py",
    ("docs/notebook.md", ">>> "): "tests/test_readme.py",
    ("docs/serving/mapping.md", '{"event"'): "tests/connectors/formats/test_mapping.py",
    (
        "docs/serving/stacks.md",
        "from blindsight_client import Client\n\nclient",
    ): "tests/connectors/formats/test_stacks.py",
    ("docs/reading-the-chart.md", "$ blindsight"): "tests/fidelity/test_backtest.py",
    ("docs/scale.md", "Python 3"): "tests/deploy/test_sizing.py",
    ("docs/tutorials/first-alarm.md", "import json"): "tests/test_tutorials.py",
    ("docs/tutorials/first-alarm.md", "true accuracy"): "tests/test_tutorials.py",
    ("docs/tutorials/first-alarm.md", "The configuration"): "tests/test_tutorials.py",
    ("docs/tutorials/first-alarm.md", "..."): "tests/test_tutorials.py",
    ("docs/tutorials/first-alarm.md", "task "): "tests/test_tutorials.py",
}
"""Blocks of which another test compares the output, by their page and their beginning."""
DEMO = "reads a year of flights, which takes minutes; tests/cli/demo/ runs days of it"
RECIPES = [
    ("bentoml", "import bentoml", "BentoML"),
    ("fastapi", "from blindsight_client import Client, Middleware", "FastAPI"),
    ("mlflow", "import json", "FastAPI"),
    ("mlserver", "import numpy as np\nfrom blindsight_client", "MLServer"),
    ("ray-serve", "from blindsight_client import Client, observed", "Ray"),
    ("ray-serve", "proxy_location", "Ray"),
    ("syslog-ng", "import json", "FastAPI"),
    ("syslog-ng", "@version", "syslog-ng"),
]
CANNOT = {
    ("docs/commands.md", "Accuracy by month"): DEMO,
    ("docs/serving/stacks.md", "spec:"): "is a part of an InferenceService, which needs a cluster",
    **{
        ("docs/serving/stacks.md", begins): f"needs {what}: `python -m tests.recipes {name}` runs it"
        for name, begins, what in RECIPES
    },
}
"""Blocks that cannot run here, and why; Python among them is still compiled, JSON still parsed."""
PROGRAMS = {
    "alertmanager": "stays until it is stopped; tests/test_tutorials.py runs it",
    "apt-get": "installs packages of the system",
    "bentoml": "needs BentoML: `python -m tests.recipes bentoml` runs it",
    "curl": "calls a service that is not there; those of docs/records.md run below",
    "docker": "needs an engine; tests/test_tutorials.py runs the files of its containers",
    "kafka-console-consumer.sh": "needs a broker and its Java; tests/cli/verify/ reads what it prints",
    "kafka-server-start.sh": "is in Kafka's archive; tests/services/kafka_broker.py uses its jars",
    "kafka-storage.sh": "is in Kafka's archive; tests/services/kafka_broker.py uses its jars",
    "kcat": "needs a broker and a program in C: `python -m tests.recipes kcat` runs it",
    "kubectl": "needs a cluster; tests/deploy/ validates what it is given",
    "mlserver": "needs MLServer: `python -m tests.recipes mlserver` runs it",
    "prometheus": "stays until it is stopped; tests/test_tutorials.py runs it",
    "redis-cli": "needs a server; tests/connectors/test_redis_stream.py adds such entries",
    "serve": "needs Ray: `python -m tests.recipes ray-serve` runs it",
    "syslog-ng": "needs syslog-ng: `python -m tests.recipes syslog-ng` runs it",
    "uvicorn": "needs FastAPI: `python -m tests.recipes fastapi` runs it",
}
"""Programs that blocks of the shell call and that do not run here, and why."""
BUILTINS = {".", "bash", "cd", "cp", "echo", "export", "sed", "wait"}


def of(*languages: str) -> list[Case]:
    """Return the blocks in these languages that are read here."""
    return [case for case in CASES if case.block.language in languages and elsewhere(case) is None]


def elsewhere(case: Case) -> str | None:
    """Return the name of another test that runs a block, or the reason why nothing does."""
    return next((why for key, why in (RUN_BY | CANNOT).items() if case.begins(*key)), None)


def place(case: Case) -> str:
    return f"{case.page}: {case.block.text.split(maxsplit=1)[0]}"


def one(page: str, text: str) -> str:
    """Return the block of a page that begins so."""
    [block] = [case.block.text for case in CASES if case.begins(page, text)]
    return block


def test_every_block_is_in_a_language_that_is_read_here_or_has_its_place() -> None:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks(path)), path
        outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert not re.search(r"\n\n {4}[^\s*]", outside), "a block by its indentation is not found here"
    read = {"yaml", "json", "sh", "python", "promql", "text"}
    assert {case.block.language for case in CASES if elsewhere(case) is None} == read
    for case in CASES:
        if case.block.language == "json":
            json.loads("[" + case.block.text.replace("}\n{", "},{") + "]")


def test_what_stands_elsewhere_is_there_and_each_reason_is_needed() -> None:
    for key in RUN_BY | CANNOT:
        assert sum(case.begins(*key) for case in CASES) >= 1, key
    called = {words[0].rpartition("/")[2] for case in of("sh") for words in commands(case.block.text)}
    assert set(PROGRAMS) == called & set(PROGRAMS)
    for why in (*RUN_BY.values(), *CANNOT.values(), *PROGRAMS.values()):
        for path in re.findall(r"(?:tests|docs)/[\w/.]+", why):
            assert (ROOT / path).exists(), path
        assert {*re.findall(r"tests\.recipes ([\w-]+)", why)} <= {*STACKS}


# ── yaml ──


def completed(part: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with what a page shows of it."""
    task = {
        "classes": ["ok", "toxic"],
        "models": ["erm", "irm"],
        "estimators": ["average_confidence", "ssme"],
    }
    if set(part) <= set(schema()["properties"]):
        return {"tasks": {"t": task}} | part
    if set(part) == {"labels"}:
        return {"tasks": {"t": task | part}}
    source: dict[str, Any] = {"kind": "stdin", "mapping": part}
    if "options" in part:
        source = {"kind": "kafka", "brokers": ["b:9092"], "topics": ["t"], **part}
    if "password_file" in part:
        source = {"kind": "redis", "stream": "s", **part}
    return {"tasks": {"t": task}, "sources": [source]}


def is_prometheus(case: Case) -> bool:
    return "scrape_configs" in yaml.safe_load(case.block.text)


@pytest.mark.parametrize("case", of("yaml"), ids=place)
def test_yaml_is_a_configuration_or_a_part_of_one(case: Case) -> None:
    if not is_prometheus(case):
        config_from(completed(yaml.safe_load(case.block.text)))


@pytest.mark.prometheus
def test_what_is_for_prometheus_is_taken_by_promtool(tmp_path: Path) -> None:
    queries = "".join(case.block.text for case in of("promql")).splitlines()
    settings = [case.block.text for case in of("yaml") if is_prometheus(case)]
    assert (len(queries), len(settings)) == (2, 1)
    try:
        promtool = binary("promtool")
    except ServiceUnavailable as missing:
        pytest.skip(str(missing))
    rules = [{"record": f"a:b:{number}", "expr": query} for number, query in enumerate(queries)]
    assert promtool_check_rules(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]})) == []
    for number, text in enumerate(settings):
        path = tmp_path / f"{number}.yml"
        path.write_text(text, encoding="utf-8")
        words = [promtool, "check", "config", "--syntax-only", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ── json ──


WINDOW = ("docs/reports.md", '{"task": "toxicity", "model": "erm", "group": "", "version"')
ARENA = ("docs/arena.md", '{"task": "chat"')
DELAY = ("docs/regression.md", '{"id": "f-81"')  # tests/connectors/formats/test_records_page.py
ESTIMATE = ("docs/assumptions.md", '{"metric"')
CHANGE = ("docs/reports.md", '{"attributions"')
VALUES = ("docs/regression.md", '{"values"')
RESTORE = ("docs/reports.md", '{"task": "toxicity", "model": "erm", "group": "", "kind": "restore"')


def test_lines_of_the_reports_are_read_by_their_reader() -> None:
    window, arena, estimate = (json.loads(one(*key)) for key in (WINDOW, ARENA, ESTIMATE))
    [(_, change)] = json.loads(one(*CHANGE)).items()
    for line in (window, arena, window | {"estimates": [estimate], "attributions": change}):
        read = from_json(json.dumps(line, separators=(",", ":")).encode())
        assert (read.window, len(read.estimates)) == (line["window"], len(line.get("estimates", [])))
    assert read.attributions[0].change == pytest.approx(
        sum(part["mix"] + part["within"] for part in change[0]["parts"]) + change[0]["others"]
    )
    values = from_json(json.dumps(window | json.loads(one(*VALUES))).encode()).values
    assert [(each.estimator, each.unit) for each in values] == [
        ("doubly_robust", "minutes"),
        ("realised", "minutes"),
    ]
    assert set(json.loads(one(*RESTORE))) == set(RestoreMark.__struct_fields__)


def test_a_line_to_label_is_a_label_once_it_is_filled_in() -> None:
    lines = [case.block.text for case in of("json") if case.page == "docs/labels-ask.md"]
    for line in lines:
        assert line.endswith('"label": null}\n')
        raw = RawBlock(line.replace("null", '"toxic"').encode(), "page", 0)
        chunk = Decoder([TOXICITY], "page").decode([raw])
        assert (chunk.rejects, sum(map(len, chunk.labels))) == ((), 1)
    assert len(lines) == 2


def test_every_other_line_is_a_sample_that_is_read_by_the_mapping_beside_it() -> None:
    known = (WINDOW, ARENA, DELAY, ESTIMATE, CHANGE, VALUES, RESTORE, ("docs/labels-ask.md", "{"))
    others = [case for case in of("json") if not any(case.begins(*key) for key in known)]
    assert {case.block.name for case in others} == set(SAMPLES)  # tests/connectors/formats/test_stacks.py


# ── the shell ──


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a block, without redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.replace("$(", " ( "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if word and set(word) <= set("<>"):
                words = words[:-1] if words[-1:] == ["2"] else words
                redirected = True
            elif word and set(word) <= set("();|&"):
                words = [each for i, each in enumerate(words) if i or not re.match(r"\w+=", each)]
                if words:
                    yield words[1:] if words[0] == "exec" else words
                words = []
            elif redirected:
                redirected = False
            else:
                words.append(word)


@pytest.mark.parametrize("case", of("sh"), ids=place)
def test_a_command_is_one_that_its_program_takes(case: Case) -> None:
    group = typer.main.get_command(app)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    count = 0
    for program, *words in commands(case.block.text):
        count += 1
        name = program.rpartition("/")[2]
        if name == "blindsight":
            parsed(group, words)
        elif name in ("python", "python3") and words[0] == "-m":
            assert importlib.util.find_spec(words[1]), words
        elif name in ("python", "python3"):
            files = {each.block.name for each in CASES if each.page == case.page}
            assert words[0] in files or (ROOT / "deploy" / "compose" / words[0]).exists(), words
        elif name == "pip":
            for extra in re.findall(r"\.\[([\w,-]+)\]", " ".join(words)):
                assert set(extra.split(",")) <= set(extras), extra
            local = [word for word in words if word.startswith("./")]
            assert all((ROOT / word / "pyproject.toml").exists() for word in local)
        else:
            assert name in PROGRAMS or name in BUILTINS, program
    assert count


def test_what_is_for_the_shell_is_in_its_grammar(tmp_path: Path) -> None:
    functions = "".join(f"f{i}() {{\n{case.block.text}}}\n" for i, case in enumerate(of("sh")))
    done = bash(functions, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def parsed(command: Any, words: list[str]) -> Any:
    """Return the context in which a command would run with these words: they are read, and nothing is
    done.
    """
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(
            command.make_context("blindsight", list(words)), list(words)
        )
        assert command is not None, name
    return command.make_context(command.name, list(words))


RUNBOOKS = sorted(ROOT.glob("deploy/runbooks/*.md"))


@pytest.mark.parametrize("page", [*PAGES, *RUNBOOKS], ids=lambda page: page.stem)
def test_a_command_in_a_sentence_is_one_that_there_is(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for line in re.findall(r"`(blindsight [a-z][^`]+)`", text):
        for program, *words in commands(" ".join(line.split())):
            # A sentence may name a command alone, or N for a number.
            with contextlib.suppress(typer.BadParameter):
                if program == "blindsight":
                    parsed(typer.main.get_command(app), words)


def test_a_wrong_option_would_be_found() -> None:
    group = typer.main.get_command(app)
    assert parsed(group, ["labels", "ask", "c.yaml", "a.ndjson", "-n", "5"]).params["number"] == 5
    for words in (["chek", "c.yaml"], ["replay", "c.yaml", "a.ndjson", "--output", "x"], ["labels", "ask"]):
        with pytest.raises(Exception, match=r"No such (command|option)|Missing parameter"):
            parsed(group, words)
    assert list(commands("A=1 x y > z 2> w | b -c 'd e' &\nf \\\n g <h # i")) == [
        ["x", "y"],
        ["b", "-c", "d e"],
        ["f", "g"],
    ]


def test_posts_by_curl_are_taken(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("`curl` is missing")
    token = 16 * "a"
    answer = one("docs/records.md", '{"id": "req-81", "time"').splitlines()[0]
    (tmp_path / "answers.ndjson").write_text(answer + "\n", encoding="utf-8")
    with posting(tmp_path / "spool", [TOXICITY], tokens=[{"token": token}]) as posted:
        text = one("docs/records.md", "curl").replace(":9108", f":{posted.source.port}")
        # The first command is for a source without tokens.
        text = text.replace("curl -sS", f"curl -sS -H 'Authorization: Bearer {token}'", 1)
        done = bash(text.replace("curl -sS", "curl -sS -f"), tmp_path, TOKEN=token)
        assert (done.returncode, done.stderr) == (0, "")
        assert [row["id"] for row in posted.read_rows()] == ["req-81", "req-81"]


def bash(text: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", text],
        cwd=folder,
        env={**os.environ, "no_proxy": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


# ── Python ──


@pytest.mark.parametrize("case", [case for case in CASES if case.block.language == "python"], ids=place)
def test_python_can_be_compiled(case: Case) -> None:
    if ">>>" not in case.block.text:
        compile(case.block.text, case.page, "exec")


class AddsMiddleware:
    """A stand-in for the `add_middleware` of Starlette and FastAPI: it wraps the application."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def add_middleware(self, kind: Any, **options: Any) -> None:
        self.made.append(kind(self, **options))


def test_the_lines_of_the_client_send_what_the_page_says(tmp_path: Path) -> None:
    read = set()

    def run(page: str, begins: str, names: dict[str, Any], port: int = 9) -> dict[str, Any]:
        read.add((page, begins))
        exec(one(page, begins).replace(":9108", f":{port}"), names)
        return names

    with posting(tmp_path / "spool", [TOXICITY]) as posted:
        names = run("docs/client.md", "from blindsight_client import Client\n", {}, posted.source.port)
        client = names["client"]
        client.close(PATIENCE_SECONDS)
        begins = "from blindsight_client import Client\n\nwith"
        run("docs/serving/stacks.md", begins, {}, posted.source.port)
        rows = posted.read_rows()
    assert [(row["id"], row.get("scores"), row.get("label")) for row in rows] == [
        ("req-81", [0.12, 0.88], None),
        ("req-81", None, "toxic"),
        ("r-1", None, "toxic"),
    ]
    application = AddsMiddleware()
    variables = {
        "app": application,
        "client": client,
        "json": json,
        "serve": types.SimpleNamespace(deployment=lambda x: x),
    }
    run("docs/client.md", "from blindsight_client import Client, Middleware", variables)
    run("docs/client.md", "def records", variables)
    run("docs/client.md", "from blindsight_client import observed", variables)
    assert len(application.made) == 2
    exchange = types.SimpleNamespace(
        response=b'{"proba": [0.1, 0.9]}', response_headers={"x-request-id": "r"}
    )
    assert variables["records"](exchange) == [{"id": "r", "scores": [0.1, 0.9]}]
    (tmp_path / "predictions.ndjson").write_bytes(b'{"id": "req-80"}\n{"id": "req-81"}\n{"id": "req-82"}\n')
    with contextlib.chdir(tmp_path):
        run("docs/data.md", "with open", {})
    left = (tmp_path / "predictions.ndjson").read_bytes()
    assert left == b'{"id": "req-80"}\n                \n{"id": "req-82"}\n'
    assert all(any(case.begins(*key) for key in read) for case in of("python"))


# ── what commands print ──


def test_the_findings_of_verify_are_printed_as_its_page_shows() -> None:
    difference = Difference(("toxicity", "erm", ""), 7, "estimates.accuracy.value", "0.913", "0.9131")
    missing = Counter({"predictions.ndjson: after the end of its file": 2})
    shown = findings_table(Findings(equal=39, different=1, first=[difference], missing=missing))
    assert shown.startswith(one("docs/verify.md", "windows checked"))


def test_commands_of_the_pages_run_and_the_widths_of_labels_are_told_as_their_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    records = answers(rng, 300)
    for record, name in zip(records, ("req-81", "req-82"), strict=False):
        record["id"] = name
    (tmp_path / "reference.ndjson").write_bytes(ndjson(answers(rng, 1000, start=1.6e9, labelled=True)))
    for name in ("predictions.ndjson", "answers.ndjson"):
        (tmp_path / name).write_bytes(ndjson(records))
    settings = configuration(
        task={"reference": {"path": "reference.ndjson"}},
        sources=[{"kind": "file", "path": "predictions.ndjson"}],
        store={"path": "state"},
    )
    with DaemonProcess(tmp_path, settings) as daemon:
        assert end_of(daemon.process) == 0, daemon.log
    (tmp_path / "deploy" / "prometheus").mkdir(parents=True)
    told_of: dict[str, str] = {}
    for page in ("alerts", "labels-ask", "verify", "page", "data", "find-out-why"):
        text = "".join(case.block.text for case in of("sh") if case.page == f"docs/{page}.md")
        for program, *words in commands(text.replace("2026-", "2023-")):
            if program == "blindsight" and "--partition" not in words:
                monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"req-82\n")))
                done = command_here(*words, cwd=tmp_path)
                assert done.returncode == 0, (words, done.stderr)
                told_of.setdefault(page, done.stdout + done.stderr)
    assert re.search(r"^  equal +3$", told_of["verify"], re.MULTILINE)
    names = ("to-label.ndjson", "round.ndjson", "november.html", "deploy/prometheus/blindsight.rules.yaml")
    assert all((tmp_path / name).exists() for name in names)

    def form(text: str) -> str:
        return re.sub(r"\d[\d.,]*\d", "#", text.partition(": ")[2])

    assert form(told_of["labels-ask"]) == form(one("docs/labels-ask.md", "toxicity, erm"))


@pytest.mark.parametrize("case", of("text"), ids=place)
def test_an_output_on_a_page_is_one_that_is_kept(case: Case) -> None:
    apart = [
        ("docs/verify.md", "windows"),
        ("docs/labels-ask.md", "toxicity"),
        ("docs/estimators.md", "v = "),
    ]
    if any(case.begins(*key) for key in apart):
        return
    kept = [path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/output/*.txt")]
    assert any(case.block.text.strip() in text for text in kept)


def test_the_formula_of_lure_is_what_is_computed() -> None:
    draws, rows = np.array([0.2, 0.5, 0.1]), 7
    formula = one("docs/estimators.md", "v = ").partition("=")[2]
    for written, meant in {"−": "-", "·": "*", "1) q)": "1) * q)", "\n": ""}.items():
        assert written in formula
        formula = formula.replace(written, meant)
    for number, (q, weight) in enumerate(zip(draws, lure_weights(draws, rows), strict=True), start=1):
        assert weight == nearly(eval(formula, {"N": rows, "M": len(draws), "m": number, "q": q}))
