"""Concealer: a small network trained against image reconstruction (Ng et al. 2022, NinjaDesc, section 3.1 and 3.3).

Hides:          what the image looked like, from reconstruction networks such as it was trained against.
From:           whoever receives the features and trusts their own networks, not from someone who undoes this one.
Does not hide:  keypoint positions, the number of features, whatever matching needs; the network itself is public.
Known breaks:   attack unconceal: who has the network conceals descriptors of its own and learns the way back, or
                searches for the descriptor through the network. No proof of privacy exists for this method.

Another defense may follow, as one scheme: its database or codebook is concealed by the same network. The bound of the
subset mechanism then holds for the raw descriptor as it is. It holds for every pair of inputs of that mechanism, and
concealed descriptors f(x) and f(x') are such a pair: P(S | x) = P(S | f(x)) <= e^epsilon P(S | f(x')) = e^epsilon
P(S | x'), whatever f is. The bound of the metric mechanism is per unit of distance between concealed descriptors.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self

from featveil.core import (
    ConcealingNetwork,
    Descriptors,
    Guarantee,
    InputError,
    NotFittedError,
    Points,
    Randomness,
    Spec,
)
from featveil.core.arrays import Integers
from featveil.core.kinds import concealed_kind
from featveil.core.options import option
from featveil.databases import Database, builtin, conceal_database
from featveil.defenses.lifting import Lifting
from featveil.defenses.metric import Metric
from featveil.defenses.subset import Subset
from featveil.formats.network_files import load_network

DATA = Path(__file__).parent / "data"

Then = Lifting | Subset | Metric


@dataclass(frozen=True)
class Concealer:
    """Put each descriptor through `network` (default: the built-in one of its kind), and `then` through a defense.

    What is released is of another kind than the raw descriptors, which it must not be compared with. A database or
    codebook that `then` has may be a raw one: it is concealed.
    """

    network: ConcealingNetwork | None = option(
        None, help="file of its network.", flags=("--concealer",), shown="the built-in one of the kind"
    )
    then: Then | None = option(
        None, help="the defense that follows it, with its own options: lifting, subset or metric."
    )

    def __post_init__(self) -> None:
        if not isinstance(self.network, ConcealingNetwork | None):
            raise InputError(f"network must be a ConcealingNetwork (see load_network), got {_type(self.network)}")
        if not isinstance(self.then, Then | None):
            raise InputError(f"after a concealer come lifting, subset or metric, not {_type(self.then)}")

    def for_kind(self, kind: str) -> Self:
        """This concealer with the built-in network of `kind`, unless it has its own, and `then` in its space."""
        network = builtin_concealer(kind) if self.network is None else self.network
        if network.kind != kind:
            raise InputError(
                f"the network conceals {network.kind} descriptors, the features are {kind}: use a network for {kind}"
            )
        return replace(self, network=network, then=None if self.then is None else _concealed(self.then, network))

    def released_kind(self, kind: str) -> str:
        """That of descriptors of `kind` after this network."""
        return concealed_kind(kind, self._own_network().digest)

    def guarantee(self) -> Guarantee:
        """Measured against known attacks only; with another defense after it, what that one guarantees."""
        return Guarantee("empirical") if self.then is None else self.then.guarantee()

    def spec(self) -> Spec:
        """Digest and lambda of the network; then name and parameters of the defense after it."""
        network = self.network
        spec: Spec = {"name": "concealer"}
        spec |= {"network": None, "lambda": None} if network is None else _about(network)
        if self.then is None:
            return spec
        after = self.then.spec()
        return spec | {"then": after.pop("name")} | after

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Descriptors:
        """The concealed points, or what the next defense makes of them."""
        concealed = Points(self._own_network().apply(points.values))
        return concealed if self.then is None else self.then.privatize(concealed, rng, labels)

    def _own_network(self) -> ConcealingNetwork:
        if self.network is None:
            raise NotFittedError("this concealer has no network: call for_kind(kind), or give one")
        return self.network


@cache
def builtin_concealer(kind: str = "sift") -> ConcealingNetwork:
    """The network that comes with featveil for descriptors of `kind`; raises InputError where there is none."""
    if not has_builtin_concealer(kind):
        raise InputError(
            f"there is no built-in concealer for {kind:.64} descriptors: give the file of one (--concealer), such as"
            " featveil train concealer makes"
        )
    return load_network(_file(kind))


def has_builtin_concealer(kind: str) -> bool:
    """Whether a network for descriptors of `kind` comes with featveil."""
    return _file(kind).is_file()


def last_step(defense: object) -> object:
    """The defense whose result is sent: of a concealer with another one after it, that one."""
    return defense.then if isinstance(defense, Concealer) and defense.then is not None else defense


def _file(kind: str) -> Path:
    return DATA / f"{kind}-concealer.safetensors"


def _concealed(then: Then, network: ConcealingNetwork) -> Then:
    """`then` for what `network` gives, with its database or codebook concealed."""
    if isinstance(then, Lifting):
        if then.adversarial_directions == 0:
            return then
        return replace(then, database=_in_space(then.database, network)).for_kind(network.concealed_kind)
    return replace(then, codebook=_in_space(then.codebook, network)).for_kind(network.concealed_kind)


def _in_space(given: Database | None, network: ConcealingNetwork) -> Database:
    return conceal_database(builtin(network.kind) if given is None else given, network)


def _about(network: ConcealingNetwork) -> Spec:
    return {"network": network.digest, "lambda": network.lambda_}


def _type(value: object) -> str:
    return type(value).__name__
