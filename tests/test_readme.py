"""From `git clone` to the report page by the README's own lines, where nothing of this machine's is set up."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import check_readme
import pytest

HELPERS = Path(__file__).parent / "helpers"


@pytest.mark.slow
@pytest.mark.skipif(not (check_readme.ROOT / ".git").exists(), reason="this is no checkout that could be cloned")
def test_from_the_clone_to_the_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """At smoke size and without downloads: after `cd`, the clone gets an environment that links to what is here."""
    place = tmp_path / "work" / "phylatent"
    provide = (
        f"import sys; sys.path.insert(0, {str(HELPERS)!r}); from pathlib import Path; from linked_environment import make;"
        f"make(Path({str(place / '.venv')!r}), Path({str(place)!r}), ['phylatent[all]'])"
    )
    lines = check_readme.commands(check_readme.START)
    assert [line.split()[0] for line in lines] == ["git", "cd", "make", "source", "phylatent"]
    lines.insert(2, f'{sys.executable} -c "{provide}" && touch .venv/installed')
    environment = check_readme.clean(tmp_path) | {"keys": "preset=smoke", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    check_readme.walk(lines, tmp_path, environment)
    said = capfd.readouterr().out
    page = re.search(r"^report: (.*report\.html)$", said, re.MULTILINE)
    assert page, said[-2000:]
    assert (place / page[1]).is_file()
    assert "Usage: phylatent" in said
