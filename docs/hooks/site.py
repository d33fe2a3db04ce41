"""What `mkdocs build` asks for as it goes: pages that are made from the code, and links that leave docs/.

The pages under docs/ are also read on the repository's own page, so their links are relative files; those that lead out of
docs/ are turned here, to a page of the site where there is one and else to the repository.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command_pages
import record_pages
import setting_pages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
FROM_ROOT = {"SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files beside docs/ that are pages of the site, too."""
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^()\s#]+)")


def python_names() -> str:
    """A section of the Python page for every public name."""
    import phylatent

    return "\n\n".join(f"::: phylatent.{name}" for name in sorted(phylatent.__all__, key=str.lower))


MADE = {
    "commands": command_pages.commands,
    "settings": setting_pages.settings,
    "records": record_pages.records,
    "python": python_names,
}
"""What stands in a page as `<!-- made: NAME -->` → what is put there."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for source, name in FROM_ROOT.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    for name, schema in record_pages.schemas().items():
        files.append(File.generated(config, record_pages.place(name), content=json.dumps(schema, indent=2) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    markdown = re.sub(r"<!-- made: (\w+) -->", lambda found: MADE[found[1]](), markdown)
    markdown = re.sub(
        r"(?m)^<!--.*-->\n", "", markdown
    )  # marks of `make bench` and the like; Markdown takes what follows for HTML
    return LINK.sub(lambda found: turned(found[1], page.file.src_uri), markdown)


def turned(link: str, uri: str) -> str:
    """A link of the page `uri` as the site has it."""
    at_root = uri in FROM_ROOT.values()
    folder = "" if at_root else posixpath.dirname(f"docs/{uri}")
    target = posixpath.normpath(posixpath.join(folder, link))
    if target in FROM_ROOT:
        target = f"docs/{FROM_ROOT[target]}"
    if not target.startswith("docs/"):
        return f"{REPOSITORY}/blob/main/{target}"
    return posixpath.relpath(target, posixpath.dirname(f"docs/{uri}"))
