"""Which hidden descriptor belongs to which private feature: a release is sorted by position, a raw file is not."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from featveil.core import (
    ConcealingNetwork,
    Features,
    Flats,
    InputError,
    Keypoints,
    Points,
    PrivateFeatures,
    Subspaces,
    base_kind,
    is_concealed,
)
from featveil.core.arrays import Float32, Integers
from featveil.distances import pair_distances

# Float32 subspaces miss their own descriptor by 1e-6 of its norm, half precision by 1e-3, dithered ones by 6e-3.
_CONTAINED = 0.02
_GEOMETRY = ("scale", "orientation")
_MISPLACED = 0.02  # of features that may lie outside their subspace before the files are called unrelated


@dataclass(frozen=True, eq=False)
class Truth:
    """Behind private feature i lies descriptor `rows[i]` of `hidden`, all the raw descriptors of the file.

    `certain` (n,) is False where several features share a position and nothing tells them apart.
    """

    hidden: Points
    rows: Integers
    certain: NDArray[np.bool_]

    @property
    def points(self) -> Points:
        """The hidden descriptors in the order of the private features."""
        return self.hidden.take(self.rows)

    def take(self, indices: Integers) -> Self:
        """What is behind the private features at `indices`, in that order."""
        return type(self)(self.hidden, self.rows[indices], self.certain[indices])


def align(private: PrivateFeatures, raw: Features, network: ConcealingNetwork | None = None) -> Truth:
    """The raw descriptor behind each private feature, also where a concealing `network` lies between the two.

    Found by position, and by scale and orientation where they were released; of several features at one place, the one
    that its subspace contains, or with the `network` the one that was concealed. Without keypoints the order is that of
    the release. Raises InputError when `raw` is not what `private` was made of.
    """
    if base_kind(private.kind) != raw.kind:
        raise InputError(f"the truth holds {raw.kind} descriptors, the private features are {private.kind}")
    if private.image_size != raw.image_size:
        raise InputError("the truth is of an image of another size: give the features that were privatized")
    if (private.keypoints is None) != (raw.keypoints is None):
        raise InputError("only one of the two files has keypoints: give the features that were privatized")
    descriptors = private.descriptors
    if isinstance(descriptors, Subspaces | Points) and descriptors.size != raw.descriptors.size:
        raise InputError(f"the truth has size {raw.descriptors.size}, the private features {descriptors.size}")
    telling = _telling(private, raw, network)
    if private.keypoints is None or raw.keypoints is None:
        if len(private) != len(raw):
            raise InputError(f"{len(raw)} raw features cannot be the truth of {len(private)} private ones")
        rows, certain = np.arange(len(raw)), np.ones(len(raw), np.bool_)
    else:
        rows, certain = _by_position(private.keypoints, raw.keypoints, telling)
    _check_contained(telling, rows)
    return Truth(raw.descriptors, rows, certain)


def _telling(private: PrivateFeatures, raw: Features, network: ConcealingNetwork | None) -> tuple[Flats, Points] | None:
    """What was sent and what it should contain, in one space; None where descriptors do not tell whose they are."""
    sent = private.descriptors
    if not is_concealed(private.kind):
        return (sent, raw.descriptors) if isinstance(sent, Subspaces) else None
    if network is None or not isinstance(sent, Subspaces | Points) or len(raw) == 0:
        return None
    if network.concealed_kind != private.kind:
        raise InputError(f"these features are {private.kind}, the given network makes {network.concealed_kind}")
    return sent, network.conceal(raw).descriptors


def _by_position(
    seen: Keypoints, known: Keypoints, telling: tuple[Flats, Points] | None
) -> tuple[Integers, NDArray[np.bool_]]:
    at: dict[bytes, list[int]] = {}
    places, raw_places = _places(seen, known)
    for index, place in enumerate(raw_places):
        at.setdefault(place.tobytes(), []).append(index)
    here = [at.get(place.tobytes(), []) for place in places]
    if not all(here):
        raise InputError(
            f"{here.count([])} of {len(places)} private features lie where the truth has none:"
            " give the features that were privatized"
        )
    certain = np.array([len(candidates) == 1 for candidates in here], np.bool_)
    rows = np.array([candidates[0] for candidates in here], np.int64)
    if telling is not None:
        for row in np.flatnonzero(~certain):
            candidates = np.array(here[row])
            away = pair_distances(*telling, np.full(len(candidates), row), candidates)
            rows[row] = candidates[int(away.argmin())]
        certain[:] = True
    return rows, certain


def _places(seen: Keypoints, known: Keypoints) -> tuple[Float32, Float32]:
    """Positions (n, c) of both, with scale and orientation where both have them: many features differ by these only."""
    shared = [name for name in _GEOMETRY if getattr(seen, name) is not None and getattr(known, name) is not None]
    both = [np.column_stack([side.xy, *(getattr(side, name) for name in shared)]) for side in (seen, known)]
    return both[0], both[1]


def _check_contained(telling: tuple[Flats, Points] | None, rows: Integers) -> None:
    if telling is None or len(rows) == 0:
        return
    away = pair_distances(*telling, np.arange(len(rows)), rows)
    outside = away > _CONTAINED * np.linalg.norm(telling[1].values[rows], axis=1)
    if outside.mean() > _MISPLACED:
        held = "subspaces do not contain" if isinstance(telling[0], Subspaces) else "concealed features are not"
        raise InputError(
            f"{int(outside.sum())} of {len(rows)} {held} the descriptor at their position:"
            " give the features that were privatized"
        )
