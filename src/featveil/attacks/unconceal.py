"""Unconceal (ours): the network that conceals descriptors is public, so the way back through it can be learned.

Knows:      the network, which is in every client, and descriptors of its own, which it conceals itself; better, the
            lifting database too.
Breaks:     concealers (Ng et al. 2022, NinjaDesc): whatever the network keeps of a descriptor comes back, all of it
            where the network has no bottleneck. Lifting after a concealer, where raw descriptors have zeros: they are
            sought through subspace and network at once. As a second step (`undo`) what other attacks find.
Fails:      on what the network has lost: there it answers with what descriptors usually look like. In subspaces of
            large dimension. As a second step, where the first one is wrong.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Attack, Guess, Knowledge, check_count
from featveil.attacks.subspaces import database_of, project
from featveil.attacks.unconceal_parts.inverse import Inverse, learned_inverse
from featveil.attacks.unconceal_parts.through import seek
from featveil.core import ConcealingNetwork, Features, InputError, Points, PrivateFeatures, Subspaces, is_concealed
from featveil.core.arrays import Float32
from featveil.databases import ConcealedDatabase, conceal_database
from featveil.distances import nearest

# Attacks that take what was sent as it is: what they guess is not put through the way back.
AT_FACE_VALUE = ("read", "unconceal")
_SAME = 1e-3  # a guess that near to a concealed descriptor whose raw one is known is that one


@dataclass(frozen=True)
class Unconceal:
    """Learn the way back from `examples` descriptors at most, and search for the descriptor through the network.

    `features` are the random ones of the regression that the search of `steps` starts from, in subspaces at `starts`
    places.
    """

    examples: int = 16_384
    features: int = 1024
    steps: int = 40
    starts: int = 8

    name: ClassVar[str] = "unconceal"
    summary: ClassVar[str] = "the way back through the concealing network, learned on its own database and searched"
    breaks: ClassVar[tuple[type, ...]] = (Points, Subspaces)
    needs: ClassVar[tuple[str, ...]] = ("database", "network")
    uses: ClassVar[tuple[str, ...]] = ("lifting_database",)
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("examples", "features", "steps", "starts"):
            check_count(name, getattr(self, name))

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """An estimate of each raw descriptor."""
        if not is_concealed(seen.kind):
            raise InputError("attack unconceal is on what a concealer sends; these were not concealed: others are")
        inverse = self._learned(seen, knowledge)
        match seen.descriptors:
            case Points(sent):
                return replace(Guess.all_of(inverse(sent), note=inverse.described), released=sent)
            case Subspaces() as subspaces:
                return self._in_subspaces(subspaces, network_of(seen, knowledge), inverse, knowledge, rng)
        raise InputError("attack unconceal is on points and subspaces: word sets are guessed by others first")

    def _in_subspaces(
        self,
        subspaces: Subspaces,
        network: ConcealingNetwork,
        inverse: Inverse,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Guess:
        source = knowledge.lifting_database
        known = None if source is None else conceal_database(source, network)
        confounders = known if isinstance(known, ConcealedDatabase) else None
        raw, search = database_of(knowledge).as_points.values, (self.starts, self.steps, rng)
        values = seek(subspaces, network, inverse.quick, raw, confounders, search)
        return replace(Guess.all_of(values), released=project(network.apply(values), subspaces).astype(np.float32))

    def undo(self, guess: Guess, seen: PrivateFeatures, knowledge: Knowledge) -> Guess:
        """A guess of concealed descriptors -> one of raw ones, which are looked up where they are known."""
        network = network_of(seen, knowledge)
        values, left, note = np.empty_like(guess.values), np.ones(len(guess), np.bool_), guess.note
        for concealed, raw in _pairs(knowledge, network):
            neighbours = nearest(Points(guess.values), concealed, 1)
            same = left & (neighbours.distances[:, 0] < _SAME)
            values[same], left[same] = raw[neighbours.indices[same, 0]], False
        if left.any():
            inverse = self._learned(seen, knowledge)
            values[left] = inverse(guess.values[left])
            note = f"{note}; concealer undone {inverse.described}" if note else f"concealer undone {inverse.described}"
        return replace(guess, values=values, released=guess.values, note=note)

    def _learned(self, seen: PrivateFeatures, knowledge: Knowledge) -> Inverse:
        if knowledge.database is None:
            raise InputError("undoing a concealer takes raw descriptors to learn from: give a database")
        network = network_of(seen, knowledge)
        database = knowledge.database
        raw = database.source if isinstance(database, ConcealedDatabase) else database
        if raw.kind != network.kind:
            raise InputError(f"undoing a concealer takes raw {network.kind} descriptors, the database holds {raw.kind}")
        return learned_inverse(raw, network, self.examples, self.features, self.steps)


def network_of(seen: PrivateFeatures, knowledge: Knowledge) -> ConcealingNetwork:
    """The network that `seen` was concealed by; raises InputError when that is not known."""
    network = knowledge.network
    if network is None:
        raise InputError("the concealing network must be known: give the file that the features were concealed with")
    if network.concealed_kind != seen.kind:
        raise InputError(
            f"these features are {seen.kind}, the given network makes {network.concealed_kind}: give the one that was"
            " used"
        )
    return network


def in_two_steps(seen: PrivateFeatures, method: Attack) -> bool:
    """Whether `method` attacks `seen` in the space of a concealer, which is then undone."""
    return is_concealed(seen.kind) and method.name not in AT_FACE_VALUE


def _pairs(knowledge: Knowledge, network: ConcealingNetwork) -> list[tuple[Points, Float32]]:
    """Concealed descriptors (s) of which the raw ones (s, d) are known."""
    pairs: list[tuple[Points, Float32]] = []
    for database in (knowledge.codebook, knowledge.lifting_database, knowledge.database):
        concealed = None if database is None else conceal_database(database, network)
        if isinstance(concealed, ConcealedDatabase):
            pairs.append((concealed.as_points, concealed.source.as_points.values))
    reference = knowledge.reference
    if isinstance(reference, Features) and reference.kind == network.kind and len(reference):
        pairs.append((network.conceal(reference).descriptors, reference.descriptors.values))
    return pairs
