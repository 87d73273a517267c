"""The Prometheus operator's schemas, as far as we use them: names, types, patterns, required fields.

Facts read from the operator's CustomResourceDefinitions (github.com/prometheus-operator/prometheus-operator,
example/prometheus-operator-crd, Apache-2.0): PrometheusRule of version 0.82.2, complete; ServiceMonitor of
0.84.1 and PodMonitor of 0.91.0, the fields listed here. An API server drops unknown fields without a word, so
here anything else is refused: a field that a manifest needs is looked up there and added.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
DURATION: Schema = {
    "type": "string",
    "pattern": "^(0|" + "".join(f"(([0-9]+){unit})?" for unit in ("y", "w", "d", "h", "m", "s", "ms")) + ")$",
}


def of(*required: str, **properties: Schema) -> Schema:
    """Return an object of these fields and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


RULE = of(
    "expr",
    alert=TEXT,
    record=TEXT,
    expr={"type": ["integer", "string"]},
    **{"for": DURATION},
    keep_firing_for=DURATION | {"minLength": 1},
    labels=TEXTS,
    annotations=TEXTS,
)
GROUP = of(
    "name",
    name=TEXT | {"minLength": 1},
    interval=DURATION,
    query_offset=DURATION,
    limit={"type": "integer"},
    labels=TEXTS,
    partial_response_strategy={"enum": ["abort", "warn", ""]},
    rules=many(RULE),
)
KEY_OF = of("key", key=TEXT, name=TEXT, optional={"type": "boolean"})
"""A key of a Secret or of a ConfigMap."""
ENDPOINT = {
    "port": TEXT,
    "path": TEXT,
    "interval": DURATION,
    "scrapeTimeout": DURATION,
    "scheme": {"enum": ["http", "https"]},
    "authorization": of(type=TEXT, credentials=KEY_OF),
    "basicAuth": of(username=KEY_OF, password=KEY_OF),
    "tlsConfig": of(
        ca=of(secret=KEY_OF, configMap=KEY_OF), serverName=TEXT, insecureSkipVerify={"type": "boolean"}
    ),
}
SELECTOR = of(matchLabels=TEXTS)

SPECS: dict[str, Schema] = {
    "PrometheusRule": of(groups=many(GROUP)),
    "ServiceMonitor": of(
        "endpoints", "selector", jobLabel=TEXT, selector=SELECTOR, endpoints=many(of(**ENDPOINT))
    ),
    "PodMonitor": of("selector", jobLabel=TEXT, selector=SELECTOR, podMetricsEndpoints=many(of(**ENDPOINT))),
}
"""Kind to what its `spec` may hold."""


def resource(kind: str) -> Schema:
    """Return a resource of the operator's, whole."""
    return of(
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        apiVersion={"const": "monitoring.coreos.com/v1"},
        kind={"const": kind},
        metadata=of("name", name=TEXT, labels=TEXTS),
        spec=SPECS[kind],
    )
