"""The configurations of the stacks' pages read the recorded payloads, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.build import build_inputs
from connectors.http import HttpSource
from monitor.agent.agent import Agent
from monitor.base.source import Input, Raw, RawMessages
from monitor.cli.trial import ReferenceTrial
from monitor.config.file import load_config
from monitor.testing import ListSinks, ListSource
from tests.accounting import Accounts, accounts, scraped
from tests.recipes.__main__ import main
from tests.recipes.page import STACKS_PAGE, Page
from tests.recipes.recorded import REQUESTS, Payloads, recorded
from tests.recipes.stacks import OUTPUT, STACKS, table
from tests.services.process import PATIENCE_SECONDS, wait_until


class Messages(ListSource):
    """Recorded messages of Kafka, with what stood beside them."""

    def __init__(self, name: str, messages: Sequence[dict[str, Any]]) -> None:
        super().__init__([each["value"].encode() for each in messages], name=name)
        self._beside = [
            [
                ("$key", each["key"].encode()),
                ("$timestamp", str(each["milliseconds"]).encode()),
                *((name, value.encode()) for name, value in each["headers"].items()),
            ]
            for each in messages
        ]

    def read(self, timeout_seconds: float) -> list[Raw]:
        return [
            replace(raw, headers=[self._beside[i] for i in raw.offsets])
            for raw in super().read(timeout_seconds)
            if isinstance(raw, RawMessages)
        ]


def posted(source: HttpSource, posts: Sequence[dict[str, Any]]) -> None:
    """Post what a stack posted."""
    with httpx.Client(base_url=f"http://127.0.0.1:{source.port}", timeout=PATIENCE_SECONDS) as client:
        for post in posts:
            answer = client.post(post["path"], content=post["body"].encode(), headers=post["headers"])
            assert answer.status_code == 202, answer.text


def read_by(folder: Path, page: str, came: Payloads) -> Accounts:
    """Return the accounts of an agent in this process for these payloads."""
    (folder / "agent.yaml").write_text(page.replace(":9108", ":0"), encoding="utf-8")
    config = load_config(folder / "agent.yaml")
    inputs: list[Input] = []
    for settings, made in zip(config.sources, build_inputs(config), strict=True):
        if settings.kind == "file":
            path = Path(str(settings.path).replace("*", "1"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in came["file"]), encoding="utf-8")
        elif settings.kind == "kafka":
            messages = [each for each in came["kafka"] if each["topic"] in settings.topics]
            made = replace(made, feed=Messages(made.feed.name, messages))
        inputs.append(made)
    agent = Agent(ReferenceTrial(config).engine_settings().build(), inputs, ListSinks())
    agent.start()
    try:
        for source in (each.feed for each in inputs if isinstance(each.feed, HttpSource)):
            wait_until(lambda source=source: source.up, "it listens")
            posted(source, came["http"])
        wait_until(lambda: _all(accounts(scraped(agent.view()))), "all came")
    finally:
        agent.stop()
        agent.wait(PATIENCE_SECONDS)
    return accounts(scraped(agent.view()))


def _used(accounts: Accounts) -> int:
    return accounts.answers.parts["used"] + accounts.answers.parts["pending"]


def _all(accounts: Accounts) -> bool:
    return accounts.answers.received >= REQUESTS and accounts.labels.received >= REQUESTS


@pytest.mark.parametrize("stack", STACKS)
def test_what_a_stack_has_sent_is_used_and_its_labels_join(stack: str, tmp_path: Path) -> None:
    accounts = read_by(tmp_path, Page(stack).blocks["agent.yaml"], recorded(stack))
    accounts.answers.assert_adds_up()
    assert (_used(accounts), accounts.answers.received, accounts.labels.parts["matched"]) == (
        REQUESTS,
        REQUESTS,
        REQUESTS,
    )


def test_what_kserves_agent_has_sent_is_told_by_its_shape_without_a_mapping(tmp_path: Path) -> None:
    page = Page("kserve").blocks["agent.yaml"]
    plain = page.replace("    mapping: {format: kserve}\n", "")
    assert plain != page
    accounts = read_by(tmp_path, plain, recorded("kserve"))
    assert (_used(accounts), accounts.labels.parts["matched"]) == (REQUESTS, REQUESTS)


def test_an_unknown_stack_is_told_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["recipes", "torchserve"])
    with pytest.raises(SystemExit, match=r"STACK: expected one of fastapi, .*, syslog-ng, or table$"):
        main()


def test_the_page_of_stacks_shows_what_the_recipes_printed() -> None:
    page = STACKS_PAGE.read_text(encoding="utf-8")
    assert table() in page, "put in what `python -m tests.recipes table` prints"


@pytest.mark.parametrize("stack", STACKS)
def test_a_kept_output_names_its_command(stack: str) -> None:
    first = (OUTPUT / f"{stack}.txt").read_text(encoding="utf-8").splitlines()[0]
    assert first == f"python -m tests.recipes {stack}"


@pytest.mark.parametrize("stack", STACKS)
def test_without_its_marked_lines_a_service_is_whole_and_knows_nothing_of_us(stack: str) -> None:
    page = Page(stack)
    for name in {*page.files, "serve"} & page.blocks.keys() - set(STACKS[stack].own):
        text = page.text(name, monitored=False)
        assert "blindsight" not in text, name
        if name.endswith(".py"):
            compile(text, name, "exec")
