"""Training a concealer in three stages (ninjadesc.txt, 3.1 to 3.3): utility, reconstruction, both against each other.

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
from torch import Tensor

from featveil.core.arrays import Float32
from featveil.core.errors import FeatveilError, FormatError, InputError
from featveil.core.files import locked
from featveil.learning.checkpoints import check_same, load_checkpoint, optimiser_moments, save_checkpoint
from featveil.learning.concealer_presets import STAGES, Preset, Stage
from featveil.learning.interrupts import whole_step
from featveil.learning.inverter_networks import Inverter, check_architecture
from featveil.learning.losses import Loss
from featveil.learning.ninjanet import NinjaNet, utility_loss
from featveil.learning.training import Sample, collate, find_device, reduced_precision

_CLIP = 1.0
_SAVE_EVERY = 100  # steps
_REPORTED = 20  # steps that a reported loss is the mean of


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
        self._whole = True  # no step is half-taken

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
        losses: list[tuple[float, float]] = []
        try:
            while self.done[stage] < plan.steps:
                with whole_step():
                    losses.append(self._advance(stage, plan, source, strength))
                    if self.done[stage] % _SAVE_EVERY == 0:
                        self._save(path, identity)
                utility, reconstruction = np.mean(losses[-_REPORTED:], axis=0)
                report(Progress(stage, self.done[stage], plan.steps, float(utility), float(reconstruction)))
        except _NoNumberError as error:
            there = path.exists() or (losses and self._whole)
            kept = f"the last good state is in {path}" if there else f"nothing of stage {stage} was saved yet"
            told = f"the loss or its gradient is no number after {self.done[stage]} steps of stage {stage}: {kept}"
            raise FeatveilError(f"{told}; train with a smaller rate and under another name") from error
        finally:
            if losses and self._whole:
                self._save(path, identity)

    def _advance(self, stage: str, plan: Stage, source: Source, strength: float) -> tuple[float, float]:
        """One step, and where it is due a measurement of the third stage; returns both losses."""
        began = time.monotonic()
        losses = self._step(stage, plan, source, strength)
        self.done[stage] += 1
        if stage == "joint" and self.done[stage] % max(1, plan.steps // 20) == 0:
            self._measure(source)
        self.seconds[stage] += time.monotonic() - began
        self._whole = True
        return losses

    def _step(self, stage: str, plan: Stage, source: Source, strength: float) -> tuple[float, float]:
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
        self._update(self.of_ninja, total)
        return float(utility.detach())

    def _invert_step(self, source: Source, plan: Stage, step: int) -> float:
        """Lines 11 and 12 of Algorithm 1: the inverter learns what the concealing network has become."""
        self.ninja.eval().requires_grad_(False)
        loss = self._reconstruction(source.pieces(step, plan.pieces))
        self.ninja.requires_grad_(True)
        self._update(self.of_inverter, loss)
        return float(loss.detach())

    def _reconstruction(self, pieces: list[Sample]) -> Tensor:
        rows, cells, frame, images = collate(pieces, self.device)
        concealed = self.ninja(rows[:, : self.size]) * math.sqrt(self.size)
        with reduced_precision(self.device):
            painted = self.inverter(torch.cat([concealed, rows[:, self.size :]], dim=1), cells, frame)
        return self.loss(painted.float(), images)

    def _update(self, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norms = [torch.nn.utils.clip_grad_norm_(group["params"], _CLIP) for group in optimiser.param_groups]
        if not math.isfinite(float(loss.detach()) + sum(float(norm) for norm in norms)):
            raise _NoNumberError
        self._whole = False
        optimiser.step()

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
            for place, state in optimiser.state_dict()["state"].items():
                tensors |= {f"{part}-moments.{place}.{key}": value for key, value in state.items()}
        told: dict[str, Any] = {"identity": identity, "done": self.done, "history": self.history}
        told["seconds"] = self.seconds
        if self._best is not None:
            tensors |= {f"best.{name}": value for name, value in self._best[1].items()}
            told["best"] = self._best[0]
        save_checkpoint(path, tensors, told)

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
                moments = optimiser_moments(tensors, f"{part}-moments", list(network.parameters()))
                optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
            self._best = None if best is None else (float(state["best"]), best)
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise FormatError(f"{path} is no checkpoint of this training, or damaged") from error
        self.done, self.seconds, self.history = done, seconds, history


class _NoNumberError(Exception):
    """A loss, or its gradient, is not finite."""


def _first_stages(identity: Any) -> Any:
    """What decides the first two stages."""
    if not isinstance(identity, dict) or not isinstance(identity.get("preset"), dict):
        return identity
    preset = {name: value for name, value in identity["preset"].items() if name not in ("joint", "selects")}
    return {**identity, "preset": preset}
