"""The door to pycolmap: what it costs when closed, and that values pass through it unchanged."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from featveil.core import Camera, InputError, MissingExtraError, Pose
from featveil.formats.camera_models import PARAMETERS
from featveil.geometry import colmap
from featveil.geometry.colmap import from_colmap, pose_of, pycolmap, random_seed, rigid, to_colmap

TURNED = Pose(np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]]), np.array([1.0, -2, 3]))


def in_a_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_importing_does_not_load_pycolmap() -> None:
    modules = "featveil, featveil.geometry.sfm, featveil.geometry.models, featveil.geometry.two_view"
    assert in_a_new_process(f"import sys, {modules}; print('pycolmap' in sys.modules)") == "False\n"


def test_pictures_can_be_written_once_pycolmap_is_loaded() -> None:
    """Where zlib comes after pycolmap, writing a PNG file ends the process."""
    code = (
        "from featveil.geometry.colmap import pycolmap; pycolmap()\n"
        "import cv2, numpy, zlib\n"
        "picture = numpy.random.default_rng(0).integers(0, 256, (200, 300, 3), numpy.uint8)\n"
        "print(len(zlib.compress(picture.tobytes())), len(cv2.imencode('.png', picture)[1]))"
    )
    assert all(int(size) > 100_000 for size in in_a_new_process(code).split())


def test_without_pycolmap_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colmap, "_loaded", None)
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    with pytest.raises(MissingExtraError, match=r"needs pycolmap.*pip install 'featveil\[colmap\]'"):
        pycolmap()


def test_the_log_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "junk.db").write_bytes(b"junk" * 100)
    with pytest.raises(RuntimeError):
        pycolmap().Database.open(tmp_path / "junk.db")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("model", PARAMETERS)
def test_cameras_pass_unchanged(model: str) -> None:
    parameters = tuple(0.5 + number for number in range(PARAMETERS[model]))
    camera = Camera(model, 640, 480, parameters)
    assert from_colmap(to_colmap(camera)) == camera


def test_known_intrinsics_are_a_prior() -> None:
    camera = Camera("PINHOLE", 640, 480, (500, 510, 320, 240))
    assert to_colmap(camera, camera_id=7).camera_id == 7
    assert to_colmap(camera).has_prior_focal_length
    assert not to_colmap(camera, known=False).has_prior_focal_length


@pytest.mark.parametrize("model", ["NO_SUCH_CAMERA", "INVALID"])
def test_unknown_camera_models(model: str) -> None:
    with pytest.raises(InputError, match=f"no camera model {model}"):
        to_colmap(Camera(model, 640, 480, (500, 320, 240)))


def test_wrong_number_of_parameters() -> None:
    with pytest.raises(InputError, match="PINHOLE does not take 3 parameters"):
        to_colmap(Camera("PINHOLE", 640, 480, (500, 320, 240)))


def test_poses_pass_unchanged() -> None:
    there = rigid(TURNED)
    np.testing.assert_allclose(there.inverse().translation, TURNED.centre, atol=1e-12)
    np.testing.assert_allclose(there * np.array([1.0, 0, 0]), [1, -2, 4], atol=1e-12)
    back = pose_of(there)
    np.testing.assert_allclose(back.rotation, TURNED.rotation, atol=1e-12)
    np.testing.assert_allclose(back.translation, TURNED.translation, atol=1e-12)


def test_every_seed_is_one_that_colmap_takes() -> None:
    assert random_seed(None) == -1
    assert random_seed(5) == 5
    for seed in (2**31, 2**40 + 3, 2**31 - 1, 0):
        kept = pycolmap().RANSACOptions(random_seed=random_seed(seed)).random_seed
        assert kept == random_seed(seed) and 0 <= kept < 2**31
    assert random_seed(2**40 + 3) == 3
