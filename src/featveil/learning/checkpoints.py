"""The state of a training in one safetensors file: written beside and renamed, read without running any code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from featveil.core.errors import FormatError, InputError
from featveil.core.files import replacing

_LARGEST = 2**33
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
_LONGEST = 80  # of a value in a message
_OPTIONS = {"standardised": " (--standardise, or --as-sent)"}  # where the name of a setting does not tell


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Replace `path` by the tensors and a JSON of `state`; raises InputError when the disk refuses that."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(plain, temporary, {"state": json.dumps(state)})
        except SafetensorError as error:  # of a full disk too
            raise InputError(f"cannot write {path}: {error}") from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state; raises InputError when there is none and FormatError for a damaged one."""
    if not path.is_file():
        raise InputError(f"there is no checkpoint {path}")
    if path.stat().st_size > _LARGEST:
        raise FormatError(f"{path} is too large for a checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", ""))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise FormatError(f"{path} is no checkpoint of a training, or damaged") from error
    if not isinstance(state, dict):
        raise FormatError(f"{path} is no checkpoint of a training")
    return tensors, state


def stored_moments(prefix: str, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of Adam, by names PREFIX.PLACE.KEY."""
    states: dict[int, dict[str, Tensor]] = optimiser.state_dict()["state"]
    return {f"{prefix}.{place}.{key}": value for place, state in states.items() for key, value in state.items()}


def restore_moments(
    optimiser: torch.optim.Optimizer, prefix: str, tensors: dict[str, Tensor], parameters: Sequence[Tensor]
) -> None:
    """Go on with the state of Adam in `tensors`, laid out in memory as its `parameters` are.

    Raises ValueError unless that is all of it, or nothing, as before the first step.
    """
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{prefix}."):
            place, key = name.removeprefix(f"{prefix}.").split(".")
            like = parameters[int(place)].detach() if value.ndim else value
            if like.shape != value.shape:
                raise ValueError(name)
            moments.setdefault(int(place), {})[key] = torch.empty_like(like).copy_(value)
    if moments and (len(moments) < len(parameters) or any(state.keys() != _MOMENTS for state in moments.values())):
        raise ValueError(prefix)
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})


def check_same(
    path: Path,
    stored: Any,
    now: dict[str, Any],
    within: str = "",
    advice: str = "go on with that, or name another file",
) -> None:
    """Raise InputError, which names the first that differs, unless a checkpoint was made with the same settings.

    `within` is the name of the setting that these are the parts of, `advice` what to do instead.
    """
    known: dict[str, Any] = stored if isinstance(stored, dict) else {}
    for name, value in (dict.fromkeys(known) | now).items():
        before = known.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            check_same(path, before, value, f"{within}{name}.", advice)
        elif before != value:
            option = _OPTIONS.get(name, "")
            raise InputError(
                f"{path} was made with {within}{name} {_short(before)}, not {_short(value)}{option}: {advice}"
            )


def _short(value: object) -> str:
    return str(value) if len(str(value)) <= _LONGEST else f"{str(value)[:_LONGEST]}..."
