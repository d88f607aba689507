"""Training concealers on patches and photographs: pairs, pieces, the whole way to a file, and what does not fit."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from featveil import learning  # noqa: E402
from featveil.core import InputError, MissingExtraError, Points  # noqa: E402
from featveil.datasets import PatchSet, load_phototour  # noqa: E402
from featveil.extractors import SiftDescriber, make_describer  # noqa: E402
from featveil.formats.network_files import load_network  # noqa: E402
from featveil.learning.checkpoints import load_checkpoint  # noqa: E402
from featveil.learning.encodings import Encoding  # noqa: E402
from featveil.learning.losses import structure_loss  # noqa: E402
from featveil.learning.training import Settings, Trainer  # noqa: E402
from featveil.pipelines.train_parts import concealer_training  # noqa: E402
from featveil.pipelines.train_parts.concealer_training import (  # noqa: E402
    ConcealerSource,
    ConcealerTraining,
    Tracks,
    describe_tracks,
    run_concealer_training,
)
from featveil.pipelines.train_parts.photo_pieces import Pieces  # noqa: E402
from featveil.pipelines.train_parts.photo_samples import Recipe, make_pieces  # noqa: E402
from patch_sets import write_patches  # noqa: E402
from photographs import write_photographs  # noqa: E402
from small_concealers import SMALL  # noqa: E402
from small_inverters import tiny_inverter  # noqa: E402

ENCODING = Encoding("sift", geometry="full")


@dataclass(frozen=True)
class Data:
    """Photographs, their pieces, a patch set and another. Nothing of it is to be changed."""

    photos: Path
    cache: Path
    patches: PatchSet
    others: PatchSet


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("data")
    photos = write_photographs(folder / "photos", training=2, test=1)
    make_pieces(photos, folder / "cache", Recipe())
    sets = [load_phototour(write_patches(folder / f"set-{first}", first=first)) for first in (0, 2)]
    return Data(photos, folder / "cache", *sets)


@pytest.fixture
def made(data: Data, tmp_path: Path) -> Any:
    """Train with other values where they are given; the samples of `data` are used, and not changed."""

    def train(name: str = "run", validation: PatchSet | None = None, training: Any = None, **given: Any) -> Any:
        request = ConcealerTraining(**{"images": data.photos, "describer": SiftDescriber(), "preset": SMALL, **given})
        folder = tmp_path / name
        cache = folder / "cache"
        if not cache.exists() and request.describer.kind == "sift":
            cache.mkdir(parents=True)
            for path in data.cache.iterdir():
                (cache / path.name).symlink_to(path)
        outs = [folder / f"{strength:g}.safetensors" for strength in request.strengths]
        report = training or (lambda strength, progress: None)
        return run_concealer_training(request, data.patches, validation, outs, cache, training=report)

    return train


def values_of(points: Any) -> Any:
    """Descriptors that tell their point and their patch: (point, number)."""
    return np.array([[point, number] for number, point in enumerate(points)], np.float32)


def test_pairs_are_two_patches_of_one_point() -> None:
    points = np.repeat([5, 2, 9, 7], [3, 1, 2, 4])[::-1].copy()
    tracks = Tracks(values_of(points), points)
    assert len(tracks) == 3  # point 2 has one patch
    seen = set()
    for seed in range(200):
        first, second = tracks.pairs(9, np.random.default_rng(seed))
        assert len(first) == 3 and sorted(first[:, 0]) == [5, 7, 9]
        assert np.array_equal(first[:, 0], second[:, 0]) and (first[:, 1] != second[:, 1]).all()
        seen |= {(int(a), int(b)) for a, b in zip(first[:, 1], second[:, 1], strict=True)}
    assert len(seen) == 3 * 2 + 2 + 4 * 3  # every ordered pair


@pytest.mark.parametrize(("total", "count"), [(8, 2), (400, 30), (400, 100), (400, 390), (5, 50)])
def test_a_step_has_different_points(total: int, count: int) -> None:
    points = np.repeat(np.arange(total), 2)
    tracks = Tracks(values_of(points), points)
    for seed in range(40):
        first, _ = tracks.pairs(count, np.random.default_rng(seed))
        assert len(first) == len(set(first[:, 0])) == min(count, total)


def test_validation_judges_pairs_of_one_point_and_of_two() -> None:
    points = np.repeat(np.arange(10), 3)
    first, same, other = Tracks(values_of(points), points).judged(np.random.default_rng(0))
    assert len(first) == 10 and np.array_equal(first[:, 0], same[:, 0]) and (first[:, 0] != other[:, 0]).all()


@pytest.mark.parametrize("points", [[1, 2, 3], [1, 1, 2, 3]])
def test_sets_without_matching_patches_of_several_points_are_refused(points: list[int]) -> None:
    with pytest.raises(InputError, match="shown by two patches or more"):
        Tracks(values_of(points), np.array(points))


def test_a_source_gives_a_step_the_same_whenever_it_asks(data: Data) -> None:
    values, points = describe_tracks(data.patches, SiftDescriber(), lambda done, total: None)
    assert values.shape == (len(data.patches), 128) and np.array_equal(points, data.patches.points)
    tracks, pieces = Tracks(values, points), Pieces(data.cache, "sift", "training")
    source, again = (ConcealerSource(tracks, tracks, pieces, ENCODING) for _ in range(2))
    assert all(map(np.array_equal, source.pairs(3, 8), again.pairs(3, 8)))
    assert not np.array_equal(source.pairs(3, 8)[0], source.pairs(4, 8)[0])
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(source.pieces(3, 4), again.pieces(3, 4), strict=True))
    other = replace(source, seed=1)
    assert not np.array_equal(source.pairs(3, 8)[0], other.pairs(3, 8)[0])
    assert source.false_rate(lambda found: found) == again.false_rate(lambda found: found) < 0.5
    rng = np.random.default_rng(0)
    assert source.false_rate(lambda found: rng.standard_normal(found.shape).astype(np.float32)) > 0.7


@pytest.mark.parametrize("geometry", ["full", "positions"])
def test_pieces_have_raw_descriptors_and_the_geometry_that_is_seen(data: Data, geometry: Any) -> None:
    values, points = describe_tracks(data.patches, SiftDescriber(), lambda done, total: None)
    tracks, pieces = Tracks(values, points), Pieces(data.cache, "sift", "training")
    source = ConcealerSource(tracks, tracks, pieces, replace(ENCODING, geometry=geometry))
    sample = source.pieces(0, 1)[0]
    piece = next(one for one in map(pieces.__getitem__, range(len(pieces))) if np.array_equal(one.image, sample.image))
    assert np.array_equal(sample.rows[:, :128], piece.features.descriptors.values)
    assert sample.rows.shape[1] == 128 + 7 and sample.rows[:, 130].any() == (geometry == "full")


def test_few_photographs_are_a_trial(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    made()
    assert "2 photographs to learn from are few" in caplog.text


def test_a_network_that_makes_all_alike_has_collapsed(
    made: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concealer_training, "_COLLAPSED", 0.0)
    (card,) = made()
    distances = card["distance_of_others"]
    assert 0 < distances["concealed"] < 2 and 0 < distances["raw"] < 2 and "collapsed" not in caplog.text
    monkeypatch.setattr(concealer_training, "_COLLAPSED", 2.0)
    made()
    assert f"only {distances['concealed']:.3f} apart, the training has collapsed" in caplog.text


def test_a_network_for_each_lambda(data: Data, made: Any, tmp_path: Path) -> None:
    seen, started = [], time.monotonic()
    cards = made(
        strengths=(0.0, 2.5),
        training=lambda strength, progress: seen.append((strength, progress.stage)),
        data_note="drawn",
        licence="none",
    )
    assert list(dict.fromkeys(seen)) == [(0.0, "utility"), (0.0, "reconstruction"), (0.0, "joint"), (2.5, "joint")]
    networks = [load_network(tmp_path / "run" / f"{strength:g}.safetensors") for strength in (0.0, 2.5)]
    for strength, card, network in zip((0.0, 2.5), cards, networks, strict=True):
        assert (network.kind, network.lambda_, network.size) == ("sift", strength, 128)
        assert {"lambda": strength, **network.card} == card
        rates = card["false_positive_rate_95"]
        assert 0 <= rates["raw"] < 0.5 and 0 <= rates["concealed"] <= 1
        assert [step for step, _ in rates["during_joint_training"]] == [1, 2, 3, 4]
        assert rates["during_joint_training"][-1][1] == pytest.approx(rates["concealed"], abs=1e-4)
        assert (card["data"], card["licence"], card["validation"]) == ("drawn", "none", "held-out points")
        assert card["patches"] == [data.patches.name, len(data.patches)] and card["preset"] == SMALL.stated()
        assert 0 <= card["minutes"] <= (time.monotonic() - started) / 60 + 0.05  # in tenths
    assert networks[0].digest != networks[1].digest


def test_what_a_file_does_is_what_was_trained(data: Data, made: Any, tmp_path: Path) -> None:
    card = made()[0]
    network = load_network(tmp_path / "run" / "1.safetensors")
    values, points = describe_tracks(data.patches, SiftDescriber(), lambda done, total: None)
    held = np.unique(points, return_inverse=True)[1] % 10 == 0
    tracks, pieces = Tracks(values[held], points[held]), Pieces(data.cache, "sift", "training")
    rate = ConcealerSource(tracks, tracks, pieces, ENCODING).false_rate(network.apply)
    assert rate == pytest.approx(card["false_positive_rate_95"]["concealed"], abs=1e-6)


def test_a_stopped_training_goes_on_to_the_same_network(made: Any, tmp_path: Path) -> None:
    def stop(strength: float, progress: Any) -> None:
        if (progress.stage, progress.done) in (("reconstruction", 2), ("joint", 3)):
            raise KeyboardInterrupt

    made("whole")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            made("parts", training=stop)
        assert not (tmp_path / "parts" / "1.safetensors").exists()
    made("parts")
    whole, parts = (load_network(tmp_path / name / "1.safetensors") for name in ("whole", "parts"))
    assert whole.digest == parts.digest
    made("other", seed=1)
    assert load_network(tmp_path / "other" / "1.safetensors").digest != whole.digest


def test_another_set_can_be_measured_on(data: Data, made: Any) -> None:
    card = made(validation=data.others)[0]
    assert card["validation"] == [data.others.name, len(data.others)]
    assert card["false_positive_rate_95"]["raw"] < 0.5


def test_the_inverter_may_begin_trained(made: Any, tmp_path: Path) -> None:
    trained = Trainer(tiny_inverter(ENCODING.columns), structure_loss, Settings(), tmp_path / "s.safetensors", {})
    trained._save()
    card = made(start=tmp_path / "s.safetensors", preset=replace(SMALL, reconstruction=replace(SMALL.joint, steps=1)))
    assert card[0]["start"] == "s.safetensors"
    begun = load_checkpoint(tmp_path / "run" / "cache" / "concealer-sift-0.safetensors")[0]
    expected = trained.best["painter.bias"]
    assert torch.allclose(begun["inverter.painter.bias"], expected, atol=2e-3)
    (tmp_path / "s.safetensors").unlink()  # of no use any more
    again = made(start=tmp_path / "s.safetensors", preset=replace(SMALL, reconstruction=replace(SMALL.joint, steps=1)))
    assert again[0]["start"] == "s.safetensors"
    with pytest.raises(InputError, match=r"there is no checkpoint .*s\.safetensors"):
        made("new", start=tmp_path / "s.safetensors")


def write_weights(path: Path, seed: int) -> Path:
    """Random weights of HardTFeat."""
    from featveil.learning.patch_networks import HardTFeat

    torch.manual_seed(seed)
    torch.save(HardTFeat().state_dict(), path)
    return path


def test_a_learned_descriptor_may_be_the_base(made: Any, tmp_path: Path) -> None:
    describer = make_describer("hardtfeat", write_weights(tmp_path / "a.pth", 0))
    card = made(describer=describer)[0]
    network = load_network(tmp_path / "run" / "1.safetensors")
    assert network.kind == card["kind"] == "hardtfeat" and card["describer"] == describer.digest
    pieces = Pieces(tmp_path / "run" / "cache", "hardtfeat", "training")
    assert np.abs(np.linalg.norm(pieces[0].features.descriptors.values, axis=1) - 1).max() < 1e-2
    with pytest.raises(InputError, match="cache was made with weights"):
        made(describer=make_describer("hardtfeat", write_weights(tmp_path / "b.pth", 1)))


def test_descriptors_of_another_size_do_not_mix(made: Any) -> None:
    @dataclass(frozen=True)
    class Short:
        kind = "sift"
        digest = None

        def describe(self, patches: Any) -> Points:
            return Points(SiftDescriber().describe(patches).values[:, :64].copy())

    with pytest.raises(InputError, match="patches have descriptors of size 64, photographs of size 128"):
        made(describer=Short())


def test_other_settings_do_not_mix_in_one_folder(made: Any) -> None:
    made()
    with pytest.raises(InputError, match=r"made with geometry full, not positions: .* name another file"):
        made(geometry="positions")
    with pytest.raises(InputError, match=r"made with geometry full, not positions: .* name another --cache"):
        made(geometry="positions", strengths=(3.0,))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"strengths": ()}, "lambda must be"),
        ({"strengths": (1.0, -0.1)}, "lambda must be"),
        ({"strengths": (float("nan"),)}, "lambda must be"),
        ({"strengths": (float("inf"),)}, "lambda must be"),
        ({"geometry": "either"}, "sees positions or full"),
        ({"seed": -1}, "seed must be"),
        ({"loss": "guess"}, "loss must be"),
        ({"loss": "perceptual"}, "needs --loss-weights"),
        ({"device": "abacus"}, "torch cannot compute"),
    ],
)
def test_what_cannot_be_trained_is_refused(made: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        made(**given)


def test_photographs_for_training_are_needed(data: Data, tmp_path: Path) -> None:
    photos = write_photographs(tmp_path / "photos", test=1)
    request = ConcealerTraining(photos, SiftDescriber(), SMALL)
    with pytest.raises(InputError, match="none is on the training side"):
        run_concealer_training(request, data.patches, None, [tmp_path / "a.safetensors"], tmp_path / "cache")


def test_without_torch_the_extra_is_named(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"featveil\[learning\]"):
        made()
