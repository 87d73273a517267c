"""The templates of the page and of the report of a period, in Jinja's language.

Templates escape every value except HTML, which has the type `markupsafe.Markup`. Line breaks in a template
only make it readable: a line break beside a tag or beside braces is removed, and any other line break becomes
a space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from monitor.base.registry import metric_words
from monitor.base.results import Estimate
from monitor.export.charts import frame
from monitor.export.page import states, words
from monitor.reports.statements import count, limits_in_words
from monitor.reports.views import SeriesState

_BREAK_BESIDE_A_TAG = re.compile(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])")
_BREAK = re.compile(r"\s*\n\s*")

_FILTERS: tuple[Callable[..., object], ...] = (
    words.bound, words.broken_rules, words.class_of, words.columns, words.duration,
    words.format_result, words.moment, words.per_cent, words.percent, words.rank_words, words.thousands,
    words.time_words, words.tone, words.value_and_ends, words.word,
    states.not_meaningful, states.worst_state, states.worst_word, count, limits_in_words, metric_words, zip,
)  # fmt: skip


class _JoinLines(Extension):
    """A Jinja extension that joins the lines of a template, so that the indentation costs no bytes."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _BREAK.sub(" ", _BREAK_BESIDE_A_TAG.sub("", source))


@cache
def _macros(template: str) -> Any:
    return environment().get_template(template).module


@cache
def environment() -> Environment:
    """Return the environment of the templates. It compiles each template once."""
    made = Environment(
        loader=PackageLoader("monitor.export.page"),
        extensions=[_JoinLines],
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    made.filters |= {function.__name__: function for function in _FILTERS}
    made.tests["known"] = lambda result: isinstance(result, Estimate)
    made.tests["untrusted"] = lambda series: series.state is SeriesState.UNTRUSTED
    made.globals |= {name: getattr(frame, name) for name in ("BLUE", "FAINT", "INK", "ORANGE", "QUIET")}
    return made


def render(template: str, macro: str, /, *values: Any, **named: Any) -> Markup:
    """Return the HTML that a macro of a template renders from values.

    Examples
    --------
    >>> render("words.html", "section", "Labels", (), [])
    Markup('')
    """
    html: Markup = getattr(_macros(template), macro)(*values, **named)
    return html


def section(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """Return a heading and a table with the same caption; nothing without rows."""
    return render("words.html", "section", title, heads, rows)
