"""Many pairs of images -> Matches of each, with the features of an image read once for all its pairs."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

from featveil.core import Descriptors, Features, MapPoints, Matches, Points, PrivateFeatures, Subspaces, WordSets
from featveil.matching.dispatch import MatchOptions, match

Read = Callable[[str], Features | PrivateFeatures]

_MOST_BYTES = 2**30  # 30 images of 20,000 subspaces of dimension 2


def match_pairs(
    pairs: Iterable[tuple[str, str]],
    first: Read,
    second: Read,
    *,
    most_bytes: int = _MOST_BYTES,
    **options: Unpack[MatchOptions],
) -> Iterator[tuple[tuple[str, str], Matches]]:
    """Match every pair of image names, in the given order, with the options of `match`.

    `first` reads the features of a pair's first image, `second` those of the other; they may be the same function,
    and then an image that stands on both sides is read once. What was read stays in memory for later pairs; beyond
    `most_bytes` of descriptors the images that were not used for longest are dropped and read again when they are
    needed. Raises InputError as `match` does.
    """
    kept = Kept(most_bytes)
    for pair in pairs:
        yield pair, match(kept.read(first, pair[0]), kept.read(second, pair[1]), **options)


class Kept:
    """Features that were read stay in memory; beyond `most_bytes` of descriptors those not used for longest go."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._features: OrderedDict[tuple[Read, str], Features | PrivateFeatures] = OrderedDict()

    def read(self, source: Read, name: str) -> Features | PrivateFeatures:
        """The features that `source` has of image `name`."""
        features = self._features.get((source, name))
        if features is None:
            features = self._features[source, name] = source(name)
            self._bytes += _size(features.descriptors)
        self._features.move_to_end((source, name))
        while self._bytes > self._most_bytes and len(self._features) > 1:
            self._bytes -= _size(self._features.popitem(last=False)[1].descriptors)
        return features


def _size(descriptors: Descriptors) -> int:
    """Bytes of the descriptors' arrays."""
    match descriptors:
        case Points(values):
            return values.nbytes
        case Subspaces(offset, basis):
            return offset.nbytes + basis.nbytes
        case WordSets(whole) | MapPoints(whole):
            return whole.nbytes
