"""NinjaDesc's evaluation of several concealers at once (ninjadesc.txt, sections 4 to 6), beside the raw descriptor.

Nothing is measured here: the benches of patches, image matching and inversion measure the same networks, under the
same names, into one file of records. Each goes on where it was stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from featveil.audit.schemes import Scheme
from featveil.audit.victims import own_database
from featveil.core import ConcealingNetwork, InputError
from featveil.core.options import argument, option
from featveil.databases import Database, builtin
from featveil.datasets import load_hpatches, load_phototour
from featveil.defenses import Concealer, Identity, Lifting
from featveil.extractors import PatchDescriber, make_describer, make_extractor
from featveil.formats.network_files import load_network
from featveil.lab import inversion, matching, patches
from featveil.lab import scene_studies as scenes
from featveil.lab.bench import CURVE, HPATCHES, Bench, Progress, Study, out_option, seed_option
from featveil.lab.concealers_parts.concealers_report import (
    ConcealerResults,
    concealer_text,
    draw,
    draw_matching,
    facts,
    rows_of,
    screen,
)
from featveil.lab.inversion_parts.inversion_photos import ALL, Photograph, find_photographs, read_photographs
from featveil.pipelines.painters import load_painter

LIFTED = ("sub-hybrid", 2)  # what their figure 8a compares with


@dataclass(frozen=True)
class Options:
    """Which networks, and what they are measured on and with."""

    files: tuple[Path, ...] = argument(help="Network files, as featveil train concealer writes them.")
    data: Path = option(help=HPATCHES)
    images: tuple[Path, ...] = option(help="Folder of photographs to invert (may be repeated).", repeated=True)
    out: Path = out_option("records.jsonl, table.md, two figures and pictures")
    phototour: tuple[Path, ...] = option(
        (), help="Patch set for FPR@95 (may be repeated).", shown="none", repeated=True
    )
    direct: tuple[Path, ...] = option(
        (),
        help="Inverter trained on what a network gives, or raw (may be repeated).",
        shown="none",
        repeated=True,
    )
    inverter: Path | None = option(None, help="Inverter of raw descriptors.", shown="the built-in one")
    weights: Path | None = option(None, help="Weights file of a learned base descriptor.")
    database: Path | None = option(
        None, help="Descriptors that lifting draws from, and that attackers have.", shown="built-in"
    )
    attacks: tuple[str, ...] = option(
        (), help="Attacks that recover descriptors for --inverter, such as unconceal; or none."
    )
    geometry: str = option("positions", help="What inverters see of keypoints: positions, or full.")
    part: str = option(ALL, help=inversion.PART_HELP)
    photographs: int = option(12, help="Photographs to invert, evenly spaced.", minimum=1)
    max_features: int = option(2000, help="Features of an image that is matched.", minimum=1)
    max_patches: int = option(500, help="Patches of each scene, the strongest.")
    pairs: int = option(50_000, help="Negative pairs of verification.")
    queries: int = option(1000, help="Queries of retrieval.")
    seed: int = seed_option()


def concealers(options: Options, progress: Progress) -> Sequence[Study[Any]]:
    """NinjaDesc's evaluation of concealing networks, beside the raw descriptor and the paper's numbers.

    FPR@95, the tasks of HPatches, mean matching accuracy with sub-hybrid lifting beside it, and what fresh inverters
    see (featveil train inverter --defense concealer --concealer FILE). Stop it with Ctrl-C at any time: the same
    command goes on where it stopped (from OUT/records.jsonl). Tables and figures are of everything that is in there,
    so that networks and inverters which are trained later can be added.

    Example: featveil bench concealers sift-0.1.safetensors sift-1.safetensors --data hpatches-sequences/
    --images victims/ --part test --direct fresh-0.1.onnx --direct fresh-1.onnx --out results/
    """
    networks = [load_network(path) for path in options.files]
    kind, weights, seed = networks[0].kind, options.weights, options.seed
    check_networks(networks, kind)
    describer = make_describer(kind, weights)
    sources = patches.Sources(load_hpatches(options.data), [load_phototour(folder) for folder in options.phototour])
    patch_settings = patches.Settings(options.max_patches, options.pairs, options.queries, seed)
    match_settings = scenes.Settings(kind, options.max_features, seed, weights=weights)
    settings = inversion.Settings(kind, seed=seed, geometry=options.geometry, part=options.part, weights=weights)
    trials = inversion.make_trials(options.attacks)
    own = builtin(kind) if options.database is None else own_database([options.database], kind)
    painter, painters = load_painter(options.inverter, kind), [load_painter(path) for path in options.direct]
    files = find_photographs(options.images, options.part)
    with progress("photographs") as report:
        count, described_as = options.photographs, kind if weights is None else "sift"
        photographs = read_photographs(files, count, described_as, report=report)
    if weights is not None:
        photographs = described_by(photographs, settings)
    name, schemes = inversion.name_of(options.images), inverted_schemes(networks, kind)
    experiment = inversion.Experiment(name, photographs, schemes, trials, painter, own, painters, settings=settings)
    pictures = options.out / "pictures"
    return studies(networks, describer, sources, patch_settings, match_settings, experiment, pictures)


def studies(
    networks: Sequence[ConcealingNetwork],
    describer: PatchDescriber,
    sources: patches.Sources,
    patch_settings: patches.Settings,
    match_settings: scenes.Settings,
    experiment: inversion.Experiment,
    pictures: Path,
) -> list[Study[Any]]:
    """What each of the three benches measures of `networks`; lifting draws from the database of `experiment`.

    FPR@95 and the tasks of HPatches (their figure 5), mean matching accuracy (8a), what inverters see (tables 1, 3, 4).
    """
    if sources.sequences is None:
        raise InputError("mean matching accuracy is of image sequences: give a folder of scenes")
    described = patches.study(sources, describer, patches.transforms(networks), patch_settings)
    schemes = matched_schemes(networks, describer.kind, experiment.database)
    matched = matching.study(sources.sequences, schemes, match_settings)
    return [
        replace(described, bench=patches.BENCH),
        replace(matched, bench=matching.BENCH),
        replace(inversion.study(experiment, pictures), bench=inversion.BENCH),
    ]


def check_networks(networks: Sequence[ConcealingNetwork], kind: str) -> None:
    """Raise InputError unless all conceal descriptors of `kind`, and no two are the same."""
    for network in networks:
        if network.kind != kind:
            raise InputError(f"{network.name} conceals {network.kind} descriptors, not {kind}: study kinds one by one")
    names = [network.name for network in networks]
    if len(set(names)) < len(names):
        raise InputError(f"{max(names, key=names.count)} was named twice: leave one out")


def matched_schemes(networks: Sequence[ConcealingNetwork], kind: str, database: Database) -> list[Scheme]:
    """Raw descriptors, each network, and lifting by entries of `database`."""
    lifting = Lifting(*LIFTED, database=database).for_kind(kind)
    concealed = [Scheme(network.name, Concealer(network)) for network in networks]
    return [scenes.RAW, *concealed, Scheme("{}-{}".format(*LIFTED), lifting)]


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


BENCH = Bench[Options, Any, ConcealerResults](
    "concealers",
    concealers,
    tasks=("patches", "matching", "inversion"),
    rows=rows_of,
    text=concealer_text,
    screen=screen,
    facts=facts,
    figures={CURVE: draw, "matching.png": draw_matching},
    title=lambda record: f"Concealed {record.parameters['kind']}",
    whole_file=True,
)
