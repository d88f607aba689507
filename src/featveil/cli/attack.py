"""featveil attack: private features -> guesses of what they hide, and how near those are to the truth."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.adversary import (
    FEATURES_OF_IMAGE,
    Adversary,
    Files,
    Obstacle,
    beside,
    obstacle,
    veil_files,
)
from featveil.cli.attack_results import FLOOR, LeftOut, Results, list_attacks
from featveil.cli.chosen_attacks import make_attacks
from featveil.cli.console import Json, complain, progress, show, stderr
from featveil.cli.extract import read_features
from featveil.core.errors import FeatveilError, InputError, MissingExtraError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind

if TYPE_CHECKING:
    from featveil.attacks import Attack
    from featveil.core import ConcealingNetwork, PrivateFeatures
    from featveil.core.resuming import Report
    from featveil.metrics import Truth
    from featveil.pipelines.attack_parts.records import Settings, Target


def attack(
    private: Annotated[
        list[Path] | None, typer.Argument(metavar="PRIVATE", help="Private .veil files, or folders of them.")
    ] = None,
    attacks: Annotated[
        list[str] | None,
        typer.Option("--with", help="Attacks, separated by commas, or all: those that can be run with what is known."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="To score with: raw .veil file or image, or a folder of them with the same names."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for records, table and histograms; without --truth for the guesses.")
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(help="The attacker's own descriptors, a file, or none.", show_default="the built-in one"),
    ] = None,
    lifting_database: Annotated[
        Path | None,
        typer.Option(
            help="Database that the features were lifted with; none: the attacker does not know it.",
            show_default="the built-in one if named",
        ),
    ] = None,
    codebook: Annotated[
        Path | None, typer.Option(help="Codebook of word sets.", show_default="the built-in one if named")
    ] = None,
    others: Annotated[
        list[Path] | None, typer.Option(help="Other private images lifted with the same database, or folders of them.")
    ] = None,
    repeats: Annotated[
        list[Path] | None,
        typer.Option(help="Further releases of the same features, or folders of them with the same names."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Another image of the same place: an image or a .veil file, raw or private.")
    ] = None,
    concealer: Annotated[
        Path | None,
        typer.Option(help="Network that the features were concealed by.", show_default="the built-in one if named"),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of an attack: NAME=VALUE or ATTACK.NAME=VALUE.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Features to attack where each is attacked by itself.", show_default="all")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the attacks' own draws and the sample.")] = 0,
    list_: Annotated[bool, typer.Option("--list", help="Say what each attack needs and applies to, and stop.")] = False,
    json: Json = False,
) -> None:
    """Try to recover the descriptors behind private features, and say how near the guesses come.

    With --truth and --out, what OUT/records.jsonl holds is not run again, so a stopped command can be run again. A file
    that cannot be used is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil attack query.veil --with nearest --truth query-raw.veil --out results/
    """
    from featveil.pipelines.attack_parts.records import Settings

    if list_:
        facts, text = list_attacks()
        show(facts, json, text)
        return
    if not private or not attacks:
        raise InputError("name private .veil files and attacks, --with NAME or all: featveil attack --list shows them")
    methods, everything = make_attacks(attacks, settings or [])
    files = _victims(private)
    _check_files(files, truth, repeats or [], reference, out)
    several = tuple(others or ()), tuple(repeats or ())
    known = Files(database, lifting_database, codebook, *several, reference, concealer)
    results = _Run(methods, everything, Adversary(known), truth, Settings(seed, sample), files, out).all_files()
    if not results.records and not results.guesses:
        why = "; ".join(results.not_run()) or "see the lines above"
        raise InputError(f"nothing could be attacked in {len(files)} file{'s' if len(files) > 1 else ''}: {why}")
    if out is not None:
        results.write(out)
    show(results.facts(), json, results.text())
    if results.failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Victim:
    """A private file; `inside` is its name in the folder that was given, under which its truth is looked for."""

    path: Path
    inside: str


def _victims(paths: list[Path]) -> dict[str, _Victim]:
    """What to attack, by a name that is unique; of several folders, such as one for each defense, with the folder's."""
    found: dict[str, _Victim] = {}
    for path in paths:
        before = f"{path.resolve().name}/" if path.is_dir() and len(paths) > 1 else ""
        for inside, file in veil_files(path).items():
            if found.setdefault(before + inside, _Victim(file, inside)).path != file:
                raise InputError(f"two files are called {before + inside}: attack them one after the other")
    return found


def _check_files(
    files: dict[str, _Victim], truth: Path | None, repeats: list[Path], reference: Path | None, out: Path | None
) -> None:
    """Raise InputError, before any work, for paths that are missing or one file where each victim needs its own."""
    given = [("--truth", truth), *(("--repeats", path) for path in repeats), ("--reference", reference)]
    for option, path in given:
        if path is not None and not path.exists():
            raise InputError(f"there is no file or folder {path} for {option}")
        if path is not None and option != "--reference" and len(files) > 1 and not path.is_dir():
            raise InputError(f"{option} {path} is one file for {len(files)}: name a folder that holds the same names")
    if out is not None and out.exists():
        check_folder(out)


@dataclass
class _Run:
    """All attacks on all files, one after the other; `everything`: those that cannot be run are left out."""

    methods: "list[Attack]"
    everything: bool
    adversary: Adversary
    truth: Path | None
    settings: "Settings"
    files: dict[str, _Victim]
    out: Path | None

    def __post_init__(self) -> None:
        self.results = Results(self.adversary.sources())

    def all_files(self) -> Results:
        """Attack every file, under a progress bar; Ctrl-C says how to go on where something is kept."""
        try:
            with progress("attacking") as report:
                for place, (name, victim) in enumerate(self.files.items()):
                    self._try_file(name, victim, partial(_advance, report, place, len(self.files)))
        except KeyboardInterrupt:
            told = f"The same command goes on from {self.out}" if self._keeps() else "Nothing was kept"
            stderr.print(f"Stopped. {told}", markup=False, highlight=False)
            raise typer.Exit(130) from None
        return self.results

    def _keeps(self) -> bool:
        """Whether the folder holds records or, without a truth, guesses that the same command does not make again."""
        from featveil.pipelines.attack_parts.guesses import guess_path

        if self.out is None:
            return False
        if self.truth is not None:
            return (self.out / "records.jsonl").exists()
        return any(guess_path(self.out, name, method).exists() for name in self.files for method in self.methods)

    def _try_file(self, name: str, victim: _Victim, report: "Report") -> None:
        try:
            self._file(name, victim, report)
        except FeatveilError as error:
            if len(self.files) == 1:
                raise
            self._failed(name, error)

    def _file(self, name: str, victim: _Victim, report: "Report") -> None:
        from featveil.pipelines.attack_parts.guesses import run_guesses
        from featveil.pipelines.attack_parts.records import Target, run_resumable

        private = _private(victim.path)
        knowledge = self.adversary.knowledge(private, victim.inside)
        truth = self._aligned(private, victim, knowledge.network)
        knowledge = replace(knowledge, truth=None if truth is None else truth.points)
        target = Target(name, private, knowledge)
        methods = self._usable(target)
        self.results.note_database(private, knowledge, methods)
        self.results.note_geometry(private)

        def failed(method: "Attack", error: FeatveilError) -> None:
            if self.everything and isinstance(error, MissingExtraError):
                obstructed = Obstacle(f"without an extra ({error})", str(error))
                self.results.left_out.append(LeftOut(name, method.name, obstructed))
                return
            if len(self.files) == len(self.methods) == 1:
                raise error
            self._failed(f"{name}, {method.name}", error)

        if truth is None:
            self.results.guesses += run_guesses(target, methods, self.settings, self.out, failed, report)
        else:
            self.results.note_truth(private, truth)
            kept = None if self.out is None else self.out / "records.jsonl"
            self.results.records += run_resumable(target, truth, methods, self.settings, kept, failed, report)

    def _usable(self, target: "Target") -> "list[Attack]":
        """The attacks that can be run, and the floor; for one that cannot, a reason or, if it was named, an error."""
        from featveil.attacks import ATTACKS

        found, scored = [], target.knowledge.truth is not None
        for method in self.methods:
            obstructed = obstacle(target.private, method, target.knowledge)
            if obstructed is None:
                found.append(method)
            elif self.everything:
                self.results.left_out.append(LeftOut(target.name, method.name, obstructed))
            elif len(self.files) == 1:
                raise InputError(obstructed.message)
            else:
                self._failed(target.name, obstructed.message)
        if self.everything and not scored:  # a guess without looking is there to be compared with
            return [method for method in found if method.name != FLOOR]
        floor: Attack = ATTACKS[FLOOR]()
        wanted = scored and found and not any(method.name == FLOOR for method in self.methods)
        # Last: what fails with an error shall not leave a record of chance alone.
        return [*found, floor] if wanted and obstacle(target.private, floor, target.knowledge) is None else found

    def _aligned(
        self, private: "PrivateFeatures", victim: _Victim, network: "ConcealingNetwork | None"
    ) -> "Truth | None":
        """The truth of the file; raises InputError when the features given for it are not those that it hides."""
        from featveil.core import Features
        from featveil.metrics import align

        if self.truth is None:
            return None
        path = beside(self.truth, victim.inside, "--truth")
        raw = read_features(path, base_kind(private.kind), max(FEATURES_OF_IMAGE, len(private)))
        if not isinstance(raw, Features):
            raise InputError(f"{path} is private: --truth takes the raw features or the image it came from")
        try:
            return align(private, raw, network)
        except InputError as error:
            raise InputError(f"{path} does not belong to {victim.path}: {error}") from error

    def _failed(self, what: str, error: object) -> None:
        self.results.failed += 1
        complain("warning", f"{what}: {error}")


def _advance(report: "Report", place: int, files: int, done: int, total: int) -> None:
    """Of `files` with `total` attacks each, the one at `place` has `done`."""
    report(place * total + done, files * total)


def _private(path: Path) -> "PrivateFeatures":
    from featveil.core import PrivateFeatures
    from featveil.extractors.images import IMAGE_SUFFIXES
    from featveil.formats.veil import load

    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"{path} is an image: privatize it first, and attack the result")
    features = load(path)
    if not isinstance(features, PrivateFeatures):
        raise InputError(f"{path} holds raw features: nothing is hidden, so there is nothing to attack")
    if len(features) == 0:
        raise InputError(f"{path} has no features: there is nothing to attack")
    return features
