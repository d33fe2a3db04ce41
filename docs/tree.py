"""Puts the package's tree into CONTRIBUTING.md: `make tree`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, GUIDE = ROOT / "src" / "phylatent", ROOT / "CONTRIBUTING.md"


def tree(folder: Path = SOURCE, depth: int = 2) -> str:
    """What `tree -L 2` prints of the package, without caches."""
    lines = [str(folder.relative_to(ROOT))]

    def below(place: Path, indent: str, depth: int) -> None:
        entries = sorted((entry for entry in place.iterdir() if entry.name != "__pycache__"), key=lambda entry: entry.name)
        for entry in entries:
            last = entry == entries[-1]
            lines.append(f"{indent}{'└──' if last else '├──'} {entry.name}")
            if entry.is_dir() and depth > 1:
                below(entry, indent + ("    " if last else "│   "), depth - 1)

    below(folder, "", depth)
    return "\n".join(lines)


if __name__ == "__main__":
    GUIDE.write_text(
        re.sub(r"```\nsrc/phylatent\n.*?\n```", f"```\n{tree()}\n```", GUIDE.read_text(), count=1, flags=re.DOTALL)
    )
