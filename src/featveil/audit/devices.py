"""The devices of an audit: each lifts with confounders of its own, which it uses once and no adversary knows.

Of a pair of images the query and the map come from two devices, whose pools share nothing. The pools of different
victims share nothing either, where there are enough descriptors for that. Otherwise each victim is measured as if its
devices were the only ones, and what releases of others tell is not measured.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from featveil.audit.releases import Scheme, Victim
from featveil.core import Defense, InputError
from featveil.core.arrays import Float32
from featveil.core.seeding import generator
from featveil.defenses.selection import lying_apart
from featveil.stores.pool import Pool

if TYPE_CHECKING:
    from featveil.audit.run import Audit

_SIDES = 2  # devices of a pair: that of the query, and that of the map
_ROOM = 2  # times as many as are used up: confounders are chosen to resemble what they hide


class Devices:
    """Those of one dataset under one scheme: two for each of `victims`, with parts of the descriptors `values`."""

    def __init__(self, values: Float32, kind: str, victims: Sequence[Victim], scheme: Scheme, seed: int) -> None:
        self.values, self.kind, self.scheme, self.seed = values, kind, scheme, seed
        self.names = [victim.name for victim in victims]
        self.needed = _needed(scheme, victims)
        self._pools: dict[tuple[str, int], Pool] = {}

    @property
    def strangers(self) -> bool:
        """Whether devices of different victims have pools of their own."""
        return len(self.values) // (_SIDES * len(self.names)) >= _ROOM * self.needed

    def check(self) -> None:
        """Raise InputError when the descriptors do not even serve the devices of one victim."""
        if len(self.values) // _SIDES < self.needed:
            raise InputError(
                f"the pools of {self.scheme.name} need {_SIDES * self.needed} descriptors, {len(self.values)} are"
                " there: name more photographs in [pool], or lower max_features"
            )

    def equip(self, scheme: Scheme, victim: Victim, number: int) -> Defense:
        """The defense of the device that makes release `number` of the victim, with its pool."""
        if not scheme.private_pool:
            return scheme.defense
        side = 1 if number < 0 else 0
        if (victim.name, side) not in self._pools:
            rng = generator(self.seed, victim.name, scheme.name, f"pool {side}")
            self._pools[victim.name, side] = Pool.in_memory(self._part(victim, side), self.kind, rng)
        defense: Any = scheme.defense
        equipped: Defense = replace(defense, pool=self._pools[victim.name, side])
        return equipped

    def _part(self, victim: Victim, side: int) -> Float32:
        order = generator(0, "pools").permutation(len(self.values))
        if not self.strangers:
            return self.values[order[side::_SIDES]]
        place = self.names.index(victim.name)
        return self.values[order[_SIDES * place + side :: _SIDES * len(self.names)]]


def check_pool(audit: "Audit") -> None:
    """Raise InputError when a scheme of the audit needs more descriptors for its pools than there are."""
    for dataset in audit.datasets:
        for scheme in audit.schemes:
            if scheme.private_pool:
                Devices(audit.pool, audit.settings.kind, dataset.victims, scheme, 0).check()


def _needed(scheme: Scheme, victims: Sequence[Victim]) -> int:
    """Descriptors that the busiest device uses up."""
    if not scheme.private_pool:
        return 0
    defense: Any = scheme.defense
    sides = [features for victim in victims for features in (victim.features, victim.second_view)]
    return int(defense.confounders) * max(len(lying_apart(one) if scheme.apart else one) for one in sides)
