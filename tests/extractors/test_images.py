"""Reading image files: orientation, depth, transparency, and every way a file can be unusable."""

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from cv2.utils import logging as opencv_logging

from featveil.core import InputError
from featveil.extractors.images import Image, image_files, read_image

FORMATS = (".jpg", ".png", ".tiff", ".webp", ".bmp", ".ppm")


@pytest.fixture
def picture() -> Image:
    """RGB (40, 60, 3), smooth, with a red upper left and a green lower right quarter."""
    image = np.full((40, 60, 3), 20, np.uint8)
    image[:20, :30] = (250, 20, 20)
    image[20:, 30:] = (20, 250, 20)
    return image


def encoded(image: np.ndarray, suffix: str) -> bytes:
    """The file content of an RGB, RGBA or grey image."""
    order = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    image = cv2.cvtColor(image, order[image.shape[2]]) if image.ndim == 3 else image
    return cv2.imencode(suffix, image)[1].tobytes()


def png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def orientation_tag(orientation: int) -> bytes:
    """A little-endian TIFF header with one directory that holds only the orientation."""
    return b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def with_orientation(content: bytes, orientation: int) -> bytes:
    """Add an EXIF orientation to a JPEG or PNG file."""
    tag = orientation_tag(orientation)
    if content.startswith(b"\xff\xd8"):
        body = b"Exif\0\0" + tag
        return content[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + content[2:]
    return content[:33] + png_chunk(b"eXIf", tag) + content[33:]


@pytest.mark.parametrize("suffix", FORMATS)
def test_reads_every_format_as_rgb(suffix: str, picture: Image, tmp_path: Path) -> None:
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(encoded(picture, suffix))
    image = read_image(path)
    assert image.dtype == np.uint8
    assert image.shape == (40, 60, 3)
    # Averages over quarters: JPEG smears colours across the edges.
    assert np.abs(image[2:18, 2:28].mean((0, 1)) - (250, 20, 20)).max() < 3
    assert np.abs(image[22:38, 32:58].mean((0, 1)) - (20, 250, 20)).max() < 3


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 3), (8, 1)])
def test_exif_orientation_is_respected(
    suffix: str, orientation: int, turns: int, picture: Image, tmp_path: Path
) -> None:
    picture[25:35, 5:15] = (20, 20, 250)
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(with_orientation(encoded(picture, suffix), orientation))
    image = read_image(path)
    expected = np.rot90(picture, turns)
    assert image.shape == expected.shape
    assert np.abs(image.astype(int) - expected).mean() < 6


@pytest.mark.parametrize("suffix", [".png", ".tiff"])
def test_16_bits_are_rounded_to_8(suffix: str, tmp_path: Path) -> None:
    grey = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    path = tmp_path / f"grey{suffix}"
    path.write_bytes(cv2.imencode(suffix, grey)[1].tobytes())
    image = read_image(path)
    expected = np.round(grey / 257).astype(np.uint8)
    assert all(np.array_equal(image[:, :, channel], expected) for channel in range(3))


def test_grey_and_palette_become_rgb(tmp_path: Path) -> None:
    grey = np.arange(200, dtype=np.uint8).reshape(10, 20)
    (tmp_path / "grey.png").write_bytes(encoded(grey, ".png"))
    assert np.array_equal(read_image(tmp_path / "grey.png"), np.repeat(grey[:, :, None], 3, axis=2))
    rows = b"".join(b"\0" + bytes([0, 1]) for _ in range(3))
    header = struct.pack(">IIBBBBB", 2, 3, 8, 3, 0, 0, 0)
    palette = png_chunk(b"IHDR", header) + png_chunk(b"PLTE", bytes([255, 0, 0, 0, 0, 255]))
    content = palette + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    (tmp_path / "palette.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    assert read_image(tmp_path / "palette.png").tolist() == [[[255, 0, 0], [0, 0, 255]]] * 3


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_transparent_pixels_are_laid_over_white(dtype: type, tmp_path: Path) -> None:
    full = np.iinfo(dtype).max
    image: np.ndarray = np.zeros((4, 4, 4), dtype)
    image[:, :, 0] = full
    image[0, 0, 3], image[1, 1, 3] = full, full // 2
    (tmp_path / "hidden.png").write_bytes(encoded(image, ".png"))
    seen = read_image(tmp_path / "hidden.png")
    assert seen[0, 0].tolist() == [255, 0, 0]
    assert seen[1, 1].tolist() == [255, 128, 128]
    assert seen[3, 3].tolist() == [255, 255, 255]


def test_opaque_alpha_changes_nothing_and_may_be_rotated(picture: Image, tmp_path: Path) -> None:
    opaque = np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    (tmp_path / "opaque.png").write_bytes(with_orientation(encoded(opaque, ".png"), 6))
    assert np.array_equal(read_image(tmp_path / "opaque.png"), np.rot90(picture, 3))


def test_transparent_and_rotated_is_refused(picture: Image, tmp_path: Path) -> None:
    half = np.dstack([picture, np.full(picture.shape[:2], 128, np.uint8)])
    (tmp_path / "half.png").write_bytes(with_orientation(encoded(half, ".png"), 3))
    with pytest.raises(InputError, match="save it upright"):
        read_image(tmp_path / "half.png")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("kept", [0.05, 0.5, 0.9])
def test_cut_off_files_are_refused(suffix: str, kept: float, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    content = encoded(noise, suffix)
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(InputError, match=r"cut\.[a-z]+ is no image"):
        read_image(path)


def test_unusable_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("This is not an image. " * 20)
    for name, message in [
        ("missing.png", "does not exist"),
        ("", "folder"),
        ("empty.png", "empty"),
        ("text.png", "no image"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            read_image(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_too_many_pixels_are_refused(tmp_path: Path) -> None:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0))
    content = header + png_chunk(b"IDAT", zlib.compress(bytes(1000))) + png_chunk(b"IEND", b"")
    (tmp_path / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(InputError, match="too many pixels"):
        read_image(tmp_path / "huge.png")


def test_opencv_is_quiet_only_while_reading(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = opencv_logging.getLogLevel()
    (tmp_path / "cut.bmp").write_bytes(encoded(np.zeros((9, 9, 3), np.uint8), ".bmp")[:100])
    with pytest.raises(InputError):
        read_image(tmp_path / "cut.bmp")
    assert opencv_logging.getLogLevel() == before
    assert capfd.readouterr().err == ""


def test_image_files_are_sorted_and_recursive(tmp_path: Path) -> None:
    for name in (
        "b.JPG",
        "a/z.png",
        "a/notes.txt",
        "a.png",
        ".hidden.png",
        ".cache/x.png",
        "c.jpg/inner.webp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = [path.relative_to(tmp_path).as_posix() for path in image_files(tmp_path)]
    assert names == ["a/z.png", "a.png", "b.JPG", "c.jpg/inner.webp"]


def test_linked_folders_are_entered_once(tmp_path: Path) -> None:
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    for folder in (photos, elsewhere):
        folder.mkdir()
        (folder / "a.png").write_bytes(b"")
    (photos / "within").mkdir()
    (photos / "within" / "b.png").write_bytes(b"")
    links = (("linked", elsewhere), ("again", elsewhere), ("round", photos), ("a", photos / "within"))
    for name, target in links:
        try:
            (photos / name).symlink_to(target, target_is_directory=True)
        except OSError:
            pytest.skip("this system makes no links")
    assert [path.relative_to(photos).as_posix() for path in image_files(photos)] == [
        *("a.png", "again/a.png", "within/b.png")  # what is there keeps its name
    ]


def test_image_files_needs_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no image in"):
        image_files(tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        image_files(tmp_path / "missing")
