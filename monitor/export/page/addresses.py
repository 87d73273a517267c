"""The addresses of models' pages, relative and public."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode


def model_address(task: str, model: str, root: str = "", **query: str | int) -> str:
    """Return the relative address of a model's page.

    Parameters
    ----------
    task, model : str
    root : str
        The relative address of the agent's page: ``""`` or ``"../../"``.
    **query : str or int
        Parameters of the query, such as `metric`, `group` and `window`; empty values are left out.

    Returns
    -------
    str
        The address. Names that cannot be segments of a path are in the query instead. Proxies decode ``%2F``
        to a slash, and browsers remove the segments ``.`` and ``..``, even if they are encoded.

    Examples
    --------
    >>> model_address("spam", "erm"), model_address("spam", "100 % é", group="region=eu", metric="")
    ('models/spam/erm', 'models/spam/100%20%25%20%C3%A9?group=region%3Deu')
    >>> model_address("spam", "org/erm", "../../"), model_address("spam", "..", window=0)
    ('../../models?task=spam&model=org%2Ferm', 'models?task=spam&model=..&window=0')
    """
    parameters = {name: value for name, value in query.items() if value != ""}
    if all(map(_is_a_step, (task, model))):
        path = f"{root}models/{_quoted(task)}/{_quoted(model)}"
        return f"{path}?{_query(parameters)}" if parameters else path
    return f"{root}models?{_query({'task': task, 'model': model, **parameters})}"


def external_address(external_url: str, task: str, model: str, group: str = "", metric: str = "") -> str:
    """Return the public address of a model's page, for alerts, dashboards and mails.

    The names of the task, model, group and metric are in the query.

    Examples
    --------
    >>> external_address("https://models.example/b/", "spam", "org/erm", "region=eu")
    'https://models.example/b/models?task=spam&model=org%2Ferm&group=region%3Deu'
    """
    more = {name: value for name, value in (("metric", metric), ("group", group)) if value}
    names = {"task": task, "model": model, **more}
    return f"{external_url.rstrip('/')}/models?{_query(names)}"


def _is_a_step(name: str) -> bool:
    return name not in ("", ".", "..") and not {"/", "\\"} & set(name)


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="replace")


def _query(values: Mapping[str, str | int]) -> str:
    return urlencode(values, errors="replace")
