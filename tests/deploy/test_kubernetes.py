"""The chart and the plain manifests: linted, rendered, valid by Kubernetes' own schemas, of our ports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from deploy.helm import render
from monitor import __version__
from monitor.config.file import config_from, load_config
from monitor.config.root import listen_address
from monitor.export.rules import Format, RuleSettings, paces, rendered, rule_groups
from tests.deploy.operator_schemas import API_VERSIONS, SPECS, resource

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDERS = (render.EXAMPLES, Path(__file__).parent / "helm" / "values")
FILES = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))}
VALUES = tuple(FILES)
SCHEMA = json.loads((render.CHART / "values.schema.json").read_text(encoding="utf-8"))
ENVIRONMENT = {"WINDOW_SIZE": "1000", "REDIS_HOST": "redis"}
"""The variables in the values."""
KUBERNETES = "1.30"
OPERATORS = set(API_VERSIONS.values())
"""Their resources are no part of Kubernetes' own schemas: `operator_schemas` has what we use of them."""
LINT = """
extends: default
rules: {line-length: {max: 125}, document-start: disable, comments: disable, braces: disable}
"""


def values_of(file: str) -> dict[str, Any]:
    return render.values(FILES[file])


@cache
def _rendered(file: str) -> list[dict[str, Any]]:
    return render.rendered(values_of(file))


def chosen(file: str) -> list[dict[str, Any]]:
    """Return the chart's objects with these values, for a test to change."""
    return deepcopy(_rendered(file))


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [manifest] = [each for each in objects if each["kind"] == kind]
    return manifest


@pytest.mark.parametrize("file", VALUES)
def test_the_chart_lints_strictly(file: str) -> None:
    result = helm_python.lint(str(render.CHART), values_of(file), strict=True)
    assert result["errors"] == []
    assert chosen(file)


def values_in(node: dict[str, Any], node_schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield the names of the chart's own values; keys below `config` belong to the agent."""
    for key, value in node.items():
        inner = node_schema["properties"][key]
        if "properties" in inner:
            yield from values_in(value, inner, f"{at}{key}.")
        elif key != "config":
            yield f"{at}{key}"


def values_of_the_schema(node: dict[str, Any], at: str = "") -> Iterator[str]:
    for key, inner in node["properties"].items():
        if "properties" in inner:
            yield from values_of_the_schema(inner, f"{at}{key}.")
        elif key not in ("config", "global"):
            yield f"{at}{key}"


def test_each_value_is_in_the_file_of_values_and_is_rendered_here() -> None:
    known = set(values_of_the_schema(SCHEMA))
    assert set(values_in(render.values(render.CHART / "values.yaml"), SCHEMA)) == known
    assert {name for file in VALUES for name in values_in(values_of(file), SCHEMA)} == known


@pytest.mark.parametrize("file", VALUES)
def test_every_object_is_valid(file: str) -> None:
    for each in chosen(file):
        if each["apiVersion"] in OPERATORS:
            jsonschema.validate(each, resource(each["kind"]))
        else:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_every_kind_of_the_operators_is_rendered_and_the_shipped_rules_are_valid() -> None:
    rendered = {each["kind"] for file in VALUES for each in chosen(file) if each["apiVersion"] in OPERATORS}
    assert rendered == SPECS.keys()
    shipped = (DEPLOY / "prometheus" / "blindsight.prometheusrule.yaml").read_text(encoding="utf-8")
    jsonschema.validate(yaml.safe_load(shipped), resource("PrometheusRule"))


@pytest.mark.parametrize(
    ("kind", "spoil", "message"),
    [
        ("PrometheusRule", lambda spec: spec["groups"][0]["rules"][0].update({"for": "30 min"}), "30 min"),
        (
            "PrometheusRule",
            lambda spec: spec["groups"][0]["rules"][0].update(keepFiringFor="1m"),
            "keepFiring",
        ),
        ("PrometheusRule", lambda spec: spec["groups"][0]["rules"][0].pop("expr"), "'expr' is a required"),
        (
            "PrometheusRule",
            lambda spec: spec["groups"][0]["rules"][0]["labels"].update(n=1),
            "1 is not of type",
        ),
        ("HTTPRoute", lambda spec: spec["parentRefs"][0].pop("name"), "'name' is a required"),
        (
            "HTTPRoute",
            lambda spec: spec["rules"][0]["backendRefs"][0].update(port="metrics"),
            "'metrics' is not",
        ),
        ("ServiceMonitor", lambda spec: spec.pop("endpoints"), "'endpoints' is a required"),
        ("ServiceMonitor", lambda spec: spec["endpoints"][0].update(port=9109), "9109 is not of type"),
        (
            "PodMonitor",
            lambda spec: spec.update(endpoints=spec.pop("podMetricsEndpoints")),
            "'endpoints' was",
        ),
    ],
)
def test_a_fault_in_a_resource_of_the_operators_is_found(
    kind: str, spoil: Callable[[Any], Any], message: str
) -> None:
    manifest = next(each for file in VALUES for each in chosen(file) if each["kind"] == kind)
    spoil(manifest["spec"])
    with pytest.raises(jsonschema.ValidationError, match=message):
        jsonschema.validate(manifest, resource(kind))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "daemonset"}, "at '/mode': value must be one of 'standalone', 'sidecar', 'standby'"),
        (
            {"config": {"export": {"listen": "0.0.0.0:8080"}}},
            "at '/config/export/listen': '0.0.0.0:8080' does not match pattern ':9109$'",
        ),
        ({"ingestPort": 70000}, "at '/ingestPort': maximum: got 70,000, want 65,535"),
        (
            {"config": {"sources": [{"kind": "kafa"}]}},
            "at '/config/sources/0/kind': value must be one of 'file', 'http', 'kafka', 'redis'",
        ),
        (
            {"config": {"tasks": {"toxicity": {"window": {"size": 3}}}}},
            "at '/config/tasks/toxicity/window/size': minimum: got 3, want 10",
        ),
        (
            {"mode": "standby"},
            "config.store.postgres: missing; in mode standby both agents need one database",
        ),
        (
            {
                "mode": "standby",
                "config": {
                    "store": {"postgres": "host=db"},
                    "sources": [{"kind": "http", "listen": "0.0.0.0:9108", "spool": {"path": "spool"}}],
                },
            },
            "config.sources: leave spool.path out; in mode standby the database keeps what was posted",
        ),
        (
            {"mode": "standby", "ingestPort": 9108, "podDisruptionBudget": {"enabled": True}}
            | {"config": {"store": {"postgres": "host=db"}}},
            "podDisruptionBudget: leave it out; in mode standby with ingestPort one pod is never ready, so "
            "it would forbid every drain",
        ),
        (
            {"httpRoute": {"enabled": True}},
            "httpRoute.parentRefs: missing; name the Gateway, such as [{name: gateway, namespace: infra}]",
        ),
        ({"ingress": {"path": "blindsight"}}, "at '/ingress/path': 'blindsight' does not match pattern '^/'"),
        (
            {"config": {"export": {"tls": {"cert": "c", "key": "k", "client_ca": "ca"}}}},
            "config.export.tls.client_ca: the kubelet has no certificate to probe with; guard by tokens",
        ),
        (
            {"config": {"export": {"tokens": [{"token_file": "t"}]}}, "podMonitor": {"enabled": True}},
            "config.export.tokens: give the monitor's endpoint an authorization, as Prometheus needs a token",
        ),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(message)):
        render.rendered(merged(values_of("standalone-values"), values))


def merged(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return values with others over them, as Helm merges files."""
    joined = dict(values)
    for key, value in others.items():
        both = isinstance(value, dict) and isinstance(joined.get(key), dict)
        joined[key] = merged(joined[key], value) if both else value
    return joined


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {},
            "config.tasks: missing; name your task and its classes, such as "
            "config: {tasks: {spam: {classes: [ham, spam]}}}",
        ),
        (
            {"config": {"tasks": {"spam": {"classes": ["ham", "spam"]}}}},
            "config.sources: missing; say where predictions come from, such as "
            'config: {sources: [{kind: kafka, brokers: ["kafka:9092"], topics: [predictions, labels]}]}',
        ),
    ],
)
def test_the_chart_has_no_tasks_and_no_sources_of_its_own(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(message)):
        render.rendered(values)


def test_the_tasks_of_a_user_are_the_only_tasks() -> None:
    values = values_of("standalone-values")
    values["config"]["tasks"] = {"spam": {"classes": ["ham", "spam"]}}
    [text] = [each["data"]["config.yaml"] for each in render.rendered(values) if each["kind"] == "ConfigMap"]
    assert yaml.safe_load(text)["tasks"] == values["config"]["tasks"]


def test_the_schema_takes_what_the_agent_takes() -> None:
    """The example has every key; a number may be a variable of the environment."""
    example = yaml.safe_load((DEPLOY.parent / "config.example.yaml").read_text(encoding="utf-8"))
    example["export"]["listen"] = "0.0.0.0:9109"
    example["tasks"]["toxicity"]["window"]["size"] = "${SIZE}"
    jsonschema.validate({"mode": "standalone", "image": {"repository": "r"}, "config": example}, SCHEMA)


@pytest.mark.parametrize(
    "path",
    [
        "",
        *("image", "sidecar", "persistence", "serviceAccount", "serviceMonitor", "prometheusRule"),
        *("dashboards", "networkPolicy", "podDisruptionBudget", "ingress", "httpRoute"),
        *("config", "config.tasks.toxicity", "config.tasks.toxicity.reference", "config.sources.0"),
        *("config.store", "config.export"),
    ],
)
def test_an_unknown_key_is_refused_with_its_place(path: str) -> None:
    values = merged(values_of("standalone-values"), {"config": {"store": {}, "export": {}}})
    place: Any = values
    for key in path.split(".") if path else ():
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    place["replicaz"] = 2
    at = "/" + path.replace(".", "/") if path else ""
    with pytest.raises(
        helm_python.HelmError, match=f"at '{at}': additional properties 'replicaz' not allowed"
    ):
        render.rendered(values)


@pytest.mark.parametrize("file", VALUES)
def test_the_configuration_in_it_is_one_that_the_agent_takes(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = [each for each in chosen(file) if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]]
    if values_of(file).get("existingConfigMap"):
        assert maps == []
        return
    for variable in ENVIRONMENT.items():
        monkeypatch.setenv(*variable)
    path = tmp_path / "config.yaml"
    path.write_text(maps[0]["data"]["config.yaml"].replace("/etc/blindsight-secrets", str(tmp_path)), "utf-8")
    (tmp_path / "token").write_text("0123456789abcdef0123", encoding="utf-8")
    config = load_config(path)
    assert listen_address(config.export.listen) == ("0.0.0.0", 9109)
    for writes in (config.store, config.reports, config.rejects):
        in_folder = writes is not None and writes.path is not None
        assert not in_folder or str(writes.path).startswith("/var/lib/blindsight")


@pytest.mark.parametrize("file", VALUES)
def test_the_pod_is_confined_probed_and_bounded(file: str) -> None:
    objects = chosen(file)
    mode = values_of(file).get("mode", "standalone")
    workload = only(objects, "StatefulSet" if mode == "standalone" else "Deployment")
    pod = workload["spec"]["template"]["spec"]
    agent = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert agent["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    probes = {name: agent[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    both_up = mode == "standby" and not values_of(file).get("ingestPort")
    waits = {"/-/healthy"} if both_up else {"/-/healthy", "/-/ready"}
    assert {probe["path"] for probe in probes.values()} == waits
    assert {probe["port"] for probe in probes.values()} == {"metrics"}
    schemes = {probe.get("scheme", "HTTP") for probe in probes.values()}
    assert schemes == {"HTTPS" if "everything" in file else "HTTP"}, "as config.export.tls says"
    assert agent["resources"]["limits"]["memory"]
    assert agent["resources"]["requests"].keys() == {"cpu", "memory"}
    mounts = {mount["mountPath"] for mount in agent["volumeMounts"]}
    assert {"/etc/blindsight", "/tmp"} <= mounts
    assert ("/var/lib/blindsight" in mounts) == (mode != "standby"), "those write no file"
    claims = {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
    volumes = {each["name"] for each in pod["volumes"]} | claims
    assert {m["name"] for c in pod["containers"] for m in c["volumeMounts"]} <= volumes


def test_standalone_keeps_its_state_and_lets_in_only_who_may() -> None:
    objects = chosen("everything-values")
    [claim] = only(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ports = {rule["ports"][0]["port"]: rule["from"] for rule in policy["ingress"]}
    name = {"kubernetes.io/metadata.name": "monitoring"}
    assert ports == {9109: [{"namespaceSelector": {"matchLabels": name}}], 9108: [{"podSelector": {}}]}
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [[53, 53]]
    assert [port["port"] for port in only(objects, "Service")["spec"]["ports"]] == [9109, 9108]


def egress_ports(objects: list[dict[str, Any]]) -> list[set[int]]:
    """Return the ports of each rule of the policy after the rule for DNS."""
    rules = only(objects, "NetworkPolicy")["spec"]["egress"]
    assert [port["port"] for port in rules[0]["ports"]] == [53, 53]
    return [{port["port"] for port in rule["ports"]} for rule in rules[1:]]


def test_the_policy_lets_out_to_each_source_sink_and_store() -> None:
    assert egress_ports(chosen("every-sink")) == [{*range(1101, 1113), 6379, 443}]
    ports = {"standalone-values": {9092}, "environment": {6380}, "cloud-identity": {9093, 443}}
    for file, expected in ports.items():
        assert egress_ports(chosen(file)) == [expected], file
    assert egress_ports(chosen("standby-values")) == [{9092, 5432}], "the database is a store"
    values = merged(
        values_of("every-sink"),
        {"networkPolicy": {"egressFromConfig": False, "egress": [{"ports": [{"port": 9093}]}]}},
    )
    assert egress_ports(render.rendered(values)) == [{9093}]


def test_the_policy_knows_the_usual_port_of_an_address_without_one() -> None:
    values = merged(
        values_of("standalone-values"),
        {
            "config": {
                "sources": [
                    {"kind": "kafka", "brokers": ["${BROKER}"], "topics": ["answers"]},
                    {"kind": "sql", "dsn": "host=db", "table": "t", "cursor": "c"},
                    {"kind": "sql", "driver": "other", "name": "m", "dsn": "db", "table": "t", "cursor": "c"},
                ],
                "alertmanager": {"urls": ["http://alerts"]},
                "store": {"path": None, "postgres": "postgresql://agent@a,b:6432/monitoring"},
            }
        },
    )
    assert egress_ports(render.rendered(values)) == [{9092, 5432, 6432, 80}], "and no other driver's"


def test_of_two_agents_on_one_database_both_count_as_up() -> None:
    """`helm --wait` and a rollout wait for pods that are ready, which one that waits for its lease is not."""
    workload = only(chosen("standby-values"), "Deployment")["spec"]
    pod = workload["template"]["spec"]
    assert workload["replicas"] == 2
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert "data" not in {each["name"] for each in pod["volumes"]}, "all of the state is in the database"
    assert "strategy" not in workload, "one pod more at a time, and none less"


def test_posts_reach_the_one_of_two_agents_that_works() -> None:
    """The other one does not listen; a rollout of pods of which one is never ready must not wait for it."""
    objects = chosen("standby-posts-values")
    workload = only(objects, "Deployment")["spec"]
    agent = workload["template"]["spec"]["containers"][0]
    assert workload["replicas"] == 2
    assert agent["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert workload["strategy"]["rollingUpdate"]["maxUnavailable"] == workload["replicas"]
    assert workload["progressDeadlineSeconds"] == 2**31 - 1, "which Kubernetes takes for none"
    assert {each["containerPort"] for each in agent["ports"]} == {9109, 9108}
    assert [port["port"] for port in only(objects, "Service")["spec"]["ports"]] == [9109, 9108]
    assert agent["securityContext"]["readOnlyRootFilesystem"] is True
    assert [each["name"] for each in workload["template"]["spec"]["volumes"]] == ["config", "tmp", "secrets"]


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the specification of the agent's pod."""
    [workload] = [each for each in objects if each["kind"] in ("StatefulSet", "Deployment")]
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def test_on_openshift_the_cluster_chooses_who_the_pod_runs_as() -> None:
    ids = {"runAsUser", "runAsGroup", "fsGroup"}
    assert ids <= pod_of(chosen("standalone-values"))["securityContext"].keys()
    confined = pod_of(chosen("openshift"))["securityContext"]
    assert confined == {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_a_role_of_the_cloud_is_an_annotation_of_the_service_account() -> None:
    objects = chosen("cloud-identity")
    account = only(objects, "ServiceAccount")["metadata"]
    assert account["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/reader",
    }
    assert pod_of(objects)["serviceAccountName"] == account["name"] == "reader"
    assert pod_of(objects)["containers"][0]["image"] == "registry.example/blindsight:0.2.0-files"
    assert not [each for each in chosen("without-volume") if each["kind"] == "ServiceAccount"]


def test_the_environment_comes_from_values_and_from_secrets() -> None:
    agent = pod_of(chosen("environment"))["containers"][0]
    assert agent["env"] == [{"name": "WINDOW_SIZE", "value": "1000"}]
    assert agent["envFrom"] == [{"secretRef": {"name": "blindsight-environment"}}]
    assert {"name": "secrets", "mountPath": "/secrets", "readOnly": True} in agent["volumeMounts"]


def test_a_container_can_prepare_a_file_before_the_agent_starts() -> None:
    pod = pod_of(chosen("reference-file"))
    [first] = pod["initContainers"]
    assert first["volumeMounts"][0]["name"] in {each["name"] for each in pod["volumes"]}
    assert pod["priorityClassName"] == "monitoring"


def test_a_configuration_and_a_volume_may_be_made_elsewhere() -> None:
    objects = chosen("existing-configmap")
    workload = only(objects, "StatefulSet")["spec"]
    volumes = {each["name"]: each for each in workload["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"] == {"name": "models"}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "models-state"}
    assert "volumeClaimTemplates" not in workload
    assert (
        "annotations" not in workload["template"]["metadata"]
        or not workload["template"]["metadata"]["annotations"]
    ), "the chart cannot see when that configuration changes"


def test_the_chart_derives_ports_and_rules_from_values_beside_that_configuration() -> None:
    values = values_of("rules") | {"existingConfigMap": "models"}
    objects = render.rendered(values)
    assert not [each for each in objects if each["kind"] == "ConfigMap"]
    assert only(objects, "PrometheusRule")["spec"] == only(chosen("rules"), "PrometheusRule")["spec"]
    assert egress_ports(objects) == [{9092}]
    two = render.rendered({"mode": "standby", "existingConfigMap": "models"})
    assert only(two, "Deployment")["spec"]["replicas"] == 2, "the database is in that configuration"


def test_without_a_volume_the_state_ends_with_the_pod() -> None:
    objects = chosen("without-volume")
    assert {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}} in pod_of(objects)["volumes"]
    assert "volumeClaimTemplates" not in only(objects, "StatefulSet")["spec"]


def test_the_page_is_behind_an_ingress_controller_or_a_gateway() -> None:
    objects = chosen("ingress")
    [rule] = only(objects, "Ingress")["spec"]["rules"]
    [path] = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("models.example", "/", "Prefix")
    service = only(objects, "Service")
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert path["backend"]["service"]["port"]["name"] in ports
    route = only(chosen("http-route"), "HTTPRoute")["spec"]
    assert route["rules"] == [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/blindsight"}}],
            "filters": [
                {
                    "type": "URLRewrite",
                    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
                }
            ],
            "backendRefs": [{"name": "blindsight", "port": ports["metrics"]}],
        }
    ]
    values = merged(values_of("http-route"), {"httpRoute": {"path": "/"}})
    assert "filters" not in only(render.rendered(values), "HTTPRoute")["spec"]["rules"][0]


def test_a_drain_stops_one_of_two_agents_at_a_time() -> None:
    objects = chosen("standby-zones")
    budget = only(objects, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    pods = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= pods.items()


def notes(values: dict[str, Any]) -> str:
    texts = helm_python.Chart.load(str(render.CHART)).render(values, name="blindsight", namespace="models")
    return texts["blindsight/templates/NOTES.txt"]


def test_the_notes_say_what_is_left_to_do() -> None:
    text = notes(values_of("standalone-values"))
    assert "kubectl -n models port-forward svc/blindsight 9109" in text
    image = f"blindsight:{__version__}"
    assert f"The image {image} is in no public registry" in text
    assert "--set image.repository=REGISTRY/blindsight" in text
    assert f"kind load docker-image {image}" in text
    assert "external_url" not in text
    assert "registry" not in notes(values_of("cloud-identity")), "its image has one"
    assert "set config.export.external_url" in notes(values_of("http-route"))
    assert "set config.export.tokens" in notes(values_of("http-route"))
    assert "config.export" not in notes(values_of("ingress")), "it has both"


def test_two_agents_run_on_two_nodes_where_they_can() -> None:
    selector = {"app.kubernetes.io/name": "blindsight", "app.kubernetes.io/instance": "blindsight"}
    [preferred] = pod_of(chosen("standby-values"))["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert preferred["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": selector},
    }
    assert "affinity" not in pod_of(chosen("standalone-values")), "one agent has nobody to avoid"
    assert pod_of(chosen("standby-zones"))["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": selector},
        }
    ]
    values = values_of("standby-zones")
    values["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {"team": "ml"}}
    values["affinity"] = {"nodeAffinity": {}}
    pod = pod_of(render.rendered(values))
    assert pod["topologySpreadConstraints"][0]["labelSelector"] == {"matchLabels": {"team": "ml"}}
    assert pod["affinity"] == {"nodeAffinity": {}}


def test_an_agent_that_waits_gets_a_folder_where_it_writes_reports() -> None:
    values = values_of("standby-values")
    values["config"]["reports"] = {"path": "/var/lib/blindsight/windows.ndjson"}
    pod = only(render.rendered(values), "Deployment")["spec"]["template"]["spec"]
    assert {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}} in pod["volumes"]


def test_a_sidecar_shares_a_folder_with_the_model() -> None:
    objects = chosen("sidecar-values")
    containers = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["blindsight", "model"]
    folders = [
        {m["mountPath"] for m in each["volumeMounts"] if m["name"] == "records"} for each in containers
    ]
    assert folders == [{"/records"}, {"/records"}]
    assert only(objects, "PodMonitor")["spec"]["jobLabel"] == "app.kubernetes.io/name"


INSTALL = "install the rules that `blindsight rules config.yaml --format operator` prints"
RULES: dict[str, dict[str, Any]] = {
    "one task at the defaults": {"tasks": {"spam": {}}},
    "tasks of one pace": {"tasks": {"spam": {"window": {"size": 20}}, "ham": {}}},
    "a name that must be escaped": {
        "tasks": {
            "chat": {"kind": "arena"},
            "ha\\m '<b>' & {{ü}}": {
                "window": {"size": 100, "min_size": 100},
                "models": {"erm": {"answers_per_day": 2400}, "irm": {"answers_per_day": 4800.5}},
            },
            "slow": {"kind": "arena", "window": {"max_age_seconds": 3600}},
            "spam": {"ssme": {"every_seconds": 14_400}},
        },
        "export": {"external_url": "https://models.example/blindsight/"},
    },
    "traffic that is partly unknown": {
        "tasks": {
            "t": {"models": {"erm": {"answers_per_day": 1e6}, "irm": {}}},
            "u": {"models": {"erm": {"answers_per_day": 432_000}}, "ssme": {"every_windows": 3000}},
            "v": {"models": ["erm", "irm"], "window": {"max_age_seconds": 1234.5678}},
            "w": {"models": {"erm": {"answers_per_day": 3}}, "window": {"size": 30, "max_age_seconds": 1}},
            "x": {"kind": "arena", "models": ["erm"], "window": {"size": 40, "max_age_seconds": 1}},
        },
    },
}


@pytest.mark.parametrize("name", RULES)
def test_operators_get_the_rules_that_the_command_prints_for_the_same_configuration(name: str) -> None:
    config = RULES[name]
    options = {
        "selector": 'job="models",cluster=~"eu-.*"',
        "runbooks": "",
        "dashboard": "https://g.example/d?o=1",
    }
    for more in (
        {},
        options,
        options | {"runbooks": "https://wiki.example/", "dashboard": "https://g.example/d"},
    ):
        rule = {"enabled": True} | more
        objects = render.rendered(
            {"config": config | {"sources": [{"kind": "stdin"}]}, "prometheusRule": rule}
        )
        text = next(each["data"]["config.yaml"] for each in objects if each["kind"] == "ConfigMap")
        read = config_from(yaml.safe_load(text))
        settings = RuleSettings(paces=paces(read), external_url=read.export.external_url or "", **more)
        printed = yaml.safe_load(rendered(rule_groups(settings), settings, Format.OPERATOR))
        assert only(objects, "PrometheusRule")["spec"] == printed["spec"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"existingConfigMap": "models"},
            "prometheusRule: config.tasks is empty, and the chart cannot read existingConfigMap; " + INSTALL,
        ),
        (
            {"config": {"tasks": {"spam": {"window": {"size": "${SIZE}"}}}, "sources": [{"kind": "stdin"}]}},
            "prometheusRule: config.tasks.spam has a variable of the environment, which the chart cannot "
            "read; " + INSTALL,
        ),
        (
            {
                "config": {
                    "tasks": {"spam": {}},
                    "sources": [{"kind": "stdin"}],
                    "export": {"external_url": "https://${HOST}"},
                }
            },
            "prometheusRule: config.export.external_url has a variable of the environment, which the chart "
            "cannot read; write the address",
        ),
    ],
)
def test_rules_that_the_chart_cannot_compute_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(message)):
        render.rendered(values | {"prometheusRule": {"enabled": True}})


def test_operators_get_the_job_that_the_rules_select() -> None:
    objects = chosen("everything-values")
    monitor = only(objects, "ServiceMonitor")
    assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/name"
    service = only(objects, "Service")
    assert service["metadata"]["labels"]["app.kubernetes.io/name"] == "blindsight"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["scheme"] == "https", "as config.export.tls says"
    assert endpoint["authorization"] == {"credentials": {"name": "blindsight-token", "key": "token"}}


def test_what_the_chart_carries_and_the_plain_manifests_are_up_to_date() -> None:
    for path, text in (render.files() | render.manifests()).items():
        assert path.read_text("utf-8") == text, "run python -m deploy.helm.render"
    boards = [each for each in chosen("everything-values") if each["metadata"]["name"].endswith("dashboards")]
    assert boards[0]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert render.CARRIED.keys() == boards[0]["data"].keys()


@pytest.mark.parametrize("name", ["standalone", "sidecar"])
def test_plain_manifests_are_valid_and_name_nothing_of_helm(name: str) -> None:
    text = (DEPLOY / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8")
    objects = list(yaml.safe_load_all(text))
    assert {"ConfigMap", "Service", "NetworkPolicy"} <= {each["kind"] for each in objects}
    for each in objects:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    assert "helm.sh" not in text
    config = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["config.yaml"]
    config_from(yaml.safe_load(config))


def yaml_files() -> list[Path]:
    files = [path for path in DEPLOY.rglob("*.y*ml") if "templates" not in path.parts]
    written = {DEPLOY / "grafana" / "configmap.yaml"}  # a dashboard's lines are as long as they are
    return sorted(set(files) - written)


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: path.name)
def test_yamllint_finds_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    long = (
        path.name == "alerts.yaml" or "rules.yaml" in path.name or "prometheusrule" in path.name
    )  # printed by `blindsight rules`
    config = YamlLintConfig(LINT.replace("line-length: {max: 125}", "line-length: disable") if long else LINT)
    assert [f"{problem.line}: {problem.desc}" for problem in linter.run(text, config)] == []
