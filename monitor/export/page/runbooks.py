"""The runbooks of the alerts as pages, with the names of the task and the model filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup
from msgspec import Meta

from monitor.export.page.addresses import model_address
from monitor.export.page.document import html_document
from monitor.export.rules import runbook, runbook_names
from monitor.reports.statements import describe
from monitor.reports.views import AgentView

_BLOCK = re.compile(r"(?P<heading>#+) (?P<title>.+)|(?P<mark>\d+\.|\*) (?P<item>.+)", re.DOTALL)
_MARKS = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*|\[(?P<words>[^\]]+)\]\((?P<target>[^)]+)\)", re.DOTALL
)
_BEGINNING = re.compile(r"\n(?=\d+\. |\* )")


class RunbookQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query parameters of a runbook."""

    task: Annotated[str, Meta(description="The task of the alert.")] = ""
    model: Annotated[str, Meta(description="The model of the alert.")] = ""
    group: Annotated[str, Meta(description="The group of the alert; the whole model if empty.")] = ""


def render_runbook(name: str, view: AgentView, query: RunbookQuery, now: float | None = None) -> bytes:
    """Return the runbook of an alert as a complete HTML document.

    The document begins with the present state of the model that the query names, and its commands and
    queries have the names of the task and the model.

    Parameters
    ----------
    name : str
        One of `runbook_names()`.
    view : AgentView
    query : RunbookQuery
    now : float, optional
        Time of the page, seconds since the epoch.

    Examples
    --------
    >>> page = render_runbook("BlindsightRefitFailing", AgentView(), RunbookQuery(task="spam")).decode()
    >>> "<h2>BlindsightRefitFailing</h2>" in page, "task=&quot;spam&quot;" in page
    (True, True)
    """
    parts = {
        "model": Markup("".join(_model(view, query))),
        "runbook": Markup("".join(_blocks(name, query))),
    }
    document = html_document(f"{name} · Blindsight", parts, "../", "All models", now)
    return document.encode("utf-8", "replace")


def _model(view: AgentView, query: RunbookQuery) -> Iterator[str]:
    """Yield the present state of the model, with a link to its page."""
    for one in view.engine.series:
        if (one.task, one.model, one.group) == (query.task, query.model, query.group):
            state = describe(one)
            page = escape(model_address(one.task, one.model, "../", group=one.group))
            yield f'<p class="glance">Now: {escape(str(state))}</p><p>{escape(state.explanation)}</p>'
            yield f'<nav class="choices" aria-label="Model"><a href="{page}">Page of the model</a></nav>'


def _blocks(name: str, query: RunbookQuery) -> Iterator[str]:
    """Yield the HTML of the headings, paragraphs and lists of a runbook, whose Markdown has nothing else."""
    for block in runbook(name).strip().split("\n\n"):
        items = [_BLOCK.fullmatch(each) for each in _BEGINNING.split(block)]
        kinds = {"ol" if item["mark"] not in (None, "*") else "ul" for item in items if item and item["mark"]}
        if items[0] is None:
            lead, _, rest = block.partition("\n* ")
            yield f"<p>{_inline(lead, query)}</p>"
            yield from _list("ul", rest.split("\n* "), query) if rest else ()
        elif items[0]["heading"]:
            level = len(items[0]["heading"]) + 1
            yield f"<h{level}>{_inline(items[0]['title'], query)}</h{level}>"
        else:
            yield from _list(kinds.pop(), [item["item"] for item in items if item], query)


def _list(kind: str, items: list[str], query: RunbookQuery) -> Iterator[str]:
    lines = "".join(f"<li>{_inline(item, query)}</li>" for item in items)
    yield f"<{kind}>{lines}</{kind}>"


def _inline(words: str, query: RunbookQuery) -> str:
    """Return a text with its code, bold words and links as HTML."""
    html, end = [], 0
    for match in _MARKS.finditer(words):
        html += [escape(words[end : match.start()]), _marked(match, query)]
        end = match.end()
    return "".join([*html, escape(words[end:])])


def _marked(match: re.Match[str], query: RunbookQuery) -> str:
    if match["code"]:
        return f"<code>{escape(_named(match['code'], query))}</code>"
    if match["bold"]:
        return f"<b>{_inline(match['bold'], query)}</b>"
    other = match["target"].partition("#")[0].removesuffix(".md")
    if other not in runbook_names():  # the docs are not on the agent
        path = match["target"].removeprefix("../../")
        return escape(match["words"]) + (f" ({escape(path)})" if path != match["words"] else "")
    names = urlencode(
        {key: name for key, name in msgspec.structs.asdict(query).items() if name}, errors="replace"
    )
    return f'<a href="{escape(other + (names and f"?{names}"))}">{escape(match["words"])}</a>'


def _named(code: str, query: RunbookQuery) -> str:
    """Return a query or a command with the names of the task and the model in place of T and M."""
    for letter, key, name in (("T", "task", query.task), ("M", "model", query.model)):
        if name:
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            code = code.replace(f'{key}="{letter}"', f'{key}="{quoted}"')
            code = code.replace(f"--{key} {letter} ", f"--{key} {_word(name)} ")
    return code


def _word(name: str) -> str:
    """Return a name as a word of a shell."""
    return name if re.fullmatch(r"[\w./=-]+", name) else "'" + name.replace("'", "'\\''") + "'"
