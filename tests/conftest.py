"""Shared by all tests: one thread each, where real data is, and a room that is mapped once."""

import os
import signal
import zlib  # noqa: F401  pycolmap corrupts the heap of whatever loads zlib after it
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rooms import Room

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
