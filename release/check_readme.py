"""`make check-readme`: what the README shows from `git clone` on, word for word, as somebody who has Python, make and git.

python release/check_readme.py [folder]

The address that it clones leads to this checkout's last commit; otherwise nothing of this machine's setting-up is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADDRESS = "https://github.com/phylatent/phylatent"
START, STEPS = "From nothing to the report page", "Step by step"
"""Sections whose commands follow one another."""
KEPT = (
    "LANG",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_CONFIG_FILE",
    "PIP_CERT",
    "SSL_CERT_FILE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
)


def commands(section: str) -> list[str]:
    """The lines of a section's first block, as they stand there."""
    text = (ROOT / "README.md").read_text()
    [found] = re.findall(rf"^## {section}$.*?^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return found.splitlines()


def clean(folder: Path) -> dict[str, str]:
    """An environment with a home of its own, no virtual environment, and what reaches the package index."""
    beside = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part).parent / "pyvenv.cfg").exists()]
    home = folder / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f'[url "{ROOT}"]\n\tinsteadOf = {ADDRESS}\n[safe]\n\tdirectory = *\n')
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PATH": os.pathsep.join(beside), "HOME": str(home)}


def walk(lines: Iterable[str], folder: Path, environment: Mapping[str, str]) -> None:
    """All lines in one shell, in an empty folder; the first that fails ends it."""
    (folder / "work").mkdir()
    script = "\n".join(["set -e", *lines])
    subprocess.run(["bash", "-c", script], cwd=folder / "work", env=environment, check=True)


def main(folder: Path) -> None:
    walk([*commands(START), *commands(STEPS)], folder, clean(folder))
    pages = sorted((folder / "work").rglob("report.html"))
    if len(pages) < 2:
        sys.exit(f"expected the demo's page and one more, found {[str(page) for page in pages]}")
    print(*pages, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        place = Path(tempfile.mkdtemp(prefix="phylatent-readme-"))
        main(place)
        shutil.rmtree(place)
