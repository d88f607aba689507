"""Where an interrupted clustering stopped, as a safetensors file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.errors import FormatError, InputError
from featveil.core.files import replacing

_KEY = "featveil.clustering"


@dataclass(eq=False)
class State:
    """Centroids (clusters, d) of this `iteration` and what its chunks before `next_chunk` added up to."""

    centroids: Float32
    sums: Float64 = field(init=False)
    counts: Integers = field(init=False)
    similarity: float = 0.0
    iteration: int = 0
    next_chunk: int = 0
    mean_cosines: list[float] = field(default_factory=list)
    torn: bool = False

    def __post_init__(self) -> None:
        self.sums = np.zeros(self.centroids.shape)
        self.counts = np.zeros(len(self.centroids), np.int64)

    def begin_iteration(self, iteration: int) -> None:
        """Forget the sums of the last iteration."""
        self.sums.fill(0)
        self.counts.fill(0)
        self.similarity = 0.0
        self.next_chunk = 0
        self.iteration = iteration

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Mark the state as torn while the block runs, and for good if it does not end."""
        self.torn = True
        yield
        self.torn = False


def save_state(state: State, path: Path, identity: str) -> None:
    """Write `state` to `path`, all of it or nothing; `identity` names the clustering it belongs to."""
    about = {
        "identity": identity,
        "similarity": state.similarity,
        "iteration": state.iteration,
        "next_chunk": state.next_chunk,
        "mean_cosines": state.mean_cosines,
    }
    tensors: dict[str, NDArray[Any]] = {
        "centroids": state.centroids,
        "sums": state.sums,
        "counts": state.counts,
    }
    content = safetensors.numpy.save(tensors, metadata={_KEY: json.dumps(about)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load_state(path: Path, identity: str, shape: tuple[int, int]) -> State | None:
    """The state at `path` with centroids of `shape`, or None without such a file.

    Raises InputError when it belongs to another clustering and FormatError when it is damaged.
    """
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="numpy") as content:
            about = json.loads((content.metadata() or {})[_KEY])
            tensors = {name: content.get_tensor(name) for name in ("centroids", "sums", "counts")}
        if about["identity"] != identity:
            raise InputError(f"{path} belongs to another clustering: delete it to start again")
        if tensors["sums"].shape != shape or tensors["counts"].shape != shape[:1]:
            raise ValueError("shapes do not fit")
        state = State(tensors["centroids"])
        state.sums, state.counts = tensors["sums"], tensors["counts"]
        state.similarity = float(about["similarity"])
        state.iteration, state.next_chunk = int(about["iteration"]), int(about["next_chunk"])
        state.mean_cosines = [float(value) for value in about["mean_cosines"]]
    except InputError:
        raise
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"checkpoint {path} is damaged: delete it to start again") from error
    return state
