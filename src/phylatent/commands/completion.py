"""`phylatent completion`: commands, keys and values completed by the shell. The shell asks `phylatent complete` for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from phylatent.errors import UserError, unknown

EXAMPLE = 'eval "$(phylatent completion bash)"   # in ~/.bashrc; zsh likewise; fish: phylatent completion fish | source'
BASH = r"""
_phylatent() {
    local typed=${COMP_LINE:0:COMP_POINT}
    local -a words
    read -ra words <<< "$typed"
    [[ $typed == *" " ]] && words+=("")
    local word=${words[${#words[@]}-1]}
    mapfile -t COMPREPLY < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    local candidate; for candidate in "${COMPREPLY[@]}"; do [[ $candidate == *[=.] ]] && compopt -o nospace; done
    # Bash takes = for the end of a word, and wants what comes after it.
    [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
    return 0
}
complete -o default -F _phylatent phylatent
"""
ZSH = r"""
_phylatent() {
    local -a found open
    found=("${(@f)$("$words[1]" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#}) open=(${(M)found:#*[=.]}) found=(${found:#*[=.]})
    (( $#open + $#found )) || { _files; return }
    (( $#open )) && compadd -S '' -- $open
    (( $#found )) && compadd -- $found
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _phylatent phylatent
"""
FISH = r"""
complete -c phylatent -a '(set -l typed (commandline -opc); $typed[1] complete -- $typed[2..] (commandline -ct) 2>/dev/null)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
Shell = Annotated[str, typer.Argument(metavar="bash|zsh|fish", show_default=False)]
Words = Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", show_default=False)]
OPEN = ("task", "preset", "variant", "seed", "data", "out", "config", "resume", "trust")
"""Keys that most commands take, beside the settings."""
SECTION = {"diagnose": "diagnose.", "plan": "plan."}
"""Commands → the settings that can be given without their section's name."""


def command(shell: Shell) -> None:
    """Print what makes a shell complete commands, keys and values."""
    if shell not in SCRIPTS:
        raise UserError(unknown("shell", shell, SCRIPTS))
    print(SCRIPTS[shell].strip())


def complete(context: typer.Context, words: Words = None) -> None:
    """For the shell: the ways on from these words, the last of which is being typed, a line each."""
    shown = [name for name, known in context.find_root().command.commands.items() if not known.hidden]  # type: ignore[attr-defined]
    for candidate in candidates(words or [""], shown):
        print(candidate)


def candidates(words: list[str], commands: Iterable[str]) -> list[str]:
    """What the last word may become. A key ends in `=` and a section in `.`, after which one types on."""
    from phylatent.commands.catalogue import KINDS

    *before, word = words
    if not before:
        return [name for name in commands if name.startswith(word)]
    if before[0] in ("list", "completion"):
        return [name for name in (KINDS if before[0] == "list" else SCRIPTS) if name.startswith(word)]
    if "=" in word:
        return _values(before[0], word)
    section = SECTION.get(before[0], "")
    bare = [key.removeprefix(section) for key in _settings_keys() if section and key.startswith(section)]
    keys = sorted({*OPEN, *bare, *_keys_from(word)})
    named = before[0] == "settings"  # which asks about keys, and sets none but what is chosen
    return [key if key.endswith(".") or (named and key not in OPEN) else f"{key}=" for key in keys if key.startswith(word)]


def _keys_from(word: str) -> Iterable[str]:
    """Whole keys once a section is typed, sections before that: all at once would be a page."""
    keys = _settings_keys()
    if not any(key.startswith(word) for key in keys):  # of an objective, an encoder or a solver, which need torch
        from phylatent.composition.sections import known_keys

        keys = known_keys()
    return keys if "." in word else {key[: key.find(".") + 1] or key for key in keys}


def _settings_keys() -> tuple[str, ...]:
    from phylatent.composition.sections import plain_keys

    return plain_keys()


def _values(command: str, word: str) -> list[str]:
    """Of a list the last value, `protocol=paper,mo`; nothing where the shell knows better, such as for a path."""
    from phylatent.schema import CHOICES

    key, _, value = word.partition("=")
    full = key if key in CHOICES else SECTION.get(command, "") + key
    listed = value.rfind(",") + 1 or (1 if value.startswith("[") else 0)
    before, last = f"{key}={value[:listed]}", value[listed:]
    return [before + name for name in (*CHOICES.get(full, ()), *_names(full)) if name.startswith(last)]


def _names(key: str) -> Iterable[str]:
    from phylatent.commands.catalogue import CHOSEN, entries

    for kind, chosen in CHOSEN.items():
        if chosen.partition("=")[0] == key:
            return entries(kind)
    return ("true", "false") if key in _flags() else ()


def _flags() -> set[str]:
    from phylatent.composition.sections import flags
    from phylatent.schema import Settings

    return {"resume", "verify", *flags(Settings)}
