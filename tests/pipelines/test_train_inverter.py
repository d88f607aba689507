"""Training an inverter on photographs: what each release shows, that a stop changes nothing, and what the card says."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")
onnx = pytest.importorskip("onnx", reason="exporting: pip install 'featveil[learning]'")

from featveil.core import Defense, FormatError, InputError, MissingExtraError  # noqa: E402
from featveil.defenses import Concealer, Gate, Identity, Lifting, Subset, privatize  # noqa: E402
from featveil.inverters import load_inverter  # noqa: E402
from featveil.learning.encodings import Geometry, check_geometry  # noqa: E402
from featveil.learning.inverter_networks import make_inverter  # noqa: E402
from featveil.learning.training import Progress, Settings  # noqa: E402
from featveil.pipelines.train_parts.inverter_samples import Release, ReleasedSamples  # noqa: E402
from featveil.pipelines.train_parts.inverter_training import (  # noqa: E402
    InverterTraining,
    begin_with,
    checkpoint_of,
    run_inverter_training,
    score,
)
from featveil.pipelines.train_parts.photo_pieces import Pieces  # noqa: E402
from featveil.pipelines.train_parts.photo_samples import Recipe, make_pieces  # noqa: E402
from networks import random_network  # noqa: E402
from perceptual_weights import write_vgg16  # noqa: E402
from photographs import write_photographs  # noqa: E402
from sketches import builtin_sketch, other_background, sketch_of  # noqa: E402
from small_inverters import TINY  # noqa: E402

RECIPE = Recipe(crops=2, max_features=40)
SETTINGS = Settings(steps=3, batch=2, evaluations=3)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photographs. Do not change them."""
    return write_photographs(tmp_path_factory.mktemp("photos"), training=3, validation=2, test=1)


@pytest.fixture(scope="module")
def cache(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their pieces. Do not change them."""
    folder = tmp_path_factory.mktemp("cache")
    make_pieces(photos, folder, RECIPE)
    return folder


@pytest.fixture
def request_of(photos: Path) -> Any:
    """A request for a tiny network, with other values where they are given."""

    def make(**given: Any) -> InverterTraining:
        return InverterTraining(**{"images": photos, "defense": Identity(), "size": TINY, "recipe": RECIPE, **given})

    return make


def samples(
    cache: Path, defense: Defense, geometry: Geometry = "positions", seed: int = 0, standardised: bool = False
) -> ReleasedSamples:
    pieces = [Pieces(cache, "sift", part) for part in ("training", "validation")]
    release = Release(defense.for_kind("sift"), "sift", geometry)
    return ReleasedSamples(pieces[0], pieces[1], release, seed, standardised)


DEFENSES: list[tuple[Defense, str, int]] = [
    (Identity(), "points", 1),
    (Lifting("random", 3), "subspaces", 3),
    (Subset(epsilon=10.0, subset_size=2), "words", 2),
    (Concealer(random_network()), "points", 1),
    (Concealer(random_network(), Lifting("random", 2)), "subspaces", 2),
    (Concealer(random_network(), Subset(epsilon=10.0, subset_size=2)), "words", 2),
]


@pytest.mark.parametrize(("defense", "representation", "count"), DEFENSES)
def test_every_release_is_read(cache: Path, defense: Defense, representation: str, count: int) -> None:
    made = samples(cache, defense)
    assert (made.encoding.representation, made.encoding.count) == (representation, count)
    batch = made.batch(0, 3)
    assert all(sample.rows.shape[1] == made.encoding.columns for sample in [*batch, *made.validation])
    assert all(len(sample.rows) == len(sample.cells) <= 40 for sample in batch)
    assert all(np.isfinite(sample.rows).all() for sample in batch)


def test_a_step_sees_the_same_whenever_it_is_asked_for_and_another_does_not(cache: Path) -> None:
    lifting = Lifting("random", 2)
    made, again = samples(cache, lifting), samples(cache, lifting)
    made.batch(3, 2)  # of another step, before
    for first, second in zip(made.batch(5, 4), again.batch(5, 4), strict=True):
        assert np.array_equal(first.rows, second.rows) and np.array_equal(first.image, second.image)
    assert not all(np.array_equal(a.rows, b.rows) for a, b in zip(made.batch(5, 4), made.batch(6, 4), strict=True))
    other = samples(cache, lifting, seed=1).batch(5, 4)
    assert not all(np.array_equal(a.rows, b.rows) for a, b in zip(made.batch(5, 4), other, strict=True))


def test_what_a_gate_sends_is_read_and_pieces_of_other_places_are_left_out(cache: Path) -> None:
    pieces = Pieces(cache, "sift", "training")
    shown = [pieces[0], *(Pieces(cache, "sift", "validation")[place] for place in range(2))]
    sketch = sketch_of(np.concatenate([piece.features.descriptors.values for piece in shown]))
    gate = Gate(sketch, tau=0.1, contrast=1.0, background=other_background(), candidates=2)
    made, again = samples(cache, gate), samples(cache, gate)
    assert (made.encoding.representation, made.encoding.count) == ("words", 2)
    assert made.encoding.codebook == sketch.digest
    release = Release(gate.for_kind("sift"), "sift")
    passed = [pieces[place].image.tobytes() for place in range(len(pieces)) if release.passes(pieces[place])]
    assert pieces[0].image.tobytes() in passed and len(passed) < len(pieces)
    assert {sample.image.tobytes() for sample in made.batch(0, 40)} == set(passed)
    batch = made.batch(5, 4)
    assert max(len(sample.rows) for sample in batch) <= 40
    again.batch(2, 3)
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(batch, again.batch(5, 4), strict=True))
    elsewhere = Gate(builtin_sketch(), tau=0.01, contrast=1.0, background=other_background())
    with pytest.raises(InputError, match="photographs of the place"):
        samples(cache, elsewhere)


def test_releases_are_drawn_anew_and_keypoints_left_out(cache: Path) -> None:
    made = samples(cache, Lifting("random", 2))
    seen = [sample for step in range(12) for sample in made.batch(step, 2)]
    counts = [len(sample.rows) for sample in seen]
    assert max(counts) == 40 > min(counts) >= 10
    whole = [sample for sample in seen if len(sample.rows) == 40]
    pairs = [(a, b) for a in whole for b in whole if a is not b and np.array_equal(a.image, b.image)]
    assert pairs and not any(np.array_equal(a.rows[:, :256], b.rows[:, :256]) for a, b in pairs)


@pytest.mark.parametrize(("geometry", "known"), [("positions", [0, 0]), ("full", [1, 1]), ("either", [0, 1])])
def test_the_geometry_is_what_was_asked_for(cache: Path, geometry: Geometry, known: list[int]) -> None:
    made = samples(cache, Identity(), geometry)
    for seen in (made.batch(0, 2), made.validation):
        assert [set(sample.rows[:, 130].tolist()) for sample in seen] == [{float(flag)} for flag in known]
        # Where scale is not known, all features are on the second level.
        spread = [bool((sample.cells[:, 2] < 64 * 64 // 4).any()) for sample in seen]
        assert spread == [bool(flag) for flag in known]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_half_of_all_samples_show_either_geometry(cache: Path, count: int) -> None:
    made = samples(cache, Identity(), "either")
    known = [sample.rows[0, 130] for step in range(12) for sample in made.batch(step, count)]
    assert np.mean(known) == 0.5


def test_a_training_does_not_go_on_with_other_photographs(cache: Path, tmp_path: Path, request_of: Any) -> None:
    run_inverter_training(request_of(), tmp_path / "a.onnx", cache, SETTINGS)
    others = write_photographs(tmp_path / "photos", training=2, validation=2, test=1)
    with pytest.raises(InputError, match="was made with training_pieces"):
        run_inverter_training(
            request_of(images=others), tmp_path / "a.onnx", tmp_path / "other", replace(SETTINGS, steps=5)
        )


def test_too_few_photographs_are_one_clear_error(tmp_path: Path, request_of: Any) -> None:
    photos = write_photographs(tmp_path / "photos", training=2)
    with pytest.raises(InputError, match="too few photographs: 2 are for training and 0 for validation"):
        run_inverter_training(request_of(images=photos), tmp_path / "a.onnx", tmp_path / "cache", SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]  # nothing was extracted


@pytest.mark.parametrize(
    ("defense", "geometry"),
    [(Identity(), "either"), (Lifting("random", 2), "full"), (Subset(epsilon=9.0), "positions")],
)
def test_a_trained_inverter_reads_what_the_defense_sends(
    cache: Path, tmp_path: Path, request_of: Any, defense: Defense, geometry: str
) -> None:
    out, ready = tmp_path / "a.onnx", defense.for_kind("sift")
    request = request_of(defense=ready, geometry=geometry, data_note="drawn walls", licence="CC0")
    seen: list[Progress] = []
    card = run_inverter_training(request, out, cache, SETTINGS, training=seen.append)
    inverter = load_inverter(out)
    assert inverter.card == json.loads(json.dumps(card))
    assert [progress.step for progress in seen] == [1, 2, 3]
    assert card["defense"] == ready.spec() and card["steps"] == 3 and len(card["validation_ssim"]) == 3
    assert (card["data"], card["licence"], card["loss"], card["size"]) == ("drawn walls", "CC0", "structure", TINY)
    assert card["photographs"] == {"training": 3, "validation": 2, "test": 1}
    assert card["pieces"] == {"training": 6, "validation": 2, "test": 1}
    told = {"either": {"positions", "full", "blank"}, "full": {"full", "blank"}, "positions": {"positions", "blank"}}
    assert card["test"].keys() == told[geometry] and card["test_values"] == ["mae", "ssim", "psnr"]
    release, piece = Release(ready, "sift", check_geometry(geometry)), Pieces(cache, "sift", "test")[0]
    measured = score(inverter, release, piece, geometry != "positions")
    assert card["test"]["full" if geometry != "positions" else "positions"] == pytest.approx(measured, abs=1e-4)
    # And what is really sent, from outside the training.
    sent = privatize(piece.features, ready, keep_geometry=geometry != "positions") if geometry != "either" else None
    if sent is not None:
        assert inverter.invert(sent, release.words).shape == (256, 256, 3)


def test_concealed_descriptors_are_read_as_their_own_kind(cache: Path, tmp_path: Path, request_of: Any) -> None:
    concealer = Concealer(random_network())
    run_inverter_training(request_of(defense=concealer), tmp_path / "a.onnx", cache, SETTINGS)
    inverter, piece = load_inverter(tmp_path / "a.onnx"), Pieces(cache, "sift", "test")[0]
    assert inverter.encoding.kind == random_network().concealed_kind
    assert inverter.invert(privatize(piece.features, concealer)).shape == (256, 256, 3)
    with pytest.raises(InputError, match="the features are sift"):
        inverter.invert(piece.features)


def test_a_stopped_training_gives_the_same_inverter(cache: Path, tmp_path: Path, request_of: Any) -> None:
    whole, stopped = tmp_path / "whole.onnx", tmp_path / "stopped.onnx"
    card = run_inverter_training(request_of(), whole, cache, SETTINGS)

    def stop(progress: Progress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_inverter_training(request_of(), stopped, cache, SETTINGS, training=stop)
    assert not stopped.exists() and checkpoint_of(stopped).is_file()
    # Other words for the card do not make it another training.
    again = run_inverter_training(request_of(data_note="found later"), stopped, cache, SETTINGS)
    assert again | {"minutes": 0, "data": ""} == card | {"minutes": 0}
    piece = Pieces(cache, "sift", "test")[0]
    assert np.array_equal(load_inverter(whole).invert(piece.features), load_inverter(stopped).invert(piece.features))


def test_a_finished_training_is_exported_again_without_a_step(cache: Path, tmp_path: Path, request_of: Any) -> None:
    out = tmp_path / "a.onnx"
    card = run_inverter_training(request_of(), out, cache, SETTINGS)
    before = out.read_bytes()
    out.unlink()
    seen: list[Progress] = []
    assert run_inverter_training(request_of(), out, cache, SETTINGS, training=seen.append) == card
    assert seen == [] and out.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"architecture": "uresnet"}, "made with architecture unet, not uresnet"),
        ({"geometry": "full"}, r"made with encoding\.geometry positions, not full"),
        ({"defense": Lifting("random", 2)}, r"made with encoding\.representation points, not subspaces"),
        ({"size": "small"}, "made with size tiny, not small"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    cache: Path, tmp_path: Path, request_of: Any, given: dict[str, Any], told: str
) -> None:
    run_inverter_training(request_of(), tmp_path / "a.onnx", cache, SETTINGS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=told):
        run_inverter_training(request_of(**given), tmp_path / "a.onnx", cache, SETTINGS)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_weights_of_the_loss_are_another_training(cache: Path, tmp_path: Path, request_of: Any) -> None:
    first, second = (write_vgg16(tmp_path / f"{seed}.safetensors", seed) for seed in (0, 1))
    settings = Settings(steps=1, batch=1, evaluations=1)
    card = run_inverter_training(
        request_of(loss="perceptual", loss_weights=first), tmp_path / "a.onnx", cache, settings
    )
    assert card["loss"] == "perceptual" and len(card["loss_weights"]) == 64
    with pytest.raises(InputError, match="made with loss_weights"):
        run_inverter_training(request_of(loss="perceptual", loss_weights=second), tmp_path / "a.onnx", cache, settings)


def test_a_start_is_taken_over_and_not_needed_to_go_on(cache: Path, tmp_path: Path, request_of: Any) -> None:
    run_inverter_training(request_of(), tmp_path / "raw.onnx", cache, replace(SETTINGS, rate=0.5, steps=4))
    start = checkpoint_of(tmp_path / "raw.onnx")
    one = replace(SETTINGS, steps=1, rate=1e-9)
    lifted = request_of(defense=Lifting("random", 2), start=start)
    card = run_inverter_training(lifted, tmp_path / "lifted.onnx", cache, one)
    assert card["start"] == "raw.checkpoint.safetensors"
    painter = {
        path: load(path)["best.painter.weight"] for path in (start, checkpoint_of(tmp_path / "lifted.onnx"))
    }.values()
    assert torch.allclose(*painter, atol=1e-4)
    fresh = run_inverter_training(request_of(defense=Lifting("random", 2)), tmp_path / "fresh.onnx", cache, one)
    assert fresh["start"] is None
    assert not torch.allclose(next(iter(painter)), load(checkpoint_of(tmp_path / "fresh.onnx"))["best.painter.weight"])
    start.unlink()
    run_inverter_training(lifted, tmp_path / "lifted.onnx", cache, replace(one, steps=2))
    with pytest.raises(InputError, match="there is no checkpoint"):
        run_inverter_training(lifted, tmp_path / "new.onnx", cache, one)


def test_a_standardised_training_gives_an_inverter_that_reads_what_is_sent(
    cache: Path, tmp_path: Path, request_of: Any
) -> None:
    seen = samples(cache, Lifting("random", 2), standardised=True)
    rows = np.concatenate([sample.rows for step in range(20) for sample in seen.batch(step, 4)])
    varies = rows.std(axis=0) > 0
    assert np.abs(rows.mean(axis=0)[varies]).max() < 0.5 and 0.5 < rows.std(axis=0)[varies].mean() < 1.5
    raw = tmp_path / "raw.onnx"
    run_inverter_training(request_of(), raw, cache, replace(SETTINGS, steps=4))
    still = replace(SETTINGS, steps=1, rate=1e-12)
    request = request_of(start=raw, standardised=True)
    card = run_inverter_training(request, tmp_path / "a.onnx", cache, still)
    assert card["standardised"] is True
    piece = Pieces(cache, "sift", "test")[0].features
    painted = [load_inverter(path).invert(piece).astype(int) for path in (raw, tmp_path / "a.onnx")]
    assert np.abs(painted[0] - painted[1]).max() <= 2  # nothing was learned, and it reads the same rows
    with pytest.raises(InputError, match=r"begin with the \.onnx file"):
        begin_with(make_inverter(request_columns(cache), "unet", TINY, 0), checkpoint_of(tmp_path / "a.onnx"))
    with pytest.raises(InputError, match="made with standardised True"):
        run_inverter_training(request_of(start=raw), tmp_path / "a.onnx", cache, replace(still, steps=2))


def test_an_inverter_is_a_start_too(cache: Path, tmp_path: Path, request_of: Any) -> None:
    run_inverter_training(request_of(), tmp_path / "raw.onnx", cache, replace(SETTINGS, rate=0.5, steps=4))
    trained = {
        name.removeprefix("best."): value
        for name, value in load(checkpoint_of(tmp_path / "raw.onnx")).items()
        if name.startswith("best.")
    }
    begun = make_inverter(request_columns(cache), "unet", TINY, seed=9)
    begin_with(begun, tmp_path / "raw.onnx")
    assert begun.state_dict().keys() == trained.keys()
    for name, value in begun.state_dict().items():
        assert torch.allclose(value, trained[name], rtol=1e-3, atol=1e-6), name
    wider = make_inverter(request_columns(cache) + 9, "unet", TINY, seed=9)
    fresh = wider.state_dict()["reader.0.weight"].clone()
    begin_with(wider, tmp_path / "raw.onnx")
    assert torch.equal(wider.state_dict()["reader.0.weight"], fresh)
    assert torch.equal(wider.state_dict()["painter.weight"], begun.state_dict()["painter.weight"])
    card = run_inverter_training(
        request_of(defense=Lifting("random", 2), start=tmp_path / "raw.onnx"), tmp_path / "a.onnx", cache, SETTINGS
    )
    assert card["start"] == "raw.onnx"


def test_what_is_no_inverter_of_this_shape_is_no_start(cache: Path, tmp_path: Path, request_of: Any) -> None:
    run_inverter_training(request_of(), tmp_path / "raw.onnx", cache, SETTINGS)
    with pytest.raises(InputError, match="another architecture or size"):
        run_inverter_training(
            request_of(architecture="uresnet", start=tmp_path / "raw.onnx"), tmp_path / "a.onnx", cache, SETTINGS
        )
    content = (tmp_path / "raw.onnx").read_bytes()
    for name, damaged in {"cut": content[: len(content) // 2], "text": b"no network", "empty": b""}.items():
        (tmp_path / f"{name}.onnx").write_bytes(damaged)
        with pytest.raises(FormatError, match="is no usable inverter"):
            run_inverter_training(request_of(start=tmp_path / f"{name}.onnx"), tmp_path / "a.onnx", cache, SETTINGS)
    assert not (tmp_path / "a.onnx").exists()


def test_a_start_that_only_onnxruntime_understands_is_refused(cache: Path, tmp_path: Path, request_of: Any) -> None:
    run_inverter_training(request_of(), tmp_path / "raw.onnx", cache, SETTINGS)
    model = onnx.load(tmp_path / "raw.onnx")
    tensor = next(one for one in model.graph.initializer if one.name == "numbers_0")
    tensor.name = "renamed"
    for node in model.graph.node:
        node.input[:] = ["renamed" if name == "numbers_0" else name for name in node.input]
    model.graph.initializer.add().CopyFrom(onnx.helper.make_tensor("numbers_0", onnx.TensorProto.STRING, [1], [b"no"]))
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    load_inverter(tmp_path / "odd.onnx")
    with pytest.raises(FormatError, match="no inverter that a training can begin with"):
        run_inverter_training(request_of(start=tmp_path / "odd.onnx"), tmp_path / "a.onnx", cache, SETTINGS)


def request_columns(cache: Path) -> int:
    """What a network reads of a raw feature."""
    return samples(cache, Identity()).encoding.columns


def load(path: Path) -> dict[str, Any]:
    from featveil.learning.checkpoints import load_checkpoint

    return load_checkpoint(path)[0]


def test_without_photographs_to_test_the_card_has_no_quality(
    tmp_path: Path, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    photos = write_photographs(tmp_path / "photos", training=1, validation=1)
    card = run_inverter_training(request_of(images=photos), tmp_path / "a.onnx", tmp_path / "cache", SETTINGS)
    assert "test" not in card and load_inverter(tmp_path / "a.onnx").card == json.loads(json.dumps(card))
    assert [record.getMessage() for record in caplog.records] == [
        "1 photographs to learn from are few, good for a trial: networks like this want hundreds",
        "none of these photographs is for tests, as about one in 33 is: the card says nothing of quality",
    ]


@pytest.mark.parametrize(
    ("given", "settings", "told"),
    [
        ({"architecture": "vgg"}, {}, "architecture must be one of"),
        ({"size": "huge"}, {}, "size must be one of"),
        ({"loss": "lpips"}, {}, "loss must be"),
        ({"loss": "perceptual"}, {}, "needs --loss-weights"),
        ({"start": Path("nothing.safetensors")}, {}, "there is no checkpoint"),
        ({"kind": "surf"}, {}, "unknown descriptor kind"),
        ({}, {"device": "abacus"}, "torch cannot compute on device 'abacus'"),
        ({"images": Path("nowhere")}, {}, "is not a folder"),
    ],
)
def test_mistakes_are_found_before_anything_is_extracted(
    tmp_path: Path, request_of: Any, given: dict[str, Any], settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        run_inverter_training(
            request_of(**given), tmp_path / "a.onnx", tmp_path / "cache", replace(SETTINGS, **settings)
        )
    assert list(tmp_path.iterdir()) == []


def test_places_where_nothing_can_be_written(tmp_path: Path, request_of: Any) -> None:
    (tmp_path / "folder.onnx").mkdir()
    for out, told in ((tmp_path / "none" / "a.onnx", "does not exist"), (tmp_path / "folder.onnx", "is a folder")):
        with pytest.raises(InputError, match=told):
            run_inverter_training(request_of(), out, tmp_path / "cache", SETTINGS)
    assert not (tmp_path / "cache").exists()


def test_without_torch_or_onnx_the_extra_is_named(
    tmp_path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("torch", "onnx"):
        monkeypatch.setattr("featveil.learning.find_spec", lambda name, missing=missing: name != missing or None)
        with pytest.raises(MissingExtraError, match=rf"needs {missing}, .*featveil\[learning\]"):
            run_inverter_training(request_of(), tmp_path / "a.onnx", tmp_path / "cache", SETTINGS)


def test_a_loss_that_is_no_number_writes_no_inverter(
    cache: Path, tmp_path: Path, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from featveil.core import FeatveilError

    monkeypatch.setattr(
        "featveil.learning.losses.make_loss", lambda name, weights: lambda painted, truth: painted.sum() * math.nan
    )
    with pytest.raises(FeatveilError, match="no number"):
        run_inverter_training(request_of(), tmp_path / "a.onnx", cache, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_refused(cache: Path, tmp_path: Path, request_of: Any) -> None:
    checkpoint_of(tmp_path / "a.onnx").write_bytes(b"nothing")
    with pytest.raises(FormatError, match="no checkpoint of a training"):
        run_inverter_training(request_of(), tmp_path / "a.onnx", cache, SETTINGS)
