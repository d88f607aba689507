"""featveil pool, and privatize --defense hardened."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import featveil as fv
from featveil.stores.pool import Pool


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three photographs of noise, and a file that is none."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        noise = np.random.default_rng(10 + number).integers(0, 256, (60, 80), np.uint8)
        cv2.imwrite(str(folder / f"{number}.png"), cv2.resize(noise, (320, 240), interpolation=cv2.INTER_CUBIC))
    (folder / "broken.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture
def pool(run: Any, photos: Path, tmp_path: Path) -> Path:
    assert run("pool", "create", tmp_path / "device.pool", photos).exit_code == 0
    return tmp_path / "device.pool"


def release(run: Any, image: Path, pool: Path, target: Path, *more: object) -> Any:
    return run("privatize", image, "--out", target, "--defense", "hardened", "--pool", pool, *more)


def test_create_add_and_info(run: Any, photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "device.pool"
    made = run("pool", "create", path, photos / "0.png", photos / "broken.jpg", "--json")
    assert made.exit_code == 0
    assert "left out" in made.stderr and "broken.jpg" in made.stderr
    first = json.loads(made.stdout)
    assert (first["kind"], first["photographs"], first["free"]) == ("sift", 1, first["entries"])
    more = json.loads(run("pool", "add", path, photos, "--json").stdout)
    assert (more["photographs"], more["entries"] > first["entries"]) == (3, True)
    assert json.loads(run("pool", "info", path, "--json").stdout) == more
    shown = run("pool", "info", path).stdout
    assert f"{more['entries']:,} sift descriptors of 3 photographs" in shown
    assert "stays on the device" in shown


def test_a_release_uses_the_pool_up_once(run: Any, image: Path, pool: Path, tmp_path: Path) -> None:
    before = Pool(pool).holdings().free
    made = release(run, image, pool, tmp_path / "a.veil", "--max-features", 20, "--json")
    assert made.exit_code == 0, made.output
    private = fv.load(tmp_path / "a.veil")
    assert isinstance(private, fv.PrivateFeatures)
    assert private.defense == {"name": "hardened", "dimension": 16, "confounders": 4, "random_directions": 12}
    assert Pool(pool).holdings().free == before - 80
    assert release(run, image, pool, tmp_path / "b.veil", "--max-features", 20).exit_code == 0
    again = fv.load(tmp_path / "b.veil")
    assert Pool(pool).holdings().free == before - 80
    assert isinstance(again.descriptors, fv.Subspaces) and isinstance(private.descriptors, fv.Subspaces)
    # Features at one position come in any order.
    first, second = (np.unique(one.descriptors.offset, axis=0) for one in (private, again))  # type: ignore[union-attr]
    assert (first == second).all()


def test_features_that_lie_apart_are_fewer_and_not_warned_of(run: Any, image: Path, pool: Path, tmp_path: Path) -> None:
    few = release(run, image, pool, tmp_path / "few.veil", "--apart", "--strict")
    assert (few.exit_code, "warning" in few.stderr) == (0, False), few.output
    assert "1 in 5" in few.stdout
    all_of = release(run, image, pool, tmp_path / "all.veil", "--max-features", 40)
    assert "overlap" in all_of.stderr
    assert 40 < len(fv.load(tmp_path / "few.veil")) < len(fv.extract(image))


def test_strict_refuses_what_overlaps(refused: Any, image: Path, pool: Path, tmp_path: Path) -> None:
    message = refused(
        "privatize", image, "--out", tmp_path / "a.veil", "--defense", "hardened", "--pool", pool, "--strict"
    )
    assert "overlap" in message


def test_what_is_refused(run: Any, refused: Any, image: Path, pool: Path, photos: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out.veil")
    hardened = ("privatize", image, *out, "--defense", "hardened")
    assert "featveil pool create" in refused(*hardened)
    assert "does not exist" in refused(*hardened, "--pool", tmp_path / "none.pool")
    assert "no pool at all" in refused(*hardened, "--pool", image)
    assert "need a dimension" in refused(*hardened, "--pool", pool, "--dimension", 2)
    assert "holds sift" in refused(*hardened, "--pool", pool, "--kind", "rootsift")
    assert "--pool does not belong to lifting" in refused("privatize", image, *out, "--pool", pool)
    assert "unused descriptors left" in refused(*hardened, "--pool", pool, "--confounders", 16)
    assert "exists" in refused("pool", "create", pool, photos)
    assert "does not exist" in refused("pool", "info", tmp_path / "none.pool")


def test_a_photograph_of_the_pool_is_not_released(
    run: Any, refused: Any, image: Path, pool: Path, tmp_path: Path
) -> None:
    assert release(run, image, pool, tmp_path / "a.veil", "--apart").exit_code == 0
    used = tmp_path / "photos" / "0.png"
    message = refused("privatize", used, "--out", tmp_path / "b.veil", "--defense", "hardened", "--pool", pool)
    assert "hide those of others" in message


def test_an_unknown_kind_is_refused_at_once(run: Any, photos: Path, tmp_path: Path) -> None:
    made = run("pool", "create", tmp_path / "device.pool", photos, "--kind", "surf")
    assert made.exit_code == 2
    assert "unknown descriptor kind 'surf': use one of sift, rootsift" in made.stderr
    assert "left out" not in made.stderr
    assert not (tmp_path / "device.pool").exists()


def test_what_was_released_in_small_part_is_not_added(run: Any, image: Path, pool: Path, tmp_path: Path) -> None:
    """As with --apart, which releases less than a tenth of the features of a photograph."""
    assert release(run, image, pool, tmp_path / "a.veil", "--max-features", 6).exit_code == 0
    before = Pool(pool).holdings().entries
    assert len(fv.extract(image).descriptors) > 60
    assert json.loads(run("pool", "add", pool, image, "--json").stdout)["entries"] == before
