"""Content negotiation by `Accept` headers (RFC 9110, section 12.5)."""

from __future__ import annotations

import gzip

from monitor.export.http.messages import HttpRequest, Response

_LEVEL = 4  # for the exposition and the page, within a few percent of level 9 in a fifth of its time
_FEWEST_BYTES = 500  # below that, most of the response is headers


def packed(request: HttpRequest, body: bytes, content_type: str, **headers: str) -> Response:
    """Return a response, compressed with gzip if the request allows it and the body is large enough.

    Parameters
    ----------
    request : HttpRequest
    body : bytes
    content_type : str
    **headers : str
        Further headers, with `_` for `-`. `vary` names other request headers on which the response depends.

    Examples
    --------
    >>> request = HttpRequest("GET", "/", {"accept-encoding": "gzip, br"}, body=None)
    >>> response = packed(request, b"a" * 10_000, "text/plain", vary="Accept")
    >>> len(response.body) < 100, response.headers["content-encoding"], response.headers["vary"]
    (True, 'gzip', 'Accept, Accept-Encoding')
    """
    vary = ", ".join(filter(None, (headers.pop("vary", ""), "Accept-Encoding")))
    named = {"content-type": content_type, "vary": vary}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    if accepts_gzip(request.headers.get("accept-encoding", "")) and len(body) >= _FEWEST_BYTES:
        body = gzip.compress(body, _LEVEL, mtime=0)
        named["content-encoding"] = "gzip"
    return Response(200, body, named)


def prefers_openmetrics(accept: str) -> bool:
    """Return whether an `Accept` header gives OpenMetrics 1.0 at least the quality of the text format.

    A client that names neither format (a browser, `curl`) gets the text format, which is older.

    Examples
    --------
    >>> prefers_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    True
    >>> prefers_openmetrics("*/*"), prefers_openmetrics("application/openmetrics-text;version=2.0.0")
    (False, False)
    """
    openmetrics = text = 0.0
    for kind, options in _weighted(accept):
        quality = _quality(options)
        # An answer in 1.0.0 also suits a request for any version, and for 0.0.1, as in Prometheus.
        if kind == "application/openmetrics-text" and options.get("version", "1.0.0") in ("1.0.0", "0.0.1"):
            openmetrics = max(openmetrics, quality)
        if kind == "text/plain" and options.get("version", "0.0.4") == "0.0.4":
            text = max(text, quality)
    return openmetrics > 0 and openmetrics >= text


def accepts_gzip(encodings: str) -> bool:
    """Return whether an `Accept-Encoding` header allows gzip.

    Examples
    --------
    >>> accepts_gzip("deflate, gzip;q=0.5"), accepts_gzip("gzip;q=0, *"), accepts_gzip("")
    (True, False, False)
    """
    allowed = {kind: _quality(options) > 0 for kind, options in _weighted(encodings)}
    return allowed.get("gzip", allowed.get("*", False))


def _weighted(header: str) -> list[tuple[str, dict[str, str]]]:
    """Return the parts of an `Accept…` header, each with its parameters, in lower case."""
    parts = []
    for part in header.lower().split(","):
        kind, *options = (piece.strip() for piece in part.split(";"))
        pairs = (option.partition("=") for option in options)
        parts.append((kind, {name.strip(): text.strip().strip('"') for name, _, text in pairs}))
    return parts


def _quality(options: dict[str, str]) -> float:
    try:
        return float(options.get("q", "1"))
    except ValueError:
        return 0.0
