"""`phylatent import` and `phylatent export`: checkpoints and packed data come in, models go out in LeWM's layout or in ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import DownloadColumn

from phylatent.commands.request import Sources, one_source, only, parse
from phylatent.commands.screen import bar, console, show_path
from phylatent.errors import UserError
from phylatent.files import in_full

if TYPE_CHECKING:
    from phylatent.models.lewm.exchange import ScalesOfData
    from phylatent.schema import TaskSpec

IMPORT_EXAMPLE = "phylatent import quentinll/lewm-tworooms task=tworooms data=data/tworoom.h5"
EXPORT_EXAMPLE = "phylatent export runs/tworooms-laptop-phylatent-seed0 format=lewm out=exported"
PACKED = (".zst", ".tar")
FORMATS = ("lewm", "phylatent")
VERSIONS = (4, 5)
"""Of transformers, which names the encoder's tensors otherwise in each."""


def import_command(keys: Sources = None) -> None:
    """Bring in a released LeWM checkpoint (directory, .pt file or Hub id), or unpack published data (.h5.zst, .tar.zst)."""
    request = parse(keys or [])
    source = one_source(request, "import")
    if source.endswith(PACKED):
        only(request, "import of packed data", ())
        show_path("data", import_data(source, out=request.out, screen=console))
        return
    data = only(request, "import", ("data",), task=True).get("data")
    path = import_model(source, task=request.choices.get("task"), data=data, out=request.out)
    if json.loads((path / "config.json").read_text()).get("action") is None:
        console.print("It does not say what its actions are z-scored with; to judge it or plan with it, import it with data=")
    show_path("model", path)


def export_command(keys: Sources = None) -> None:
    """Write a model as LeWM's config.json and weights.pt, for stable-worldmodel, or as a plain model directory."""
    request = parse(keys or [])
    source = one_source(request, "export")
    show_path("model", export_model(source, out=request.out, **only(request, "export", ("format", "keys"))))


def import_data(source: str | Path, *, out: Path | None = None, screen: Console | None = None) -> Path:
    """Unpack a published data file to `out` (a file, or a directory), or into `data/`; returns its path."""
    from phylatent.data.unpack import unpack, unpacked_name
    from phylatent.files import check_path
    from phylatent.records import provenance, write_json
    from phylatent.runs import home

    source = Path(source).expanduser()
    target = out or home() / "data"
    check_path(target)
    path = target / unpacked_name(source) if target.is_dir() or target.suffix not in (".h5", ".hdf5") else target

    def record(unpacked: Path) -> None:
        facts = {"data": unpacked.name, "unpacked_from": source.name, "provenance": provenance()}
        write_json(unpacked.with_name(unpacked.name + ".json"), facts)

    with bar("unpack", screen or Console(quiet=True), DownloadColumn()) as progress:
        return unpack(source, path, progress, record)


def import_model(
    source: str | Path, *, task: str | None = None, data: str | Path | None = None, out: str | Path | None = None
) -> Path:
    """A LeWM checkpoint as a model directory of ours, with `import.json` in it; returns the directory.

    It does not say what its actions were z-scored with; `data` is the data it was trained on, and gives that.

    >>> theirs = phylatent.export_model(run, out="theirs")
    >>> phylatent.import_model(theirs, out="ours").name
    'ours'
    """
    from phylatent.files import whole_directory
    from phylatent.models.lewm.exchange import from_lewm
    from phylatent.models.lewm.files import locate
    from phylatent.models.load import weights_hash
    from phylatent.records import provenance, write_json
    from phylatent.runs import check_free, home
    from phylatent.tasks import get_task, saved_task

    checkpoint = locate(str(source))
    out = in_full(out) or home() / "runs" / f"imported-{checkpoint.name}"
    check_free(out)
    spec = None if task is None else get_task(task)

    def fit(name: str) -> ScalesOfData:
        assert data is not None
        return _scales(Path(data).expanduser(), saved_task(name))

    model = from_lewm(checkpoint, spec, None if data is None else fit)
    record = {
        "source": checkpoint.name,
        "sha256": checkpoint.sha256,
        "weights": weights_hash(model),
        "source_config": checkpoint.config,
        "provenance": provenance(),
    }
    with whole_directory(out) as folder:
        model.save_pretrained(folder)
        write_json(folder / "import.json", record)
    return out


def _scales(data: Path, task: TaskSpec) -> ScalesOfData:
    """Over every episode, unlike our own training: that is what LeWM z-scores with."""
    from phylatent.data.readers import open_episodes
    from phylatent.data.stats import fit_statistics
    from phylatent.models.lewm.exchange import ScalesOfData

    episodes = open_episodes(data, task)
    fitted = fit_statistics(episodes, task, range(len(episodes.lengths)))
    facts = {"name": episodes.path.name, "episodes": len(episodes.lengths), "fingerprint": episodes.fingerprint()}
    return ScalesOfData(fitted.action, fitted.target, facts)


def export_model(source: str | Path, *, format: str = "lewm", keys: int | str = 5, out: str | Path | None = None) -> Path:
    """A run's model, a model directory or a Hub id, written as LeWM's `config.json` and `weights.pt` or in our own layout.

    `keys` says whose names the encoder's tensors get: transformers 4's or 5's. Returns the directory.

    >>> sorted(path.name for path in phylatent.export_model(run, out="lewm").iterdir())
    ['config.json', 'phylatent.json', 'weights.pt']
    """
    if format not in FORMATS:
        raise UserError(f"format={format}: expected one of {', '.join(FORMATS)}")
    if str(keys) not in map(str, VERSIONS):
        raise UserError(f"keys={keys}: expected 4 or 5, the version of transformers whose names the encoder's tensors get")

    from phylatent.runs import check_free, check_source, home, run_directory

    check_source(source)

    from phylatent.files import whole_directory
    from phylatent.models.lewm.config import describe
    from phylatent.models.lewm.exchange import write_lewm
    from phylatent.models.load import load_model, weights_hash
    from phylatent.records import provenance, write_json

    place = Path(source).expanduser()
    run = run_directory(place)
    out = in_full(out) or home() / "runs" / f"exported-{(run or place).resolve().name}-{format}"
    check_free(out)
    model = load_model(str(source))
    record: dict[str, Any] = {"source": (run or place).resolve().name, "format": format, "weights": weights_hash(model)}
    if format == "lewm":
        describe(model.config)  # an error if LeWM has no words for it, before anything is written
    with whole_directory(out) as folder:
        if format == "phylatent":
            model.save_pretrained(folder)
            write_json(folder / "export.json", record | {"provenance": provenance()})
        else:
            write_lewm(model, folder, keys=int(keys), record=record | {"provenance": provenance()})
    return out
