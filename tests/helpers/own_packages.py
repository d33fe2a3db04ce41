"""What `pip install` leaves of a package with entry points, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from phylatent import own_files


def install(site: Path, points: dict[str, dict[str, str]], package: str = "mine", **modules: str) -> Path:
    """A package in `site`: group → {name: value} of its entry points, and its modules' texts."""
    folder = site / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    facts = site / f"{package}-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in named.items()) for group, named in points.items()]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    return site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A directory of installed packages that this process sees, and forgets afterwards."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    own_files.installed.cache_clear()
    yield tmp_path / "site"
    own_files.installed.cache_clear()
