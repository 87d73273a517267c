"""What the site takes from outside of this folder, and where links to it lead: a hook of MkDocs."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
_TAKEN = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
_TAKEN |= {
    path.relative_to(ROOT).as_posix(): f"runbooks/{path.name}" for path in ROOT.glob("deploy/runbooks/*.md")
}
_EXAMPLE = "config.example.yaml"
_SOURCES = {site: source for source, site in _TAKEN.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add the README, the runbooks and the example of a configuration as pages."""
    for site, source in _SOURCES.items():
        files.append(File.generated(config, site, content=(ROOT / source).read_text(encoding="utf-8")))
        if site.startswith("runbooks/"):
            files.src_uris[site].inclusion = files.src_uris[site].inclusion.NOT_IN_NAV
    example = (ROOT / _EXAMPLE).read_text(encoding="utf-8")
    text = f"# An example of a configuration\n\n```yaml\n{example}```\n"
    files.append(File.generated(config, "config.example.md", content=text))
    for picture in (ROOT / "docs").glob(
        "*.png"
    ):  # the plugin same-dir leaves out what lies beside mkdocs.yml
        files.append(File.generated(config, picture.name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Lead links to where the site has their files; a link to code, which it has not, becomes its text.

    The name of a block, for tests (```sh ask), goes.
    """
    here = page.file.src_uri
    source = _SOURCES.get(here, f"docs/{here}")

    def led(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        if not target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        site = "config.example.md" if path == _EXAMPLE else _TAKEN.get(path)
        if site is None and path.startswith("docs/"):
            site = path.removeprefix("docs/")
        if site is None or files.get_file_from_path(site) is None:
            return text
        return f"[{text}]({posixpath.relpath(site, posixpath.dirname(here) or '.')}{anchor})"

    markdown = re.sub(r"^( *```\w+) .*$", r"\1", _LINK.sub(led, markdown), flags=re.MULTILINE)
    return re.sub(r"(!\[[^\]]*\]\()docs/", r"\1", markdown)
