"""Writes the plain manifests, the base of Kustomize, the files that the chart carries along, and its version.

``python -m deploy.helm.render`` needs ``helm-python-sdk`` (extra `test`) and is run from the repository's
root.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import helm_python
import yaml

from deploy.helm.alerts import alerts
from monitor import __version__

DEPLOY = Path(__file__).parents[1]
CHART = DEPLOY / "helm" / "blindsight"
CARRIED = {
    "blindsight-fleet.json": DEPLOY / "grafana" / "dashboards" / "blindsight-fleet.json",
    "blindsight-model.json": DEPLOY / "grafana" / "dashboards" / "blindsight-model.json",
}
"""What stands in the chart as well, because a chart cannot reach outside of its folder."""
EXAMPLES = CHART / "ci"
"""Values for each mode."""
MANIFESTS = ("standalone", "sidecar")
"""The examples that are rendered as plain manifests."""


def files() -> dict[Path, str]:
    """Return the files that are written into the chart, with their texts."""
    carried = {CHART / "files" / name: source.read_text(encoding="utf-8") for name, source in CARRIED.items()}
    head = "# Written by `python -m deploy.helm.render` from the rules that `blindsight rules` prints.\n"
    rules = head + yaml.dump(alerts(), Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=10_000)
    return carried | {CHART / "files" / "alerts.yaml": rules, CHART / "Chart.yaml": chart_file()}


def values(path: Path) -> dict[str, Any]:
    """Return the values of a file."""
    read: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return read


def rendered(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the chart's objects with these values, as release `blindsight`, by kind and name."""
    texts = helm_python.Chart.load(str(CHART)).render(chosen, name="blindsight", namespace="default")
    objects = [
        each
        for path, text in texts.items()
        if path.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]
    return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))


def chart_file() -> str:
    """Return the text of `Chart.yaml` with the version of the agent, which is also the tag of the image."""
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^version: .*$", f"version: {__version__}", text, flags=re.MULTILINE)
    return re.sub(r"^appVersion: .*$", f'appVersion: "{__version__}"', text, flags=re.MULTILINE)


def manifests() -> dict[Path, str]:
    """Return the plain manifests and the files of the Kustomize base, with their texts."""
    head = "# Written by `python -m deploy.helm.render` from the chart: change that, or a copy.\n"
    texts = {DEPLOY / "kubernetes" / f"{name}.yaml": head + _text_of(plain(name)) for name in MANIFESTS}
    objects = plain("standalone")
    [configuration] = [each for each in objects if each["kind"] == "ConfigMap"]
    objects.remove(configuration)
    texts[DEPLOY / "kustomize" / "blindsight.yaml"] = head + _text_of(objects)
    config = yaml.safe_load(configuration["data"]["config.yaml"])
    texts[DEPLOY / "kustomize" / "config.yaml"] = "# An example: an overlay replaces it.\n" + yaml.dump(
        config, Dumper=_Blocks, sort_keys=False
    )
    return texts


def plain(name: str) -> list[dict[str, Any]]:
    """Return the objects of an example: none of an operator, and no label of Helm's."""
    objects = rendered(values(EXAMPLES / f"{name}-values.yaml"))
    return [_plain(each) for each in objects if "monitoring.coreos" not in each["apiVersion"]]


def _text_of(objects: list[dict[str, Any]]) -> str:
    return "".join("---\n" + yaml.dump(each, Dumper=_Blocks, sort_keys=False, width=110) for each in objects)


class _Blocks(yaml.SafeDumper):
    """Texts of several lines as blocks, and lists set in, as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _text(dumper: _Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        helms = ("helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/config")
        kept = {key: _plain(value) for key, value in node.items() if key not in helms}
        return {key: value for key, value in kept.items() if not (key == "annotations" and value == {})}
    return [_plain(each) for each in node] if isinstance(node, list) else node


def main() -> int:
    """The command."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    for path, text in manifests().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
