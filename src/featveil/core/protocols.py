"""Behaviour that methods provide, without a common base class."""

from collections.abc import Callable
from typing import Protocol, Self, runtime_checkable

from featveil.core.arrays import Float32, Integers
from featveil.core.descriptors import Descriptors, Points
from featveil.core.entropy import Randomness
from featveil.core.features import PrivateFeatures, Spec
from featveil.core.guarantees import Guarantee


class Defense(Protocol):
    """Turns raw descriptors into ones that may be sent. It never sees an image or a keypoint."""

    def for_kind(self, kind: str) -> Self:
        """This defense with whatever it needs for descriptors of `kind`; raises InputError if it cannot serve them."""
        ...

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Descriptors:
        """Private descriptors, one for each point. `labels` are attribute labels where a method uses them."""
        ...

    def guarantee(self) -> Guarantee:
        """The claim per descriptor."""
        ...

    def spec(self) -> Spec:
        """Name and parameters, as they are published with a release: no seed, no data."""
        ...


@runtime_checkable
class ChangesKind(Protocol):
    """A defense whose descriptors lie in another space than the raw ones: the two must not be compared."""

    def released_kind(self, kind: str) -> str:
        """The kind of what is released of descriptors of `kind`."""
        ...


Thinning = Callable[[Integers], Integers]  # rows -> places (k,) in them, rising: those to keep


@runtime_checkable
class Selective(Protocol):
    """A defense that sends some of the features only: which ones it is to choose, it also sees their positions."""

    def release(
        self,
        points: Points,
        xy: Float32 | None,
        rng: Randomness,
        labels: Integers | None = None,
        thin: Thinning | None = None,
    ) -> tuple[Integers, Descriptors]:
        """The rows of `points` (n, d) that are sent, rising, and the private descriptors of these.

        `thin` takes some of the rows away that it would send. It sees no others, so that these change nothing.
        """
        ...


class Account(Protocol):
    """Whose privacy a release spends. `featveil.stores.ledger` keeps such accounts in a file."""

    def charge(self, private: PrivateFeatures, label: str = "") -> float:
        """Record what `private` costs and return what is left; raises PrivacyError when that is too little."""
        ...
