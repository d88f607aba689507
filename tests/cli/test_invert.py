"""featveil invert."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.extractors import read_image
from featveil.formats.veil import load
from featveil.inverters import Inverter
from featveil.learning.encodings import Encoding
from painters import Session


@pytest.fixture
def raw(ran: Any, image: Path) -> Path:
    """Raw features of the image."""
    ran("extract", image, "--out", image.with_name("raw.veil"), "--max-features", 60)
    return image.with_name("raw.veil")


@pytest.fixture
def private(ran: Any, raw: Path) -> Path:
    """The same, lifted to dimension 2."""
    ran("privatize", raw, "--out", raw.with_name("private.veil"), "--dimension", 2)
    return raw.with_name("private.veil")


@pytest.fixture
def words(ran: Any, raw: Path) -> Path:
    """The same as word sets."""
    ran("privatize", raw, "--out", raw.with_name("words.veil"), "--defense", "subset", "--epsilon", 10)
    return raw.with_name("words.veil")


def shape(path: Path) -> tuple[int, ...]:
    return read_image(path).shape


def use_inverter(monkeypatch: pytest.MonkeyPatch, path: Path, encoding: Encoding, card: dict[str, Any]) -> Path:
    """Let `path` be a file with an inverter that reads `encoding`."""
    path.write_bytes(b"network")
    found = Inverter(encoding, card, Session())
    monkeypatch.setattr("featveil.pipelines.painters.load_inverter", lambda asked: {path: found}[asked])
    return path


def test_an_image_is_compared_with_itself(ran: Any, run: Any, image: Path, tmp_path: Path) -> None:
    shown = ran("invert", image, "--out", tmp_path / "seen.png", "--side-by-side")
    width, height = shown["size"]
    assert shape(tmp_path / "seen.png") == (height, 2 * width + 8, 3) and width <= 320
    assert 0 < shown["ssim"] <= 1 and set(shown["blank"]) == {"mae", "ssim", "psnr"}
    assert shown["inverter"] == "the built-in inverter" and len(shown["digest"]) == 64
    told = run("invert", image)
    assert told.exit_code == 0 and "SSIM" in told.stdout and "grey picture" in told.stdout
    assert max(len(line) for line in told.stdout.splitlines()) <= 80


def test_of_raw_files_positions_alone_may_be_read(ran: Any, run: Any, raw: Path, image: Path, private: Path) -> None:
    whole = ran("invert", raw, "--original", image)
    bare = ran("invert", raw, "--original", image, "--positions-only")
    assert (whole["geometry"], bare["geometry"]) == ("full", "positions") and whole["ssim"] != bare["ssim"]
    assert ran("invert", private, "--attack", "mean", "--original", image)["geometry"] == "positions"
    assert "of keypoints: positions, scale, orientation" in run("invert", raw, "--original", image).stdout


def test_an_original_that_is_another_photograph_is_doubted(run: Any, raw: Path, private: Path, image: Path) -> None:
    seen = np.asarray(cv2.imread(str(image)))
    other, encoded = image.with_name("other.png"), image.with_name("encoded.jpg")
    cv2.imwrite(str(other), seen[::-1])
    cv2.imwrite(str(encoded), seen, [cv2.IMWRITE_JPEG_QUALITY, 80])
    for features in (("invert", raw), ("invert", private, "--attack", "mean")):
        assert "are where other.png has any: is it their image?" in run(*features, "--original", other).stderr
        for own in (image, encoded):
            assert run(*features, "--original", own).stderr == ""


def test_raw_features_without_an_original_only_make_a_picture(ran: Any, raw: Path, tmp_path: Path) -> None:
    shown = ran("invert", raw, "--out", tmp_path / "seen.png", "--size", 160)
    assert "ssim" not in shown and shown["features"] == 60
    assert shape(tmp_path / "seen.png") == (120, 160, 3)


def test_a_picture_of_something_known_is_nearer_than_a_grey_one(ran: Any, tmp_path: Path) -> None:
    from featveil.datasets.board import views
    from featveil.pipelines.train_parts.photo_samples import middle

    cv2.imwrite(str(tmp_path / "board.png"), cv2.cvtColor(middle(read_image(views()[0])), cv2.COLOR_RGB2BGR))
    shown = ran("invert", tmp_path / "board.png")
    assert shown["ssim"] > shown["blank"]["ssim"] + 0.05


def test_private_features_need_an_inverter_or_an_attack(
    refused: Any, ran: Any, private: Path, image: Path, tmp_path: Path
) -> None:
    told = refused("invert", private, "--out", tmp_path / "seen.png")
    assert "featveil train inverter --images DIR" in told and "--attack" in told
    assert "--defense lifting --strategy sub-hybrid --dimension 2" in told
    options = ("--out", tmp_path / "seen.png", "--original", image)
    shown = ran("invert", private, "--attack", "database", "--set", "neighbours=50", *options)
    assert (shown["attack"], shown["answered"]) == ("database", 1) and shown["ssim"] > 0
    again = ran("invert", private, "--attack", "database", "--set", "neighbours=50", *options)
    assert again == shown


def test_word_sets(
    ran: Any, refused: Any, monkeypatch: pytest.MonkeyPatch, words: Path, image: Path, tmp_path: Path
) -> None:
    shown = ran("invert", words, "--attack", "posterior", "--original", image)
    assert shown["attack"] == "posterior" and shown["out"] is None
    codebook = str(load(words).defense["codebook"])  # type: ignore[union-attr]
    encoding = Encoding("sift", representation="words", count=2, codebook=codebook)
    inverter = use_inverter(monkeypatch, tmp_path / "w.onnx", encoding, {})
    assert ran("invert", words, "--inverter", inverter, "--original", image)["inverter"] == "w.onnx"
    told = refused("invert", words, "--inverter", inverter, "--original", image, "--attack", "posterior")
    assert "reads sift words, and recovered are raw sift descriptors" in told


def test_an_inverter_of_another_defense_sees_less(
    run: Any, monkeypatch: pytest.MonkeyPatch, private: Path, tmp_path: Path
) -> None:
    encoding = Encoding("sift", representation="subspaces", count=2)
    card: dict[str, Any] = {"defense": {"name": "lifting", "strategy": "random"}}
    inverter = use_inverter(monkeypatch, tmp_path / "l.onnx", encoding, card)
    result = run("invert", private, "--inverter", inverter, "--out", tmp_path / "seen.png")
    assert result.exit_code == 0 and "warning: l.onnx was trained on another defense" in result.stderr
    card["defense"] = load(private).defense  # type: ignore[union-attr]
    assert "warning" not in run("invert", private, "--inverter", inverter, "--out", tmp_path / "seen.png").stderr


def test_files_of_many_images(ran: Any, refused: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    many, hidden, seen = tmp_path / "many.h5", tmp_path / "private.h5", tmp_path / "seen.png"
    ran("extract", image, shifted, "--out", many, "--max-features", 40)
    ran("privatize", many, "--out", hidden)
    assert "2 images: --name one of them" in refused("invert", many, "--out", seen)
    assert ran("invert", many, "--name", image.name, "--out", seen)["features"] == 40
    shown = ran("invert", hidden, "--name", shifted.name, "--attack", "mean", "--original", shifted)
    assert (shown["features"], shown["attack"]) == (40, "mean")
    assert "no" in refused("invert", many, "--name", "c.png", "--out", seen)


def test_mistakes(refused: Any, raw: Path, private: Path, image: Path, shifted: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "seen.png")
    assert "nothing would come of it" in refused("invert", raw)
    assert "a .png file, not seen.gif" in refused("invert", raw, "--out", tmp_path / "seen.gif")
    assert "does not exist" in refused("invert", raw, "--out", tmp_path / "no" / "seen.png")
    assert "--side-by-side needs" in refused("invert", raw, *out, "--side-by-side")
    assert "nothing to attack" in refused("invert", raw, *out, "--attack", "nearest")
    assert "give the image they were extracted from" in refused("invert", raw, "--original", shifted)
    assert "--name is for files" in refused("invert", raw, *out, "--name", "a")
    assert "unknown attack" in refused("invert", private, *out, "--attack", "guess")
    assert "one attack" in refused("invert", private, *out, "--attack", "all")
    assert "knows the truth" in refused("invert", private, *out, "--attack", "oracle")
    assert "word sets" in refused("invert", private, *out, "--attack", "posterior")
    assert "there is no inverter" in refused("invert", raw, *out, "--inverter", tmp_path / "no.onnx")
    assert "(inverters are .onnx files)" in refused("invert", raw, *out, "--inverter", image)
    assert "no" in refused("invert", tmp_path / "no.veil", *out)


def test_no_built_in_inverter_of_learned_descriptors(refused: Any, image: Path, tmp_path: Path) -> None:
    from featveil.core import Features, Keypoints, Points
    from featveil.formats.veil import save

    points, xy = Points(np.ones((3, 128), np.float32)), np.full((3, 2), 9, np.float32)
    save(Features(points, "hardnet", Keypoints(xy), (64, 64)), tmp_path / "h.veil")
    assert "--extractor hardnet" in refused("invert", tmp_path / "h.veil", "--out", tmp_path / "seen.png")
