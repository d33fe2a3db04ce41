"""`make release`: the documentation as a site in dist/site, built strictly: a broken link is an error."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    if not (ROOT / "mkdocs.yml").is_file():
        print("the documentation is not built: there is no mkdocs.yml")
        return
    if find_spec("mkdocs") is None:
        sys.exit("the documentation needs mkdocs: pip install '.[docs]'")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(ROOT / "dist" / "site")]
    subprocess.run(build, cwd=ROOT, check=True)
    print(ROOT / "dist" / "site")


if __name__ == "__main__":
    main()
