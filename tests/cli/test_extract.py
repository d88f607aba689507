"""featveil extract."""

import json
from pathlib import Path
from typing import Any

import pytest

import featveil as fv
from featveil.formats import hloc
from featveil.pipelines import extract as extracting


def test_one_image_to_one_file(run: Any, image: Path, tmp_path: Path) -> None:
    result = run("extract", image, "--out", tmp_path / "a.veil", "--kind", "rootsift", "--max-features", 50, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["written"], shown["failed"], shown["features"], shown["kind"]) == (1, 0, 50, "rootsift")
    features = fv.load(tmp_path / "a.veil")
    assert (features.kind, len(features)) == ("rootsift", 50)


def test_a_smaller_contrast_threshold_finds_more(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    for threshold in (0.1, 0.001):
        out = tmp_path / f"{threshold}.veil"
        result = run("extract", image, "--out", out, "--max-features", 9999, "--contrast-threshold", threshold)
        assert result.exit_code == 0, result.output
    assert len(fv.load(tmp_path / "0.1.veil")) < len(fv.load(tmp_path / "0.001.veil"))
    message = refused("extract", image, "--out", tmp_path / "a.veil", "--contrast-threshold", "-1")
    assert "contrast_threshold must be a number of at least 0" in message


def test_a_folder_keeps_its_tree_and_a_second_run_skips(run: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    (tmp_path / "photos/sub").mkdir(parents=True)
    image.rename(tmp_path / "photos/a.png")
    shifted.rename(tmp_path / "photos/sub/a.png")
    assert run("extract", tmp_path / "photos", "--out", tmp_path / "out").exit_code == 0
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.veil"))
    assert files == ["out/a.png.veil", "out/sub/a.png.veil"]
    fv.save(fv.extract(tmp_path / "photos/a.png", max_features=5), tmp_path / files[0])
    again = run("extract", tmp_path / "photos", "--out", tmp_path / "out", "--json")
    assert (json.loads(again.stdout)["written"], json.loads(again.stdout)["skipped"]) == (0, 2)
    assert len(fv.load(tmp_path / files[0])) == 5
    assert run("extract", tmp_path / "photos", "--out", tmp_path / "out", "--overwrite").exit_code == 0
    assert len(fv.load(tmp_path / files[0])) > 5


def test_outputs_of_another_kind_are_not_taken_for_done(run: Any, refused: Any, image: Path, tmp_path: Path) -> None:
    for out in ("a.veil", "a.h5"):
        assert run("extract", image, "--out", tmp_path / out).exit_code == 0
        assert "holds sift features" in refused("extract", image, "--out", tmp_path / out, "--kind", "rootsift")
        again = run("extract", image, "--out", tmp_path / out, "--kind", "rootsift", "--overwrite")
        assert again.exit_code == 0, again.output
    assert hloc.kind_of(tmp_path / "a.h5", "a.png") == "rootsift"


def test_a_folder_is_not_named_like_a_file(refused: Any, image: Path, tmp_path: Path) -> None:
    assert "misleading name" in refused("extract", image, "--out", tmp_path / "x.jpg")
    assert "is a file, not a folder" in refused("extract", image, "--out", image / "x")


def test_hloc_file_is_added_to(
    run: Any, image: Path, shifted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracting, "_FIRST_BATCH", 1)
    out = tmp_path / "features.h5"
    assert run("extract", image, "--out", out, "--format", "hloc").exit_code == 0
    result = run("extract", image, shifted, "--out", out, "--format", "hloc", "--json")
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["skipped"]) == (1, 1)
    assert hloc.names(out) == ["a.png", "b.png"]


@pytest.mark.parametrize("more", [[], ["--format", "hloc"]], ids=["veil", "hloc"])
def test_a_bad_image_among_good_ones_is_left_out(
    run: Any, image: Path, empty: Path, tmp_path: Path, more: list[str]
) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    result = run("extract", tmp_path, "--out", tmp_path / ("out.h5" if more else "out"), *more, "--json")
    assert result.exit_code == 1
    assert (json.loads(result.stdout)["written"], json.loads(result.stdout)["failed"]) == (1, 2)
    assert result.stderr.count("warning: ") == 2
    assert "empty.png has no features" in result.stderr


@pytest.mark.parametrize("out", ["x", "x.veil"])
def test_bad_images(refused: Any, image: Path, empty: Path, tmp_path: Path, out: str) -> None:
    target = tmp_path / out
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "cut.png").write_bytes(image.read_bytes()[:300])
    (tmp_path / "folder").mkdir()
    assert "nothere.jpg" in refused("extract", tmp_path / "nothere.jpg", "--out", target)
    assert "no image" in refused("extract", tmp_path / "text.jpg", "--out", target)
    assert "cut.png" in refused("extract", tmp_path / "cut.png", "--out", target)
    assert "has no features" in refused("extract", empty, "--out", target)
    assert "no image in" in refused("extract", tmp_path / "folder", "--out", target)


def test_all_bad_is_an_error(run: Any, empty: Path, tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    for out, more in (("x", []), ("x.h5", ["--format", "hloc"])):
        result = run("extract", tmp_path, "--out", tmp_path / out, *more)
        assert result.exit_code == 2
        assert "none of the 2 inputs" in result.stderr
        assert not (tmp_path / out).exists()


def test_bad_outputs_and_options(refused: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.png").write_bytes(image.read_bytes())
    assert "create it first" in refused("extract", image, "--out", tmp_path / "no/x.veil")
    assert "create it first" in refused("extract", image, "--out", tmp_path / "no/x.h5", "--format", "hloc")
    assert "name a folder" in refused("extract", image, shifted, "--out", tmp_path / "x.veil")
    assert "is a file" in refused("extract", image, "--out", image)
    assert "both be written" in refused("extract", image, tmp_path / "sub/a.png", "--out", tmp_path / "x")
    assert ".h5" in refused("extract", image, "--out", tmp_path / "x", "--format", "hloc")
    assert "rootsift" in refused("extract", image, "--out", tmp_path / "x", "--kind", "surf")
    assert "max-features" in refused("extract", image, "--out", tmp_path / "x", "--max-features", 0)
