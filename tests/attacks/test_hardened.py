"""The empirical guarantee of hardened lifting: no attack names the true one much more often than 1 time in k + 1."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from featveil.attacks import ATTACKS, Discriminator, Knowledge
from featveil.audit.roles import bundled
from featveil.core import Features, PrivateFeatures
from featveil.databases import Database
from featveil.datasets.board import views
from featveil.defenses import Hardened, Lifting, lying_apart, privatize
from featveil.extractors import extract, image_files
from featveil.metrics import Leakage, align
from featveil.pipelines.scoring import score_attack
from featveil.stores.pool import Pool

CONFOUNDERS = 4
CHANCE = 1 / (CONFOUNDERS + 1)
CLOSE_FALSE_ONES = 0.03  # of guesses that come near without being right


def pool(seed: int = 0) -> Pool:
    return Pool.in_memory(bundled("sift", 1), "sift", np.random.default_rng(seed))


def own() -> Database:
    return Database.from_array(bundled("sift", 0), "sift", 1, rng=np.random.default_rng(1))


def release(raw: Features, hardened: bool = True, device: Pool | None = None, seed: int = 0) -> PrivateFeatures:
    rng = np.random.default_rng(seed)
    defense = Hardened(CONFOUNDERS, 16, device or pool()) if hardened else Lifting("sub-hybrid", 8)
    return privatize(raw, defense, rng=rng)


def leakage(private: PrivateFeatures, raw: Features, name: str, **known: object) -> Leakage:
    knowledge = Knowledge(database=own(), **known)  # type: ignore[arg-type]
    method = Discriminator(examples=200, starts=20) if name == "discriminator" else ATTACKS[name]()
    return score_attack(private, align(private, raw), method, knowledge, np.random.default_rng(2)).leakage


@cache
def sparse_picture() -> Features:
    return lying_apart(extract(views()[0], "sift", 600))


def allowed(count: int) -> float:
    """Three standard deviations above chance."""
    return CHANCE + CLOSE_FALSE_ONES + 3 * float(np.sqrt(CHANCE * (1 - CHANCE) / count))


@pytest.mark.parametrize("name", ["lattice", "nearest", "mean", "clustering", "overlap", "discriminator"])
def test_no_attack_on_a_drawn_picture_beats_chance_by_much(name: str) -> None:
    raw = sparse_picture()
    found = leakage(release(raw), raw, name)
    assert found.exact == 0
    assert found.below_near < allowed(found.count)


@pytest.mark.parametrize("name", ["lattice", "discriminator"])
def test_the_same_attacks_break_lifting(name: str) -> None:
    raw = sparse_picture()
    assert leakage(release(raw, hardened=False), raw, name).below_near > 0.7


def test_a_second_release_says_nothing_new() -> None:
    raw, device = sparse_picture(), pool()
    first, second = (release(raw, device=device, seed=seed) for seed in (0, 1))
    assert leakage(first, raw, "relift", repeats=(second,)).below_near < 0.05
    elsewhere = release(raw, device=pool(7), seed=2)
    assert leakage(first, raw, "relift", repeats=(elsewhere,)).below_near > 0.9


def test_on_photographs(real_data: Path) -> None:
    """Whose confounders come from other photographs, and so does what the ranker learns from."""
    folder = real_data / "sfm_small" / "sceaux_castle"
    found = []
    for path in image_files(folder)[:2]:
        raw = lying_apart(extract(path, "sift", 600))
        found.append(leakage(release(raw), raw, "discriminator"))
    count = sum(one.count for one in found)
    assert sum(one.count * one.below_near for one in found) / count < allowed(count)
