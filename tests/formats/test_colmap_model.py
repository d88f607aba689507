"""COLMAP's binary model files: what COLMAP writes is whole, and not a byte may be missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import FormatError
from featveil.formats import colmap_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two images of a rig of three cameras of different models, one of unknown place, and two points."""
    pycolmap: Any = pytest.importorskip("pycolmap", reason="COLMAP itself: pip install 'featveil[colmap]'")
    reconstruction, rig, frame = pycolmap.Reconstruction(), pycolmap.Rig(), pycolmap.Frame()
    for number, model in enumerate(("SIMPLE_PINHOLE", "OPENCV", "FOV"), start=1):
        reconstruction.add_camera(pycolmap.Camera.create_from_model_name(number, model, 500.0, 640, 480))
        sensor = pycolmap.sensor_t(pycolmap.SensorType.CAMERA, number)
        if number == 1:
            rig.add_ref_sensor(sensor)
        else:
            rig.add_sensor(sensor, pycolmap.Rigid3d() if number == 2 else None)
    rig.rig_id = frame.rig_id = frame.frame_id = 1
    reconstruction.add_rig(rig)
    images = []
    for number in (1, 2):
        xy = np.arange(2.0 * number).reshape(number, 2)
        images.append(pycolmap.Image(name=f"{number}/x.jpg", keypoints=xy, camera_id=number, image_id=number))
        images[-1].frame_id = 1
        frame.add_data_id(images[-1].data_id)
    frame.rig_from_world = pycolmap.Rigid3d()
    reconstruction.add_frame(frame)
    for image in images:
        reconstruction.add_image(image)
    reconstruction.add_point3D(np.ones(3), pycolmap.Track([pycolmap.TrackElement(1, 0), pycolmap.TrackElement(2, 1)]))
    reconstruction.add_point3D(np.ones(3), pycolmap.Track([pycolmap.TrackElement(2, 0)]))
    reconstruction.write_binary(tmp_path)
    return tmp_path


def test_what_colmap_writes_is_whole(model: Path) -> None:
    assert len(list(model.iterdir())) == 5
    colmap_model.check(model)


@pytest.mark.parametrize("part", ["cameras", "frames", "images", "points3D", "rigs"])
def test_every_byte_counts(model: Path, part: str) -> None:
    path = model / f"{part}.bin"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=f"as many {part} as it says"):
            colmap_model.check(model)


@pytest.mark.parametrize("part", ["cameras", "frames", "images", "points3D", "rigs"])
def test_counts_beyond_all_measure(model: Path, part: str) -> None:
    path = model / f"{part}.bin"
    whole = path.read_bytes()
    path.write_bytes(b"\xff" * 8 + whole[8:])
    with pytest.raises(FormatError):
        colmap_model.check(model)
    path.write_bytes(whole[:8] + b"\xff" * (len(whole) - 8))
    with pytest.raises(FormatError):
        colmap_model.check(model)
