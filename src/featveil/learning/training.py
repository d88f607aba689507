"""Training an inverter within a time budget: resumable, stopped early when validation no longer gains."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from featveil.core.arrays import Float32, Integers
from featveil.core.errors import FormatError, InputError
from featveil.core.files import locked
from featveil.learning.checkpoints import check_same, load_checkpoint, restore_moments, save_checkpoint, stored_moments
from featveil.learning.encodings import STRIDES
from featveil.learning.inverter_networks import Inverter
from featveil.learning.loop import Loop, Losses
from featveil.learning.losses import Loss, luma, ssim

_DECAY, _WARM_UP = 0.995, 100
_REPORTED = 50  # steps that a reported loss is the mean of
_SAVE_EVERY = 60.0  # seconds
_LAST_PART = 0.25  # of the budget, over which the rate falls to zero
_HISTORY = 3  # numbers of an entry: seconds, step, validation SSIM
_STATE = {"step": int, "seconds": float, "best_score": float, "since_best": int, "history": list}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Sample:
    """What a network reads of one picture, and the picture (h, w, 3) uint8."""

    rows: Float32
    cells: Integers
    image: NDArray[np.uint8]


class Samples(Protocol):
    """Where a training takes its pictures from."""

    validation: Sequence[Sample]

    def batch(self, step: int, count: int) -> Sequence[Sample]:
        """The samples of a step: the same ones whenever it is asked for."""
        ...


@dataclass(frozen=True)
class Settings:
    """How long and how: `minutes` of training or `steps`, whichever ends first, those before a stop included.

    Validation is looked at `evaluations` times, evenly over that, and `patience` of them without a gain end it early.
    `threads` are those of torch in this process. Raises InputError for values that cannot be used.
    """

    minutes: float = 20.0
    steps: int | None = None
    batch: int = 4
    rate: float = 1.2e-3
    seed: int = 0
    evaluations: int = 20
    patience: int = 8
    threads: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.minutes > 0 or not math.isfinite(self.minutes):
            raise InputError(f"minutes must be a number above 0, got {self.minutes!r}")
        for name in ("batch", "evaluations", "patience", "steps", "threads"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not 0 < self.rate < 1:
            raise InputError(f"rate must be between 0 and 1, got {self.rate}")
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be a whole number of at least 0 and below 2^63, got {self.seed!r:.40}")


@dataclass(frozen=True)
class Progress:
    """Where a training is: the share of its budget that is spent, steps, mean loss of late, best validation SSIM."""

    spent: float
    step: int
    loss: float
    best: float


Report = Callable[[Progress], None]


class Trainer:
    """One training: network, moving average, optimiser and checkpoint file."""

    def __init__(
        self, network: Inverter, loss: Loss, settings: Settings, checkpoint: Path, identity: dict[str, Any]
    ) -> None:
        self.settings, self.loss, self.checkpoint = settings, loss, checkpoint
        self.identity = {**identity, **{key: asdict(settings)[key] for key in ("batch", "rate", "seed")}}
        self.device = find_device(settings.device)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.network = network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        self.best = {name: value.clone() for name, value in self.average.items()}
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), settings.rate, betas=(0.9, 0.99), weight_decay=1e-4
        )
        self.step, self.seconds, self.best_score, self.since_best = 0, 0.0, -1.0, 0
        self.history: list[list[float]] = []
        self._saved = 0.0  # seconds that the checkpoint has
        self._loop = Loop(checkpoint, self._save, self._is_due, lambda: f"{self.step} steps")

    def run(self, samples: Samples, report: Report = lambda progress: None) -> None:
        """Train until the budget is spent or validation stops gaining; Ctrl-C saves, so that the next run goes on.

        The best network is left in `network`. Raises FeatveilError when the loss or its gradient is no number: the last
        good state stays in the checkpoint. Raises InputError for a checkpoint of another training or that another
        process writes, FormatError for a damaged one.
        """
        with locked(self.checkpoint.with_suffix(".lock")):
            if self.checkpoint.exists():
                self._load()
                if self._ended():
                    _log.warning("%s is of a finished training: nothing is added to it", self.checkpoint)
            self._loop.run(lambda: self._advance(samples), self._ended, lambda losses: report(self._progress(losses)))
        self.network.load_state_dict(self.best)

    def _progress(self, losses: list[Losses]) -> Progress:
        return Progress(self._spent(), self.step, float(np.mean(losses[-_REPORTED:])), self.best_score)

    def _advance(self, samples: Samples) -> Losses:
        """One step, and where one is due an evaluation, whose time is not counted; returns the loss."""
        began, before = time.monotonic(), self._spent()
        loss = self._step(samples.batch(self.step, self.settings.batch), before)
        self.step += 1
        self.seconds += time.monotonic() - began
        if math.floor(before * self.settings.evaluations) < math.floor(self._spent() * self.settings.evaluations):
            self._evaluate(samples.validation)
        return (loss,)

    def _is_due(self) -> bool:
        return self.seconds - self._saved > _SAVE_EVERY

    def _ended(self) -> bool:
        return self._spent() >= 1 or self.since_best >= self.settings.patience

    def _spent(self) -> float:
        """The share of the budget that is spent."""
        settings = self.settings
        return max(self.seconds / (60 * settings.minutes), self.step / settings.steps if settings.steps else 0.0)

    def _step(self, batch: Sequence[Sample], progress: float) -> float:
        rate = self.settings.rate * min(1.0, (1 - progress) / _LAST_PART, (self.step + 1) / _WARM_UP)
        for group in self.optimiser.param_groups:
            group["lr"] = max(rate, 0.0)
        rows, cells, frame, images = collate(batch, self.device)
        self.network.train()
        with reduced_precision(self.device):
            painted = self.network(rows, cells, frame)
        loss = self.loss(painted.float(), images)
        value = self._loop.update(self.optimiser, loss)
        decay = min(_DECAY, (1 + self.step) / (10 + self.step))
        for name, now in self.network.state_dict().items():
            self.average[name].lerp_(now, 1 - decay)
        return value

    def _evaluate(self, validation: Sequence[Sample]) -> None:
        trained = {name: value.clone() for name, value in self.network.state_dict().items()}
        self.network.load_state_dict(self.average)
        score = float(np.mean([validation_ssim(self.network, sample, self.device) for sample in validation]))
        self.network.load_state_dict(trained)
        self.history.append([round(self.seconds, 1), self.step, round(score, 4)])
        self.since_best += 1
        if score > self.best_score:
            self.best = {name: value.clone() for name, value in self.average.items()}
            self.best_score, self.since_best = score, 0

    def _save(self) -> None:
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"average.{name}": value for name, value in self.average.items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= stored_moments("moment", self.optimiser)
        state = {"identity": self.identity, **{key: getattr(self, key) for key in _STATE}}
        save_checkpoint(self.checkpoint, tensors, state)
        self._saved = self.seconds

    def _load(self) -> None:
        tensors, state = load_checkpoint(self.checkpoint)
        check_same(self.checkpoint, state.get("identity"), self.identity)
        network = {name: torch.empty_like(value) for name, value in self.average.items()}
        try:
            for part, target in (("network", network), ("average", self.average), ("best", self.best)):
                for name, value in target.items():
                    _fill(value, tensors[f"{part}.{name}"])
            restore_moments(self.optimiser, "moment", tensors, list(self.network.parameters()))
            for key, wanted in _STATE.items():
                if not isinstance(state[key], wanted):
                    raise ValueError(key)
            if state["step"] < 0 or any(len(entry) != _HISTORY for entry in state["history"]):
                raise ValueError("history")
            for key in _STATE:
                setattr(self, key, state[key])
        except (LookupError, ValueError, TypeError) as error:
            raise FormatError(f"{self.checkpoint} is no checkpoint of this training, or damaged") from error
        self.network.load_state_dict(network)
        self._saved = self.seconds


def _fill(target: Tensor, value: Tensor) -> Tensor:
    if target.shape != value.shape:
        raise ValueError(f"expected shape {tuple(target.shape)}, got {tuple(value.shape)}")
    return target.copy_(value)


def start_from(network: Inverter, path: Path) -> list[str]:
    """Take over what fits of the best network of a checkpoint, or of an inverter; the names of tensors that do not.

    An inverter (.onnx) must have been checked before (`inverters.load_inverter`). Raises InputError when there is none
    or it is of another architecture, FormatError for a damaged one.
    """
    if path.suffix == ".onnx":
        from featveil.learning.exporting import read_weights

        try:
            stored = read_weights(path.read_bytes(), network)
        except Exception as error:  # whatever protocol buffers, onnx and NumPy make of a hostile file
            raise FormatError(f"{path} is no inverter that a training can begin with, or damaged") from error
    else:
        tensors, state = load_checkpoint(path)
        if isinstance(identity := state.get("identity"), dict) and identity.get("standardised"):
            raise InputError(f"{path} reads columns at a standard of its own: begin with the .onnx file that it made")
        stored = {name.removeprefix("best."): value for name, value in tensors.items() if name.startswith("best.")}
    fresh = []
    for name, value in network.state_dict().items():
        if name in stored and stored[name].shape == value.shape:
            value.copy_(stored[name])
        else:
            fresh.append(name)
    if any(not name.startswith("reader.0.") for name in fresh):
        raise InputError(f"{path} is of another architecture or size: nothing can be taken over from it")
    return fresh


def collate(batch: Sequence[Sample], device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, cells, frame and pictures (b, 3, h, w) of samples of one size, for `Inverter`."""
    height, width = batch[0].image.shape[:2]
    cells = []
    for place, sample in enumerate(batch):
        sizes = sample_cells(width, height)
        there = sample.cells < sizes
        cells.append(np.where(there, sample.cells + place * sizes, len(batch) * sizes))
    rows = torch.from_numpy(np.concatenate([sample.rows for sample in batch]))
    images = torch.from_numpy(np.stack([sample.image for sample in batch])).permute(0, 3, 1, 2).float() / 255
    frame = torch.zeros(len(batch), height // 32, width // 32)
    return rows.to(device), torch.from_numpy(np.concatenate(cells)).to(device), frame.to(device), images.to(device)


def sample_cells(width: int, height: int) -> Integers:
    """How many cells a picture has on each level."""
    return np.array([(width // stride) * (height // stride) for stride in STRIDES], np.int64)


def validation_ssim(network: Inverter, sample: Sample, device: torch.device) -> float:
    """Grey SSIM of what the network paints of one sample."""
    rows, cells, frame, images = collate([sample], device)
    network.eval()
    with torch.inference_mode(), reduced_precision(device):
        painted = network(rows, cells, frame)
    return float(ssim(luma(painted.float().clamp(0, 1)), luma(images)))


def find_device(name: str) -> torch.device:
    """The device called `name`; raises InputError when torch has none of that name."""
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"torch cannot compute on device {name!r:.40} here: use cpu, or one that it has") from error
    return device


def reduced_precision(device: torch.device) -> torch.autocast:
    """bfloat16 where the machine computes with it, which halves the time; float32 elsewhere."""
    able = device.type != "cpu" or bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())
    return torch.autocast(device.type, torch.bfloat16, enabled=able)
