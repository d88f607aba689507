"""NinjaDesc's evaluation of several concealers at once (ninjadesc.txt, sections 4 to 6), beside the raw descriptor.

Nothing is measured here: the tasks of patches, image matching and inversion are run on the same networks, under the
same names, into one file of records. Each goes on where it was stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from featveil.audit.releases import Scheme
from featveil.core import ConcealingNetwork, InputError
from featveil.core.records import Record
from featveil.core.resuming import Report
from featveil.databases import Database
from featveil.datasets import HPatches
from featveil.defenses import Concealer, Identity, Lifting
from featveil.extractors import PatchDescriber, make_extractor
from featveil.lab import inversion, matching, patches, scenes
from featveil.lab.inversion_photos import Photograph
from featveil.lab.inversion import Experiment
from featveil.lab.patches import Settings as PatchSettings
from featveil.lab.patches import Sources as PatchSources

LIFTED = ("sub-hybrid", 2)  # what their figure 8a compares with


@dataclass(frozen=True, eq=False)
class ConcealerStudy:
    """`networks` for descriptors of one kind, and what they are measured on and with.

    `study` is that of inversion, whose schemes are those of `inverted_schemes`. `database` is what lifting draws from.
    """

    networks: Sequence[ConcealingNetwork]
    describer: PatchDescriber
    sources: PatchSources
    patch_settings: PatchSettings
    matching_settings: scenes.Settings
    database: Database
    study: Experiment

    def __post_init__(self) -> None:
        if self.sources.sequences is None:
            raise InputError("mean matching accuracy is of image sequences: give a folder of scenes")

    def patches(self, path: Path, report: Report = lambda done, total: None) -> list[Record]:
        """FPR@95 and the tasks of HPatches (their figure 5): raw, each network, and random vectors."""
        study = patches.study(self.sources, self.describer, patches.transforms(self.networks), self.patch_settings)
        return patches.BENCH.resume(study, path, report)

    def matching(self, path: Path, report: Report = lambda done, total: None) -> list[Record]:
        """Mean matching accuracy (their figure 8a): raw, each network, and sub-hybrid lifting of dimension 2."""
        lifting = Lifting(*LIFTED, database=self.database).for_kind(self.describer.kind)
        schemes = [scenes.RAW, *(Scheme(network.name, Concealer(network)) for network in self.networks)]
        schemes.append(Scheme("{}-{}".format(*LIFTED), lifting))
        return matching.BENCH.resume(matching.study(self._sequences, schemes, self.matching_settings), path, report)

    def inversion(self, folder: Path, report: Report = lambda done, total: None) -> list[Record]:
        """What inverters see (their tables 1, 3 and 4), with floors; pictures go to FOLDER/pictures."""
        study = inversion.study(self.study, folder / "pictures")
        return inversion.BENCH.resume(study, folder / "records.jsonl", report)

    @property
    def _sequences(self) -> HPatches:
        assert self.sources.sequences is not None
        return self.sources.sequences


def check_networks(networks: Sequence[ConcealingNetwork], kind: str) -> None:
    """Raise InputError unless all conceal descriptors of `kind`, and no two are the same."""
    for network in networks:
        if network.kind != kind:
            raise InputError(f"{network.name} conceals {network.kind} descriptors, not {kind}: study kinds one by one")
    names = [network.name for network in networks]
    if len(set(names)) < len(names):
        raise InputError(f"{max(names, key=names.count)} was named twice: leave one out")


def inverted_schemes(networks: Sequence[ConcealingNetwork], kind: str) -> list[Scheme]:
    """No defense, then each network, under the names that the other tasks give them."""
    return [
        Scheme("identity", Identity()),
        *(Scheme(network.name, Concealer(network).for_kind(kind)) for network in networks),
    ]


def described_by(photographs: Sequence[Photograph], settings: scenes.Settings) -> list[Photograph]:
    """The same photographs with features of the kind of `settings`, which may be a network."""
    extractor = make_extractor(settings.kind, settings.max_features, settings.weights)
    return [replace(one, features=extractor.extract(one.image)) for one in photographs]
