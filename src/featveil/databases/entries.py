"""The public descriptors that lifting draws from, split into disjoint sub-databases.

Paper: Dusmanu et al., "Privacy-Preserving Image Features via Adversarial Affine Subspace Embeddings", section
4.2.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Integers, floats, integers
from featveil.core.descriptors import Points
from featveil.core.entropy import SecureRandomness
from featveil.core.errors import InputError
from featveil.core.features import check_kind

Values = NDArray[np.uint8] | NDArray[np.float32]
Card = dict[str, Any]

# One option of commands, whatever a method calls what it takes from the file.
DATABASE_OPTION: dict[str, Any] = {"flags": ("--database", "--codebook"), "shown": "the built-in one"}
QUANTIZED_KINDS = frozenset({"sift", "rootsift"})
_QUANTIZATION = 512
# Outside these norms a float32 square under- or overflows.
_SMALLEST_NORM, _LARGEST_NORM = 1e-18, 1e18


@dataclass(frozen=True, eq=False)
class Database:
    """`values` (s, d) public descriptors in random order, uint8 or float32, in `parts` sub-databases.

    Sub-database i is the contiguous slice `part(i)`, so the entries must have been permuted: `from_array`
    does that. `labels` (s,) are attribute labels or None. `card` says where the entries come from; it is not
    part of `digest`. Raises InputError for values that are not finite, rows without a direction and labels or
    parts that do not fit.
    """

    values: Values = field(repr=False)
    kind: str
    parts: int = 16
    labels: Integers | None = field(default=None, repr=False)
    card: Card = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_kind(self.kind)
        object.__setattr__(self, "values", _checked(self.values))
        if not 1 <= self.parts <= len(self):
            raise InputError(f"{len(self)} entries split into 1 to {len(self)} parts, got {self.parts}")
        if self.labels is not None:
            object.__setattr__(self, "labels", integers("database labels", self.labels, (len(self),)))

    @classmethod
    def from_array(
        cls,
        values: object,
        kind: str,
        parts: int = 16,
        labels: object = None,
        rng: np.random.Generator | None = None,
        card: Card | None = None,
    ) -> Self:
        """A database of your own descriptors (s, d), permuted by `rng`, or by the operating system's entropy.

        Kinds "sift" and "rootsift" are stored as uint8 (see `quantized`), uint8 input as it is, others as
        float32.
        """
        array = np.asarray(values)
        if array.dtype != np.uint8:
            array = floats("database values", array, (None, None))
            array = quantized(array) if kind in QUANTIZED_KINDS else array
        array = _checked(array)  # before the order changes, so that a message names the caller's row
        order = _permutation(len(array), rng)
        ordered = None if labels is None else integers("database labels", labels, (len(array),))[order]
        return cls(array[order], kind, parts, ordered, dict(card or {}))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> int:
        """Descriptor size d."""
        return int(self.values.shape[1])

    def part(self, i: int) -> slice:
        """The entries of sub-database `i`, counted from 0."""
        if not 0 <= i < self.parts:
            raise InputError(f"this database has parts 0 to {self.parts - 1}, got {i}")
        return slice(i * len(self) // self.parts, (i + 1) * len(self) // self.parts)

    def unit(self, indices: Integers | slice) -> Float32:
        """The entries at `indices` as float32 rows of norm 1."""
        return unit_rows(self.values[indices])

    def points(self) -> Float32:
        """All entries (s, d) as float32 rows of norm 1."""
        return unit_rows(self.values)

    @cached_property
    def as_points(self) -> Points:
        """All entries as points of norm 1, kept for the next search."""
        return Points(self.points())

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of kind, parts, values and labels: the public name of this database."""
        labels = None if self.labels is None else "int64"
        header = {
            "kind": self.kind,
            "parts": self.parts,
            "dtype": self.values.dtype.name,
            "shape": list(self.values.shape),
            "labels": labels,
        }
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode() + b"\n")
        digest.update(np.ascontiguousarray(self.values, _little(self.values)).data)
        if self.labels is not None:
            digest.update(np.ascontiguousarray(self.labels, _little(self.labels)).data)
        return digest.hexdigest()


def unit_rows(rows: NDArray[Any]) -> Float32:
    """`rows` (..., d), none of them zero, as float32 rows of norm 1."""
    scaled = rows.astype(np.float32)
    scaled /= np.sqrt(np.einsum("...i,...i->...", scaled, scaled))[..., None]
    return scaled


def quantized(rows: Float32) -> NDArray[np.uint8]:
    """Non-negative `rows` (n, d) as round(512 * unit row), clipped to 255: the usual bytes of SIFT.

    Raises InputError for negative values or a row without a direction.
    """
    if rows.size and rows.min() < 0:
        raise InputError("SIFT descriptors must not be negative: name another kind for these")
    _check_norms(rows)
    return np.clip(np.rint(_QUANTIZATION * unit_rows(rows)), 0, 255).astype(np.uint8)


def _checked(values: Any) -> Values:
    if isinstance(values, np.ndarray) and values.dtype == np.uint8 and values.ndim == 2:
        values = np.array(values, order="C")
        values.setflags(write=False)
    else:
        values = floats("database values", values, (None, None))
    if 0 in values.shape:
        raise InputError(f"a database needs at least one entry of size 1 or more, got shape {values.shape}")
    _check_norms(values)
    return values  # type: ignore[no-any-return]


def has_direction(values: Values) -> NDArray[np.bool_]:
    """Which rows (n, d) have a norm that can be divided by."""
    norms = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64, casting="unsafe"))
    return np.asarray((norms >= _SMALLEST_NORM) & (norms <= _LARGEST_NORM))


def _check_norms(values: Values) -> None:
    good = has_direction(values)
    if not good.all():
        raise InputError(f"database row {int(good.argmin())} is zero or out of range: remove it first")


def _permutation(count: int, rng: np.random.Generator | None) -> Integers:
    if rng is not None:
        return rng.permutation(count)
    return np.argsort(SecureRandomness().integers(0, 2**62, size=(count,)), kind="stable")


def _little(array: NDArray[Any]) -> np.dtype[Any]:
    return array.dtype.newbyteorder("<")
