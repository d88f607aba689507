"""Pieces of photographs: split by content, cut and extracted once, resumed, and never half there."""

import json
import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.core import InputError
from featveil.core.files import locked
from featveil.extractors import extract, read_image
from featveil.pipelines.train_parts import photo_samples
from featveil.pipelines.train_parts.photo_pieces import Pieces
from featveil.pipelines.train_parts.photo_samples import (
    Recipe,
    check_photographs,
    make_pieces,
    middle,
    part_of,
    warn_of_few,
)
from interruptions import Watched
from photographs import photograph, write_photographs

RECIPE = Recipe(crops=3, max_features=60)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photographs of which four are for training. Do not change them."""
    return write_photographs(tmp_path_factory.mktemp("photos"), training=4, validation=1, test=1)


@pytest.fixture(scope="module")
def cache(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their pieces. Do not change them."""
    folder = tmp_path_factory.mktemp("cache")
    make_pieces(photos, folder, RECIPE)
    return folder


def in_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_samples, "_SHARD", 2)


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_split_is_by_content_stable_and_about_94_3_3() -> None:
    contents = [str(number).encode() for number in range(4000)]
    parts = [part_of(content) for content in contents]
    assert parts == [part_of(content) for content in contents]
    shares = [parts.count(part) / 4000 for part in ("training", "validation", "test")]
    assert np.allclose(shares, [0.94, 0.03, 0.03], atol=0.01) and sum(shares) == 1
    # On the same side for ever: studies of another year must not test on what a network was trained on.
    assert [part_of(content) for content in (b"", b"20", b"70")] == ["training", "validation", "test"]


def test_every_part_has_its_own_photographs(cache: Path) -> None:
    parts = {part: Pieces(cache, "sift", part) for part in ("training", "validation", "test")}
    names = {part: pieces.names() for part, pieces in parts.items()}
    assert names == {
        "training": [f"training-{number}.png" for number in range(4)],
        "validation": ["validation-0.png"],
        "test": ["test-0.png"],
    }
    assert [len(pieces) for pieces in parts.values()] == [12, 1, 1]


def test_a_photograph_is_on_its_side_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "photos" / "deep").mkdir(parents=True)
    for name in ("a.png", "deep/b.png"):
        (tmp_path / "photos" / name).write_bytes(photograph("test"))
    make_pieces(tmp_path / "photos", tmp_path / "cache", RECIPE)
    assert Pieces(tmp_path / "cache", "sift", "test").names() == ["a.png", "deep/b.png"]
    assert len(Pieces(tmp_path / "cache", "sift", "training")) == 0


def test_pieces_are_squares_with_their_features(cache: Path, photos: Path) -> None:
    piece = Pieces(cache, "sift", "validation")[0]
    expected = middle(read_image(photos / "validation-0.png"))
    assert np.array_equal(piece.image, expected) and piece.image.shape == (256, 256, 3)
    features = extract(expected, "sift", 60)
    assert piece.features.keypoints is not None and features.keypoints is not None
    assert np.array_equal(piece.features.keypoints.xy, features.keypoints.xy)
    for name in ("scale", "orientation", "response"):
        assert np.array_equal(getattr(piece.features.keypoints, name), getattr(features.keypoints, name))
    assert np.allclose(piece.features.descriptors.values, features.descriptors.values, rtol=1e-3, atol=1e-4)
    assert piece.features.image_size == (256, 256) and len(piece.features) == 60
    piece.image[:] = 0  # a copy: the cache stays


def test_the_pieces_of_a_photograph_differ_and_the_first_is_its_middle(cache: Path, photos: Path) -> None:
    pieces = Pieces(cache, "sift", "training")
    first = [pieces[place].image for place in range(3)]
    assert np.array_equal(first[0], middle(read_image(photos / "training-0.png")))
    assert not any(np.array_equal(first[0], other) for other in first[1:])


def test_the_middle_of_an_image() -> None:
    wide = np.zeros((100, 300, 3), np.uint8)
    wide[:, 100:200] = 255
    assert (middle(wide) == 255).all()
    assert (middle(np.ascontiguousarray(wide.transpose(1, 0, 2))) == 255).all()
    with pytest.raises(InputError, match="63 x 300 pixels is too small: at least 64"):
        middle(np.zeros((300, 63, 3), np.uint8))


def test_the_same_photographs_give_the_same_pieces_and_are_extracted_once(
    cache: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pieces(photos, tmp_path / "again", RECIPE)
    assert content(tmp_path / "again") == content(cache)
    make_pieces(photos, tmp_path / "other", Recipe(crops=3, max_features=60, seed=1))
    assert content(tmp_path / "other") != content(cache)
    extracting = Watched(monkeypatch, "featveil.pipelines.train_parts.photo_samples._piece", photo_samples._piece)
    told: list[tuple[int, int]] = []
    make_pieces(photos, tmp_path / "again", RECIPE, lambda done, total: told.append((done, total)))
    assert extracting.calls == 0 and told == [(1, 1)]


def test_it_goes_on_after_ctrl_c_and_leaves_nothing_half(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_twos(monkeypatch)
    make_pieces(photos, tmp_path / "whole", RECIPE)

    def stop(done: int, total: int) -> None:
        assert total == 3
        if done == 1:
            raise KeyboardInterrupt

    before = cv2.getNumThreads()
    with pytest.raises(KeyboardInterrupt):
        make_pieces(photos, tmp_path / "cache", RECIPE, stop)
    assert cv2.getNumThreads() == before
    there = content(tmp_path / "cache")
    whole = content(tmp_path / "whole")
    assert there.keys() < whole.keys()
    assert all(whole[name] == found for name, found in there.items())
    assert {name.partition("/")[0] for name in there} <= {"recipe.json", "shard-00000", "shard-00001", "shard-00002"}
    make_pieces(photos, tmp_path / "cache", RECIPE)
    assert content(tmp_path / "cache") == whole


def test_an_error_within_a_shard_leaves_nothing_of_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_twos(monkeypatch)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with monkeypatch.context() as patch:
        Watched(
            patch,
            "featveil.pipelines.train_parts.photo_samples._piece",
            photo_samples._piece,
            stop_at=6,
            error=MemoryError,
        )
        with pytest.raises(MemoryError):
            make_pieces(photos, tmp_path / "cache", RECIPE)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"recipe.json", "shard-00000"}
    make_pieces(photos, tmp_path / "cache", RECIPE)
    assert len(Pieces(tmp_path / "cache", "sift", "training")) == 12


def test_a_full_disk_is_one_clear_error(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(InputError, match=r"cannot write .*shard-00000: No space left"):
        make_pieces(photos, tmp_path / "cache", RECIPE)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"recipe.json"}


def test_what_a_killed_process_left_is_cleared_away(cache: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(cache, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache" / "shard-00000")
    (tmp_path / "cache" / ".shard-00000-abc").mkdir()
    make_pieces(photos, tmp_path / "cache", RECIPE)
    assert content(tmp_path / "cache") == content(cache)
    assert not list((tmp_path / "cache").glob(".shard*"))


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (Recipe("rootsift", 3, 60), "made with kind sift, not rootsift: name another --cache"),
        (Recipe("sift", 2, 60), "made with crops 3, not 2"),
        (Recipe("sift", 3, 61), "made with max_features 60, not 61"),
        (Recipe("sift", 3, 60, 1), "made with seed 0, not 1"),
        (Recipe("sift", 3, 60, contrast_threshold=0.01), "made with contrast_threshold 0.04, not 0.01"),
    ],
)
def test_a_cache_of_another_recipe_is_refused(cache: Path, photos: Path, recipe: Recipe, told: str) -> None:
    before = content(cache)
    with pytest.raises(InputError, match=told):
        make_pieces(photos, cache, recipe)
    assert content(cache) == before


def test_a_cache_of_other_photographs_is_refused(cache: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "more")
    (tmp_path / "more" / "new.png").write_bytes(photograph("training"))
    with pytest.raises(InputError, match=r"other photographs than .*more holds"):
        make_pieces(tmp_path / "more", cache, RECIPE)


def test_a_damaged_cache_is_refused(cache: Path, photos: Path, tmp_path: Path) -> None:
    for text in ("", "{", "5", "[1]"):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        shutil.copytree(cache, tmp_path / "cache")
        (tmp_path / "cache" / "recipe.json").write_text(text)
        with pytest.raises(InputError, match=r"recipe\.json is damaged: delete the folder"):
            make_pieces(photos, tmp_path / "cache", RECIPE)


@pytest.mark.parametrize("name", ["images.npy", "starts.npy", "keypoints.npy", "descriptors.npy", "pieces.json"])
def test_a_damaged_shard_is_refused(cache: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(cache, tmp_path / "cache")
    path = tmp_path / "cache" / "shard-00000" / name
    whole = path.read_bytes()
    for damaged in (whole[:20], b"", np.array([1], object).dumps()):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="shard-00000 is damaged: delete it, and it is made again"):
            Pieces(tmp_path / "cache", "sift", "training")
    path.unlink()
    with pytest.raises(InputError, match="shard-00000 is damaged"):
        Pieces(tmp_path / "cache", "sift", "training")


def test_a_shard_whose_files_do_not_fit_each_other_is_refused(cache: Path, tmp_path: Path) -> None:
    shutil.copytree(cache, tmp_path / "cache")
    told = tmp_path / "cache" / "shard-00000" / "pieces.json"
    parts = json.loads(told.read_text())
    told.write_text(json.dumps({**parts, "names": parts["names"][1:]}))
    with pytest.raises(InputError, match="shard-00000 is damaged"):
        Pieces(tmp_path / "cache", "sift", "training")


def test_what_cannot_be_used_is_logged_and_left_out(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(photos, tmp_path / "photos")
    cv2.imwrite(str(tmp_path / "photos" / "tiny.png"), np.zeros((30, 300, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "photos" / "plain.png"), np.full((200, 200, 3), 90, np.uint8))
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"no image")
    with caplog.at_level(logging.WARNING):
        make_pieces(tmp_path / "photos", tmp_path / "cache", RECIPE)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert any(line.startswith("left out: tiny.png: an image of 300 x 30 pixels is too small") for line in lines)
    assert "left out: plain.png: it has fewer than 8 features" in lines
    assert any(line.startswith("left out: broken.jpg: ") for line in lines)
    names = [
        name for part in ("training", "validation", "test") for name in Pieces(tmp_path / "cache", "sift", part).names()
    ]
    assert sorted(names) == sorted(path.name for path in photos.iterdir())


def test_a_folder_of_which_nothing_can_be_used_has_no_pieces(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    cv2.imwrite(str(tmp_path / "photos" / "plain.png"), np.full((200, 200, 3), 90, np.uint8))
    make_pieces(tmp_path / "photos", tmp_path / "cache", RECIPE)
    assert [len(Pieces(tmp_path / "cache", "sift", part)) for part in ("training", "validation", "test")] == [0, 0, 0]


def test_mistakes_are_found_before_anything_is_written(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown descriptor kind 'surf'"):
        make_pieces(photos, tmp_path / "cache", Recipe("surf"))
    with pytest.raises(InputError, match="is not a folder"):
        make_pieces(tmp_path / "none", tmp_path / "cache", RECIPE)
    assert list(tmp_path.iterdir()) == []


def test_a_kind_that_is_a_network_needs_its_weights(photos: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
    from featveil.learning.patch_networks import HardTFeat

    paths = [tmp_path / f"{seed}.pth" for seed in (0, 1)]
    for seed, path in enumerate(paths):
        torch.manual_seed(seed)
        torch.save({"state_dict": HardTFeat().state_dict()}, path)
    recipe = Recipe("hardtfeat", 1, 20, weights=paths[0])
    make_pieces(photos, tmp_path / "cache", recipe)
    features = Pieces(tmp_path / "cache", "hardtfeat", "validation")[0].features
    assert features.kind == "hardtfeat" and features.descriptors.values.min() < 0
    make_pieces(photos, tmp_path / "cache", recipe)
    with pytest.raises(InputError, match=r"made with weights .*: name another --cache"):
        make_pieces(photos, tmp_path / "cache", replace(recipe, weights=paths[1]))
    with pytest.raises(InputError, match="hardtfeat is a network: give its weights file"):
        make_pieces(photos, tmp_path / "none", Recipe("hardtfeat"))
    with pytest.raises(InputError, match="sift has no weights"):
        make_pieces(photos, tmp_path / "none", Recipe("sift", weights=paths[0]))
    assert not (tmp_path / "none").exists()


def test_a_cache_from_before_there_were_weights_is_still_good(cache: Path, photos: Path) -> None:
    told = cache / "recipe.json"
    before = json.loads(told.read_text())
    told.write_text(json.dumps({name: value for name, value in before.items() if name != "weights"}))
    try:
        make_pieces(photos, cache, RECIPE)
    finally:
        told.write_text(json.dumps(before))


def test_a_cache_of_more_keypoints_is_told_from_a_usual_one(photos: Path, tmp_path: Path) -> None:
    dense = Recipe("sift", 1, 5000, contrast_threshold=0.01)
    make_pieces(photos, tmp_path / "dense", dense)
    make_pieces(photos, tmp_path / "dense", dense)
    make_pieces(photos, tmp_path / "usual", Recipe("sift", 1, 5000))
    found = [Pieces(tmp_path / name, "sift", "training") for name in ("dense", "usual")]
    more, usual = (sum(len(pieces[place].features) for place in range(len(pieces))) for pieces in found)
    assert more > usual
    with pytest.raises(InputError, match=r"made with contrast_threshold 0.01, not 0.04"):
        make_pieces(photos, tmp_path / "dense", Recipe("sift", 1, 5000))


@pytest.mark.parametrize("given", [{"crops": 0}, {"max_features": 7}, {"crops": 1.5}, {"seed": -1}])
def test_recipes_that_leave_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(given))} must be a whole number of at least"):
        Recipe(**given)


def test_two_processes_do_not_fill_one_cache(cache: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    code = (
        "import sys, pathlib, featveil.core.files as files\n"
        "with files.locked(pathlib.Path(sys.argv[1])): print('holding', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "new" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"holding\n"
        with pytest.raises(InputError, match=r"another process is at work in .*new: wait"):
            make_pieces(photos, tmp_path / "new", RECIPE)
    make_pieces(photos, tmp_path / "new", RECIPE)
    assert content(tmp_path / "new") == content(cache)


def test_a_full_cache_is_shared_even_while_it_is_locked(cache: Path, photos: Path) -> None:
    with locked(cache / "lock"):
        make_pieces(photos, cache, RECIPE)


def test_pixels_are_for_their_owner_only(cache: Path) -> None:
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("counts", "told"), [({"training": 2}, "2 are .* and 0"), ({"validation": 1}, "0 are .* and 1")]
)
def test_too_few_photographs_are_seen_before_anything_is_extracted(
    tmp_path: Path, counts: dict[str, int], told: str
) -> None:
    with pytest.raises(InputError, match=f"too few photographs: {told} for validation"):
        check_photographs(write_photographs(tmp_path / "photos", **counts))
    check_photographs(write_photographs(tmp_path / "enough", training=1, validation=1))


def test_a_network_of_few_photographs_is_called_a_trial(
    cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = Pieces(cache, "sift", "training")
    monkeypatch.setattr(photo_samples, "_FEW", len(pieces.names()))
    warn_of_few(pieces)
    assert caplog.messages == []
    monkeypatch.setattr(photo_samples, "_FEW", len(pieces.names()) + 1)
    warn_of_few(pieces)
    assert "good for a trial" in caplog.text
