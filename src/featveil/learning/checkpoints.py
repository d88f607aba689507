"""The state of a training in one safetensors file: written beside and renamed, read without running any code."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from featveil.core.errors import FormatError, InputError
from featveil.core.files import replacing

_LARGEST = 2**33


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Replace `path` by the tensors and a JSON of `state`."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(plain, temporary, {"state": json.dumps(state)})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state; raises InputError when there is none and FormatError for a damaged one."""
    if not path.is_file():
        raise InputError(f"there is no checkpoint {path}")
    if path.stat().st_size > _LARGEST:
        raise FormatError(f"{path} is too large for a checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", ""))
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise FormatError(f"{path} is no checkpoint of a training, or damaged") from error


def check_same(path: Path, stored: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise InputError unless the checkpoint was made with the same settings."""
    for name, value in now.items():
        if stored.get(name) != value:
            raise InputError(
                f"{path} was made with {name} {stored.get(name)}, not {value}: go on with that, or name another file"
            )
