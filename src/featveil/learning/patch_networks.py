"""Networks that describe patches of 32 x 32 pixels: HardTFeat here, HardNet and SOSNet as kornia has them.

HardTFeat is the small network of TFeat (Balntas et al., 2016) trained with the loss of HardNet (Mishchuk et al., 2017).
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from featveil.core.arrays import Float32
from featveil.core.errors import InputError, MissingExtraError

_SIDE = 32
_BATCH = 512
_NOT_OURS = "SIFT."  # HardTFeat's file also has filters of a SIFT that its network does not use


class HardTFeat(nn.Module):
    """Two convolutions with tanh and one that takes in the whole patch; names as in the file of its weights.

    The largest of four is taken before tanh rather than after it, which gives the same and is quicker.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 32, 7), nn.MaxPool2d(2), nn.Tanh(), nn.Conv2d(32, 64, 6), nn.Tanh())
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Conv2d(64, 128, 8), nn.Tanh())

    def forward(self, patches: Tensor) -> Tensor:
        """Descriptors (n, 128) of unit norm for patches (n, 1, 32, 32)."""
        spread, mean = torch.std_mean(patches, dim=(1, 2, 3), keepdim=True)
        described = self.classifier(self.features((patches - mean) / (spread + 1e-7)))
        return functional.normalize(described.flatten(1))


class PatchNetwork:
    """A network that is ready to describe patches."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def describe(self, patches: Any) -> Float32:
        """Descriptors (n, 128) of uint8 patches (n, 64, 64), which are halved first."""
        described = np.empty((len(patches), 128), np.float32)
        with torch.inference_mode():
            for start in range(0, len(patches), _BATCH):
                some = torch.from_numpy(np.array(patches[start : start + _BATCH], np.float32))[:, None]
                small = functional.avg_pool2d(some, patches.shape[1] // _SIDE)
                described[start : start + _BATCH] = self.module(small).numpy()
        return described


def load_patch_network(name: str, weights: Path) -> PatchNetwork:
    """The network `name` with the weights of a .safetensors file or one that torch wrote; no code in it is run.

    Raises InputError when the file cannot be read or is of another network, MissingExtraError without kornia.
    """
    module, state = _module(name), _state(weights)
    try:
        module.load_state_dict({key: value for key, value in state.items() if not key.startswith(_NOT_OURS)})
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InputError(f"{weights} holds no weights of {name}: its layers have other names or sizes") from error
    if not all(bool(torch.isfinite(value).all()) for value in module.state_dict().values()):
        raise InputError(f"{weights} holds NaN or infinite weights: it is damaged")
    return PatchNetwork(module)


def _module(name: str) -> nn.Module:
    if name == "hardtfeat":
        return HardTFeat()
    try:
        from kornia import feature
    except ImportError as error:
        raise MissingExtraError("kornia", "learning") from error
    module: nn.Module = {"hardnet": feature.HardNet, "sosnet": feature.SOSNet}[name](pretrained=False)
    return module


def _state(path: Path) -> dict[str, Tensor]:
    """Tensors by name."""
    try:
        if path.suffix == ".safetensors":
            loaded: Any = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise InputError(f"{path} is no safetensors file, or damaged") from error
    except Exception as error:  # torch raises whatever a damaged or hostile file makes its readers raise
        raise InputError(
            f"{path} holds no weights that can be read without running code: {type(error).__name__}"
        ) from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise InputError(f"{path} holds no weights by name: give a state_dict")
    return state
