"""The templates: they compile, escape values and refuse missing ones; line breaks do not reach the page."""

from __future__ import annotations

from importlib import resources

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from monitor.export.page import templates
from monitor.export.page.templates import render


def test_every_template_compiles() -> None:
    folder = resources.files(templates)
    names = {path.name for path in folder.iterdir() if path.name.endswith(".html")}
    assert names == set(templates.environment().list_templates(extensions=["html"]))
    for name in names:
        templates.environment().get_template(name)


def test_cells_are_escaped_and_html_is_kept() -> None:
    table = render("words.html", "table", 'A "b"', ("Who", "#Rows"), [("<i>", Markup("<b>1</b>"))])
    assert '<th scope="row">&lt;i&gt;</th><td data-head="Rows" class="number"><b>1</b></td>' in table
    assert 'aria-label="A &#34;b&#34;"' in table


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'dict object' has no attribute 'worst'"):
        render("overview.html", "glance", {"words": "fine"})


def test_line_breaks_of_a_template_are_for_its_readers() -> None:
    template = templates.environment().from_string("<p>\n  one\n  two {{ n }}\n  <b>{{ n }}</b>\n</p>\n")
    assert template.render(n=3) == "<p>one two 3<b>3</b></p>"
