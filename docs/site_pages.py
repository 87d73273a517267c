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


def on_files(files: Files, config: Any) -> Files:
    """Add the README, the runbooks and the example of a configuration as pages."""
    for source, site in _TAKEN.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".yaml"):
            text = f"# An example of a configuration\n\n```yaml\n{text}```\n"
        level = InclusionLevel.NOT_IN_NAV if site.startswith("runbooks/") else InclusionLevel.UNDEFINED
        files.append(File.generated(config, site, content=text, inclusion=level))
    # The plugin same-dir leaves out pictures beside mkdocs.yml.
    for picture in (ROOT / "docs").glob("*.png"):
        files.append(File.generated(config, picture.name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Lead links to where the site has their files; a link to code, which it has not, becomes its text.

    The name of a block, for tests (```sh ask), goes.
    """
    here = page.file.src_uri
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
