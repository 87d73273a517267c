"""The OpenAPI document of the JSON API, generated from the API's definition in `monitor.export.page.api`."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import msgspec

from monitor import __version__
from monitor.export.http.query import allowed, parameters
from monitor.export.page.api import API, ENDPOINTS, ApiEndpoint, Problem
from monitor.export.page.document import html_document
from monitor.export.page.templates import render

_JSON = "application/json"
_REFUSALS = {
    "400": "A parameter cannot be used; the sentence names it, what it got and what is allowed.",
    "404": "There is no such model, group, metric or window; the sentence names some that there are.",
    "503": "The store cannot be read at present.",
}


@cache
def document() -> dict[str, Any]:
    """Return the document, in OpenAPI 3.1.

    Examples
    --------
    >>> document()["openapi"], "/api/v1/models" in document()["paths"]
    ('3.1.0', True)
    """
    answers = [endpoint.answer for endpoint in ENDPOINTS]
    (*made, problem), schemas = msgspec.json.schema_components(
        [*answers, Problem], ref_template="#/components/schemas/{name}"
    )
    paths = {
        API + one.name: {"get": _operation(one, ref, problem)}
        for one, ref in zip(ENDPOINTS, made, strict=True)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Blindsight",
            "version": __version__,
            "description": "What the page of the agent shows. Values and limits are ratios, or in the `unit` "
            "beside them.",
        },
        "paths": paths,
        "components": {"schemas": {name: _plain(schema) for name, schema in schemas.items()}},
    }


def page() -> str:
    """Return an HTML page that documents the API, with a table of parameters for each address."""
    addresses = render("api.html", "addresses", document()["paths"], allowed)
    return html_document("API · Blindsight", {"api": addresses}, "../../", "All models")


def _operation(endpoint: ApiEndpoint, answer: dict[str, Any], problem: dict[str, Any]) -> dict[str, Any]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(endpoint.query)}
    query_parameters = [
        {
            "name": name,
            "in": "query",
            "required": fields[name].required,
            "description": schema["description"],
            "schema": {key: value for key, value in schema.items() if key != "description"},
        }
        for name, schema in parameters(endpoint.query).items()
    ]
    content: dict[str, Any] = {_JSON: {"schema": answer}}
    for media_type, _ in endpoint.files.values():
        content[media_type.partition(";")[0]] = {"schema": {"type": "string"}}
    refused = {_JSON: {"schema": problem}}
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": query_parameters,
        "responses": {
            "200": {"description": endpoint.summary, "content": content},
            **{status: {"description": words, "content": refused} for status, words in _REFUSALS.items()},
        },
    }


def _plain(schema: Any) -> Any:
    """Return a schema without NaN, which JSON lacks, and with only the first line of each description."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(value) for name, value in schema.items() if not _is_nan(value)}
    if isinstance(plain.get("description"), str):
        plain["description"] = plain["description"].partition("\n")[0]
    return plain


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
