"""What is sent of the images of a scene: raw features, or a release of each under a scheme, made when first needed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from featveil.audit.releases import Scheme
from featveil.core import Defense, Features, InputError, PrivateFeatures
from featveil.core.arrays import Float32
from featveil.core.records import Parameter
from featveil.core.resuming import Report
from featveil.core.seeding import generator
from featveil.databases import Database
from featveil.datasets import MapScene
from featveil.defenses import Hardened, Identity, Lifting, Subset, privatize
from featveil.extractors import extract, image_files
from featveil.lab.matching import Settings
from featveil.stores.pool import Pool

RAW = Scheme("raw", Identity())

_FROM_PHOTO = 1000  # descriptors of a photograph that go into a pool


class SceneReleases:
    """The images of `scene`; devices of schemes with a private pool have a part each of the descriptors `pool`."""

    def __init__(self, scene: MapScene, settings: Settings, pool: Float32 | None = None) -> None:
        self.scene, self.settings, self.pool = scene, settings, pool
        self._raw: dict[str, Features] = {}
        self._scheme = ""
        self._sent: dict[str, PrivateFeatures] = {}

    def raw(self, name: str) -> Features:
        """The features of an image."""
        if name not in self._raw:
            found = extract(self.scene.images[name], self.settings.kind, self.settings.max_features)
            if len(found) == 0:
                raise InputError(f"image {name} of {self.scene.name} has no features: leave it out")
            self._raw[name] = found
        return self._raw[name]

    def sent(self, name: str, scheme: Scheme) -> Features | PrivateFeatures:
        """What is sent of an image: positions in the order of a release, descriptors as `scheme` hides them."""
        if scheme == RAW:
            return self.raw(name)
        if scheme.name != self._scheme:
            self._scheme, self._sent = scheme.name, {}
        if name not in self._sent:
            rng = generator(self.settings.seed, self.scene.name, name, scheme.name)
            self._sent[name] = privatize(self.raw(name), self._equipped(name, scheme), apart=scheme.apart, rng=rng)
        return self._sent[name]

    def epsilons(self, scheme: Scheme, names: Sequence[str]) -> dict[str, Parameter]:
        """Epsilon of a descriptor and, on average over `names`, of an image; nothing where none is guaranteed."""
        sent = [self.sent(name, scheme) for name in names]
        private = [one for one in sent if isinstance(one, PrivateFeatures) and one.guarantee.epsilon is not None]
        if not private or private[0].guarantee.kind == "none":
            return {}
        images = [one.guarantee.compose(len(one)).epsilon or 0.0 for one in private]
        return {"epsilon": private[0].guarantee.epsilon, "image_epsilon": fmean(images)}

    def _equipped(self, name: str, scheme: Scheme) -> Defense:
        """The defense of the device that took the image."""
        if not isinstance(scheme.defense, Hardened):
            return scheme.defense.for_kind(self.settings.kind)
        if self.pool is None:
            raise InputError(f"{scheme.name} hides features among those of a pool: name photographs for it")
        names = sorted(self.scene.images)
        order = generator(0, "pools").permutation(len(self.pool))
        own = self.pool[order[names.index(name) :: len(names)]]
        rng = generator(self.settings.seed, self.scene.name, name, scheme.name, "pool")
        return replace(scheme.defense, pool=Pool.in_memory(own, self.settings.kind, rng))


def lifted(kind: str, dimensions: Sequence[int]) -> list[Scheme]:
    """Sub-hybrid lifting, the papers' best, to each of `dimensions`."""
    return [Scheme(f"sub-hybrid-{m}", Lifting("sub-hybrid", m).for_kind(kind)) for m in dict.fromkeys(dimensions)]


def quantised(codebook: Database) -> Scheme:
    """Each descriptor becomes its nearest word, without any randomness: what words can reach at best."""
    return Scheme("quantised", Subset(math.inf, 1, codebook))


def subsets(codebook: Database, epsilons: Sequence[float], sizes: Sequence[int]) -> list[Scheme]:
    """The subset mechanism with every epsilon and size."""
    return [
        Scheme(f"subset-{epsilon:g}-{k}", Subset(epsilon, k, codebook))
        for epsilon in dict.fromkeys(epsilons)
        for k in dict.fromkeys(sizes)
    ]


def hardened() -> list[Scheme]:
    """Hardened lifting of all features, and of those that lie apart."""
    return [Scheme("hardened-4-16", Hardened(4, 16)), Scheme("hardened-4-16-apart", Hardened(4, 16), apart=True)]


def pool_descriptors(folder: str | Path, kind: str, report: Report = lambda done, total: None) -> Float32:
    """Descriptors (s, d) of the photographs in `folder`, for the pools of the devices of a study."""
    parts = []
    files = image_files(Path(folder))
    for done, path in enumerate(files, start=1):
        parts.append(extract(path, kind, _FROM_PHOTO).descriptors.values)
        report(done, len(files))
    return np.concatenate(parts)
