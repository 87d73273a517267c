"""The schemas of the Prometheus operator and of the Gateway API, as far as we use them.

Facts read from the operator's CustomResourceDefinitions (github.com/prometheus-operator/prometheus-operator,
example/prometheus-operator-crd, Apache-2.0): PrometheusRule of version 0.82.2, complete; ServiceMonitor of
0.84.1 and PodMonitor of 0.91.0, the fields listed here. HTTPRoute, the fields listed here: version v1 in
github.com/kubernetes-sigs/gateway-api, config/crd/standard, Apache-2.0, as of August 2026. An API server
drops unknown fields without a word, so here anything else is refused: a field that a manifest needs is
looked up there and added.
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

PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
NAME: Schema = TEXT | {"minLength": 1, "maxLength": 253}
HOST: Schema = NAME | {"pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
FILTER = of(
    "type",
    type={"enum": ["URLRewrite"]},
    urlRewrite=of(path=of("type", type={"enum": ["ReplacePrefixMatch"]}, replacePrefixMatch=TEXT)),
)
ROUTE_RULE = of(
    matches=many(of(path=of(type={"enum": ["Exact", "PathPrefix", "RegularExpression"]}, value=TEXT))),
    filters=many(FILTER),
    backendRefs=many(of("name", name=NAME, namespace=NAME, port=PORT)),
)

API_VERSIONS = {"HTTPRoute": "gateway.networking.k8s.io/v1"} | dict.fromkeys(
    ("PrometheusRule", "ServiceMonitor", "PodMonitor"), "monitoring.coreos.com/v1"
)
SPECS: dict[str, Schema] = {
    "HTTPRoute": of(
        parentRefs=many(of("name", name=NAME, namespace=NAME, sectionName=NAME)),
        hostnames=many(HOST) | {"maxItems": 16},
        rules=many(ROUTE_RULE),
    ),
    "PrometheusRule": of(groups=many(GROUP)),
    "ServiceMonitor": of(
        "endpoints", "selector", jobLabel=TEXT, selector=SELECTOR, endpoints=many(of(**ENDPOINT))
    ),
    "PodMonitor": of("selector", jobLabel=TEXT, selector=SELECTOR, podMetricsEndpoints=many(of(**ENDPOINT))),
}
"""Kind to what its `spec` may hold."""


def resource(kind: str) -> Schema:
    """Return the schema of a whole resource."""
    return of(
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        apiVersion={"const": API_VERSIONS[kind]},
        kind={"const": kind},
        metadata=of("name", name=TEXT, labels=TEXTS, annotations=TEXTS),
        spec=SPECS[kind],
    )
