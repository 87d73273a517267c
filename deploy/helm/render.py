"""Writes the plain manifests of `deploy/kubernetes`, the files that the chart carries along, and its version.

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

from monitor import __version__

DEPLOY = Path(__file__).parents[1]
CHART = DEPLOY / "helm" / "blindsight"
CARRIED = {
    "blindsight.rules.yaml": DEPLOY / "prometheus" / "blindsight.rules.yaml",
    "blindsight-fleet.json": DEPLOY / "grafana" / "dashboards" / "blindsight-fleet.json",
    "blindsight-model.json": DEPLOY / "grafana" / "dashboards" / "blindsight-model.json",
}
"""What stands in the chart as well, because a chart cannot reach outside of its folder."""
MANIFESTS = {"standalone": "", "sidecar": "sidecar-values.yaml"}


def values(file: str) -> dict[str, Any]:
    """One of the chart's example values."""
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / file).read_text(encoding="utf-8"))
    return found


def rendered(chosen: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The chart's objects with these values, as release `blindsight`, by kind and name."""
    texts = helm_python.Chart.load(str(CHART)).render(chosen or {}, name="blindsight", namespace="default")
    found = [
        each
        for path, text in texts.items()
        if path.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


def chart_file() -> str:
    """The text of `Chart.yaml` with the version of the agent, which is also the tag of the image."""
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^version: .*$", f"version: {__version__}", text, flags=re.MULTILINE)
    return re.sub(r"^appVersion: .*$", f'appVersion: "{__version__}"', text, flags=re.MULTILINE)


def manifests() -> dict[Path, str]:
    """The plain manifests with their texts: no object of an operator, no label of Helm's."""
    found = {}
    for name, file in MANIFESTS.items():
        objects = [
            each
            for each in rendered(values(file) if file else {})
            if "monitoring.coreos" not in each["apiVersion"]
        ]
        text = "".join(
            "---\n" + yaml.dump(_plain(each), Dumper=_Blocks, sort_keys=False, width=110) for each in objects
        )
        head = "# Written by `python -m deploy.helm.render` from the chart: change that, or a copy.\n"
        found[DEPLOY / "kubernetes" / f"{name}.yaml"] = head + text
    return found


class _Blocks(yaml.SafeDumper):
    """Texts of several lines as blocks, and lists set in, as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _text(dumper: _Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        helms = ("helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/config")
        kept = {key: _plain(value) for key, value in found.items() if key not in helms}
        return {key: value for key, value in kept.items() if not (key == "annotations" and value == {})}
    return [_plain(each) for each in found] if isinstance(found, list) else found


def main() -> int:
    """The command."""
    for name, source in CARRIED.items():
        (CHART / "files" / name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (CHART / "Chart.yaml").write_text(chart_file(), encoding="utf-8")
    for path, text in manifests().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
