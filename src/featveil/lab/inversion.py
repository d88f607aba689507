"""What attackers see of photographs under every defense, and how near that is to the photograph.

Recover-then-invert: an attack estimates every descriptor, and an inverter of raw ones paints the picture. Direct: an
inverter trained on what the defense sends. Floors: a grey picture, and random descriptors at the true positions.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
from rich.table import Table

from featveil.attacks import ATTACKS, Chance, Guess, Knowledge, Read, attack
from featveil.audit.schemes import Releases, Scheme, Victim
from featveil.audit.trials import Trial
from featveil.audit.victims import check_apart, evenly, own_database
from featveil.core import ConcealingNetwork, InputError, MissingExtraError, Points, PrivateFeatures
from featveil.core.files import make_folder, replacing
from featveil.core.options import option
from featveil.core.records import Parameter, Record
from featveil.core.seeding import image_generator
from featveil.databases import Database
from featveil.defenses import Identity, load_network
from featveil.extractors import CONTRAST, Sift, read_image
from featveil.lab import attacks
from featveil.lab import scene_studies as scenes
from featveil.lab.bench import (
    CURVE,
    Bench,
    Case,
    Measured,
    Progress,
    Study,
    concealers_option,
    kind_option,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)
from featveil.lab.inversion_parts.inversion_photos import ALL, Photograph, find_photographs, read_photographs
from featveil.lab.inversion_parts.inversion_report import (
    BLANK,
    COLUMNS,
    FLOORS,
    RAW,
    InversionRow,
    Seen,
    best_inversions,
    draw,
    draw_grid,
    grid_columns,
    inversion_text,
    rows_of,
)
from featveil.metrics import guess_distances
from featveil.metrics.reconstruction import METRIC, UNIT, compare
from featveil.pipelines.painters import Image, Painter, blank, check_reads_raw, load_painter, paint, recovered
from featveil.pipelines.scoring import scheme_name

DIRECT = "direct"
GEOMETRIES = ("positions", "full")
DEFAULT_ATTACKS = (
    *("read", "nearest", "database", "clustering", "lattice", "vertex", "oracle", "mean"),
    *("posterior", "posterior+database", "posterior-overlap+database", "unconceal"),
)
PART_HELP = "test: only photographs that training leaves for tests, whatever folder they are in."


@dataclass(frozen=True)
class Options:
    """What is attacked, how it is defended, and what the attackers have."""

    images: tuple[Path, ...] = option(help="Folder of photographs to attack (may be repeated).", repeated=True)
    attacker: tuple[Path, ...] = option(
        help="Folder of the attacker's photographs (may be repeated), or one database file.", repeated=True
    )
    out: Path = out_option("records.jsonl, table.md, curve.png and pictures")
    inverter: Path | None = option(None, help="Inverter of raw descriptors.", shown="the built-in one")
    direct: tuple[Path, ...] = option(
        (), help="Inverter trained on what a scheme sends (may be repeated).", shown="none", repeated=True
    )
    only: tuple[str, ...] | None = option(
        None,
        help="Attacks that recover descriptors, NAME or NAME+KNOWLEDGE, separated by commas.",
        shown="the papers', lattice, vertex, posterior",
    )
    leave_out: tuple[str, ...] = option(
        ("sub-hybrid-16:vertex",),
        help="SCHEME:ATTACK not to run, separated by commas, or none: the default takes minutes each.",
    )
    geometry: str = option(
        "positions", help="What is sent of keypoints: positions, or full (scale, orientation, response too)."
    )
    part: str = option(ALL, help=PART_HELP)
    strategies: tuple[str, ...] = option(("sub-hybrid",), help="Lifting strategies; none for no lifting.")
    dimensions: tuple[int, ...] = option((2, 4, 8, 16), help="Subspace dimensions, or none.")
    random_dimensions: tuple[int, ...] = option((2,), help="Of random lifting; none to leave it out.")
    epsilons: tuple[float, ...] = option((14.0, 10.0), help="Epsilons of the subset mechanism; none to leave it out.")
    subset_sizes: tuple[int, ...] = option((2,), help="Words it sends for each descriptor.")
    concealer: tuple[Path, ...] = concealers_option()
    composed: bool = option(False, help="Also all other defenses after each concealer, as one scheme.")
    photographs: int = option(12, help="Photographs to attack, evenly spaced.", minimum=1)
    max_features: int = option(1000, help="Features of each, the strongest.", minimum=1)
    contrast_threshold: float = option(CONTRAST, help="Of keypoints; a smaller one finds more, in flat areas too.")
    database_size: int = option(65_536, help="Descriptors that the attacker has.", minimum=1)
    grid: tuple[str, ...] = option(
        ("0",), help="Photographs to show in grid.png beside what is seen: how many, or their names."
    )
    grid_columns: tuple[str, ...] | None = option(
        None, help="SCHEME:ATTACK to show, separated by commas.", shown="the best on each scheme"
    )
    kind: str = kind_option()
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "subset_sizes", "grid")


def inversion(options: Options, progress: Progress) -> Study["Sight"]:
    """What attackers see: pictures from recovered descriptors and by inverters of what is sent; MAE, SSIM, PSNR.

    The middle square of each photograph is attacked. Take photographs that no inverter was trained on (--part test, if
    it may have been), nor the attacker has. Stop it with Ctrl-C at any time: the same command goes on where it stopped
    (from OUT/records.jsonl). Pictures are kept in OUT/pictures; the photographs themselves only in grid.png, if asked.

    Example: featveil bench inversion --images victims/ --attacker photos/ --out results/ --direct lifting-4.onnx
    """
    for theirs in options.attacker:
        for folder in options.images:
            check_apart(theirs, folder, "the attacker's database would hold what is hidden")
    kind, count = options.kind, options.max_features
    settings = Settings(kind, count, options.seed, options.geometry, options.part, options.contrast_threshold)
    schemes = make_schemes(
        kind,
        options.strategies,
        options.dimensions,
        options.random_dimensions,
        options.epsilons,
        options.subset_sizes,
        [load_network(path) for path in options.concealer],
        options.composed,
    )
    trials = make_trials(DEFAULT_ATTACKS if options.only is None else options.only)
    painter, painters = load_painter(options.inverter, kind), [load_painter(path) for path in options.direct]
    left_out = frozenset(_pairs(options.leave_out, "--leave-out"))
    columns = None if options.grid_columns is None else _pairs(options.grid_columns, "--grid-columns")
    files = find_photographs(options.images, options.part)
    with progress("attacker's photographs") as report:
        database = own_database(list(options.attacker), kind, options.database_size, options.seed, report)
    with progress("photographs") as report:
        chosen = read_photographs(files, options.photographs, kind, count, report, options.contrast_threshold)
    name = name_of(options.images)
    experiment = Experiment(name, chosen, schemes, trials, painter, database, painters, left_out, settings)
    grid = partial(_grid, experiment, _shown(chosen, options.grid), columns, options.out)
    return replace(study(experiment, options.out / "pictures"), pictures=grid)


def name_of(folders: Sequence[Path]) -> str:
    """What photographs of `folders` are called."""
    return "+".join(dict.fromkeys(folder.resolve().name for folder in folders))


def _pairs(words: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Each SCHEME:ATTACK; an attack may have its knowledge with or without spaces around the +."""
    pairs = []
    for word in words:
        scheme, colon, attack = (part.strip() for part in word.partition(":"))
        if not (scheme and colon and attack):
            raise InputError(f"{option} takes SCHEME:ATTACK separated by commas, got {word!r:.60}")
        pairs.append((scheme, " + ".join(part.strip() for part in attack.split("+"))))
    return pairs


def _shown(photographs: Sequence[Photograph], words: Sequence[str]) -> Sequence[Photograph]:
    """Those of --grid: a number of them, evenly spaced, or the named ones."""
    if len(words) == 1 and words[0].isdecimal():
        return evenly(photographs, int(words[0])) if int(words[0]) else []
    known = {one.name: one for one in photographs}
    unknown = [word for word in words if word not in known]
    if unknown:
        raise InputError(
            f"{unknown[0]!r:.60} is not attacked here: --grid takes a number, or some of {', '.join(known)}"
        )
    return [known[word] for word in words]


@dataclass(frozen=True)
class Settings(scenes.Settings):
    """What all records share: which `geometry` of keypoints is sent, and the `part` that photographs are of."""

    max_features: int = 1000
    geometry: str = "positions"
    part: str = ALL
    contrast_threshold: float = CONTRAST

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.geometry not in GEOMETRIES:
            raise InputError(f"geometry must be one of {', '.join(GEOMETRIES)}, got {self.geometry!r:.40}")
        Sift(contrast_threshold=self.contrast_threshold)  # which checks it

    def shared(self) -> dict[str, Parameter]:
        """These settings but the seed, as every record states them."""
        return {
            "kind": self.kind,
            "max_features": self.max_features,
            "geometry": self.geometry,
            "part": self.part,
            "contrast_threshold": self.contrast_threshold,
        }


@dataclass(frozen=True)
class Constant:
    """The average descriptor of its own database, whatever was sent: what an inverter makes of positions alone."""

    name: ClassVar[str] = "constant"
    summary: ClassVar[str] = "the average descriptor, whatever was sent"
    breaks: ClassVar[tuple[type, ...]] = (Points,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The same guess for every feature."""
        if knowledge.database is None:
            raise InputError("the average is of a database: give one")
        return Guess.all_of(np.tile(knowledge.database.as_points.values.mean(axis=0), (len(seen), 1)))


@dataclass(frozen=True)
class Attempt:
    """One way to a picture: `trial` recovers descriptors for `painter`, which without one reads what is sent.

    Without both it is a grey picture.
    """

    name: str
    painter: Painter | None = None
    trial: Trial | None = None


@dataclass(frozen=True, eq=False)
class Experiment:
    """What is attacked, how it is defended, and what the attackers have.

    `painter` inverts raw descriptors, each of `direct` what one of the schemes sends. `left_out` are (scheme, attack).
    Raises InputError for an inverter that fits no scheme, two that fit one, and one that needs geometry that is not
    sent.
    """

    dataset: str
    photographs: Sequence[Photograph]
    schemes: Sequence[Scheme]
    trials: Sequence[Trial]
    painter: Painter
    database: Database
    direct: Sequence[Painter] = ()
    left_out: frozenset[tuple[str, str]] = frozenset()
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for painter in (self.painter, *self.direct):
            if painter.needs_geometry and self.settings.geometry != "full":
                raise InputError(f"{painter.name} reads scale and orientation of keypoints: --geometry full sends them")
        check_reads_raw(self.painter, self.settings.kind)
        for painter in self.direct:
            if not any(self._fits(painter, scheme) for scheme in self.schemes):
                raise InputError(f"{painter.name} was trained on {_trained_on(painter)}, which no scheme here sends")
        for scheme in self.schemes:
            names = [attempt.name for attempt in self.attempts(scheme)]
            if len(set(names)) < len(names):
                raise InputError(f"two inverters of one architecture fit {scheme.name}: give one at a time")

    def attempts(self, scheme: Scheme) -> Iterator[Attempt]:
        """What is tried on a scheme; the floors, which are the same for all, on raw descriptors."""
        if isinstance(scheme.defense, Identity):
            yield Attempt(BLANK)
            yield Attempt(Chance.name, self.painter, Trial(Chance()))
            yield Attempt(Constant.name, self.painter, Trial(Constant()))
            yield Attempt(Read.name, self.painter, Trial(Read()))
            if self.painter.reads_geometry and self.settings.geometry != "full":
                shown = Trial(Read(), geometry=True)
                yield Attempt(shown.name, self.painter, shown)
        for trial in self.trials:
            if _faces(scheme, trial) and (scheme.name, trial.name) not in self.left_out:
                yield Attempt(trial.name, self.painter, trial)
        for painter in self.direct:
            if self._fits(painter, scheme):
                yield Attempt(_direct_name(painter), painter)

    def _fits(self, painter: Painter, scheme: Scheme) -> bool:
        """Whether it was trained on just what the scheme sends, with the same database or codebook."""
        kind = self.settings.kind if scheme.network is None else scheme.network.concealed_kind
        inverter = painter.inverter
        return inverter.encoding.kind == kind and inverter.card.get("defense") == scheme.defense.spec()

    def wanted(self) -> Iterator[tuple[Photograph, Scheme, Attempt]]:
        """Everything that is to be measured, in order."""
        for scheme in self.schemes:
            for photograph in self.photographs:
                for attempt in self.attempts(scheme):
                    yield photograph, scheme, attempt


def study(experiment: Experiment, pictures: Path | None = None) -> Study["Sight"]:
    """Every attempt on every photograph and scheme; what is seen goes to the folder `pictures`, unless that is None."""
    shared = {**experiment.settings.shared(), "own_database": experiment.database.digest[:16]}
    return Study(partial(_cases, experiment, pictures), shared, experiment.settings.seed, experiment.dataset)


def _cases(experiment: Experiment, pictures: Path | None) -> Iterator[Case["Sight"]]:
    victims = {one.name: Victim(one.name, one.features, one.features) for one in experiment.photographs}
    releases = Releases(list(victims.values()), experiment.database, experiment.settings.seed)
    for photograph, scheme, attempt in experiment.wanted():
        path = None if pictures is None else picture_path(pictures, scheme.name, attempt.name, photograph.name)
        sight = Sight(releases, victims[photograph.name], photograph, scheme, attempt, experiment.settings, path)
        stated = {"victim": photograph.name, **_stated(photograph, scheme, attempt)}
        yield Case(scheme.name, stated, sight, attack=attempt.name)


def _stated(photograph: Photograph, scheme: Scheme, attempt: Attempt) -> dict[str, Parameter]:
    """What decides a record, beside the settings that all share."""
    painter = attempt.painter
    return {
        **scheme.parameters(),
        "photograph": photograph.digest[:16],
        "inverter": None if painter is None else painter.digest[:16],
        "inverter_name": None if painter is None else painter.name,
        "inverter_geometry": None if painter is None else painter.inverter.encoding.geometry,
    }


def picture_path(folder: Path, scheme: str, attack: str, victim: str) -> Path:
    """Where what an attacker sees of a photograph is kept."""
    return folder / scheme / attack.replace(" + ", "+") / f"{victim}.png"


@dataclass(frozen=True, eq=False)
class Sight:
    """A photograph under a scheme, as one attempt shows it; the picture is kept at `path`, unless that is None."""

    releases: Releases
    victim: Victim
    photograph: Photograph
    scheme: Scheme
    attempt: Attempt
    settings: Settings
    path: Path | None

    def painted(self) -> tuple[Image, dict[str, Parameter]]:
        """The picture, and what is known of how it came about."""
        trial, painter = self.attempt.trial, self.attempt.painter
        if painter is None:
            return blank(self.photograph.image), {"seconds": 0.0}
        full = self.settings.geometry == "full" or (trial is not None and trial.geometry)
        seen = self.releases.release(self.victim, self.scheme, geometry=full)
        started = time.perf_counter()
        if trial is None:
            book = self.scheme.codebook
            picture = paint(seen, painter, None if book is None else np.asarray(book.values, np.float32))
            return picture, {"seconds": round(time.perf_counter() - started, 3)}
        truth = self.releases.truth(self.victim, self.scheme)
        known = replace(self.releases.knowledge(self.victim, self.scheme, trial), truth=truth.points)
        guess = attack(seen, trial.method, known, image_generator(self.settings.seed, self.victim.name, 0, trial.name))
        about: dict[str, Parameter] = {
            "seconds": round(time.perf_counter() - started, 3),
            "answered": round(float(guess.answered.mean()), 4),
            "median_distance": round(float(np.median(guess_distances(guess.values, truth.points))), 4),
        }
        return paint(recovered(seen, guess), painter), about


def measure(sight: Sight) -> Measured:
    """MAE, SSIM and PSNR of the picture."""
    picture, about = sight.painted()
    if sight.path is not None:
        _store(picture, sight.path)
    count = len(sight.photograph.features)
    epsilon = sight.scheme.defense.guarantee().compose(count).epsilon
    about = {"features": count, **about, **({} if epsilon is None else {"image_epsilon": epsilon})}
    return Measured(tuple(round(one, 6) for one in compare(picture, sight.photograph.image)), count, about)


def _store(picture: Image, path: Path) -> None:
    make_folder(path.parent)
    _, content = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    with replacing(path) as temporary:
        temporary.write_bytes(content.tobytes())


def make_schemes(
    kind: str,
    strategies: Sequence[str] = ("sub-hybrid",),
    dimensions: Sequence[int] = (2, 4, 8, 16),
    random_dimensions: Sequence[int] = (2,),
    epsilons: Sequence[float] = (14.0, 10.0),
    subset_sizes: Sequence[int] = (2,),
    concealers: Sequence[ConcealingNetwork] = (),
    composed: bool = False,
) -> list[Scheme]:
    """No defense, random lifting, then as `attacks.make_schemes` makes them: strategies, word sets, concealers."""
    plain, *lifted = attacks.make_schemes(kind, ["random"], random_dimensions, (), (), ())
    others = attacks.make_schemes(kind, strategies, dimensions, epsilons, subset_sizes, (), concealers, composed)
    return list({scheme.name: scheme for scheme in (plain, *lifted, *others[1:])}.values())


def make_trials(names: Sequence[str] = DEFAULT_ATTACKS) -> list[Trial]:
    """Attacks, each as NAME or NAME+KNOWLEDGE with what its adversary has beyond what it needs.

    Raises InputError for unknown ones, for knowledge that an attack makes no use of, and for attacks that need another
    image of the place.
    """
    trials: dict[str, Trial] = {}
    for text in names:
        name, *also = (part.strip() for part in text.split("+"))
        if name not in ATTACKS:
            raise InputError(f"unknown attack {name!r:.40}: use some of {', '.join(ATTACKS)}")
        method = ATTACKS[name]()
        unused = [one for one in also if one not in method.uses]
        if unused:
            raise InputError(f"{name} makes no use of {unused[0]!r:.40}: it can use {', '.join(method.uses) or 'none'}")
        if "reference" in (*method.needs, *also):
            raise InputError(f"{name} needs another image of the place, which this study has not: leave it out")
        if name != Chance.name:  # which is in every study
            trial = Trial(method, tuple(also))
            trials[trial.name] = trial
    return list(trials.values())


def _faces(scheme: Scheme, trial: Trial) -> bool:
    """Whether a trial is one on a private scheme; raw descriptors are read as they are, whatever attacks there are."""
    return not isinstance(scheme.defense, Identity) and scheme.faces(trial)


def _trained_on(painter: Painter) -> str:
    spec: Any = painter.inverter.card.get("defense")
    if not isinstance(spec, dict):
        return "what its card does not say"
    digests = [f"{name} {str(spec[name])[:16]}" for name in ("network", "database", "codebook") if spec.get(name)]
    return " with ".join([scheme_name(spec), *digests])


def _direct_name(painter: Painter) -> str:
    card = painter.inverter.card
    architecture = str(card.get("architecture", "unet"))[:16]
    particulars = [
        *([] if architecture == "unet" else [architecture]),
        *(["standardised"] if card.get("standardised") else []),
    ]
    return f"{DIRECT} ({', '.join(particulars)})" if particulars else DIRECT


def _grid(
    experiment: Experiment,
    photographs: Sequence[Photograph],
    columns: Sequence[tuple[str, str]] | None,
    out: Path,
    records: Sequence[Record],
) -> list[Path | str]:
    """Write grid.png from the pictures that are kept."""
    if not photographs:
        return []
    columns = grid_columns(rows_of(records)) if columns is None else columns
    scores = {(one.scheme, one.attack, one.parameters["victim"]): one.value for one in records}
    for scheme, attempt in columns:
        if not any((scheme, attempt) == (one.scheme, one.attack) for one in records):
            raise InputError(f"--grid-columns: {scheme}:{attempt} was not measured here")

    def seen(scheme: str, attempt: str, name: str) -> Seen | None:
        path, value = picture_path(out / "pictures", scheme, attempt, name), scores.get((scheme, attempt, name))
        return Seen(read_image(path), value[1]) if path.is_file() and isinstance(value, tuple) else None

    lines = [[seen(*column, photograph.name) for column in columns] for photograph in photographs]
    try:
        draw_grid(columns, [one.image for one in photographs], lines, out / "grid.png")
    except MissingExtraError as error:
        return [f"grid.png was not drawn: {error}"]
    return [out / "grid.png"]


def _screen(rows: Sequence[InversionRow]) -> Table:
    """The best attack on each scheme, then the floors: a terminal has 80 columns."""
    floors = [row for row in rows if row.scheme == RAW and row.attack in FLOORS]
    return screen_table(COLUMNS, [*best_inversions(rows).values(), *floors])


BENCH = Bench(
    "inversion",
    inversion,
    measure=measure,
    key=("victim", "scheme", "attack"),
    metric=METRIC,
    unit=UNIT,
    rows=rows_of,
    text=inversion_text,
    screen=_screen,
    figures={CURVE: draw},
    title=lambda record: f"What attackers see of {record.dataset}, {record.parameters['kind']}",
    length=3,
    packages=("onnxruntime",),
    usual={"contrast_threshold": CONTRAST},
)
