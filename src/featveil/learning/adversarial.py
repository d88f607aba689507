"""NinjaNet, and its training in three stages (ninjadesc.txt, 3.1 to 3.3): utility, reconstruction, both at once.

The paper gives the network as a figure only, and says: an MLP of N = 1 submodule, dropout 0.1, output of the size of
the base descriptor, normalised. Ours has one hidden layer, eight times as wide as the descriptor, and no batch
normalisation: patches and images go through it in turns, and their statistics differ.

The network that conceals and the one that inverts are trained in turns (Algorithm 1). How private the result is
must be measured with an inverter trained afresh on it: the one trained here has only ever seen a moving target.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from featveil.core.arrays import Float32
from featveil.core.errors import FormatError, InputError
from featveil.core.files import locked
from featveil.learning.checkpoints import check_same, load_checkpoint, restore_moments, save_checkpoint, stored_moments
from featveil.learning.concealer_presets import STAGES, Preset, Stage
from featveil.learning.inverter_networks import Inverter, check_architecture
from featveil.learning.loop import Loop, Losses
from featveil.learning.losses import Loss
from featveil.learning.training import Sample, collate, find_device, reduced_precision

_DROPOUT = 0.1
_WIDER = 8
_MARGIN = 1.0
_NEIGHBOURS = 8  # of each descriptor, whose distances the regularisation compares
_TINY = 1e-8
_SAVE_EVERY = 100  # steps
_REPORTED = 20  # steps that a reported loss is the mean of


class NinjaNet(nn.Module):
    """Descriptors (n, d) -> concealed ones (n, d) of unit norm."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(size, _WIDER * size)
        self.output = nn.Linear(_WIDER * size, size)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, descriptors: Tensor) -> Tensor:
        """Of the same shape."""
        inner = self.dropout(functional.relu(self.hidden(descriptors)))
        return functional.normalize(self.output(inner), dim=1)

    def weights(self) -> tuple[Float32, Float32, Float32, Float32]:
        """Hidden weights and biases, output weights and biases."""
        tensors = (self.hidden.weight, self.hidden.bias, self.output.weight, self.output.bias)
        first, second, third, fourth = (tensor.detach().cpu().numpy().astype(np.float32) for tensor in tensors)
        return first, second, third, fourth


def utility_loss(anchors: Tensor, positives: Tensor, second_order: float = 1.0) -> Tensor:
    """Triplets with the hardest negative of the batch, and second-order similarity (eq. 2; Tian et al., 2019).

    Row i of `anchors` and of `positives` (n, d) show the same point, all others do not. Where all are equal it is 1: a
    base descriptor for which it stays above that collapses, unless `second_order` similarity weighs less.
    """
    across, within, beyond = (
        _distances(*pair) for pair in ((anchors, positives), (anchors, anchors), (positives, positives))
    )
    own = across.diagonal()
    barred = 10.0 * torch.eye(len(anchors), device=anchors.device)
    nearest = torch.minimum((across + barred).min(dim=0).values, (across + barred).min(dim=1).values)
    triplets = functional.relu(_MARGIN + own - nearest).square().mean()
    count = min(_NEIGHBOURS, len(anchors) - 1)
    near = torch.zeros_like(within, dtype=torch.bool)
    for distances in (within, beyond):
        chosen = (distances.detach() + barred).topk(count, largest=False).indices
        near.scatter_(1, chosen, value=True)
    differences = (within - beyond).square() * near
    return triplets + second_order * (differences.sum(dim=1) + _TINY).sqrt().mean()


def _distances(first: Tensor, second: Tensor) -> Tensor:
    """Euclidean distances (n, k) of rows of unit norm."""
    return (2 - 2 * first @ second.T).clamp_min(_TINY).sqrt()


def use_threads(count: int | None) -> None:
    """Compute on that many processor threads; None leaves it to torch."""
    if count is not None and count < 1:
        raise InputError(f"threads must be at least 1, got {count}")
    if count is not None:
        torch.set_num_threads(count)


class Source(Protocol):
    """Where the pairs of patches and the pieces of photographs come from: the same ones whenever a step asks."""

    def pairs(self, step: int, count: int) -> tuple[Float32, Float32]:
        """Raw descriptors (count, d) of points, and of the same points in other images."""
        ...

    def pieces(self, step: int, count: int) -> list[Sample]:
        """Pieces whose rows are raw descriptors, followed by the geometry of their keypoints."""
        ...

    def false_rate(self, conceal: Callable[[Float32], Float32]) -> float:
        """FPR95 of concealed descriptors on pairs that no step has."""
        ...


@dataclass(frozen=True)
class Progress:
    """Which stage, how many of its steps are done, and the losses of late."""

    stage: str
    done: int
    total: int
    utility: float
    reconstruction: float


class ConcealerTrainer:
    """Both networks, their optimisers, and the two files that a stopped training goes on from.

    `initial` holds what the first two stages give, which does not depend on lambda: trainings share it. `checkpoint`
    is of the third stage.
    """

    def __init__(
        self,
        size: int,
        columns: int,
        loss: Loss,
        preset: Preset,
        seed: int,
        identity: dict[str, Any],
        device: str = "cpu",
    ) -> None:
        check_architecture("unet", preset.inverter)
        self.device = find_device(device)
        torch.manual_seed(seed)
        self.ninja, self.inverter = NinjaNet(size), Inverter(columns, size=preset.inverter)
        self.ninja = self.ninja.to(self.device)
        self.inverter = self.inverter.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss, self.preset, self.size = loss, preset, size
        self.identity = {**identity, "preset": preset.stated(), "seed": seed}
        self.done = dict.fromkeys(STAGES, 0)
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.history: list[list[float]] = []
        self._best: tuple[float, dict[str, Tensor]] | None = None
        self._loop: Loop  # of the stage that is trained

    def run(
        self,
        source: Source,
        strength: float,
        initial: Path,
        checkpoint: Path,
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> NinjaNet:
        """The trained network for privacy parameter `strength` (lambda). Ctrl-C saves, and the next run goes on.

        Raises FeatveilError when a loss or its gradient is no number: the last good state stays in the file. Raises
        InputError for files of another training or that another process writes, FormatError for damaged ones.
        """
        identity = {**self.identity, "lambda": strength}
        self._optimisers("utility")
        with locked(checkpoint.with_suffix(".lock")):
            if checkpoint.exists():
                self._load(checkpoint, identity)
            elif initial.exists():
                self._load(initial, self.identity, shared=True)
            if any(self.done[stage] < getattr(self.preset, stage).steps for stage in STAGES[:2]):
                with locked(initial.with_suffix(".lock")):
                    for stage in STAGES[:2]:
                        self._stage(stage, source, 0.0, initial, self.identity, report)
            self._stage("joint", source, strength, checkpoint, identity, report)
        if self._best is not None:
            self.ninja.load_state_dict(self._best[1])
        return self.ninja.eval()

    def conceal(self, values: Float32) -> Float32:
        """What the network makes of raw descriptors (n, d) at the moment."""
        self.ninja.eval()
        with torch.inference_mode():
            return np.asarray(self.ninja(self._tensor(values)).cpu().numpy(), np.float32)

    def _stage(
        self,
        stage: str,
        source: Source,
        strength: float,
        path: Path,
        identity: dict[str, Any],
        report: Callable[[Progress], None],
    ) -> None:
        plan: Stage = getattr(self.preset, stage)
        if self.done[stage] >= plan.steps:
            return
        if self.done[stage] == 0:
            self._optimisers(stage)

        def progress(losses: list[Losses]) -> Progress:
            utility, reconstruction = np.mean(losses[-_REPORTED:], axis=0)
            return Progress(stage, self.done[stage], plan.steps, float(utility), float(reconstruction))

        self._loop = Loop(
            path,
            save=lambda: self._save(path, identity),
            is_due=lambda: self.done[stage] % _SAVE_EVERY == 0,
            done=lambda: f"{self.done[stage]} steps of stage {stage}",
        )
        self._loop.run(
            lambda: self._advance(stage, plan, source, strength),
            lambda: self.done[stage] >= plan.steps,
            lambda losses: report(progress(losses)),
        )

    def _advance(self, stage: str, plan: Stage, source: Source, strength: float) -> Losses:
        """One step, and where it is due a measurement of the third stage; returns both losses."""
        began = time.monotonic()
        losses = self._step(stage, plan, source, strength)
        self.done[stage] += 1
        if stage == "joint" and self.done[stage] % max(1, plan.steps // 20) == 0:
            self._measure(source)
        self.seconds[stage] += time.monotonic() - began
        return losses

    def _step(self, stage: str, plan: Stage, source: Source, strength: float) -> Losses:
        step = self.done[stage]
        rate = plan.rate * min(1.0, 4 * (1 - step / plan.steps), (step + 1) / 50)
        for optimiser in (self.of_ninja, self.of_inverter):
            for group in optimiser.param_groups:
                group["lr"] = rate
        torch.manual_seed(1 + step)  # dropout of a step is the same after a stop
        utility = reconstruction = 0.0
        if stage != "reconstruction":
            utility = self._conceal_step(source, plan, step, strength if stage == "joint" else 0.0)
        if stage != "utility":
            reconstruction = self._invert_step(source, plan, step)
        return utility, reconstruction

    def _conceal_step(self, source: Source, plan: Stage, step: int, strength: float) -> float:
        """Lines 8 to 10 of Algorithm 1: the concealing network keeps utility and worsens reconstruction."""
        self.ninja.train()
        first, second = (self._tensor(values) for values in source.pairs(step, plan.pairs))
        utility = utility_loss(self.ninja(first), self.ninja(second), self.preset.second_order)
        total = utility
        if strength:
            self.inverter.requires_grad_(False)
            total = total - strength * self._reconstruction(source.pieces(step, plan.pieces))
            self.inverter.requires_grad_(True)
        self._loop.update(self.of_ninja, total)
        return float(utility.detach())

    def _invert_step(self, source: Source, plan: Stage, step: int) -> float:
        """Lines 11 and 12 of Algorithm 1: the inverter learns what the concealing network has become."""
        self.ninja.eval().requires_grad_(False)
        loss = self._reconstruction(source.pieces(step, plan.pieces))
        self.ninja.requires_grad_(True)
        return self._loop.update(self.of_inverter, loss)

    def _reconstruction(self, pieces: list[Sample]) -> Tensor:
        rows, cells, frame, images = collate(pieces, self.device)
        concealed = self.ninja(rows[:, : self.size]) * math.sqrt(self.size)
        with reduced_precision(self.device):
            painted = self.inverter(torch.cat([concealed, rows[:, self.size :]], dim=1), cells, frame)
        return self.loss(painted.float(), images)

    def _measure(self, source: Source) -> None:
        rate = source.false_rate(self.conceal)
        self.history.append([self.done["joint"], round(rate, 5)])
        if self.preset.selects and (self._best is None or rate < self._best[0]):
            self._best = rate, {name: value.clone() for name, value in self.ninja.state_dict().items()}

    def _tensor(self, values: Float32) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def _optimisers(self, stage: str) -> None:
        rate = getattr(self.preset, stage).rate
        self.of_ninja = torch.optim.Adam(self.ninja.parameters(), rate, betas=(0.9, 0.999))
        self.of_inverter = torch.optim.Adam(self.inverter.parameters(), rate, betas=(0.9, 0.99))

    def _parts(self) -> dict[str, tuple[torch.nn.Module, torch.optim.Optimizer]]:
        return {"ninja": (self.ninja, self.of_ninja), "inverter": (self.inverter, self.of_inverter)}

    def _save(self, path: Path, identity: dict[str, Any]) -> None:
        tensors: dict[str, Tensor] = {}
        for part, (network, optimiser) in self._parts().items():
            tensors |= {f"{part}.{name}": value for name, value in network.state_dict().items()}
            tensors |= stored_moments(f"{part}-moments", optimiser)
        state: dict[str, Any] = {"identity": identity, "done": self.done, "history": self.history}
        state["seconds"] = self.seconds
        if self._best is not None:
            tensors |= {f"best.{name}": value for name, value in self._best[1].items()}
            state["best"] = self._best[0]
        save_checkpoint(path, tensors, state)

    def _load(self, path: Path, identity: dict[str, Any], shared: bool = False) -> None:
        """Go on from `path`; of a `shared` file it does not matter how the third stage is to be trained."""
        tensors, state = load_checkpoint(path)
        stored: Any = state.get("identity")
        if shared:
            stored, identity = _first_stages(stored), _first_stages(identity)
        advice = f"go on with that, or name another {'--cache' if shared else 'file'}"
        check_same(path, stored, identity, advice=advice)
        try:
            done = {stage: int(state["done"][stage]) for stage in STAGES}
            seconds = {stage: float(state.get("seconds", {}).get(stage, 0.0)) for stage in STAGES}
            history = [list(entry) for entry in state["history"]]
            best = {name: tensors[f"best.{name}"] for name in self.ninja.state_dict()} if "best" in state else None
            for part, (network, optimiser) in self._parts().items():
                network.load_state_dict({name: tensors[f"{part}.{name}"] for name in network.state_dict()})
                restore_moments(optimiser, f"{part}-moments", tensors, list(network.parameters()))
            self._best = None if best is None else (float(state["best"]), best)
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise FormatError(f"{path} is no checkpoint of this training, or damaged") from error
        self.done, self.seconds, self.history = done, seconds, history


def _first_stages(identity: Any) -> Any:
    """What decides the first two stages."""
    if not isinstance(identity, dict) or not isinstance(identity.get("preset"), dict):
        return identity
    preset = {name: value for name, value in identity["preset"].items() if name not in ("joint", "selects")}
    return {**identity, "preset": preset}
