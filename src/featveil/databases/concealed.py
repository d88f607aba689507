"""Database -> the same entries after a concealing network: for lifting, codebooks and attacks in its space."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from featveil.core.errors import InputError
from featveil.core.networks import ConcealingNetwork
from featveil.databases.entries import Database


@dataclass(frozen=True, eq=False)
class ConcealedDatabase(Database):
    """Entry i is entry i of `source` after `network`, in the same parts and with the same labels.

    Its digest is that of the two it is made of: its values differ in their last bits between machines.
    """

    source: Database = field(kw_only=True, repr=False)
    network: ConcealingNetwork = field(kw_only=True, repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the digests of source and network: the public name of this database."""
        return hashlib.sha256(f"concealed\n{self.source.digest}\n{self.network.digest}\n".encode()).hexdigest()


@lru_cache(maxsize=8)  # every release and attack asks again for the same few
def conceal_database(source: Database, network: ConcealingNetwork) -> Database:
    """`source` in the space of `network`; as it is, if it is there already.

    Raises InputError for descriptors of another kind or size than the network's.
    """
    if source.kind == network.concealed_kind:
        return source
    if source.kind != network.kind:
        raise InputError(f"this network conceals {network.kind} descriptors, the database holds {source.kind}")
    card = {
        **source.card,
        "derived": f"entries of {source.kind} database {source.digest} after network {network.digest}",
    }
    values = network.apply(source.points())
    return ConcealedDatabase(
        values, network.concealed_kind, source.parts, source.labels, card, source=source, network=network
    )
