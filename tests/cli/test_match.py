"""featveil match."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import featveil as fv


@pytest.fixture
def private(image: Path) -> Path:
    fv.save(fv.privatize(fv.extract(image, max_features=200), fv.Lifting()), image.with_name("p.veil"))
    return image.with_name("p.veil")


def test_two_images(run: Any, image: Path, shifted: Path) -> None:
    result = run("match", image, shifted, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["inliers"] > 50
    assert shown["matches"] >= shown["inliers"]
    assert "agree on one homography" in run("match", image, shifted).stdout


def test_private_with_raw_is_written(run: Any, private: Path, shifted: Path, tmp_path: Path) -> None:
    result = run("match", private, shifted, "--out", tmp_path / "m.npz", "--json", "--max-features", 200)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["a"]["private"], shown["b"]["private"]) == (True, False)
    with np.load(tmp_path / "m.npz", allow_pickle=False) as written:
        indices, distances = written["indices"], written["distances"]
    assert len(indices) == len(distances) == shown["matches"] > 50


def test_options_leave_fewer_matches(run: Any, image: Path, shifted: Path) -> None:
    def count(*more: object) -> int:
        return int(json.loads(run("match", image, shifted, "--json", *more).stdout)["matches"])

    assert count("--no-mutual") > count() > count("--max-distance", 0.05)
    assert count() >= count("--ratio", 0.5)


def test_private_with_private_on_the_sphere(run: Any, image: Path, shifted: Path) -> None:
    seen = np.asarray(cv2.imread(str(shifted)), np.float64)
    noisy = seen + np.random.default_rng(5).normal(0, 25, seen.shape)
    cv2.imwrite(str(shifted), noisy.clip(0, 255).astype(np.uint8))
    for path in (image, shifted):
        private = fv.privatize(fv.extract(path, max_features=300), fv.Lifting(dimension=16))
        fv.save(private, path.with_suffix(".veil"))
    both = ("match", image.with_suffix(".veil"), shifted.with_suffix(".veil"), "--json")
    plain, on_sphere = (run(*both, *more) for more in ((), ("--on-sphere",)))
    assert on_sphere.exit_code == 0, on_sphere.output
    assert json.loads(on_sphere.stdout)["inliers"] > 1.05 * json.loads(plain.stdout)["inliers"] > 50


def test_on_sphere_is_refused_where_it_means_nothing(refused: Any, image: Path, tmp_path: Path) -> None:
    features = fv.extract(image, max_features=30)
    fv.save(fv.privatize(features, fv.Subset(epsilon=10, subset_size=2)), tmp_path / "words.veil")
    assert "word sets" in refused("match", tmp_path / "words.veil", image, "--on-sphere")
    fv.save(fv.Features(fv.Points(2 * features.descriptors.values), "sift"), tmp_path / "long.veil")
    assert "norm 1" in refused("match", tmp_path / "long.veil", image, "--on-sphere")


@pytest.mark.parametrize("given", [False, True])
def test_picture_of_private_features(
    run: Any, private: Path, image: Path, shifted: Path, tmp_path: Path, given: bool
) -> None:
    more = ["--images", image, shifted] if given else []
    result = run("match", private, shifted, "--picture", tmp_path / "m.png", *more)
    assert result.exit_code == 0, result.output
    picture = np.asarray(cv2.imread(str(tmp_path / "m.png")))
    left = picture[:240, :320].reshape(-1, 3)
    blank = (left == (51, 42, 38)).all(axis=1).mean()
    assert (blank < 0.1) if given else (blank > 0.3)


def test_the_same_part_of_the_database_is_warned_about(run: Any, image: Path, shifted: Path, tmp_path: Path) -> None:
    one_part = fv.Database(fv.builtin().values[:256], "sift", 1)
    for path in (image, shifted):
        features = fv.extract(path, max_features=300)
        fv.save(fv.privatize(features, fv.Lifting(database=one_part)), path.with_suffix(".veil"))
    result = run("match", tmp_path / "a.veil", tmp_path / "b.veil", "--json")
    assert result.exit_code == 0
    assert "same part" in result.stderr
    assert "same part" not in run("match", tmp_path / "a.veil", shifted).stderr


def test_too_few_matches_have_no_homography(run: Any, image: Path, tmp_path: Path) -> None:
    fv.save(fv.extract(image, max_features=3), tmp_path / "3.veil")
    result = run("match", tmp_path / "3.veil", image, "--picture", tmp_path / "m.png", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["inliers"] == 0


def test_bad_inputs(refused: Any, image: Path, private: Path, empty: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no")
    (tmp_path / "cut.veil").write_bytes(private.read_bytes()[:-9])
    assert "nothere" in refused("match", image, tmp_path / "nothere.png")
    assert "no image" in refused("match", image, tmp_path / "text.png")
    assert "no features" in refused("match", image, empty)
    assert "cut.veil" in refused("match", tmp_path / "cut.veil", image)
    assert "same kind" in refused("match", private, image, "--kind", "rootsift")
    assert "ratio" in refused("match", image, image, "--ratio", 2)
    assert "max_distance" in refused("match", image, image, "--max-distance", -1)


def test_bad_outputs(refused: Any, image: Path, shifted: Path, private: Path, tmp_path: Path) -> None:
    both = ("match", image, shifted)
    assert "must end in" in refused(*both, "--out", tmp_path / "m.txt")
    assert "must end in" in refused(*both, "--picture", tmp_path / "m.gif")
    assert "is an input" in refused(*both, "--picture", image)
    assert "create it first" in refused(*both, "--out", tmp_path / "no/m.npz")
    # Found only when the picture is drawn, and still before the matches are written.
    wrong = ("--images", shifted, shifted, "--picture", tmp_path / "m.png", "--out", tmp_path / "m.npz")
    assert "320 x 240" in refused("match", private, shifted, *wrong)


def test_features_without_keypoints_match_but_are_not_drawn(
    run: Any, refused: Any, image: Path, tmp_path: Path
) -> None:
    features = fv.extract(image, max_features=30)
    fv.save(fv.Features(features.descriptors, "sift"), tmp_path / "bare.veil")
    result = run("match", tmp_path / "bare.veil", tmp_path / "bare.veil", "--json")
    assert json.loads(result.stdout)["inliers"] is None
    assert "no keypoints" in refused("match", tmp_path / "bare.veil", image, "--picture", tmp_path / "m.png")


def test_an_image_takes_the_kind_of_the_file_it_is_matched_with(
    run: Any, refused: Any, image: Path, shifted: Path
) -> None:
    private = image.with_name("a.veil")
    assert run("privatize", image, "--out", private, "--kind", "rootsift").exit_code == 0
    for pair in ((private, shifted), (shifted, private)):
        result = run("match", *pair, "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["inliers"] > 50
    assert "rootsift with sift" in refused("match", private, shifted, "--kind", "sift")
