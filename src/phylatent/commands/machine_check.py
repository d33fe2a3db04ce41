"""What this machine has, and what to do about what is missing."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import torch
from rich.console import Console

from phylatent.commands.findings import Finding, check_out, show, write
from phylatent.extras import install, missing
from phylatent.machine import cores, resolve_device
from phylatent.records import provenance
from phylatent.runs import home
from phylatent.schema import TaskSpec
from phylatent.simulator import Simulator, prepare_renderer
from phylatent.tasks import all_tasks

USES = {
    "envs": "collect, plan, and the counterfactual diagnostic",
    "report": "report and demo",
    "lance": "Lance tables as data",
    "archives": "import of .zst archives",
    "tensorboard": "training curves in TensorBoard",
    "wandb": "training curves in Weights & Biases (train.wandb=true)",
}
"""Extra → what it is for."""
OF_ENVIRONMENTS = "stable-worldmodel"


def examine() -> list[Finding]:
    findings = [
        Finding(
            "Python",
            f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            good=sys.version_info >= (3, 11),
            advice="phylatent needs Python 3.11 or newer",
        ),
        _device(),
        _threads(),
        _disk(),
        *(_extra(name, use) for name, use in USES.items()),
    ]
    if not missing("envs"):
        findings += [_simulator(task) for task in all_tasks().values() if task.behaviour is not None] + [_mujoco()]
    versions = provenance()["packages"]
    gone = [name for name, version in versions.items() if version is None and name != OF_ENVIRONMENTS]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return [*findings, Finding("versions", listed, good=not gone, advice=f"reinstall phylatent: no {', '.join(gone)}")]


def _device() -> Finding:
    device = resolve_device("auto")
    if device == "cuda":
        return Finding("device", f"cuda: {torch.cuda.get_device_name()}, {torch.cuda.device_count()} of them, bf16")
    return Finding("device", f"{device}, fp32: right for preset=laptop, slow for preset=paper")


def _threads() -> Finding:
    threads, usable = torch.get_num_threads(), cores()
    return Finding(
        "threads",
        f"{threads} for torch, {usable} cores usable",
        good=threads <= usable,
        advice="torch has more threads than there are cores: unset OMP_NUM_THREADS",
    )


def _disk() -> Finding:
    place = next(path for path in (home().resolve(), *home().resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    return Finding(
        "disk", f"{free:.0f} GB free for runs and data", free > 2, "less than 2 GB free: set PHYLATENT_HOME elsewhere"
    )


def _simulator(task: TaskSpec) -> Finding:
    try:
        simulator = Simulator(task, 64)
        simulator.reset(0)
        frame = simulator.frame()
    except Exception as error:  # whatever is broken on this machine is the finding
        return Finding(f"simulator {task.name}", _told(error), False, "reinstall phylatent's dependencies")
    return Finding(f"simulator {task.name}", f"{task.env_id} renders {frame.shape[1]}×{frame.shape[0]}")


def _mujoco() -> Finding:
    """Drawn for real, in this process: an import tells nothing about a renderer."""
    renderer = prepare_renderer()
    try:
        import mujoco

        model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light pos='0 0 1'/></worldbody></mujoco>")
        with mujoco.Renderer(model, 32, 32) as drawing:
            drawing.update_scene(mujoco.MjData(model))
            drawing.render()
    except Exception as error:  # whatever is broken on this machine is the finding
        advice = "install EGL (Debian: libegl1 libgl1-mesa-dri) or set MUJOCO_GL=osmesa; only reacher and cube need it"
        return Finding("MuJoCo renderer", f"{renderer}: {_told(error)}", False, advice, needed=False)
    return Finding("MuJoCo renderer", f"{renderer} works (mujoco {mujoco.__version__})")


def _told(error: Exception) -> str:
    """In one line, however many the library took."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _extra(name: str, use: str) -> Finding:
    lacking = missing(name)
    found = f"not installed: {', '.join(lacking)}" if lacking else "installed"
    return Finding(f"extra {name}", found, not lacking, f"for {use}: {install(name)}", needed=False)


def check_machine(console: Console, out: Path | None) -> None:
    """Show the findings; an error where something that is needed is missing."""
    check_out(out)
    findings = examine()
    if out is not None:
        write(out, findings)
    show("phylatent doctor", findings, console, bad="missing")
