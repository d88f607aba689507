"""Attack private features: guesses of what they hide, and how near those are to the truth.

Every file is attacked by itself. With a truth each attack leaves a record, without one the guesses themselves; what the
folder holds already is not made again.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import FeatveilError, InputError, MissingExtraError
from featveil.core.files import check_folder, replacing
from featveil.core.kinds import base_kind
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.adversary import NO_FILES, Adversary, AdversaryFiles, Obstacle, beside, obstacle, veil_files
from featveil.pipelines.sources import read_features

if TYPE_CHECKING:
    from featveil.attacks import Attack, Knowledge
    from featveil.core import ConcealingNetwork, PrivateFeatures
    from featveil.core.records import Record
    from featveil.metrics import Truth
    from featveil.pipelines.attack_parts.attack_records import Target
    from featveil.pipelines.attack_parts.guesses import Guessed

FEATURES_OF_IMAGE = 2048

_FLOOR = "chance"
_RECORDS, _TABLE, _HISTOGRAM = "records.jsonl", "table.md", "histogram.png"
_NORM_TOLERANCE = 0.01
_OTHER_NORMS = (
    "the hidden descriptors do not have norm 1, as database entries do: that attacks with a database fail shows nothing"
)
_GEOMETRY = (
    "scale and orientation of the keypoints are in the release: attacks may use them beside what is listed as known"
)
_WORDS = "exact, for words: the word that was hidden is named; its descriptor may still lie apart from the word"
_LIFTED_WITH_IT = (
    "the attacker's own database is the one that these features were lifted with: --database names another"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttackRequest:
    """What to attack, with what, and where results go. `attacks` are names, or "all" for those that can be run."""

    private: tuple[Path, ...] = argument((), metavar="PRIVATE", help="Private .veil files, or folders of them.")
    attacks: tuple[str, ...] = option(
        (),
        help="Attacks, separated by commas, or all: those that can be run with what is known.",
        flags=("--with",),
        repeated=True,
    )
    truth: Path | None = option(
        None, help="To score with: raw .veil file or image, or a folder of them with the same names."
    )
    out: Path | None = option(None, help="Folder for records, table and histograms; without --truth for the guesses.")
    settings: tuple[str, ...] = option(
        (), help="A parameter of an attack: NAME=VALUE or ATTACK.NAME=VALUE.", flags=("--set",), repeated=True
    )
    sample: int | None = option(
        None, help="Features to attack where each is attacked by itself.", shown="all", minimum=1
    )
    seed: int = option(0, help="Of the attacks' own draws and the sample.", minimum=0)


@dataclass(frozen=True)
class LeftOut:
    """An attack that was not named, and cannot be run on a file."""

    file: str
    attack: str
    obstacle: Obstacle


@dataclass(frozen=True)
class AttackResult:
    """What attacks have recovered: `records` where there is a truth, `guesses` where there is none.

    `sources` say where each part of the knowledge comes from, `notes` what a reader must know, `written` what was
    written. `failed` counts files and attacks that ended in an error, each of which was logged.
    """

    records: "tuple[Record, ...]"
    guesses: "tuple[Guessed, ...]"
    left_out: tuple[LeftOut, ...]
    sources: dict[str, str]
    notes: tuple[str, ...]
    failed: int
    written: tuple[str, ...]

    @property
    def not_run(self) -> list[str]:
        """The attacks that were left out, by reason."""
        return _not_run(self.left_out)

    def facts(self) -> dict[str, Any]:
        """As plain values: over all files, for each file, and what is to be known about it."""
        from featveil.plotting.leakage_tables import leakage_rows

        each = [{"file": record.dataset, **asdict(leakage_rows([record])[0])} for record in self.records]
        return {
            "rows": [asdict(row) for row in leakage_rows(self.records)],
            "files": each,
            "guesses": [asdict(guess) for guess in self.guesses],
            "left_out": [{"file": o.file, "attack": o.attack, "reason": o.obstacle.message} for o in self.left_out],
            "sources": self.sources,
            "notes": list(self.notes),
            "failed": self.failed,
            "written": list(self.written),
        }


def attack(request: AttackRequest, known: AdversaryFiles = NO_FILES, report: Report = silent) -> AttackResult:
    """Attack every file with what is `known`, and write records, a table and histograms where a folder is named.

    A file that cannot be used is logged and left out where there are others. Raises InputError for a request that
    cannot be carried out, and where nothing could be attacked.
    """
    methods, everything = _methods(request), "all" in request.attacks
    files = _victims(request.private)
    _check_files(files, request, known)
    run = _Run(request, methods, everything, Adversary(known), files)
    for place, (name, victim) in enumerate(files.items()):
        run.try_file(name, victim, partial(_advance, report, place, len(files)))
    return run.result()


def keeps(request: AttackRequest) -> bool:
    """Whether the folder holds records or, without a truth, guesses that the same request does not make again."""
    from featveil.pipelines.attack_parts.guesses import guess_path

    if request.out is None:
        return False
    if request.truth is not None:
        return (request.out / _RECORDS).exists()
    methods = _methods(request)
    return any(guess_path(request.out, name, one).exists() for name in _victims(request.private) for one in methods)


def list_attacks() -> dict[str, Any]:
    """Every attack with what it needs, can use and applies to, and what an adversary may know."""
    from featveil.attacks import ATTACKS, MEANINGS, REPRESENTATIONS
    from featveil.pipelines.scoring import attack_parameters

    facts = [
        {
            "name": name,
            "summary": method.summary,
            "applies_to": [REPRESENTATIONS[kind] for kind in method.breaks],
            "needs": list(method.needs),
            "uses": list(method.uses),
            "parameters": {key.partition(".")[2]: value for key, value in attack_parameters(method()).items()},
        }
        for name, method in ATTACKS.items()
    ]
    return {"attacks": facts, "knowledge": dict(MEANINGS)}


@dataclass(frozen=True)
class _Victim:
    """A private file; `inside` is its name in the folder that was given, under which its truth is looked for."""

    path: Path
    inside: str


@dataclass
class _Run:
    """All attacks on all files, one after the other, and what came of them so far.

    `everything`: attacks that cannot be run are left out.
    """

    request: AttackRequest
    methods: "list[Attack]"
    everything: bool
    adversary: Adversary
    files: dict[str, _Victim]
    records: "list[Record]" = field(default_factory=list)
    guesses: "list[Guessed]" = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    failed: int = 0

    def try_file(self, name: str, victim: _Victim, report: Report) -> None:
        """Attack one file. The only one there is may not fail."""
        try:
            self._file(name, victim, report)
        except FeatveilError as error:
            if len(self.files) == 1:
                raise
            self._fail(name, error)

    def result(self) -> AttackResult:
        """What came of it, once that is written. Raises InputError where nothing could be attacked."""
        if not self.records and not self.guesses:
            why = "; ".join(_not_run(self.left_out)) or "see the lines above"
            many = "s" if len(self.files) > 1 else ""
            raise InputError(f"nothing could be attacked in {len(self.files)} file{many}: {why}")
        return AttackResult(
            tuple(self.records),
            tuple(self.guesses),
            tuple(self.left_out),
            self.adversary.sources(),
            tuple(self._notes(self.records)),
            self.failed,
            tuple(self._write(self.request.out)),
        )

    def _file(self, name: str, victim: _Victim, report: Report) -> None:
        from featveil.pipelines.attack_parts.attack_records import Settings, Target, run_resumable
        from featveil.pipelines.attack_parts.guesses import run_guesses

        private = _private(victim.path)
        knowledge = self.adversary.knowledge(private, victim.inside)
        truth = self._aligned(private, victim, knowledge.network)
        knowledge = replace(knowledge, truth=None if truth is None else truth.points)
        target = Target(name, private, knowledge)
        methods = self._usable(target)
        self._note_database(private, knowledge, methods)
        self._note_geometry(private)
        settings, out = Settings(self.request.seed, self.request.sample), self.request.out

        def failed(method: "Attack", error: FeatveilError) -> None:
            if self.everything and isinstance(error, MissingExtraError):
                missing = Obstacle(f"without an extra ({error})", str(error))
                self.left_out.append(LeftOut(name, method.name, missing))
                return
            if len(self.files) == len(self.methods) == 1:
                raise error
            self._fail(f"{name}, {method.name}", error)

        if truth is None:
            self.guesses += run_guesses(target, methods, settings, out, failed, report)
        else:
            self._note_truth(private, truth)
            path = None if out is None else out / _RECORDS
            self.records += run_resumable(target, truth, methods, settings, path, failed, report)

    def _usable(self, target: "Target") -> "list[Attack]":
        """The attacks that can be run, and the floor; for one that cannot, a reason or, if it was named, an error."""
        from featveil.registry import ATTACKS

        usable, scored = [], target.knowledge.truth is not None
        for method in self.methods:
            obstructed = obstacle(target.private, method, target.knowledge)
            if obstructed is None:
                usable.append(method)
            elif self.everything:
                self.left_out.append(LeftOut(target.name, method.name, obstructed))
            elif len(self.files) == 1:
                raise InputError(obstructed.message)
            else:
                self._fail(target.name, obstructed.message)
        if self.everything and not scored:  # a guess without looking is there to be compared with
            return [method for method in usable if method.name != _FLOOR]
        floor: Attack = ATTACKS[_FLOOR]()
        wanted = scored and usable and not any(method.name == _FLOOR for method in self.methods)
        # Last: what fails with an error shall not leave a record of chance alone.
        return [*usable, floor] if wanted and obstacle(target.private, floor, target.knowledge) is None else usable

    def _aligned(
        self, private: "PrivateFeatures", victim: _Victim, network: "ConcealingNetwork | None"
    ) -> "Truth | None":
        """The truth of the file; raises InputError when the features given for it are not those that it hides."""
        from featveil.core import Features
        from featveil.metrics import align

        if self.request.truth is None:
            return None
        path = beside(self.request.truth, victim.inside, "--truth")
        raw = read_features(path, base_kind(private.kind), max(FEATURES_OF_IMAGE, len(private)))
        if not isinstance(raw, Features):
            raise InputError(f"{path} is private: --truth takes the raw features or the image it came from")
        try:
            return align(private, raw, network)
        except InputError as error:
            raise InputError(f"{path} does not belong to {victim.path}: {error}") from error

    def _fail(self, what: str, error: object) -> None:
        self.failed += 1
        _log.warning(f"{what}: {error}")

    def _note_database(self, private: "PrivateFeatures", knowledge: "Knowledge", methods: "list[Attack]") -> None:
        """Remember that an attacker's own database is the lifting database, where an attack uses it."""
        from featveil.databases import conceal_database

        own, network = knowledge.database, knowledge.network
        if own is not None and network is not None and own.kind == network.kind:
            own = conceal_database(own, network)
        used = any("database" in (*method.needs, *method.uses) for method in methods)
        if used and own is not None and own.digest == private.defense.get("database"):
            self.notes[_LIFTED_WITH_IT] = None

    def _note_geometry(self, private: "PrivateFeatures") -> None:
        """Remember that a release tells scale or orientation, which no attack lists as its knowledge."""
        keypoints = private.keypoints
        if keypoints is not None and (keypoints.scale is not None or keypoints.orientation is not None):
            self.notes[_GEOMETRY] = None

    def _note_truth(self, private: "PrivateFeatures", truth: "Truth") -> None:
        """Remember what exact means for words, and that hidden descriptors are much longer or shorter than guesses."""
        import numpy as np

        from featveil.core import WordSets

        if isinstance(private.descriptors, WordSets):
            self.notes[_WORDS] = None
        if abs(float(np.median(np.linalg.norm(truth.points.values, axis=1))) - 1) > _NORM_TOLERANCE:
            self.notes[_OTHER_NORMS] = None

    def _notes(self, records: "Sequence[Record]") -> list[str]:
        """What a reader of `records` and of the guesses must know."""
        from featveil.plotting.leakage_tables import leakage_rows

        notes = dict(self.notes)
        for row in leakage_rows(records):
            if row.count < row.attacked:
                notes[
                    f"{row.attacked - row.count:,} of {row.attacked:,} features of {row.scheme} are not scored:"
                    " they share their position with others, and which truth is whose is unknown"
                ] = None
        noted = [(one.dataset, one.attack, one.parameters["note"]) for one in records]
        noted += [(guess.file, guess.attack, guess.note) for guess in self.guesses]
        several = len({file for file, _, _ in noted}) > 1
        return [*notes, *(f"{name}{f' on {file}' if several else ''}: {note}" for file, name, note in noted if note)]

    def _write(self, out: Path | None) -> list[str]:
        """Write table.md and, where matplotlib is there, histogram.png of what was scored, now or in earlier runs."""
        from featveil.plotting.leakage_histograms import draw_leakage
        from featveil.plotting.leakage_tables import leakage_markdown, leakage_rows

        written = [guess.path for guess in self.guesses if guess.path is not None]
        if out is None or not self.records:
            return written
        records = self._stored(out / _RECORDS)
        run = {(record.dataset, record.attack) for record in records}
        absent = [one for one in self.left_out if (one.file, one.attack) not in run]
        with replacing(out / _TABLE) as temporary:
            notes = [*self._notes(records), *_not_run(absent)]
            temporary.write_text(leakage_markdown(records, notes), encoding="utf-8")
        written += [str(out / name) for name in (_RECORDS, _TABLE)]
        try:
            draw_leakage(leakage_rows(records), out / _HISTOGRAM, "Distance of guesses from the truth")
        except MissingExtraError as error:
            _log.warning(f"{_HISTOGRAM} was not drawn: {error}")
        else:
            written.append(str(out / _HISTOGRAM))
        return written

    def _stored(self, path: Path) -> "list[Record]":
        """All records of the files that were attacked now, of the same features, in `path`: also those of other runs.

        That they agree in seed, sample and database is sure: chance is measured in every run, and was checked.
        """
        from featveil.core.records import read_records
        from featveil.pipelines.attack_parts.attack_records import TASK

        attacked = {(record.dataset, record.parameters["private"]) for record in self.records}
        return list(
            {
                (record.dataset, record.attack): record
                for record in read_records(path)
                if record.task == TASK and (record.dataset, record.parameters.get("private")) in attacked
            }.values()
        )


def _methods(request: AttackRequest) -> "list[Attack]":
    from featveil.registry import make_attacks

    if not request.private or not request.attacks:
        raise InputError("name private .veil files and attacks, --with NAME or all: featveil attack --list shows them")
    return make_attacks(request.attacks, request.settings)


def _victims(paths: Sequence[Path]) -> dict[str, _Victim]:
    """What to attack, by a name that is unique; of several folders, such as one for each defense, with the folder's."""
    victims: dict[str, _Victim] = {}
    for path in paths:
        before = f"{path.resolve().name}/" if path.is_dir() and len(paths) > 1 else ""
        for inside, file in veil_files(path).items():
            if victims.setdefault(before + inside, _Victim(file, inside)).path != file:
                raise InputError(f"two files are called {before + inside}: attack them one after the other")
    return victims


def _check_files(files: dict[str, _Victim], request: AttackRequest, known: AdversaryFiles) -> None:
    """Raise InputError, before any work, for paths that are missing or one file where each victim needs its own."""
    repeats = [("--repeats", path) for path in known.repeats]
    for name, path in [("--truth", request.truth), *repeats, ("--reference", known.reference)]:
        if path is not None and not path.exists():
            raise InputError(f"there is no file or folder {path} for {name}")
        if path is not None and name != "--reference" and len(files) > 1 and not path.is_dir():
            raise InputError(f"{name} {path} is one file for {len(files)}: name a folder that holds the same names")
    if request.out is not None and request.out.exists():
        check_folder(request.out)


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


def _not_run(left_out: Iterable[LeftOut]) -> list[str]:
    """A line for each reason, with the attacks that it kept from running."""
    names: dict[str, dict[str, None]] = {}
    for one in left_out:
        names.setdefault(one.obstacle.short, {})[one.attack] = None
    return [f"not run, {short}: {', '.join(attacks)}" for short, attacks in names.items()]


def _advance(report: Report, place: int, files: int, done: int, total: int) -> None:
    """Of `files` with `total` attacks each, the one at `place` has `done`."""
    report(place * total + done, files * total)
