"""Training a concealer: three stages, stopped and resumed, two-sided in lambda, and what is kept and refused."""

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="networks: pip install 'featveil[learning]'")

from featveil.core import FeatveilError, FormatError, InputError  # noqa: E402
from featveil.core.files import locked  # noqa: E402
from featveil.learning import adversarial  # noqa: E402
from featveil.learning.adversarial import ConcealerTrainer, Progress, use_threads  # noqa: E402
from featveil.learning.checkpoints import load_checkpoint, save_checkpoint  # noqa: E402
from featveil.learning.concealer_presets import PRESETS, Preset, Stage  # noqa: E402
from featveil.learning.losses import structure_loss  # noqa: E402
from small_concealers import COLUMNS, SMALL, SomeSource  # noqa: E402
from small_inverters import SIZE, TINY  # noqa: E402

IDENTITY: dict[str, Any] = {"kind": "sift", "patches": ["drawn", 9]}


def trainer(preset: Preset = SMALL, loss: Any = structure_loss, seed: int = 0, **identity: Any) -> ConcealerTrainer:
    return ConcealerTrainer(SIZE, COLUMNS, loss, preset, seed, {**IDENTITY, **identity})


def run(trained: ConcealerTrainer, folder: Path, source: Any = None, strength: float = 1.0, report: Any = None) -> None:
    """Into `folder`: initial.safetensors, and a checkpoint named by lambda."""
    source = source or SomeSource()
    paths = folder / "initial.safetensors", folder / f"{strength:g}.safetensors"
    trained.run(source, strength, *paths, report or (lambda progress: None))


def stop_at(stage: str, step: int, error: type[BaseException] = KeyboardInterrupt) -> Any:
    def report(progress: Progress) -> None:
        if (progress.stage, progress.done) == (stage, step):
            raise error

    return report


def weights(trained: ConcealerTrainer) -> dict[str, Any]:
    both = {"ninja": trained.ninja, "inverter": trained.inverter}
    return {f"{part}.{name}": value.clone() for part, one in both.items() for name, value in one.state_dict().items()}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_the_three_stages_run_in_turn(tmp_path: Path) -> None:
    source, seen, trained = SomeSource(), list[Progress](), trainer()
    before = weights(trained)
    run(trained, tmp_path, source, report=seen.append)
    stages = [("utility", done) for done in range(1, 5)]
    stages += [("reconstruction", done) for done in range(1, 4)] + [("joint", done) for done in range(1, 5)]
    assert [(one.stage, one.done) for one in seen] == stages
    assert {one.stage: one.total for one in seen} == {"utility": 4, "reconstruction": 3, "joint": 4}
    # The joint stage asks for pieces twice: for the network that conceals, and for the inverter after that changed.
    asked = [("pairs", step) for step in range(4)] + [("pieces", step) for step in range(3)]
    assert source.asked == asked + [(what, step) for step in range(4) for what in ("pairs", "pieces", "pieces")]
    assert all(one.reconstruction == 0 for one in seen[:4]) and all(one.utility == 0 for one in seen[4:7])
    assert all(one.utility > 0 and one.reconstruction > 0 for one in seen[7:])
    assert trained.done == {"utility": 4, "reconstruction": 3, "joint": 4} and len(trained.history) == 4
    assert all(not torch.equal(before[name], value) for name, value in weights(trained).items())
    assert not trained.ninja.training


def test_each_stage_trains_its_networks_only(tmp_path: Path) -> None:
    states: dict[str, dict[str, Any]] = {}
    trained = trainer()
    states["start"] = weights(trained)
    run(trained, tmp_path, report=lambda now: states.update({now.stage: weights(trained)}))

    def changed(before: str, after: str) -> set[str]:
        return {
            name.split(".")[0] for name, value in states[after].items() if not torch.equal(value, states[before][name])
        }

    assert changed("start", "utility") == {"ninja"}
    assert changed("utility", "reconstruction") == {"inverter"}
    assert changed("reconstruction", "joint") == {"ninja", "inverter"}


@pytest.mark.parametrize(
    "stops",
    [
        [("utility", 2)],
        [("utility", 4)],
        [("reconstruction", 1), ("reconstruction", 3)],
        [("joint", 1), ("joint", 3)],
        [("utility", 1), ("reconstruction", 2), ("joint", 4)],
    ],
)
def test_a_stopped_training_goes_on_as_if_it_had_not_been(tmp_path: Path, stops: list[tuple[str, int]]) -> None:
    whole, parts = folder(tmp_path, "whole"), folder(tmp_path, "parts")
    selecting = replace(SMALL, selects=True)
    expected = trainer(selecting)
    run(expected, whole)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            run(trainer(selecting), parts, report=stop_at(*stop))
        path = parts / ("1.safetensors" if stop[0] == "joint" else "initial.safetensors")
        assert load_checkpoint(path)[1]["done"][stop[0]] == stop[1]
    again = trainer(selecting)
    run(again, parts)
    assert same(weights(expected), weights(again)) and again.history == expected.history
    for name in ("initial.safetensors", "1.safetensors"):
        first, second = (load_checkpoint(one / name) for one in (whole, parts))
        assert same(first[0], second[0])
        assert {**first[1], "seconds": 0} == {**second[1], "seconds": 0}


def test_a_finished_training_gives_its_network_again(tmp_path: Path) -> None:
    first, again, source = trainer(), trainer(), SomeSource()
    run(first, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run(again, tmp_path, source)
    assert source.asked == [] and same(weights(first), weights(again))
    (tmp_path / "initial.safetensors").unlink()  # of no use any more
    run(trainer(), tmp_path, source)
    assert source.asked == [] and (tmp_path / "1.safetensors").read_bytes() == before["1.safetensors"]


def test_all_lambdas_share_the_first_stages(tmp_path: Path) -> None:
    run(trainer(), tmp_path, strength=0.0)
    source, other = SomeSource(), trainer()
    run(other, tmp_path, source, strength=2.0)
    assert [what for what, _ in source.asked] == ["pairs", "pieces", "pieces"] * 4
    alone = trainer()
    run(alone, folder(tmp_path, "alone"), strength=2.0)
    assert same(weights(alone), weights(other))
    assert {path.name for path in tmp_path.glob("*.safetensors")} == {
        "initial.safetensors",
        "0.safetensors",
        "2.safetensors",
    }


def test_the_third_stage_may_be_planned_anew(tmp_path: Path) -> None:
    run(trainer(), tmp_path, strength=0.0)
    source = SomeSource()
    run(trainer(replace(SMALL, joint=Stage(2, 1e-4, 8, 1), selects=True)), tmp_path, source, strength=5.0)
    assert [step for what, step in source.asked if what == "pairs"] == [0, 1]


def test_lambda_decides_how_much_is_concealed(tmp_path: Path) -> None:
    plan = Preset(Stage(50, 1e-2, pairs=32), Stage(120, 1e-2, pieces=4), Stage(80, 1e-2, 32, 4), inverter=TINY)
    source, outcome = SomeSource(), {}
    raw = source.false_rate(lambda values: values)
    for strength in (0.0, 1.0):
        seen, trained = list[Progress](), trainer(plan)
        run(trained, tmp_path, source, strength, seen.append)
        outcome[strength] = source.false_rate(trained.conceal), seen[-1].reconstruction
    truth = torch.stack([torch.from_numpy(one.image) for one in source.photographs]).permute(0, 3, 1, 2) / 255
    floor = float(structure_loss(truth.mean().expand_as(truth), truth))
    # Utility: as good as raw descriptors, with lambda and without.
    assert outcome[0.0][0] <= raw and outcome[1.0][0] <= raw
    # Privacy: without lambda the inverter trained along sees the pictures, with it no more than a grey one.
    assert outcome[0.0][1] < 0.6 * floor and outcome[1.0][1] > 0.9 * floor


def test_the_best_state_is_kept_where_asked_for(tmp_path: Path) -> None:
    class Scripted(SomeSource):
        def false_rate(self, conceal: Any) -> float:
            rates.append(trained)
            kept.append({name: value.clone() for name, value in trained.ninja.state_dict().items()})
            return [0.5, 0.2, 0.3, 0.4][len(rates) - 1]

    for selects, place in ((True, 1), (False, 3)):
        rates, kept = list[Any](), list[dict[str, Any]]()
        trained = trainer(replace(SMALL, selects=selects))
        run(trained, folder(tmp_path, str(selects)), Scripted())
        assert same(dict(trained.ninja.state_dict()), kept[place]) and not same(kept[1], kept[3])
        assert trained.history == [[1, 0.5], [2, 0.2], [3, 0.3], [4, 0.4]]


@pytest.mark.parametrize(
    ("stage", "poison", "kept"),
    [
        ("utility", "source", "the last good state is in .*initial"),
        ("reconstruction", "loss", "the last good state is in .*initial"),
        ("joint", "loss", "the last good state is in .*1.safetensors"),
        ("joint", "gradient", "the last good state is in .*1.safetensors"),
    ],
)
def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(
    tmp_path: Path, stage: str, poison: str, kept: str
) -> None:
    active = [False]

    class Poisoned(SomeSource):
        def pairs(self, step: int, count: int) -> Any:
            first, second = super().pairs(step, count)
            if poison == "source" and step == 2:
                first[0, 0] = math.nan
            return first, second

    def loss(painted: Any, truth: Any) -> Any:
        error = structure_loss(painted, truth)
        if not active[0]:
            return error
        # Finite, but its gradient is not: the root of nothing.
        return error * math.inf if poison == "loss" else error + (painted * 0).sum().abs().sqrt()

    def report(now: Progress) -> None:
        active[0] = (now.stage, now.done) == (stage, 2)

    trained = trainer(loss=loss)
    with pytest.raises(FeatveilError, match=f"no number after 2 steps of stage {stage}: {kept}.*smaller rate"):
        run(trained, tmp_path, Poisoned() if poison == "source" else SomeSource(), report=report)
    path = tmp_path / ("1.safetensors" if stage == "joint" else "initial.safetensors")
    tensors, state = load_checkpoint(path)
    assert state["done"][stage] == 2 and all(value.isfinite().all() for value in tensors.values())
    good = folder(tmp_path, "good")
    with pytest.raises(KeyboardInterrupt):
        run(trainer(), good, report=stop_at(stage, 2))
    assert same(tensors, load_checkpoint(good / path.name)[0])


def test_nothing_is_claimed_to_be_kept_where_nothing_is(tmp_path: Path) -> None:
    def loss(painted: Any, truth: Any) -> Any:
        return painted.sum() * math.nan

    with pytest.raises(FeatveilError, match=r"after 0 steps of stage reconstruction: the last good state is in .*init"):
        run(trainer(loss=loss), tmp_path)
    assert load_checkpoint(tmp_path / "initial.safetensors")[1]["done"]["utility"] == 4

    class Poisoned(SomeSource):
        def pairs(self, step: int, count: int) -> Any:
            return tuple(values * math.nan for values in super().pairs(step, count))

    bare = folder(tmp_path, "bare")
    with pytest.raises(FeatveilError, match="after 0 steps of stage utility: nothing of that was saved"):
        run(trainer(), bare, Poisoned())
    assert list(bare.iterdir()) == []


def test_two_processes_do_not_train_the_same_first_stages(tmp_path: Path) -> None:
    with locked(tmp_path / "initial.lock"), pytest.raises(InputError, match="another process is at work"):
        run(trainer(), tmp_path)
    run(trainer(), tmp_path)
    with locked(tmp_path / "initial.lock"):  # the third stage does not need them to itself
        run(trainer(), tmp_path, strength=2.0)


def test_two_processes_do_not_train_the_same_network(tmp_path: Path) -> None:
    run(trainer(), tmp_path)
    with locked(tmp_path / "1.lock"), pytest.raises(InputError, match="another process is at work"):
        run(trainer(), tmp_path)


def test_half_a_step_is_never_saved(tmp_path: Path) -> None:
    calls = [0]

    def loss(painted: Any, truth: Any) -> Any:
        """Of the third stage's third step, for the inverter: the network that conceals has changed by then."""
        calls[0] += 1
        return structure_loss(painted, truth) * (math.nan if calls[0] == 3 + 6 else 1)

    with pytest.raises(FeatveilError, match="after 2 steps of stage joint: nothing of that was saved yet"):
        run(trainer(loss=loss), tmp_path)
    assert not (tmp_path / "1.safetensors").exists()
    again, expected = trainer(), trainer()
    run(again, tmp_path)
    run(expected, folder(tmp_path, "expected"))
    assert same(weights(again), weights(expected))


@pytest.fixture
def interruptible() -> Any:
    """Ctrl-C as in a terminal; what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stage", ["utility", "joint"])
def test_ctrl_c_waits_for_the_end_of_a_step(tmp_path: Path, stage: str) -> None:
    class Pressing(SomeSource):
        def pairs(self, step: int, count: int) -> Any:
            if step == 1 and (stage == "utility" or ("pieces", 0) in self.asked):
                os.kill(os.getpid(), signal.SIGINT)
            return super().pairs(step, count)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(trainer(), tmp_path, Pressing())
    path = tmp_path / ("1.safetensors" if stage == "joint" else "initial.safetensors")
    assert load_checkpoint(path)[1]["done"][stage] == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_it_saves_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversarial, "_SAVE_EVERY", 2)
    seen = []

    def report(now: Progress) -> None:
        path = tmp_path / ("1.safetensors" if now.stage == "joint" else "initial.safetensors")
        seen.append(load_checkpoint(path)[1]["done"][now.stage] if path.exists() else None)

    run(trainer(), tmp_path, report=report)
    assert seen == [None, 2, 2, 4, 0, 2, 2, None, 2, 2, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "rootsift"}, "made with kind sift, not rootsift"),
        ({"patches": ["drawn", 10]}, "made with patches"),
        ({"loss_weights": "1234"}, "made with loss_weights None, not 1234"),
    ],
)
def test_checkpoints_of_another_training_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run(trainer(), tmp_path)
    for strength in (1.0, 3.0):  # whose checkpoint is there, and whose only the first stages are
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(InputError, match=message):
            run(trainer(**change), tmp_path, strength=strength)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_checkpoints_of_other_settings_are_refused(tmp_path: Path) -> None:
    run(trainer(), tmp_path)
    for preset, message in (
        (replace(SMALL, joint=Stage(9, 3e-3, 12, 1)), r"preset\.joint\.steps 4, not 9"),
        (replace(SMALL, utility=Stage(4, 1e-3, 12)), r"preset\.utility\.rate 0\.01, not 0\.001"),
        (replace(SMALL, inverter="small"), r"preset\.inverter tiny, not None"),
        (replace(SMALL, selects=True), r"preset\.selects False, not True"),
    ):
        with pytest.raises(InputError, match=message):
            run(trainer(preset), tmp_path)
    with pytest.raises(InputError, match="made with seed 0, not 1"):
        run(trainer(seed=1), tmp_path, strength=7.0)
    (tmp_path / "1.safetensors").rename(tmp_path / "2.safetensors")
    with pytest.raises(InputError, match=r"made with lambda 1\.0, not 2\.0"):
        run(trainer(), tmp_path, strength=2.0)


def damage(path: Path, how: str) -> None:
    tensors, state = load_checkpoint(path)
    match how:
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
            return
        case "no ninja":
            del tensors["ninja.hidden.weight"]
        case "other shape":
            tensors["inverter.painter.bias"] = torch.zeros(1)
        case "other moment":
            tensors["ninja-moments.0.exp_avg"] = torch.zeros(4)
        case "moment of nothing":
            tensors["inverter-moments.999.exp_avg"] = torch.zeros(4)
        case "no moment of a layer":
            tensors = {name: value for name, value in tensors.items() if not name.startswith("inverter-moments.3.")}
        case "half a moment":
            del tensors["inverter-moments.0.exp_avg_sq"]
        case "no best":
            del tensors["best.hidden.bias"]
        case "no stage":
            del state["done"]["joint"]
        case "text for a number":
            state["done"]["joint"] = "all"
        case "no history":
            del state["history"]
    save_checkpoint(path, tensors, state)


@pytest.mark.parametrize(
    "how",
    [
        "cut",
        "no ninja",
        "other shape",
        "other moment",
        "moment of nothing",
        "no moment of a layer",
        "half a moment",
        "no best",
        "no stage",
        "text for a number",
        "no history",
    ],
)
def test_a_damaged_checkpoint_is_refused_and_kept(tmp_path: Path, how: str) -> None:
    selecting = replace(SMALL, selects=True)
    with pytest.raises(KeyboardInterrupt):
        run(trainer(selecting), tmp_path, report=stop_at("joint", 2))
    path = tmp_path / "1.safetensors"
    damage(path, how)
    before = path.read_bytes()
    with pytest.raises(FormatError, match="no checkpoint of"):
        run(trainer(selecting), tmp_path)
    assert path.read_bytes() == before


def test_the_checkpoint_has_the_layout_of_those_that_are_stored(tmp_path: Path) -> None:
    run(trained := trainer(), tmp_path)
    tensors, state = load_checkpoint(tmp_path / "1.safetensors")
    parts = {"ninja": trained.ninja, "inverter": trained.inverter}
    expected = {f"{part}.{name}" for part, network in parts.items() for name in network.state_dict()}
    expected |= {
        f"{part}-moments.{place}.{key}"
        for part, network in parts.items()
        for place in range(len(network.state_dict()))
        for key in ("step", "exp_avg", "exp_avg_sq")
    }
    assert tensors.keys() == expected
    assert state.keys() == {"identity", "done", "history", "seconds"}
    assert state["identity"] == {**IDENTITY, "preset": SMALL.stated(), "seed": 0, "lambda": 1.0}
    assert json.loads(json.dumps(state)) == state
    assert sum(state["seconds"].values()) > 0
    # Those from before seconds were counted, and before the inverter's size was a choice, go on.
    del state["seconds"]
    save_checkpoint(tmp_path / "1.safetensors", tensors, state)
    run(again := trainer(), tmp_path)
    assert same(weights(again), weights(trained)) and again.seconds["joint"] == 0
    assert PRESETS["cpu"].stated().keys() == {"utility", "reconstruction", "joint", "selects"}
    assert PRESETS["paper"].stated()["inverter"] == "paper"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"utility": Stage(0, 1e-3, 12)}, "at least one step"),
        ({"joint": Stage(3, 1.0, 12, 1)}, "rate between 0 and 1"),
        ({"joint": Stage(3, math.nan, 12, 1)}, "rate between 0 and 1"),
        ({"utility": Stage(3, 1e-3, 1)}, "at least 2 pairs"),
        ({"joint": Stage(3, 1e-3, 12)}, "at least one piece"),
    ],
)
def test_presets_that_cannot_be_used_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, **given)


def test_devices_sizes_and_threads_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="torch cannot compute on device"):
        ConcealerTrainer(SIZE, COLUMNS, structure_loss, SMALL, 0, {}, "abacus")
    with pytest.raises(InputError, match="size must be one of"):
        trainer(replace(SMALL, inverter="huge"))
    with pytest.raises(InputError, match="threads must be at least 1"):
        use_threads(0)
    before = torch.get_num_threads()
    use_threads(None)
    assert torch.get_num_threads() == before
    try:
        use_threads(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
