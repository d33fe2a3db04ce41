"""Values that nobody should give a key."""

from __future__ import annotations

from material import EVIL_COMMAND

OWN_KEYS = (
    *("out", "resume", "config", "task", "preset", "variant", "seed", "seeds", "data", "format", "keys", "title"),
    *("video", "protocol", "policy", "solver", "split", "list", "diagnostics", "terms", "no.such.key", "", "train"),
    *("seed.steps", "train."),
)
"""Keys of commands, and some that are none."""
NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "1e3", "0.5", "-0.0", "nan", ".nan", "inf", "-inf", ".inf", "1e309", "1e-320"),
    *("0x10", "1_000", "٣"),
)
"""Small numbers and what looks like one."""
HUGE = ("1000000", "2147483648", "9223372036854775808", "1" + "0" * 40, "-9223372036854775809", "1e18")
"""Numbers that may be allowed, and take for ever."""
TEXTS = (
    *("", "???", "null", "~", "true", "no", "&a [*a]", "*a", "[", "]", "{", "[]", "{}", "[[[]]]", "{a: 1}"),
    *("[1,x,null]", "'", '"', "a=b=c", "${oc.env:SECRET_CANARY}", "${oc.env:HOME}", "${train.steps}", "${nothing}"),
    *("${", "${oc.decode:${oc.env:SECRET_CANARY}}", "$SECRET_CANARY"),
    *(f'!!python/object/apply:os.system ["{EVIL_COMMAND}"]', "!!python/name:os.system", "!!binary x", "! x"),
    *("2001-01-01", "12:30:45", "[red]bold[/red]", "[/]", "[link=file:///etc/passwd]x[/link]", "\x1b[31mred\x1b[0m"),
    *("\x9b2J", "\x07", "a\nb", "a\rb", "\t", "\x7f", "ü" * 300, "é", "\u202eback\u2066", "\U0001f4a5", "日本語"),
    *("a" * 300, "a" * 5000, "--help", "-h", "--debug", "-", "--", "%s", "{0}", "`id`", "0,0", "0,1", "0,x", ",", "1,"),
    *("paper,paper", "model,model", "[pred,pred]", "[pred,sigreg]", "pred", "[]", "[evil.py]", "[pred,./straight.py]"),
    *("cpu", "cuda", "cuda:7", "tpu", "smoke", "laptop", "lewm", "phylatent", "tworooms", "reacher", "strict", "paper"),
    *("ordering", "vit", "cem"),
)
"""Texts that mean something to YAML, to OmegaConf, to Rich, to a terminal, to the command line, or to nobody."""
PATHS = (
    *("odd/loop", "odd/nowhere", "odd/fifo", "odd/empty", "odd/a=b", "odd/a=b/c=d", "odd/nothing.h5", "odd/noise.h5"),
    *("odd/text.txt", "odd/[red]markup", "odd/new\nline", "odd/text.txt/below", "odd/loop/below", "not/there"),
    *("~nobody/x", "~", ".", "..", "/", "/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem"),
    *("evil.py", "./evil.py", "evil.yaml", "./evil.yaml", "size.yaml", "straighter.yaml"),
    *("straight.py", "data.h5", "done", "done/model", "done/config.yaml", "data.h5.json", "lewm", "owner/name"),
    *("a" * 300, "a/" * 2500, "x\\y", "C:\\x.h5", "https://example.com/x.h5", "hf://owner/name", "{here}"),
    *("{here}/odd/empty", "new.h5", "new.frames", "new"),
)
"""Paths: into the material (odd/), to devices, to nowhere."""
