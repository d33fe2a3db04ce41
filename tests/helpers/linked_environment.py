"""An environment with what a package requires and nothing else, without downloads: links into the one that runs the tests."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Canonical name → every distribution that `pip install` of these requirements would bring here."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, asked_by = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": asked_by}):
            continue
        name = canonicalize_name(requirement.name)
        distribution = found[name] = found.get(name) or metadata.distribution(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [(Requirement(text), extra) for text in distribution.requires or ()]
    return found


def top_levels(distribution: metadata.Distribution) -> set[str]:
    """Entries of site-packages that it brought."""
    parts = (file.parts[0] for file in distribution.files or ())
    return {part for part in parts if part not in ("..", "__pycache__")}


def link(distributions: Iterable[metadata.Distribution], site: Path) -> None:
    """Whole folders where they are a distribution's alone; file by file where others, which must not come along, share them."""
    wanted = {canonicalize_name(distribution.name) for distribution in distributions}
    foreign = set().union(*(top_levels(d) for d in metadata.distributions() if canonicalize_name(d.name) not in wanted))
    for distribution in distributions:
        for part in top_levels(distribution):
            source, target = Path(str(distribution.locate_file(part))), site / part
            if part in foreign and source.is_dir():
                for file in distribution.files or ():
                    if file.parts[0] == part and (place := Path(str(distribution.locate_file(file)))).is_file():
                        (site / file).parent.mkdir(parents=True, exist_ok=True)
                        (site / file).symlink_to(place)
            elif not target.exists():
                target.symlink_to(source)


def make(folder: Path, package: Path, requirements: Iterable[str]) -> Path:
    """The Python of an environment in `folder` with the package, a wheel or a checkout to edit, and its requirements."""
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python3*/site-packages")
    link([found for name, found in closure(requirements).items() if name != "phylatent"], site)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    what = ["--no-build-isolation", "--editable", str(package)] if package.is_dir() else [str(package)]
    subprocess.run([*pip, "--no-deps", "--no-index", *what], check=True)
    return python
