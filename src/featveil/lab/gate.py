"""The gate: how well gated queries are localized, and what of private content in them is sent and recovered.

Each image of a scene is left out in turn and localized in a map of the others. Then content that the map has never seen
is pasted into it: what of that is sent, what the best attack recovers of it, and what it does to the pose. Photographs
from elsewhere are gated too: how much of them passes, and would they be taken for the place?
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from featveil.core import InputError
from featveil.core.options import argument, option
from featveil.core.records import Parameter, Record
from featveil.databases import builtin
from featveil.datasets import load_map_scenes
from featveil.datasets.private_content import SHARES, Content, contents
from featveil.extractors import image_files
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Progress,
    Study,
    features_option,
    kind_option,
    out_option,
    refuse_none,
    seed_option,
)
from featveil.lab.gate_parts.gate_pictures import portrait
from featveil.lab.gate_parts.gate_report import draw, facts_of_rows, gate_text, rows_of, screen
from featveil.lab.gate_parts.gate_subjects import (
    LEAKED_METRIC,
    LEAKED_UNIT,
    METRIC,
    PASSED_METRIC,
    PASSED_UNIT,
    UNIT,
    Baseline,
    Elsewhere,
    Pasted,
    Photographs,
    Place,
    Query,
    measure,
)
from featveil.lab.gate_parts.gate_variants import Variant, make_variants
from featveil.lab.localization_parts.localization_maps import SUPPORTED, MapsWithout, Method
from featveil.lab.scene_studies import RAW, SceneReleases, Settings, hardened, lifted, pool_descriptors, subsets

_MAPPED = 10_000  # iterations of RANSAC, where candidates are few
_FEWER = 8  # images that a raw query is also matched with


@dataclass(frozen=True)
class Options:
    """What is localized, by which gates, with which content."""

    scenes: tuple[Path, ...] = argument(metavar="SCENES...", help="Scenes with true cameras.")
    out: Path = out_option("records.jsonl, table.md, curve.png, portrait.png and the maps")
    every: int = option(1, help="Localize every so many images of a scene only.", minimum=1)
    sketches: tuple[str, ...] = option(("16", "32", "exact"), help="Bytes of an entry, or exact; usual is the first.")
    taus: tuple[float, ...] = option((0.25, 0.3, 0.35, 0.4, 0.5), help="Taus beside the calibrated one; or none.")
    supports: tuple[str, ...] = option(("neighbours", "covisible", "both"), help="Supports to try; or none.")
    epsilons: tuple[float, ...] = option((10.0,), help="Epsilons of words, alone and after a gate; or none.")
    dimensions: tuple[int, ...] = option((4,), help="Dimensions of lifted queries; or none.")
    pool: Path | None = option(None, help="Photographs for the pools of hardened lifting.", shown="not run")
    shares: tuple[float, ...] = option(
        SHARES,
        help="Shares of the picture for private content; none for nothing. Most schemes get the middle one.",
    )
    private: Path | None = option(None, help="Folder of private content.", shown="the bundled one")
    elsewhere: tuple[Path, ...] = option(
        (), help="Photographs that show other places: folders or files (may be repeated).", shown="none", repeated=True
    )
    iterations: int = option(100_000, help="Most iterations of RANSAC for words.", minimum=1)
    retrieved: int = option(20, help="Map images that other queries than gated ones are matched with.", minimum=1)
    max_features: int = features_option()
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "sketches")
        if any(not 0 < share < 1 for share in self.shares):
            raise InputError("shares of the picture (--shares) are above 0 and below 1")


def gate(options: Options, progress: Progress) -> Study[Query | Elsewhere]:
    """Localize each image of a scene through a gate, with private content in it too, beside raw and other queries.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl and OUT/maps).

    Example: featveil bench gate strecha/castle-P30 --every 3 --elsewhere landmarks/ --out results/
    """
    settings = Settings(options.kind, options.max_features, options.seed)
    pool = None
    if options.pool is not None:
        with progress("pool") as report:
            pool = pool_descriptors(options.pool, options.kind, report)
    places = []
    for scene in (scene for folder in options.scenes for scene in load_map_scenes(folder)):
        if set(scene.poses) != set(scene.images) or set(scene.cameras) != set(scene.images):
            raise InputError(f"scene {scene.name} has no true cameras for all its images, which localization needs")
        releases = SceneReleases(scene, settings, pool)
        places.append(Place(releases, MapsWithout(releases, options.retrieved, options.out / "maps" / scene.name)))
    ways = Ways(
        make_variants(options.sketches, options.taus, options.supports, options.epsilons),
        baselines(options),
        contents(options.private) if options.shares else [],
        tuple(options.shares),
        Photographs(_files(options.elsewhere), options.kind, options.max_features),
        options.every,
    )
    shared: dict[str, Parameter] = {**settings.shared(), "retrieved": options.retrieved}
    pictures = partial(_portrait, places, ways, options.out)
    return Study(partial(cases, places, ways), shared, options.seed, pictures=pictures)


@dataclass(frozen=True, eq=False)
class Ways:
    """Gates and what they are compared with; `content` at `shares` of the picture; every how manieth image is left out.

    Only the usual gate and the first of `others`, which is raw, get content at all of the shares, the rest at the
    middle one.
    """

    gates: Sequence[Variant]
    others: Sequence[Baseline]
    content: Sequence[Content]
    shares: tuple[float, ...]
    photographs: Photographs
    every: int = 1

    def pasted(self, number: int, way: Variant | Baseline) -> list[Pasted]:
        """What query `number` gets: another content each time, so that all have their turn."""
        if not self.content:
            return []
        places = range(len(self.shares)) if way in (self.gates[0], self.others[0]) else [len(self.shares) // 2]
        return [Pasted(self.content[(number + place) % len(self.content)], self.shares[place]) for place in places]


def baselines(options: Options) -> list[Baseline]:
    """Raw, raw with fewer images, lifting, hardened lifting where there is a pool, and words."""
    raw = Method(RAW, "raw", "point-to-point", (_MAPPED,))
    hidden = [*lifted(options.kind, options.dimensions), *(hardened() if options.pool else [])]
    subspaces = [Method(scheme, "raw", "point-to-subspace", (_MAPPED,)) for scheme in hidden]
    words = subsets(builtin(options.kind), options.epsilons, [2]) if options.epsilons else []
    fewer = [Baseline(raw, _FEWER, _MAPPED, f"-{_FEWER}-images")] if options.retrieved > _FEWER else []
    return [
        Baseline(raw, options.retrieved, _MAPPED),
        *fewer,
        *(Baseline(method, options.retrieved, _MAPPED) for method in subspaces),
        *(
            Baseline(Method(scheme, "raw", SUPPORTED, (options.iterations,)), options.retrieved, options.iterations)
            for scheme in words
        ),
    ]


def cases(places: Sequence[Place], ways: Ways) -> Iterator[Case[Query | Elsewhere]]:
    """Query by query, so that its map and its sketches are there for all of its cases."""
    every: list[Variant | Baseline] = [*ways.gates, *ways.others]
    for place in places:
        names = sorted(place.releases.scene.images)[:: ways.every]
        for number, name in enumerate(names):
            for way in every:
                yield _case(place, way, name, None)
                for pasted in ways.pasted(number, way):
                    yield _case(place, way, name, pasted)
            if number == 0 and ways.photographs.paths:
                for gated in ways.gates:
                    stated: dict[str, Parameter] = {"query": name, "content": "elsewhere", "share": 0.0}
                    subject = Elsewhere(place, gated, name, ways.photographs)
                    yield Case(
                        gated.name,
                        {**stated, **gated.parameters()},
                        subject,
                        dataset=place.releases.scene.name,
                        metric=PASSED_METRIC,
                        unit=PASSED_UNIT,
                    )


def _case(place: Place, way: Variant | Baseline, name: str, pasted: Pasted | None) -> Case[Query | Elsewhere]:
    stated: dict[str, Parameter] = {"query": name, "content": "", "share": 0.0}
    metric, unit = METRIC, UNIT
    if pasted is not None:
        stated |= {"content": pasted.content.name, "share": pasted.share}
        metric, unit = LEAKED_METRIC, LEAKED_UNIT
    about = way.parameters() if isinstance(way, Variant) else {"matched_with": way.retrieved}
    subject = Query(place, way, name, pasted)
    return Case(way.name, {**stated, **about}, subject, dataset=place.releases.scene.name, metric=metric, unit=unit)


def _files(given: Sequence[Path]) -> list[Path]:
    return [path for one in given for path in ([one] if one.is_file() else image_files(one))]


def _portrait(places: Sequence[Place], ways: Ways, out: Path, records: Sequence[Record]) -> list[Path | str]:
    """The picture of the first place, where anything is pasted."""
    if not ways.content:
        return []
    place = places[0]
    names = sorted(place.releases.scene.images)[:: ways.every]
    return [portrait(place, names[len(names) // 2], ways.gates[0], ways.content, out / "portrait.png")]


BENCH = Bench(
    "gate",
    gate,
    measure=measure,
    key=("dataset", "scheme", "query", "content", "share"),
    rows=rows_of,
    text=gate_text,
    screen=screen,
    figures={CURVE: draw},
    title=lambda record: f"The gate, {record.parameters['kind']}",
    facts=facts_of_rows,
    named=("query", "content", "share"),
    packages=("pycolmap", "faiss-cpu"),
    whole_file=True,
)
