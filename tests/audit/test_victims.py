"""Victims and attackers: evenly chosen photographs, damaged ones left out, the attacker's database by any way."""

import logging
from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.audit.victims import own_database, read_victims, second_view
from featveil.core import Features, InputError
from featveil.databases import save_database
from featveil.extractors import extract
from featveil.geometry import Homography, find_homography
from featveil.matching import match


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six photographs, one of them damaged and one blank."""
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    rng = np.random.default_rng(0)
    for number in range(4):
        noise = rng.integers(0, 256, (30, 40), np.uint8)
        cv2.imwrite(str(photographs / f"{number}.png"), cv2.resize(noise, (160, 120), interpolation=cv2.INTER_CUBIC))
    (photographs / "4.png").write_bytes((photographs / "0.png").read_bytes()[:100])
    cv2.imwrite(str(photographs / "5.png"), np.full((60, 60), 128, np.uint8))
    return photographs


def test_damaged_and_blank_photographs_are_named_and_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        victims = read_victims(folder)
    assert list(victims) == ["0.png", "1.png", "2.png", "3.png"]
    assert "4.png" in caplog.text and "5.png: it has no feature" in caplog.text


def test_victims_are_spread_over_the_folder_and_limited(folder: Path) -> None:
    victims = read_victims(folder, images=3, max_features=7)
    assert list(victims) == ["0.png", "2.png"]  # the third choice is the damaged one
    assert all(len(features) == 7 for features in victims.values())


def test_progress_is_reported_to_the_end(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    read_victims(folder, report=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 6) and seen[-1] == (6, 6)


def test_the_attacker_draws_from_all_folders(folder: Path) -> None:
    every = own_database([folder], size=10**6)
    some = own_database([folder, folder], size=50)
    assert len(some) == 50 < len(every)
    known = {row.tobytes() for row in every.values}
    assert all(row.tobytes() in known for row in some.values)
    assert own_database([folder], size=50, seed=1).digest != own_database([folder], size=50, seed=0).digest
    assert own_database([folder], size=50, seed=1).digest == own_database([folder], size=50, seed=1).digest


def test_a_database_file_serves_as_it_is(folder: Path, tmp_path: Path) -> None:
    database = own_database([folder], size=60)
    save_database(database, tmp_path / "own.safetensors")
    assert own_database([tmp_path / "own.safetensors"], size=5).digest == database.digest
    with pytest.raises(InputError, match="holds sift descriptors, the victims' are rootsift"):
        own_database([tmp_path / "own.safetensors"], "rootsift")


def test_nothing_to_attack_and_nothing_to_attack_with(folder: Path, tmp_path: Path) -> None:
    blank = tmp_path / "blank"
    blank.mkdir()
    (folder / "5.png").rename(blank / "5.png")
    with pytest.raises(InputError, match=r"no photograph of .* has a feature"):
        read_victims(blank)
    with pytest.raises(InputError, match="have no features"):
        own_database([blank])
    with pytest.raises(InputError, match="at least one photograph"):
        read_victims(folder, images=0)


def agreeing(first: Features, second: Features) -> Homography:
    """The homography between two images."""
    assert first.keypoints is not None and second.keypoints is not None
    matches = match(first, second).indices
    return find_homography(first.keypoints.xy[matches[:, 0]], second.keypoints.xy[matches[:, 1]])


def test_a_second_view_shows_the_same_from_elsewhere(folder: Path) -> None:
    second = second_view(folder / "0.png")
    agreement = agreeing(extract(folder / "0.png"), second)
    assert agreement.agree.sum() > 15
    assert agreement.matrix is not None and np.abs(agreement.matrix - np.eye(3)).max() > 5
    assert agreeing(extract(folder / "1.png"), second).agree.sum() < 10
