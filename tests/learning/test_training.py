"""Training: it learns, stops and goes on as if it had not, keeps what is good, and refuses what does not belong."""

import json
import math
import os
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from safetensors.torch import save_file  # noqa: E402

from featveil.core import FeatveilError, FormatError, InputError  # noqa: E402
from featveil.core.files import locked  # noqa: E402
from featveil.learning import training  # noqa: E402
from featveil.learning.checkpoints import load_checkpoint, save_checkpoint  # noqa: E402
from featveil.learning.losses import structure_loss  # noqa: E402
from featveil.learning.training import (  # noqa: E402
    Progress,
    Settings,
    Trainer,
    collate,
    find_device,
    start_from,
    validation_ssim,
)
from small_inverters import ENCODING, SomeSamples, some_sample, tiny_inverter  # noqa: E402

CPU = torch.device("cpu")
IDENTITY: dict[str, Any] = {"encoding": ENCODING.to_json(), "architecture": "unet"}
SETTINGS = Settings(steps=6, batch=2, evaluations=3)


def trainer(path: Path, settings: Settings = SETTINGS, loss: Any = structure_loss, **identity: Any) -> Trainer:
    architecture = identity.get("architecture", "unet")
    return Trainer(tiny_inverter(architecture=architecture), loss, settings, path, {**IDENTITY, **identity})


def stop_at(step: int, error: type[BaseException] = KeyboardInterrupt) -> Any:
    def report(progress: Progress) -> None:
        if progress.step == step:
            raise error

    return report


def weights(trained: Trainer) -> dict[str, Any]:
    return {name: value.clone() for name, value in trained.network.state_dict().items()}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("architecture", ["unet", "uresnet"])
def test_it_learns(tmp_path: Path, architecture: str) -> None:
    samples, seen = SomeSamples(), list[Progress]()
    settings = Settings(steps=100, batch=2, rate=1e-2, patience=99)
    trained = trainer(tmp_path / "a.safetensors", settings, architecture=architecture)
    before = validation_ssim(trained.network, samples.validation[0], CPU)
    trained.run(samples, seen.append)
    assert np.mean([p.loss for p in seen[-10:]]) < 0.7 * seen[0].loss
    after = validation_ssim(trained.network, samples.validation[0], CPU)
    assert after > before + 0.15
    assert after == pytest.approx(trained.best_score, abs=1e-3) and trained.best_score == max(p.best for p in seen)
    assert [p.step for p in seen] == list(range(1, 101)) == [step + 1 for step in samples.seen]
    assert seen[-1].spent == 1 and all(a.spent < b.spent for a, b in pairwise(seen))
    assert len(trained.history) == 20


@pytest.mark.parametrize("stops", [(1,), (2, 3, 5), (4,)])
def test_a_stopped_training_goes_on_as_if_it_had_not_been(tmp_path: Path, stops: tuple[int, ...]) -> None:
    whole = trainer(tmp_path / "whole.safetensors")
    whole.run(SomeSamples())
    path = tmp_path / "stopped.safetensors"
    for step in stops:
        with pytest.raises(KeyboardInterrupt):
            trainer(path).run(SomeSamples(), stop_at(step))
        assert load_checkpoint(path)[1]["step"] == step
    again = trainer(path)
    again.run(SomeSamples())
    assert same(weights(whole), weights(again))
    first, second = (load_checkpoint(tmp_path / f"{name}.safetensors") for name in ("whole", "stopped"))
    assert same(first[0], second[0])
    assert [entry[1:] for entry in first[1]["history"]] == [entry[1:] for entry in second[1]["history"]]
    other = trainer(tmp_path / "other.safetensors", replace(SETTINGS, rate=1e-3))
    other.run(SomeSamples())
    assert not same(weights(whole), weights(other))


def test_a_spent_budget_gives_the_best_network_again_and_trains_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    first = trainer(path)
    first.run(SomeSamples())
    samples, before = SomeSamples(), path.read_bytes()
    again = trainer(path)
    again.run(samples)
    assert samples.seen == [] and path.read_bytes() == before
    assert same(weights(first), weights(again))
    assert same(weights(again), again.best) and not same(weights(again), weights(trainer(tmp_path / "b.safetensors")))


def test_a_larger_budget_goes_on_and_is_still_evaluated_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    trainer(path, replace(SETTINGS, evaluations=6)).run(SomeSamples())
    longer = trainer(path, replace(SETTINGS, steps=12, evaluations=6, patience=99))
    samples = SomeSamples()
    longer.run(samples)
    assert samples.seen == list(range(6, 12))
    assert [entry[1] for entry in longer.history] == [1, 2, 3, 4, 5, 6, 8, 10, 12]


def test_the_time_spent_is_a_budget_too_and_survives_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def passing() -> float:
        clock[0] += 3.0
        return clock[0]

    monkeypatch.setattr(time, "monotonic", passing)
    path, settings = tmp_path / "a.safetensors", Settings(minutes=0.5, batch=1, evaluations=2, patience=99)
    with pytest.raises(KeyboardInterrupt):
        trainer(path, settings).run(SomeSamples(), stop_at(4))
    assert load_checkpoint(path)[1]["seconds"] == 12
    trained = trainer(path, settings)
    trained.run(SomeSamples())
    assert trained.step == 10 and trained.seconds == 30
    assert [entry[:2] for entry in trained.history] == [[15, 5], [30, 10]]


def test_it_saves_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_SAVE_EVERY", -1.0)
    path, steps = tmp_path / "a.safetensors", []
    trainer(path).run(SomeSamples(), lambda progress: steps.append(load_checkpoint(path)[1]["step"]))
    assert steps == [1, 2, 3, 4, 5, 6]


def test_ctrl_c_waits_for_the_end_of_a_step(tmp_path: Path) -> None:
    class Pressing(SomeSamples):
        def batch(self, step: int, count: int) -> Any:
            if step == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return super().batch(step, count)

    path, before = tmp_path / "a.safetensors", signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer(path).run(Pressing())
    assert load_checkpoint(path)[1]["step"] == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_does_not_wait_and_nothing_half_taken_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    samples = SomeSamples()

    class Pressing(list[Any]):
        def __iter__(self) -> Any:  # of validation, when a step is taken and not yet whole
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            return super().__iter__()

    with pytest.raises(KeyboardInterrupt):
        trainer(path).run(samples, stop_at(2))
    samples.validation = Pressing(samples.validation)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        trainer(path).run(samples)
    assert path.read_bytes() == before or load_checkpoint(path)[1]["step"] == 3
    whole, again = trainer(tmp_path / "whole.safetensors"), trainer(path)
    whole.run(SomeSamples())
    again.run(SomeSamples())
    assert same(weights(whole), weights(again))


@pytest.mark.parametrize("poison", ["sample", "loss", "gradient"])
def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(tmp_path: Path, poison: str) -> None:
    path, samples, calls = tmp_path / "a.safetensors", SomeSamples(), [0]
    if poison == "sample":
        rows = np.array(samples.training[0].rows)
        rows[0, 0] = np.nan
        bad = replace(samples.training[0], rows=rows)
        samples.training = [samples.training[1]] * 5 + [bad]

    def loss(painted: Any, truth: Any) -> Any:
        calls[0] += 1
        error = structure_loss(painted, truth)
        if poison == "loss" and calls[0] == 5:
            return error * math.inf
        # Finite, but its gradient is not: the root of nothing.
        return error + (painted * 0).sum().abs().sqrt() if poison == "gradient" and calls[0] == 5 else error

    with pytest.raises(FeatveilError, match=r"no number after 4 steps: the last good state is in .*a\.safetensors"):
        trainer(path, replace(SETTINGS, steps=9), loss).run(samples)
    tensors, state = load_checkpoint(path)
    assert state["step"] == 4
    assert all(value.isfinite().all() for value in tensors.values())
    good = trainer(tmp_path / "good.safetensors", replace(SETTINGS, steps=9))
    with pytest.raises(KeyboardInterrupt):
        good.run(samples, stop_at(4))
    assert same(tensors, load_checkpoint(tmp_path / "good.safetensors")[0])


def test_nothing_is_saved_of_a_training_that_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(FeatveilError, match="no number after 0 steps: nothing of that was saved yet"):
        trainer(tmp_path / "a.safetensors", loss=lambda painted, truth: painted.sum() * math.nan).run(SomeSamples())
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_samples_saves_what_was_trained(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        trainer(tmp_path / "a.safetensors").run(SomeSamples(), stop_at(3, OSError))
    assert load_checkpoint(tmp_path / "a.safetensors")[1]["step"] == 3


def test_it_stops_early_and_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.1, 0.4, 0.3, 0.39, 0.2, 0.1])
    monkeypatch.setattr(training, "validation_ssim", lambda network, sample, device: next(scores))
    path, kept = tmp_path / "a.safetensors", {}
    trained = trainer(path, Settings(steps=40, batch=1, evaluations=40, patience=3))

    def report(progress: Progress) -> None:
        kept[progress.step] = {name: value.clone() for name, value in trained.average.items()}

    trained.run(SomeSamples(), report)
    assert (trained.step, trained.best_score, trained.since_best) == (5, 0.4, 3)
    assert same(weights(trained), kept[2]) and not same(kept[2], kept[5])
    samples = SomeSamples()
    trainer(path, Settings(steps=40, batch=1, evaluations=40, patience=3)).run(samples)
    assert samples.seen == []
    trainer(path, Settings(steps=40, batch=1, evaluations=40, patience=4)).run(samples)
    assert samples.seen == [5]


@pytest.mark.parametrize(
    ("settings", "identity", "message"),
    [
        (SETTINGS, {"architecture": "uresnet"}, "made with architecture unet, not uresnet"),
        (SETTINGS, {"encoding": replace(ENCODING, kind="rootsift").to_json()}, r"encoding\.kind sift, not rootsift"),
        (SETTINGS, {"defense": {"name": "lifting"}}, "made with defense None, not"),
        (replace(SETTINGS, batch=3), {}, "made with batch 2, not 3"),
        (replace(SETTINGS, rate=1e-4), {}, r"made with rate 0\.0012, not 0\.0001"),
        (replace(SETTINGS, seed=1), {}, "made with seed 0, not 1"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    tmp_path: Path, settings: Settings, identity: dict[str, Any], message: str
) -> None:
    path = tmp_path / "a.safetensors"
    trainer(path).run(SomeSamples())
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"{message}.*: go on with that, or name another file"):
        trainer(path, settings, **identity).run(SomeSamples())
    assert path.read_bytes() == before


def test_two_processes_do_not_train_the_same_network(tmp_path: Path) -> None:
    with locked(tmp_path / "a.lock"), pytest.raises(InputError, match="another process is at work"):
        trainer(tmp_path / "a.safetensors").run(SomeSamples())
    assert not (tmp_path / "a.safetensors").exists()


def damage(path: Path, how: str) -> None:
    tensors, state = load_checkpoint(path)
    match how:
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
            return
        case "foreign":
            save_file({"weight": torch.zeros(3)}, path)
            return
        case "no average":
            tensors = {name: value for name, value in tensors.items() if not name.startswith("average.painter")}
        case "other shape":
            tensors["best.painter.bias"] = torch.zeros(1)
        case "other moment":
            tensors["moment.0.exp_avg"] = torch.zeros(4)
        case "moment of nothing":
            tensors["moment.999.exp_avg"] = torch.zeros(4)
        case "no moment of a layer":
            tensors = {name: value for name, value in tensors.items() if not name.startswith("moment.3.")}
        case "half a moment":
            del tensors["moment.0.exp_avg_sq"]
        case "no step":
            del state["step"]
        case "text for a number":
            state["seconds"] = "much"
        case "steps below zero":
            state["step"] = -3
        case "short history":
            state["history"] = [[1]]
        case "history of nothing":
            state["history"] = [None]
    save_checkpoint(path, tensors, state)


@pytest.mark.parametrize(
    "how",
    [
        "cut",
        "foreign",
        "no average",
        "other shape",
        "other moment",
        "moment of nothing",
        "no moment of a layer",
        "half a moment",
        "no step",
        "text for a number",
        "steps below zero",
        "short history",
        "history of nothing",
    ],
)
def test_a_damaged_checkpoint_is_refused_and_kept(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(KeyboardInterrupt):
        trainer(path).run(SomeSamples(), stop_at(2))
    damage(path, how)
    before = path.read_bytes()
    with pytest.raises(FormatError, match="no checkpoint of"):
        trainer(path).run(SomeSamples())
    assert path.read_bytes() == before


def test_another_training_begins_where_this_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    trained = trainer(path, Settings(steps=30, batch=3, rate=1e-2))
    trained.run(SomeSamples())
    whole = tiny_inverter(seed=5)
    assert start_from(whole, path) == []
    assert same(whole.state_dict(), weights(trained))
    wider = tiny_inverter(ENCODING.columns + 9, seed=5)
    assert start_from(wider, path) == ["reader.0.weight"]
    fresh = tiny_inverter(ENCODING.columns + 9, seed=5).state_dict()
    assert torch.equal(wider.state_dict()["reader.0.weight"], fresh["reader.0.weight"])
    rest = [name for name in fresh if name != "reader.0.weight"]
    assert all(torch.equal(wider.state_dict()[name], trained.network.state_dict()[name]) for name in rest)


def test_nothing_is_taken_over_from_another_architecture(tmp_path: Path) -> None:
    trainer(tmp_path / "a.safetensors").run(SomeSamples())
    with pytest.raises(InputError, match="another architecture or size"):
        start_from(tiny_inverter(architecture="uresnet"), tmp_path / "a.safetensors")
    save_checkpoint(tmp_path / "b.safetensors", {"best.other": torch.zeros(3)}, {})
    with pytest.raises(InputError, match="another architecture or size"):
        start_from(tiny_inverter(), tmp_path / "b.safetensors")
    with pytest.raises(InputError, match="there is no checkpoint"):
        start_from(tiny_inverter(), tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    "given",
    [
        {"minutes": 0},
        {"minutes": math.nan},
        {"minutes": math.inf},
        {"steps": 0},
        {"batch": 0},
        {"batch": 1.5},
        {"evaluations": 0},
        {"patience": -1},
        {"threads": 0},
        {"rate": 0.0},
        {"rate": 1.0},
        {"rate": math.nan},
        {"seed": -1},
        {"seed": 2**63},
        {"seed": 0.5},
    ],
)
def test_settings_that_cannot_be_used_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(given))):
        Settings(**given)


@pytest.mark.parametrize("name", ["abacus", "", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_one_clear_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="torch cannot compute on device"):
        trainer(tmp_path / "a.safetensors", replace(SETTINGS, device=name))
    assert find_device("cpu") == CPU


def test_threads_are_torchs(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        trainer(tmp_path / "a.safetensors", replace(SETTINGS, threads=2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_samples_may_be_read_only(tmp_path: Path) -> None:
    sample = some_sample()
    for array in (sample.rows, sample.cells, sample.image):
        array.setflags(write=False)
    rows, cells, frame, images = collate([sample], CPU)
    assert torch.equal(rows, torch.tensor(sample.rows)) and torch.equal(cells, torch.tensor(sample.cells))
    assert frame.shape == (1, 2, 2) and images.shape == (1, 3, 64, 64)
    assert float(images.max()) <= 1 and np.array_equal(
        np.rint(255 * images[0].permute(1, 2, 0).numpy()).astype(np.uint8), sample.image
    )


def test_the_checkpoint_has_the_layout_of_those_that_are_stored(tmp_path: Path) -> None:
    trainer(tmp_path / "a.safetensors").run(SomeSamples())
    tensors, state = load_checkpoint(tmp_path / "a.safetensors")
    names = list(tiny_inverter().state_dict())
    expected = {f"{part}.{name}" for part in ("network", "average", "best") for name in names}
    moments = ("step", "exp_avg", "exp_avg_sq")
    expected |= {f"moment.{place}.{key}" for place in range(len(names)) for key in moments}
    assert tensors.keys() == expected
    assert state.keys() == {"identity", "step", "seconds", "best_score", "since_best", "history"}
    assert json.loads(json.dumps(state)) == state
