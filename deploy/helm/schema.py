"""The JSON Schema of the chart's values: its own keys, and those of the agent's configuration below `config`.

`python -m tests.pages` writes it to `deploy/helm/blindsight/values.schema.json`. Helm checks the values of an
installation with it, so it refuses a key that neither the chart nor the agent has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monitor.config.file import schema

PATH = Path(__file__).parent / "blindsight" / "values.schema.json"

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
PORT: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
WEB_PATH: Schema = {"type": "string", "pattern": "^/"}
OBJECT: Schema = {"type": "object"}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
"""Kubernetes' own types: its API server checks what they hold."""

VARIABLE = r"\$\{"
"""The agent replaces ``${NAME}`` in a value, so such a text may stand where it takes a number."""


def section(*required: str, **properties: Schema) -> Schema:
    """Return the schema of an object that has these keys and no other."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }


MONITOR = section(enabled=FLAG, interval=TEXT, labels=TEXTS, endpoint=OBJECT)
VALUES: dict[str, Schema] = {
    "global": OBJECT,  # Helm adds it where the chart is part of another one
    "mode": {"enum": ["standalone", "sidecar", "standby"]},
    "image": section(
        "repository",
        repository=TEXT | {"minLength": 1},
        tag=TEXT,
        pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    ),
    "imagePullSecrets": OBJECTS,
    "config": {
        "allOf": [
            {"$ref": "#/definitions/Config"},
            {"properties": {"export": {"properties": {"listen": {"pattern": ":9109$"}}}}},
        ]
    },
    "existingConfigMap": TEXT,
    "ingestPort": PORT,
    "sidecar": section(replicas={"type": "integer", "minimum": 0}, container=OBJECT),
    "persistence": section(
        enabled=FLAG,
        size=TEXT,
        storageClassName=TEXT,
        accessModes={"type": "array", "items": TEXT},
        existingClaim=TEXT,
    ),
    "resources": OBJECT,
    "serviceAccount": section(create=FLAG, name=TEXT, annotations=TEXTS),
    "podSecurityContext": OBJECT,
    "openshift": FLAG,
    "podAnnotations": TEXTS,
    "podLabels": TEXTS,
    "nodeSelector": TEXTS,
    "tolerations": OBJECTS,
    "affinity": OBJECT,
    "topologySpreadConstraints": OBJECTS,
    "priorityClassName": TEXT,
    "initContainers": OBJECTS,
    "extraEnv": OBJECTS,
    "extraEnvFrom": OBJECTS,
    "extraVolumes": OBJECTS,
    "extraVolumeMounts": OBJECTS,
    "podDisruptionBudget": section(enabled=FLAG, maxUnavailable={"type": ["integer", "string"]}),
    "ingress": section(
        enabled=FLAG, className=TEXT, annotations=TEXTS, host=TEXT, path=WEB_PATH, tls=OBJECTS
    ),
    "httpRoute": section(
        enabled=FLAG,
        annotations=TEXTS,
        parentRefs=OBJECTS,
        hostnames={"type": "array", "items": TEXT},
        path=WEB_PATH,
    ),
    "serviceMonitor": MONITOR,
    "podMonitor": MONITOR,
    "prometheusRule": section(enabled=FLAG, labels=TEXTS, selector=TEXT, runbooks=TEXT, dashboard=TEXT),
    "dashboards": section(enabled=FLAG, labels=TEXTS, annotations=TEXTS),
    "networkPolicy": section(
        enabled=FLAG, metricsFrom=OBJECTS, ingestFrom=OBJECTS, egressFromConfig=FLAG, egress=OBJECTS
    ),
}


def values_schema() -> str:
    """Return the text of the file.

    It is a schema of draft 7, which every version of Helm 3 and 4 reads.
    """
    root = schema()
    definitions = root.pop("$defs") | {"Config": root}
    # Whether there are tasks is asked by a template, whose message can say what to set.
    root.pop("required")
    root["properties"]["tasks"].pop("minProperties")
    for key in ("$schema", "title"):
        root.pop(key)
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart blindsight",
        **section("mode", "image", "config", **VALUES),
        "definitions": {name: _draft_7(node, definitions) for name, node in sorted(definitions.items())},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _draft_7(node: Any, definitions: Schema) -> Any:
    """Return a part of the configuration's schema for Helm."""
    if isinstance(node, list):
        return [_draft_7(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "discriminator" in node:
        rest = {key: value for key, value in node.items() if key not in ("discriminator", "oneOf")}
        return rest | _by_kind(node["discriminator"], definitions)
    if isinstance(node.get("$ref"), str):
        return {"$ref": node["$ref"].replace("#/$defs/", "#/definitions/")}
    # An example or a default is no schema, whatever its keys are.
    converted = {
        key: value if key in ("default", "examples", "enum", "required") else _draft_7(value, definitions)
        for key, value in node.items()
    }
    return _or_variable(converted)


def _or_variable(node: Schema) -> Schema:
    """Return the schema of a scalar, changed so that it takes a text with a variable as well."""
    if node.get("type") in ("integer", "number", "boolean"):
        return node | {"type": [node["type"], "string"], "pattern": VARIABLE}
    if node.get("type") == "string" and isinstance(node.get("enum"), list):
        inner = {"enum": node["enum"]}
        rest = {key: value for key, value in node.items() if key != "enum"}
        return rest | {"anyOf": [inner, {"pattern": VARIABLE}]}
    return node


def _by_kind(discriminator: Schema, definitions: Schema) -> Schema:
    """Return the choice of a section by its `kind`.

    With `oneOf`, a wrong key would be reported for every kind.
    """
    kinds, required = [], True
    for kind, reference in discriminator["mapping"].items():
        name = reference.rpartition("/")[2]
        named: Schema = {"properties": {"kind": {"const": kind}}}
        if "kind" in definitions[name].get("required", []):
            named["required"] = ["kind"]
        else:
            required = False
        kinds.append({"if": named, "then": {"$ref": f"#/definitions/{name}"}})
    properties = {"kind": {"enum": list(discriminator["mapping"])}}
    return {
        "type": "object",
        "properties": properties,
        **({"required": ["kind"]} if required else {}),
        "allOf": kinds,
    }
