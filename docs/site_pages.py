"""What the site takes from outside of this folder, and where links to it lead: a hook of MkDocs."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```|`[^`\n]+`|(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)",
    flags=re.MULTILINE | re.DOTALL,
)
_TAKEN = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "config.example.yaml": "config.example.md",
} | {path.relative_to(ROOT).as_posix(): f"runbooks/{path.name}" for path in ROOT.glob("deploy/runbooks/*.md")}
_SOURCES = {site: source for source, site in _TAKEN.items()}
MOVED = {
    "calibration": "assumptions.html#recalibration-on-labels",
    "choosing-an-estimator": "estimators.html",
    "choosing-windows": "reading-the-chart.html#choosing-windows",
    "intervals": "assumptions.html#intervals",
    "kinds": "configuration.html",
    "measured": "compared.html#measurements",
    "python": "notebook.html#functions",
    "rebaseline": "find-out-why.html#a-new-baseline",
    "redis": "kafka.html#redis",
    "reload": "upgrade.html#changing-the-configuration-of-a-running-agent",
    "sizing": "scale.html#sizing",
    "spark": "several-agents.html#spark",
    "ssme": "estimators.html#ssme",
    "tables": "files.html#databases",
    "serving/protocols": "serving/stacks.html#events-and-protocols",
    **{
        f"serving/{stack}": f"serving/stacks.html#{stack}"
        for stack in ("bentoml", "fastapi", "kcat", "kserve", "mlflow", "mlserver", "ray-serve", "syslog-ng")
    },
}
"""Pages that joined others, and their addresses now; the site keeps the old addresses as redirects."""
_SEARCH = {
    "your-situation.md": {"boost": 3},
    "CONTRIBUTING.md": {"boost": 0.2},
    "how-it-works.md": {"boost": 0.2},
    "api.md": {"exclude": True},
    "CHANGELOG.md": {"exclude": True},
}
"""The search finds situations first, developers' pages last, and neither names in Python nor the history."""


def on_files(files: Files, config: Any) -> Files:
    """Add the README, the runbooks and the example of a configuration as pages."""
    for source, site in _TAKEN.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".yaml"):
            text = f"# An example of a configuration\n\n```yaml\n{text}```\n"
        level = InclusionLevel.NOT_IN_NAV if site.startswith("runbooks/") else InclusionLevel.UNDEFINED
        files.append(File.generated(config, site, content=text, inclusion=level))
    # The plugin same-dir leaves out pictures beside mkdocs.yml.
    for picture in [*(ROOT / "docs").glob("*.png"), ROOT / "docs" / "demo.svg"]:
        files.append(File.generated(config, picture.name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Lead links to where the site has their files; a link to code, which it has not, becomes its text.

    The name of a block, for tests (```sh ask), goes.
    """
    here = page.file.src_uri
    if here in _SEARCH:
        page.meta["search"] = _SEARCH[here]
    source = _SOURCES.get(here, f"docs/{here}")

    def led(found: re.Match[str]) -> str:
        text, target, anchor = found.groups(default="")
        if not target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        site = _TAKEN.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if site is None:
            return text
        return f"[{text}]({posixpath.relpath(site, posixpath.dirname(here) or '.')}{anchor})"

    markdown = re.sub(r"^( *```\w+) .*$", r"\1", _CODE_OR_LINK.sub(led, markdown), flags=re.MULTILINE)
    return re.sub(r"(!\[[^\]]*\]\()docs/", r"\1", markdown)


def on_post_build(config: Any) -> None:
    """Write a page that leads on for each address that a page had before."""
    for old, new in MOVED.items():
        target = posixpath.relpath(new, posixpath.dirname(old) or ".")
        path = Path(config["site_dir"]) / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'<!doctype html><meta charset="utf-8"><title>Moved</title><link rel="canonical" href="{target}">'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">This page moved</a>\n',
            encoding="utf-8",
        )
