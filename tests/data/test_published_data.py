"""Published data as it is: the four LeWM files, stable-worldmodel's tables and its own writers, archives."""

from __future__ import annotations

import io
import multiprocessing
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from PIL import Image
from published_files import LENGTHS, PUBLISHED, ROWS, content, episodes_of, write_published
from torch.utils.data import DataLoader

from phylatent.data.inspect import contact_sheet, inspect_data
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import fit_statistics
from phylatent.data.unpack import unpack
from phylatent.data.view import find_column
from phylatent.data.windows import StepSampler, Windows, as_it_is
from phylatent.errors import PhylatentError, UserError
from phylatent.schema import ClipConfig
from phylatent.simulator import Simulator
from phylatent.tasks import get_task

LAST = np.cumsum(LENGTHS) - 1
TASK = get_task("tworooms")


def batches(episodes: Episodes, steps: int = 2) -> list:
    windows = Windows(episodes, range(len(episodes.lengths)), ClipConfig())
    return [windows.__getitems__(indices) for indices in StepSampler(len(windows), 4, seed=0, total_steps=steps)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_four_published_files(tmp_path, name):
    task, path = get_task(name), write_published(tmp_path, name)
    episodes = open_episodes(path, task)
    assert episodes.lengths.tolist() == list(LENGTHS)
    assert episodes.frame_shape == (224, 224, 3)
    assert (episodes.actions[LAST] == 0).all()
    for batch in batches(episodes):
        rows = batch.frames[:, :, 0, 0, 0].numpy().astype(np.float32)
        assert (np.diff(rows) == 5).all()
        np.testing.assert_allclose(batch.targets[..., 0], rows)
        np.testing.assert_allclose(batch.actions[:, :, 0] * 1000, rows[:, :3], rtol=1e-5)
    assert np.isfinite(fit_statistics(episodes, task, [0, 1]).action.std).all()
    facts = inspect_data(path, task)
    assert facts["transitions"] == ROWS
    assert facts["columns"]["action"]["nan"] == len(LENGTHS) * task.action_dim
    assert contact_sheet(episodes, tmp_path / "sheet.png").exists()


def test_a_published_tworooms_row_can_be_restored_under_our_names(tmp_path):
    row = open_episodes(write_published(tmp_path, "tworooms"), TASK).row(7)
    assert set(row) == {"proprio", "state", "goal_state"}
    np.testing.assert_allclose(row["state"], [7, 7.01])
    assert row["state"].dtype == np.float32


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_columns_are_enough_to_restore_a_state(name):
    task = get_task(name)
    simulator = Simulator(task, 16)
    simulator.reset(0)
    for _ in range(3):
        simulator.step(np.full(task.action_dim, 0.3, dtype=np.float32))
    recorded = simulator.columns()
    published = {find_column(column, task.aliases.get(column, ()), PUBLISHED[name][1]): column for column in task.columns}
    row = {column: recorded[column] for stored, column in published.items() if stored}
    simulator.reset(1)
    simulator.restore(row)
    for column in task.target.columns:
        # Without the columns that only our own files have, velocities and contacts are a step off.
        np.testing.assert_allclose(simulator.columns()[column][:2], recorded[column][:2], atol=0.05)


def test_a_state_that_cannot_be_restored_names_the_column():
    simulator = Simulator(get_task("reacher"), 16)
    simulator.reset(0)
    row = {name: value for name, value in simulator.columns().items() if name != "qpos"}
    with pytest.raises(UserError, match="no column 'qpos', which task 'reacher' needs to restore"):
        simulator.restore(row)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TwoRooms at 32 px, as stable-worldmodel's own writer stores it."""
    from stable_worldmodel.data.formats.lance import LanceWriter

    path = tmp_path_factory.mktemp("lance") / "tworoom.lance"
    with LanceWriter(path) as writer:
        writer.write_episodes(episodes_of(content("tworooms", size=32)))
    return path


def test_lance_tables_read_like_the_file_they_came_from(table, tmp_path):
    stored, plain = open_episodes(table, TASK), open_episodes(write_published(tmp_path, "tworooms"), TASK)
    assert stored.lengths.tolist() == list(LENGTHS)
    np.testing.assert_array_equal(stored.actions, plain.actions)
    np.testing.assert_array_equal(stored.targets, plain.targets)
    rows = np.array([[100, 3], [3, 0]])
    frames = stored.frames(rows)
    assert frames.shape == (2, 2, 32, 32, 3)
    assert np.abs(frames.astype(int) - rows[..., None, None, None]).max() <= 2
    assert {name: value.tolist() for name, value in stored.row(9).items()} == {
        name: value.tolist() for name, value in plain.row(9).items()
    }
    facts = inspect_data(table, TASK)
    assert 0 < facts["gib"] < 0.01
    assert facts["columns"]["action"]["nan"] == 6
    assert len(batches(stored)) == 2


def test_a_directory_means_its_only_table(table):
    assert open_episodes(table.parent, TASK).path == table


def test_lance_tables_feed_the_loader_s_processes(table):
    windows = Windows(open_episodes(table, TASK), [0, 1, 2], ClipConfig())
    sampler = StepSampler(len(windows), 4, seed=0, total_steps=3)
    loader = DataLoader(windows, batch_sampler=sampler, num_workers=2, collate_fn=as_it_is, multiprocessing_context="spawn")
    for batch, indices in zip(loader, sampler, strict=True):
        assert (batch.frames == windows.__getitems__(indices).frames).all()
        assert (batch.actions == windows.__getitems__(indices).actions).all()


def read_in_fork(episodes: Episodes, out) -> None:
    try:
        episodes.frames(np.array([9, 4]))
    except UserError as error:
        out.put(str(error))


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_forked_process_is_told_that_lance_would_hang(table):
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=read_in_fork, args=(open_episodes(table, TASK), out))
    child.start()
    assert "forked process, which Lance cannot do; start processes with 'spawn'" in out.get(timeout=60)
    child.join()


def lance_table(path: Path, **replace) -> Path:
    """A table of one's own making: 12 rows, two episodes, PNG frames."""
    import lance
    import pyarrow as pa

    def png(row: int, size: int = 8) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(np.full((size, size, 3), row, dtype=np.uint8)).save(buffer, format="PNG")
        return buffer.getvalue()

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(24, dtype=np.float32)), 2)
    columns = {
        "episode_idx": pa.array([0] * 6 + [1] * 6, pa.int32()),
        "pixels": pa.array([png(row) for row in range(12)], pa.binary()),
        "action": vectors,
        "proprio": vectors,
    } | {name: value(pa, png) if callable(value) else value for name, value in replace.items()}
    lance.write_dataset(pa.table(columns), str(path))
    return path


def test_png_frames_are_exact_and_null_is_unknown(tmp_path):
    action = lambda pa, _: pa.array([[1.0, 2.0]] * 5 + [None] + [[3.0, 4.0]] * 6, pa.list_(pa.float32(), 2))  # noqa: E731
    episodes = open_episodes(lance_table(tmp_path / "t.lance", action=action), TASK)
    assert (episodes.frames(np.arange(12))[:, 3, 3, 1] == np.arange(12)).all()
    assert episodes.actions[[4, 5, 6]].tolist() == [[1, 2], [0, 0], [3, 4]]


LANCE_LIES = {
    "frame sizes": (
        {"pixels": lambda pa, png: pa.array([png(r, 8 + (r == 7)) for r in range(12)])},
        r"row 7 .* is \[9, 9, 3\]",
    ),
    "no image": ({"pixels": lambda pa, png: pa.array([png(0)] * 7 + [b"JFIF"] + [png(0)] * 4)}, "row 7 .* not an image"),
    "no frame": ({"pixels": lambda pa, png: pa.array([png(0)] * 7 + [None] + [png(0)] * 4)}, "row 7 .* not an image"),
    "null action": ({"action": lambda pa, _: pa.array([[1.0, 1.0], None] * 6, pa.list_(pa.float32(), 2))}, "row 1 .*nan"),
    "text action": ({"action": lambda pa, _: pa.array(["left"] * 12)}, "'action' .* object"),
    "ragged action": ({"action": lambda pa, _: pa.array([[1.0]] * 12)}, "'action' .* object"),
    "wide action": ({"action": lambda pa, _: pa.array([[1.0] * 5] * 12, pa.list_(pa.float32(), 5))}, "data of another task"),
    "interleaved": ({"episode_idx": lambda pa, _: pa.array([0, 1] * 6)}, "cannot be derived: episode 0"),
    "null episode": ({"episode_idx": lambda pa, _: pa.array([0] * 6 + [None] * 6, pa.int32())}, "cannot be derived"),
    "raw pixels": ({"pixels": lambda pa, _: pa.array([[0] * 192] * 12, pa.list_(pa.uint8(), 192))}, r"shape \[12, 192\]"),
}


@pytest.mark.parametrize("name", LANCE_LIES)
def test_lying_tables_are_told_in_one_sentence(tmp_path, name):
    replace, expected = LANCE_LIES[name]
    path = lance_table(tmp_path / "t.lance", **replace)
    with pytest.raises(UserError, match=expected) as error:
        open_episodes(path, TASK).frames(np.arange(12))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_with_files_missing_is_named(tmp_path):
    path = lance_table(tmp_path / "t.lance")
    shutil.rmtree(path / "data")
    with pytest.raises(UserError, match=r"t\.lance .*missing"):
        open_episodes(path, TASK)
    shutil.rmtree(path)
    path.mkdir()
    with pytest.raises(UserError, match="not a Lance table, or not all of one"):
        open_episodes(path, TASK)


def test_without_pylance_its_name_is_told(table):
    script = (
        "import sys; sys.modules['lance'] = None\n"
        "from phylatent.data.readers import open_episodes; from phylatent.tasks import get_task\n"
        f"open_episodes({str(table)!r}, get_task('tworooms'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert f"reading {table} needs Lance: pip install 'phylatent[lance]' (lance missing)" in done.stderr


def test_files_of_stable_worldmodel_s_hdf5_writer(tmp_path):
    from stable_worldmodel.data.formats.hdf5 import HDF5Writer

    columns = content("cube", size=16)
    columns["privileged/block_0_pos"] = columns.pop("privileged_block_0_pos")
    with HDF5Writer(tmp_path / "cube.h5") as writer:
        writer.write_episodes(episodes_of(columns))
    task = get_task("cube")
    episodes = open_episodes(tmp_path / "cube.h5", task)
    np.testing.assert_allclose(episodes.targets, columns["observation"], rtol=1e-6)
    if "privileged_block_0_pos" in task.columns:
        np.testing.assert_allclose(episodes.row(3)["privileged_block_0_pos"], [3, 3.01, 3.02])


def pack(path: Path, data: bytes, **settings) -> Path:
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True, **settings).compress(data))
    return path


def tar_of(*files: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_published(tmp_path_factory.mktemp("whole"), "tworooms").read_bytes()


@pytest.mark.parametrize("kind", ["h5.zst", "tar.zst", "tar", "two frames"])
def test_archives_unpack_to_the_file_they_hold(tmp_path, published, kind):
    inside = tar_of(("data/._tworoom.h5", b"a Mac's"), ("data/tworoom.h5", published), ("README.md", b"hello"))
    source = tmp_path / f"tworoom.{'h5.zst' if kind == 'two frames' else kind}"
    match kind:
        case "h5.zst":
            pack(source, published)
        case "tar.zst":
            pack(source, inside)
        case "tar":
            source.write_bytes(inside)
        case "two frames":
            half = len(published) // 2
            source.write_bytes(b"".join(zstandard.compress(part) for part in (published[:half], published[half:])))
    seen: list[tuple[int, int]] = []
    path = unpack(source, tmp_path, lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "tworoom.h5"
    assert path.read_bytes() == published
    assert seen == sorted(seen)
    assert seen[-1] == (source.stat().st_size,) * 2
    assert unpack(source, tmp_path / "elsewhere" / "mine.h5").name == "mine.h5"
    with pytest.raises(UserError, match=r"tworoom\.h5 exists; nothing was overwritten"):
        unpack(source, path)


@pytest.mark.parametrize("tar", [True, False])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
def test_an_archive_cut_short_leaves_nothing(tmp_path, published, tar, share):
    source = pack(tmp_path / "data.zst", tar_of(("tworoom.h5", published)) if tar else published)
    whole = source.read_bytes()
    source.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=r"data\.zst is cut short"):
        unpack(source, tmp_path / "out.h5")
    assert [file.name for file in tmp_path.iterdir()] == ["data.zst"]


BAD_ARCHIVES = {
    "nothing": (b"", "neither an HDF5 file nor a tar"),
    "the first bytes": (zstandard.compress(b"a letter")[:5], "cut short|damaged"),
    "something else": (zstandard.compress(b"a letter " * 100), "neither an HDF5 file nor a tar"),
    "no data in it": (zstandard.compress(tar_of(("README.md", b"hello"))), "holds no .h5 or .hdf5 file"),
    "two files": (zstandard.compress(tar_of(("a.h5", b"1"), ("b.h5", b"2"))), r"several data files \(a.h5, b.h5\)"),
    "tar cut short": (tar_of(("a.h5", bytes(9000)))[:5000], "cut short or damaged"),
}


@pytest.mark.parametrize("name", BAD_ARCHIVES)
def test_archives_without_one_data_file_are_refused(tmp_path, name):
    data, expected = BAD_ARCHIVES[name]
    source = tmp_path / "data.tar.zst"
    source.write_bytes(data)
    with pytest.raises(UserError, match=expected):
        unpack(source, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_a_flipped_byte_is_found(tmp_path, published):
    source = pack(tmp_path / "data.h5.zst", published)
    data = bytearray(source.read_bytes())
    data[len(data) // 2] ^= 0xFF
    source.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        unpack(source, tmp_path / "out.h5")
    assert [file.name for file in tmp_path.iterdir()] == ["data.h5.zst"]


def test_a_disk_too_small_is_known_beforehand(tmp_path, published, mount):
    source = pack(tmp_path / "data.h5.zst", published + bytes(2**21))
    small = mount(1024)
    with pytest.raises(PhylatentError, match=r"will take .* [GM]iB, but the disk has"):
        unpack(source, small / "out.h5")
    assert not list(small.iterdir())


def test_memory_does_not_grow_with_the_archive(tmp_path, published):
    noise = np.random.default_rng(0).integers(0, 64, 80 * 2**20, dtype=np.uint8).tobytes()
    source = pack(tmp_path / "data.h5.zst", published + noise, level=1)
    script = (
        "import resource, sys; from pathlib import Path; from phylatent.data.unpack import unpack\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"unpack(Path({str(source)!r}), Path({str(tmp_path / 'out.h5')!r}))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 30
    assert (tmp_path / "out.h5").stat().st_size == len(published) + len(noise)
