"""`make check-install`: the wheel without extras, installed from the registry as a user would, tried, weighed and thrown away.

python release/check_install.py dist/phylatent-1.0.0-py3-none-any.whl
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


def sizes(site: Path) -> dict[str, float]:
    """Distribution → GB, by the files that it says it brought."""
    found = {}
    for distribution in metadata.distributions(path=[str(site)]):
        places = (Path(str(distribution.locate_file(file))) for file in distribution.files or ())
        found[distribution.name] = sum(place.stat().st_size for place in places if place.is_file()) / 1e9
    return found


def is_torch(name: str) -> bool:
    """torch itself, and what it brings to compute on a GPU."""
    return name in ("torch", "triton") or name.startswith(("nvidia-", "cuda-"))


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="phylatent-install-") as name:
        folder = Path(name)
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True)
        [site] = folder.glob("lib/python3*/site-packages")
        found = sizes(site)
        subprocess.run([str(python), "-m", "pip", "check"], check=True)
        subprocess.run([str(python), "-I", str(ROOT / "release" / "check_core.py")], check=True)
    torch = sum(size for name, size in found.items() if is_torch(name))
    rest = sum(size for name, size in found.items() if not is_torch(name))
    print(json.dumps({"torch and its libraries, GB": round(torch, 2), "all the rest, GB": round(rest, 2)}, indent=1))
    for name, size in sorted(found.items(), key=lambda item: -item[1])[:15]:
        print(f"{size:6.2f} GB  {name}")
    if rest > 2.5:
        sys.exit("beside torch it should stay below 2.5 GB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
