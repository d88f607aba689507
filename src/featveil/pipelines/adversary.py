"""Files -> what an adversary knows of each release, with a clear error for what does not fit."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core.errors import FeatveilError, InputError
from featveil.core.kinds import base_kind, is_concealed
from featveil.core.options import option
from featveil.pipelines.sources import find_network, read_features

if TYPE_CHECKING:
    from featveil.attacks import Attack, Knowledge
    from featveil.core import ConcealingNetwork, Features, PrivateFeatures
    from featveil.databases import Database

FEATURES_OF_IMAGE = 2048
UNKNOWN = Path("none")  # where a database is named: the adversary has none, nor the built-in one


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AdversaryFiles:
    """The files that an adversary is given; None or empty where none is named.

    The built-in database stands in for one that is not named; UNKNOWN, for the first two, says that it has none.
    """

    database: Path | None = option(
        None, help="The attacker's own descriptors, a file, or none.", shown="the built-in one"
    )
    lifting_database: Path | None = option(
        None,
        help="Database that the features were lifted with; none: the attacker does not know it.",
        shown="the built-in one if named",
    )
    codebook: Path | None = option(None, help="Codebook of word sets.", shown="the built-in one if named")
    others: tuple[Path, ...] = option(
        (), help="Other private images lifted with the same database, or folders of them.", repeated=True
    )
    repeats: tuple[Path, ...] = option(
        (), help="Further releases of the same features, or folders of them with the same names.", repeated=True
    )
    reference: Path | None = option(
        None, help="Another image of the same place: an image or a .veil file, raw or private."
    )
    network: Path | None = option(
        None,
        help="Network that the features were concealed by.",
        flags=("--concealer",),
        shown="the built-in one if named",
    )
    sketch: Path | None = option(None, help="Sketch of the map whose points a gate sent.")


NO_FILES = AdversaryFiles()


class Adversary:
    """What is known about every victim; files that do not depend on the victim are read once."""

    def __init__(self, files: AdversaryFiles) -> None:
        from featveil.databases import load_database
        from featveil.defenses import load_network
        from featveil.gate import load_sketch

        self.files = files
        self.given: dict[str, Database | None] = {
            name: None if (path := getattr(files, name)) in (None, UNKNOWN) else load_database(path)
            for name in ("database", "lifting_database")
        }
        self.given["codebook"] = None if files.codebook is None else load_database(files.codebook)
        self._network = None if files.network is None else load_network(files.network)
        self._sketch = None if files.sketch is None else load_sketch(files.sketch)
        self.others = _private_files(files.others, "--others")
        if files.others and not self.others:
            raise InputError("none of the files of --others could be used: see the lines above")

    def sources(self) -> dict[str, str]:
        """Where each part of the knowledge comes from, in a few words."""
        known = {name: "built-in" if database is None else "" for name, database in self.given.items()}
        for one in dataclasses.fields(self.files):
            match getattr(self.files, one.name):
                case Path() as path:
                    known[one.name] = path.name
                case (_, *_):
                    known[one.name] = "" if one.name == "repeats" else f"{len(self.others)} files"
        return {name: text for name, text in known.items() if text}

    def knowledge(self, private: "PrivateFeatures", name: str) -> "Knowledge":
        """What it has to attack `private`, of the file `name`; built-in databases where they are the right ones."""
        from featveil.attacks import Knowledge
        from featveil.pipelines.attack_parts.attack_records import fingerprint
        from featveil.pipelines.scoring import check_codebook, check_sketch

        own, kind = fingerprint(private), base_kind(private.kind)
        unknown = self.files.database == UNKNOWN
        known = Knowledge(
            database=None if unknown else self.given["database"] or _builtin(kind),
            lifting_database=self._lifting(private),
            codebook=self._named("codebook", private),
            # A file that is attacked may lie in a folder of others: it tells nothing about itself.
            others=tuple(other for other in self.others if fingerprint(other) != own),
            repeats=self._repeats(own, name),
            reference=self._reference(kind, name),
            network=self.network(private),
            sketch=self._sketch,
        )
        check_codebook(private, known)
        check_sketch(private, known)
        return known

    def network(self, private: "PrivateFeatures") -> "ConcealingNetwork | None":
        """What `private` was concealed by, if anything: the given network, else the built-in one if it is that."""
        if not is_concealed(private.kind):
            return None
        return self._network or find_network(None, [private.kind])

    def _repeats(self, own: str, name: str) -> "tuple[PrivateFeatures, ...]":
        """Further releases of what has the fingerprint `own`; raises InputError when all that is given is itself."""
        from featveil.pipelines.attack_parts.attack_records import fingerprint

        given = [_private(beside(path, name, "--repeats"), "--repeats") for path in self.files.repeats]
        further = tuple(repeat for repeat in given if fingerprint(repeat) != own)
        if given and not further:
            raise InputError(
                f"--repeats {self.files.repeats[0]} is the attacked release itself, which tells nothing more:"
                " name another release of the same features"
            )
        return further

    def _named(self, name: str, private: "PrivateFeatures") -> "Database | None":
        """The database that the release names by digest: the given one, else the built-in one if it is that."""
        from featveil.databases import conceal_database

        network, role = self.network(private), "codebook" if name == "codebook" else "database"
        database = self.given[name] or _builtin(base_kind(private.kind))
        if database is not None and network is not None and network.concealed_kind == private.kind:
            database = conceal_database(database, network)
        same = database is not None and private.defense.get(role) == database.digest
        return database if same or self.given[name] is not None else None

    def _lifting(self, private: "PrivateFeatures") -> "Database | None":
        if self.files.lifting_database == UNKNOWN:
            return None
        database, named = self._named("lifting_database", private), private.defense.get("database")
        if database is not None and named is not None and database.digest != named:
            raise InputError(
                f"--lifting-database has digest {database.digest[:16]},"
                f" these features were lifted with {str(named)[:16]}"
            )
        return None if named is None else database

    def _reference(self, kind: str, name: str) -> "Features | PrivateFeatures | None":
        path = self.files.reference
        if path is None:
            return None
        return read_features(beside(path, name, "--reference"), kind, FEATURES_OF_IMAGE)


@dataclass(frozen=True)
class Obstacle:
    """Why an attack cannot be run: in a few words, and with what would help."""

    short: str
    message: str


def obstacle(private: "PrivateFeatures", method: "Attack", known: "Knowledge") -> Obstacle | None:
    """Why `method` cannot be run on `private` with what is known; None if it can."""
    from featveil.attacks import MEANINGS, REPRESENTATIONS, check_applies, needs_of

    try:
        check_applies(private.descriptors, method)
    except InputError as error:
        return Obstacle(f"not on {REPRESENTATIONS[type(private.descriptors)]}", str(error))
    if "network" in method.needs and not is_concealed(private.kind):
        return Obstacle("not concealed", f"attack {method.name} is on what a concealer sends; these were not concealed")
    for name in needs_of(private, method):
        if not known.has(name):
            why = " (these were lifted without one)" if _lifted_alone(name, private) else ""
            message = f"attack {method.name} needs {flag(name)}, {MEANINGS[name]}{why}"
            return Obstacle(f"without {flag(name)}{why}", message)
    return _unfit(private, method, known)


def _unfit(private: "PrivateFeatures", method: "Attack", known: "Knowledge") -> Obstacle | None:
    """What of that which `method` is given does not fit `private`."""
    from featveil.attacks import REPRESENTATIONS, known_to

    own = type(private.descriptors)
    for name in ("others", "repeats"):
        given = getattr(known, name) if name in (*method.needs, *method.uses) else ()
        wrong = [type(one.descriptors) for one in given if type(one.descriptors) is not own]
        if wrong:
            short = f"{flag(name)} holds {REPRESENTATIONS[wrong[0]]}, these are {REPRESENTATIONS[own]}"
            return Obstacle(short, f"attack {method.name} needs releases of one representation: {short}")
    try:
        known_to(private, method, known)
    except InputError as error:
        return Obstacle(str(error), str(error))
    return None


def flag(name: str) -> str:
    """The option that gives a part of the knowledge."""
    return "--concealer" if name == "network" else "--" + name.replace("_", "-")


def _lifted_alone(name: str, private: "PrivateFeatures") -> bool:
    return name == "lifting_database" and private.defense.get("database", "") is None


def beside(given: Path, name: str, flag: str) -> Path:
    """The file that belongs to the private file `name`: `given` itself, or in that folder the one of the same name.

    Private features of a.jpg are called a.jpg.veil: in a folder of images a.jpg is meant.
    """
    if not given.is_dir():
        return given
    named = [path for path in (given / name, given / name.removesuffix(".veil")) if path.is_file()]
    if not named:
        raise InputError(f"{flag} {given} holds neither {name} nor {name.removesuffix('.veil')}")
    return named[0]


def veil_files(path: Path) -> dict[str, Path]:
    """The .veil files of a folder by their place in it, or one file by its name; raises InputError for none."""
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"there is no file or folder {path}")
        return {path.name: path}
    files = {file.relative_to(path).as_posix(): file for file in sorted(path.rglob("*.veil"))}
    if not files:
        raise InputError(f"{path} holds no .veil file")
    return files


def _private_files(paths: tuple[Path, ...], flag: str) -> "tuple[PrivateFeatures, ...]":
    features = []
    for path in paths:
        for file in veil_files(path).values():
            try:
                features.append(_private(file, flag))
            except FeatveilError as error:
                if not path.is_dir():
                    raise
                _log.warning(f"left out: {error}")
    return tuple(features)


def _private(path: Path, flag: str) -> "PrivateFeatures":
    from featveil.core import PrivateFeatures
    from featveil.formats.veil import load

    features = load(path)
    if not isinstance(features, PrivateFeatures):
        raise InputError(f"{path} holds raw features: {flag} takes private ones")
    return features


def _builtin(kind: str) -> "Database | None":
    from featveil.databases import builtin

    try:
        return builtin(kind)
    except InputError:
        return None
