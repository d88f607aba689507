"""Faces in pictures: how many, where, aligned; the choice among several, and what is said when there is none."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import InputError, MissingExtraError
from featveil.core.arrays import Float32, Float64
from featveil.extractors import faces
from featveil.extractors.face_networks import Crops
from featveil.extractors.faces import ARCFACE, Face, align, faces_of, find_faces, model_file, one_face, similarity
from featveil.extractors.images import Image, read_image

BOX = (10.0, 20.0, 30.0, 40.0)


class Mean:
    """Stands in for a network: the mean colour of each aligned face."""

    digest, size, kind = "0" * 64, 3, "face-000000000000"

    def describe(self, image: Image, faces: Sequence[Face]) -> Float32:
        return self.describe_crops([align(image, face) for face in faces])

    def describe_crops(self, crops: Crops) -> Float32:
        means = np.array([crop.mean(axis=(0, 1)) for crop in crops], np.float32).reshape(-1, 3)
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), np.float32)


@pytest.fixture(scope="module")
def two(astronaut: Image) -> Image:
    """Two faces, the right one larger."""
    head = astronaut[:300, 100:400]
    larger = cv2.resize(head, (450, 450), interpolation=cv2.INTER_CUBIC)
    return np.hstack([cv2.copyMakeBorder(head, 0, 150, 0, 0, cv2.BORDER_REPLICATE), larger]).astype(np.uint8)


def aligned_error(face: Face) -> float:
    """How far the landmarks are from the template after alignment, in pixels of the aligned picture."""
    moved = placed(face.landmarks, similarity(face.landmarks, ARCFACE))
    return float(np.linalg.norm(moved - ARCFACE, axis=1).max())


def placed(points: Float32 | Float64, transform: Float64) -> Float64:
    return np.asarray(points @ transform[:, :2].T + transform[:, 2], np.float64)


def test_the_face_of_the_astronaut(astronaut: Image) -> None:
    (face,) = find_faces(astronaut)
    left, top, width, height = face.box
    assert 150 < left < 200 and 60 < top < 110 and 70 < width < 120 and 70 < height < 120
    expected = [[203, 102], [247, 104], [225, 127], [201, 140], [245, 141]]
    assert np.abs(face.landmarks - expected).max() < 6
    assert face.landmarks.dtype == np.float32 and not face.landmarks.flags.writeable
    assert aligned_error(face) < 8  # she smiles


def test_left_is_left_in_the_picture(astronaut: Image) -> None:
    face, mirrored = one_face(astronaut), one_face(astronaut[:, ::-1])
    back = mirrored.landmarks[[1, 0, 2, 4, 3]] * [-1, 1] + [511, 0]
    assert np.abs(back - face.landmarks).max() < 4
    assert mirrored.landmarks[0, 0] < mirrored.landmarks[1, 0] and mirrored.landmarks[3, 0] < mirrored.landmarks[4, 0]


@pytest.mark.parametrize("scale", [0.5, 2.0, 5.0])
def test_small_and_huge_pictures(astronaut: Image, scale: float) -> None:
    """Half the size takes enlarging, five times is searched in a smaller copy; both come back in their own pixels."""
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    changed = cv2.resize(astronaut, None, fx=scale, fy=scale, interpolation=method).astype(np.uint8)
    face, same = one_face(astronaut), one_face(changed)
    assert np.abs((same.landmarks + 0.5) / scale - 0.5 - face.landmarks).max() < 4
    assert np.abs(np.array(same.box) / scale - face.box).max() < 16
    difference = align(changed, same).astype(float) - align(astronaut, face)
    assert np.abs(difference).mean() < 12


def test_grey_is_a_picture_too(astronaut: Image) -> None:
    grey = cv2.cvtColor(astronaut, cv2.COLOR_RGB2GRAY).astype(np.uint8)
    face = one_face(grey)
    assert np.abs(face.landmarks - one_face(astronaut).landmarks).max() < 4
    assert align(grey, face).shape == (112, 112, 3)


def test_several_faces(two: Image) -> None:
    small_on_the_left = find_faces(two)
    assert [face.box[0] > 300 for face in small_on_the_left] == [True, False]
    with pytest.raises(InputError, match=r"^2 faces were found: crop the picture, .* --largest .*or all with --all\)$"):
        one_face(two)
    assert one_face(two, largest=True).box == small_on_the_left[0].box


def test_templates_of_one_largest_and_all(two: Image, astronaut: Image) -> None:
    network, every = Mean(), faces_of(two, Mean(), "all")
    assert (len(every), every.kind, every.keypoints, every.image_size) == (2, network.kind, None, (750, 450))
    largest = faces_of(two, network, "largest")
    assert np.array_equal(largest.descriptors.values, every.descriptors.values[:1])
    assert len(faces_of(astronaut, network)) == 1
    with pytest.raises(InputError, match="2 faces"):
        faces_of(two, network)
    with pytest.raises(InputError, match="one, largest, all"):
        faces_of(two, network, "both")  # type: ignore[arg-type]


def test_a_file_is_read(astronaut: Image, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), astronaut[:, :, ::-1])
    read = faces_of(tmp_path / "a.png", Mean())
    assert np.array_equal(read.descriptors.values, faces_of(astronaut, Mean()).descriptors.values)
    with pytest.raises(InputError, match="does not exist"):
        faces_of(str(tmp_path / "none.png"), Mean())


def test_a_fold_of_the_suit_is_no_face(astronaut: Image) -> None:
    """The detector sees one in each half, hardly, where the true faces are sure."""
    for pair in (np.hstack([astronaut, astronaut]), np.vstack([astronaut, astronaut])):
        assert len(find_faces(pair)) == 2


@pytest.mark.parametrize("shape", [(1, 1), (1, 3000), (2500, 3), (50, 50), (200, 300)])
def test_no_face_in_a_flat_picture(astronaut: Image, shape: tuple[int, int]) -> None:
    assert find_faces(np.full((*shape, 3), 90, np.uint8)) == []


def test_no_face_on_the_table(astronaut: Image) -> None:
    from skimage.data import coffee

    table = np.asarray(coffee(), np.uint8)  # type: ignore[no-untyped-call]
    with pytest.raises(InputError, match="no face was found in the picture: use a sharp one"):
        one_face(table)
    with pytest.raises(InputError, match="no face was found"):
        faces_of(table, Mean(), "largest")
    assert faces_of(table, Mean(), "all").descriptors.values.shape == (0, 3)


def test_a_similarity_is_undone() -> None:
    turn = 1.7 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    moved = ARCFACE @ turn.T + [30, -9]
    assert np.abs(placed(moved, similarity(moved, ARCFACE)) - ARCFACE).max() < 1e-9


def test_a_similarity_is_the_nearest_one() -> None:
    """No small change of its four parameters brings the points nearer, as Umeyama's closed form by SVD says too."""
    rng = np.random.default_rng(3)
    source = ARCFACE * 2 + rng.normal(0, 5, (5, 2))
    estimate = similarity(source, ARCFACE)
    from_centre, to_centre = source - source.mean(axis=0), ARCFACE - ARCFACE.mean(axis=0)
    u, s, vt = np.linalg.svd(to_centre.T @ from_centre)
    signs = np.array([1, np.sign(np.linalg.det(u @ vt))])
    linear = (s * signs).sum() / (from_centre**2).sum() * (u * signs) @ vt
    shift = ARCFACE.mean(axis=0) - linear @ source.mean(axis=0)
    assert np.abs(estimate - np.column_stack([linear, shift])).max() < 1e-9


def test_alignment_puts_landmarks_on_the_template() -> None:
    """White discs at the landmarks of a turned, large face are at the template's places afterwards."""
    turn = 6 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    landmarks = ARCFACE @ turn.T + [300, 40]
    image = np.zeros((900, 1000, 3), np.uint8)
    for x, y in landmarks:
        cv2.circle(image, (round(x * 16), round(y * 16)), 15 * 16, (255, 255, 255), -1, cv2.LINE_AA, 4)
    crop = align(image, Face(BOX, landmarks.astype(np.float32))).astype(float)[:, :, 0]
    for x, y in ARCFACE:
        left, top = int(x) - 6, int(y) - 6
        window = crop[top : top + 13, left : left + 13]
        rows, columns = np.mgrid[top : top + 13, left : left + 13]
        centre = np.array([(columns * window).sum(), (rows * window).sum()]) / window.sum()
        assert np.abs(centre - (x, y)).max() < 0.15


def test_outside_the_picture_is_black() -> None:
    crop = align(np.full((50, 112, 3), 200, np.uint8), Face(BOX, ARCFACE.astype(np.float32)))
    assert (crop[:49] == 200).all() and (crop[51:] == 0).all()


def test_what_is_no_face_or_picture() -> None:
    with pytest.raises(InputError, match=r"landmarks of a face must have shape \(5, 2\)"):
        Face(BOX, np.zeros((68, 2), np.float32))
    with pytest.raises(InputError, match="width and height above 0"):
        Face((1, 2, 0, 4), ARCFACE.astype(np.float32))
    with pytest.raises(InputError, match="all in one place"):
        align(np.zeros((9, 9, 3), np.uint8), Face(BOX, np.ones((5, 2), np.float32)))
    with pytest.raises(InputError, match="uint8"):
        find_faces(np.zeros((9, 9, 3), np.float32))


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    faces._detector.cache_clear()
    monkeypatch.setitem(sys.modules, "dlib", None)
    monkeypatch.setitem(sys.modules, "face_recognition_models", None)
    named = r"dlib-bin and face_recognition_models, .*featveil\[faces\]"
    with pytest.raises(MissingExtraError, match=named):
        find_faces(np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(MissingExtraError, match=named):
        model_file("shape_predictor_68_face_landmarks.dat")


def test_models_are_found_without_pkg_resources(astronaut: Image) -> None:
    code = "import sys; from featveil.extractors.faces import model_file as f; import featveil.extractors.face_networks"
    code += "; print(f('shape_predictor_68_face_landmarks.dat').name); heavy = 'dlib', 'pkg_resources', 'onnxruntime'"
    code += "; print([name for name in (*heavy, 'face_recognition_models') if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["shape_predictor_68_face_landmarks.dat", "[]"]


def test_no_face_in_photographs_of_buildings(astronaut: Image, real_data: Path) -> None:
    files = sorted((real_data / "strecha").rglob("*.jpg"))[:3] + sorted((real_data / "strecha").rglob("*.png"))[:3]
    assert files
    assert [find_faces(read_image(path)) for path in files] == [[]] * len(files)
