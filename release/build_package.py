"""`make package`: wheel and sdist in dist/, looked through before anybody gets them.

python release/build_package.py [folder]
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAYS = ("tests", "results", "benchmarks", "docs", "release")
"""Folders of the repository that are no part of a release's archives."""
LARGEST = 2 * 2**20
"""Bytes of either archive: more means that something crept in."""


def wheel_faults(wheel: Path) -> list[str]:
    """What a wheel lacks, or has and should not have: it holds every file of the package, templates and presets too."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "phylatent"
    expected = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    wanted = {str(path.relative_to(package.parent)) for path in expected}
    here = {name for name in names if ".dist-info/" not in name}
    return [f"{wheel.name} lacks {name}" for name in sorted(wanted - here)] + [
        f"{wheel.name} holds {name}, which is no part of the package" for name in sorted(here - wanted)
    ]


def sdist_faults(sdist: Path) -> list[str]:
    """What an sdist lacks, or has and should not have."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "constraints.txt"}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "src" / "phylatent").rglob("*.py")}
    strangers = sorted(name for name in names if name.partition("/")[0] in STAYS)
    return [f"{sdist.name} lacks {name}" for name in sorted(wanted - names)] + [
        f"{sdist.name} holds {name}, which belongs to the repository only" for name in strangers[:5]
    ]


def size_faults(archive: Path) -> list[str]:
    size = archive.stat().st_size
    return [f"{archive.name} has {size / 2**20:.1f} MB, more than {LARGEST / 2**20:.0f}"] if size > LARGEST else []


def main(folder: Path) -> None:
    for old in (*folder.glob("phylatent-*.whl"), *folder.glob("phylatent-*.tar.gz")):
        old.unlink()
    # torch brings the setuptools that pyproject.toml asks for: nothing is downloaded.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [wheel], [sdist] = folder.glob("phylatent-*.whl"), folder.glob("phylatent-*.tar.gz")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], check=True)
    subprocess.run([sys.executable, "-m", "check_wheel_contents", str(wheel)], check=True)
    faults = [*wheel_faults(wheel), *sdist_faults(sdist), *size_faults(wheel), *size_faults(sdist)]
    if faults:
        sys.exit("\n".join(faults))
    for archive in (wheel, sdist):
        print(f"{archive}: {archive.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
