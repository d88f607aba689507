"""Shared by all tests: one thread each, where real data is, a room that is mapped once, and ways to run commands."""

import itertools
import json
import os
import signal
import zlib  # noqa: F401  pycolmap corrupts the heap of whatever loads zlib after it
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rooms import Room, RoomFiles

Run = Callable[..., Any]

# Read when NumPy, torch and OpenCV are loaded, here and in processes that tests start. Tests run beside each other, and
# on so little data a second thread mostly waits, which takes as much of a core as work does: eight times the time.
for _library in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"):
    os.environ.setdefault(_library, "1")


# A shell that runs tests in the background lets them ignore Ctrl-C, which some of them are about.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images; the test is skipped, visibly, where it is absent."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEATVEIL_DATA", default))
    if not folder.is_dir():
        pytest.skip("no real images: set FEATVEIL_DATA")
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_onnxruntime() -> Iterator[None]:
    """Its threads wait for work in a loop, and no variable of the environment says how many there are."""
    import onnxruntime

    real = onnxruntime.SessionOptions

    def options() -> Any:
        made = real()
        made.intra_op_num_threads = 1
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "SessionOptions", options)
        yield


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> "Room":
    """A room with its map, see `rooms.py`; the test is skipped, visibly, without COLMAP."""
    pytest.importorskip("pycolmap", reason="COLMAP itself: pip install 'featveil[colmap]'")
    from rooms import map_room

    return map_room(tmp_path_factory.mktemp("room"))


@pytest.fixture(scope="session")
def strecha_room(room: "Room", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The views of the room on disk, in the layout of a scene of Strecha's. Do not change it."""
    from posed_scenes import write_strecha

    folder = tmp_path_factory.mktemp("scenes") / "room"
    folder.mkdir()
    write_strecha(room.scene, folder)
    return folder


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed the releases of a test: 1 in 16 pairs draws the same sub-database, and counts would differ by run."""
    import numpy as np

    seeds = itertools.count()
    monkeypatch.setattr("featveil.defenses.SecureRandomness", lambda: np.random.default_rng(next(seeds)))


@pytest.fixture
def run() -> Run:
    """Run `featveil ARGUMENTS...`."""
    from typer.testing import CliRunner

    from featveil.cli import app

    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def ran(run: Run) -> Run:
    """Run a command that must work, and return what it prints as JSON."""

    def work(*arguments: object) -> Any:
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return work


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Run:
    """Run a command that must fail with code 2, one line on stderr (returned) and no change to any file."""

    def fail(*arguments: object) -> str:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        folders = {path for path in tmp_path.rglob("*") if path.is_dir()}
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
        assert result.stdout == ""
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert {path for path in tmp_path.rglob("*") if path.is_dir()} == folders
        return str(result.stderr)

    return fail


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image with a few hundred features."""
    import cv2
    import numpy as np

    noise = np.random.default_rng(0).integers(0, 256, (60, 80), np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), cv2.resize(noise, (320, 240), interpolation=cv2.INTER_CUBIC))
    return tmp_path / "a.png"


@pytest.fixture
def shifted(image: Path) -> Path:
    """The same image, seen 20 pixels further to the right."""
    import cv2
    import numpy as np

    cv2.imwrite(str(image.with_name("b.png")), np.asarray(cv2.imread(str(image)))[:, 20:])
    return image.with_name("b.png")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An image without any feature."""
    import cv2
    import numpy as np

    cv2.imwrite(str(tmp_path / "empty.png"), np.full((100, 100), 128, np.uint8))
    return tmp_path / "empty.png"


@pytest.fixture(scope="session")
def files(room: "Room", strecha_room: Path, tmp_path_factory: pytest.TempPathFactory) -> "RoomFiles":
    """The mapped room as files that commands take, see `rooms.py`. Do not change them."""
    from rooms import write_files

    return write_files(room, strecha_room / "images", tmp_path_factory.mktemp("files"))


@pytest.fixture
def trials_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning that a training has few photographs, or that too short a one has come to nothing."""
    monkeypatch.setattr("featveil.pipelines.train_parts.photo_samples._FEW", 1)
    monkeypatch.setattr("featveil.pipelines.train_parts.concealer_training._COLLAPSED", 0.0)
