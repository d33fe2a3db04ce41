"""`phylatent doctor`: whether this machine has what is needed, or a task's declaration does what it says."""

from __future__ import annotations

from phylatent.commands.request import Keys, parse, refuse_plain
from phylatent.commands.screen import console
from phylatent.errors import UserError

EXAMPLE = "phylatent doctor   or, for a task of your own: phylatent doctor task=path/to/pendulum.py"


def command(keys: Keys = None) -> None:
    """What this machine has, and what to do about what is missing. With task=: whether its declaration does what it says."""
    request = parse(keys or [])
    refuse_plain(request, "doctor")
    task = request.choices.get("task")
    if request.choices.keys() - {"task"} or request.overrides or request.seeds or request.config or request.resume:
        raise UserError("doctor takes task= and out= only: it looks at the machine, or at a task, not at a configuration")

    from phylatent.commands.machine_check import check_machine
    from phylatent.commands.task_check import check_task

    if task is None:
        check_machine(console, request.out)
    else:
        check_task(task, console, request.out)
