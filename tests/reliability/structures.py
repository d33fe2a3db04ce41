"""Changes of texts that stay what they are: JSON and YAML with a value replaced, removed or added; tables; Python."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from pathlib import Path
from random import Random
from typing import Any

import yaml
from material import EVIL_YAML

DEEP = "a value that is nested deeply"
"""Stands for a hundred thousand brackets, which no library would write."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 10**9, 10**30, -(10**30), 0.5, 1e308, -1e-320, math.nan, math.inf, -math.inf),
    *("", "x", "0", "1e9", "nan", "[red]bold[/red]", "\x1b[31mred", "\x9b2J", "ü" * 300, "../../etc/passwd", "~nobody/x"),
    *("evil.py", "./evil.py", "{here}/evil.py", "${oc.env:SECRET_CANARY}", "${train.steps}", "???"),
    *("<script>alert(1)</script>", "\u202e\u2066", "\ud800", "%s%n", "{0}", "None", "/dev/zero", "odd/fifo", "odd/loop"),
    *("a\nb", "a" * 100_000, [], [[]], [None], [1, "x", None], {}, {"": ""}, {"a": {"b": {}}}, [{"name": "evil.py"}]),
    *(list(range(5000)), DEEP),
)
KEYS = ("", "a", "extends", "task_file", "name", "\x1b[1m", "[red]", "__class__", "0", "${oc.env:SECRET_CANARY}", "a" * 500)
CELLS = (
    *("", "nan", "inf", "-1", "x", "1e400", "0x10", "9" * 400, '"', "[red]", "\x1b[31m", "<script>alert(1)</script>", "٣"),
    *("1_0", "1e300", "-inf"),
)
LINES = (
    *("raise SystemExit(3)", "raise KeyboardInterrupt", "import not_there", "1/0", "TASK = None", "TASK = 3", "ENCODER = int"),
    *("SOLVER = print", "OBJECTIVE = dict", "def x(:", "\tx = 1", "\x00", "é = 'ü'", "raise Exception('[red]')"),
    *(
        "TASK = TASK.__class__",
        "del TASK",
        "raise ValueError('\x1b[31m')",
        "import phylatent.errors as e; raise e.UserError('')",
    ),
)
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "\n".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
YAML_TEXTS = (
    *(EVIL_YAML, BOMB, "a: &a [*a]", "&a {b: *a}", "a: [", "\t", "--- 1\n--- 2", "? [a]\n: b", "1: 2", "!!binary x"),
    *("a: !!set {b}", "[" * 5000, "extends: {itself}", "extends: [a]", "extends: laptop\nextends: smoke", "- a\n- b"),
    *("!!python/name:os.system", "just text", "2001-01-01"),
)


def choose(rng: Random, path: Path) -> dict[str, Any]:
    if path.suffix == ".csv":
        return _choose_cell(rng, path)
    if path.suffix == ".py":
        lines = path.read_text().splitlines()
        do = rng.choice(["line", "line", "without line"])
        return {"do": do, "at": rng.randrange(len(lines) + 1), "text": rng.choice(LINES)}
    if path.suffix == ".yaml" and rng.random() < 0.25:
        return {"do": "text", "text": rng.choice(YAML_TEXTS), "instead": rng.random() < 0.5}
    node, found = [], _read(path)
    while isinstance(found, (dict, list)) and found and (not node or rng.random() < 0.75):
        step = rng.choice(list(found)) if isinstance(found, dict) else rng.randrange(len(found))
        node.append(step)
        found = found[step]
    do = rng.choices(["set", "delete", "add"], [6, 2, 1])[0]
    change: dict[str, Any] = {"do": do, "node": node}
    if do != "delete":
        change["value"] = rng.choice(VALUES)
    if do == "add":
        change["key"] = rng.choice(KEYS)
    if path.name == "pairs.json":
        change["hashed"] = rng.random() < 0.8
    return change


def apply(change: dict[str, Any], path: Path) -> None:
    if path.suffix == ".csv":
        _apply_cell(change, path)
    elif change["do"] == "text":
        text = change["text"].replace("{itself}", path.name)
        path.write_text(text + "\n" if change["instead"] else path.read_text() + "\n" + text + "\n")
    elif path.suffix == ".py":
        lines = path.read_text().splitlines()
        at = min(change["at"], len(lines))
        lines[at : at + (change["do"] != "line")] = [change["text"]] if change["do"] == "line" else []
        path.write_text("\n".join(lines) + "\n")
    else:
        try:
            found = edited(_read(path), change, path.parent)
        except RecursionError:  # an earlier change nested it too deeply for another one
            return
        if change.get("hashed"):
            found = _hashed(found)
        _write(path, found)


def edited(found: Any, change: dict[str, Any], here: Path) -> Any:
    """The same with one node changed; a node that is not there is left alone: a case may meet a later version's file."""
    node, value = list(change["node"]), _meant(change.get("value"), here)
    if not node:
        return value if change["do"] == "set" else found
    *above, last = node
    parent = found
    try:
        for step in above:
            if change.get("force") and not isinstance(parent.get(step), dict):
                parent[step] = {}
            parent = parent[step]
        if change["do"] == "delete":
            del parent[last]
        elif change["do"] == "add" and isinstance(parent, dict):
            parent[change["key"]] = value
        elif change["do"] == "add":
            parent.append(value)
        else:
            if not change.get("force"):
                parent[last]
            parent[last] = value
    except (KeyError, IndexError, TypeError, AttributeError):
        pass
    return found


def _meant(value: Any, here: Path) -> Any:
    return value.replace("{here}", str(here)) if isinstance(value, str) else value


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.suffix == ".json" else yaml.safe_load(path.read_text())


def _write(path: Path, found: Any) -> None:
    text = json.dumps(found, indent=1) if path.suffix == ".json" else yaml.safe_dump(found, sort_keys=False)
    nested = "[" * 100_000 + "]" * 100_000
    text = text.replace(json.dumps(DEEP), nested).replace(DEEP, nested)
    path.write_text(text, errors="surrogatepass")


def _hashed(record: Any) -> Any:
    """A start/goal list whose hash fits what it holds now."""
    if not isinstance(record, dict):
        return record
    listed = {name: value for name, value in record.items() if name != "hash"}
    if listed.get("split") == "held_out":
        del listed["split"]
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    return record | {"hash": digest}


def _choose_cell(rng: Random, path: Path) -> dict[str, Any]:
    rows = list(csv.reader(path.read_text().splitlines()))
    do = rng.choice(["cell", "cell", "cell", "heading", "without column", "without row", "longer row", "twice"])
    return {"do": do, "row": rng.randrange(len(rows)), "column": rng.randrange(len(rows[0])), "text": rng.choice(CELLS)}


def _apply_cell(change: dict[str, Any], path: Path) -> None:
    rows = list(csv.reader(path.read_text().splitlines()))
    row, column, text = change["row"] % len(rows), change["column"] % len(rows[0]), change["text"]
    if change["do"] == "cell":
        rows[row][column] = text
    elif change["do"] == "heading":
        rows[0][column] = text
    elif change["do"] == "without column":
        rows = [[*cells[:column], *cells[column + 1 :]] for cells in rows]
    elif change["do"] == "without row":
        del rows[row]
    elif change["do"] == "longer row":
        rows[row].append(text)
    else:
        rows.insert(row, rows[row])
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    path.write_text(written.getvalue())
