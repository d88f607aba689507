"""Describe faces, enroll, verify and identify people by private templates, and find the threshold of a store."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.sources import named_images

if TYPE_CHECKING:
    from featveil.core import Defense, Features
    from featveil.datasets.face_sets import FaceSet
    from featveil.extractors.face_networks import FaceNetwork
    from featveil.pipelines.face_parts.face_templates import LeftOut
    from featveil.stores.templates import Calibration, Settings, TemplateStore, Verdict

Item = TypeVar("Item")

ARRAYS = (".npz", ".npy")
_ALIKE = 3  # times the stated FAR, up to which strangers of two sorts count as alike
_MANY = 0.1  # strangers accepted among all templates, from which on it is worth a warning
_CONFIDENCE = 0.95
_STRATEGIES = ("hybrid", "adversarial", "balanced")

_STORE: dict[str, Any] = {"metavar": "STORE", "help": "Template store (SQLite file)."}
_PERSON: dict[str, Any] = {"help": "Name of the person in the store."}
_PHOTO: dict[str, Any] = {
    "metavar": "FACE",
    "help": "Photograph, or a descriptor: .npy, or .npz with --name.",
}
_ATTRIBUTE: dict[str, Any] = {"help": "Attribute of the other faces that 'balanced' balances."}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FaceNetworkFile:
    """The network that describes faces; pixels have `mean` taken off and are then divided by `scale`."""

    model: Path | None = option(
        None, help="Face network: an ArcFace-style ONNX file.", shown="dlib's, of the extra faces"
    )
    mean: float = option(0.0, help="Taken off the pixels for the network; 127.5 for InsightFace's.")
    scale: float = option(1.0, help="What pixels are then divided by; 127.5 for InsightFace's.")

    def load(self) -> "FaceNetwork":
        """The network; raises InputError for a file that is none, MissingExtraError where dlib's is not installed."""
        from featveil.extractors.face_networks import DlibNetwork, OnnxNetwork

        if self.model is None:
            if (self.mean, self.scale) != (0, 1):
                raise InputError("--mean and --scale belong to --model")
            return DlibNetwork()
        return OnnxNetwork(self.model, self.mean, self.scale)


@dataclass(frozen=True)
class FaceChoice(FaceNetworkFile):
    """Which face is meant where a file has several, and the network that describes it."""

    name: str | None = option(None, help="Which of the faces in an .npz file.", shown="the only one")
    largest: bool = option(False, help="Take the largest face of the photograph.")


@dataclass(frozen=True)
class DescribedBy(FaceNetworkFile):
    """The network that has described the faces to hide among."""

    model: Path | None = option(
        None, help="ONNX file of the network that described them, where FACES do not say.", shown="theirs"
    )


@dataclass(frozen=True)
class Among:
    """The faces that templates hide others among."""

    among: Path | None = option(None, help="Faces to hide among, or the pool.", shown="where they were at creation")
    attribute: str | None = option(None, **_ATTRIBUTE)

    def place(self, settings: "Settings") -> Path:
        """Where they are; raises InputError when they are neither named nor where they were."""
        if self.among is not None:
            return self.among
        if settings.among is None or not Path(settings.among).exists():
            raise InputError(f"the faces to hide among are not at {settings.among}: say where with --among")
        return Path(settings.among)


_USUAL_NETWORK, _AS_DESCRIBED, _USUAL_CHOICE, _AS_CREATED = FaceNetworkFile(), DescribedBy(), FaceChoice(), Among()


@dataclass(frozen=True)
class FaceExtractRequest:
    """Photographs, and the file for the descriptors of their faces."""

    images: tuple[Path, ...] = argument(help="Photographs, folders of them, or one InsightFace .bin file.")
    out: Path = option(help="File for the descriptors (.npz). Raw: it stays on the device.")
    largest: bool = option(False, help="Take the largest face of the photograph.")
    every: bool = option(False, help="Take all faces of each photograph.", flags=("--all",))


@dataclass(frozen=True)
class StoreRequest:
    """A new store: which faces others are hidden among, and how."""

    store: Path = argument(**_STORE)
    among: Path = option(help="Faces to hide others among (.npz, .npy, database), or a pool.")
    strategy: str = option("hybrid", help="Lifting: hybrid, adversarial or balanced. A pool is always hardened.")
    dimension: int = option(16, help="Dimension of the templates.")
    attribute: str | None = option(None, **_ATTRIBUTE)


@dataclass(frozen=True)
class EnrollRequest:
    """Whom to enroll: one person with a face, or everyone of a file."""

    store: Path = argument(**_STORE)
    person: str | None = argument(None, help="Name of the person.", shown="with --everyone: all")
    photo: Path | None = argument(None, metavar="FACE", help="Photograph, or a descriptor (.npy, .npz).")
    everyone: Path | None = option(None, help="Enroll each person of an .npz file with their first photograph instead.")


@dataclass(frozen=True)
class VerifyRequest:
    """Who somebody claims to be, and the face."""

    store: Path = argument(**_STORE)
    person: str = argument(**_PERSON)
    photo: Path = argument(**_PHOTO)
    private: bool = option(False, help="Lift the probe along the template too, as a device would send it.")


@dataclass(frozen=True)
class IdentifyRequest:
    """A face, and how many of the nearest people are wanted."""

    store: Path = argument(**_STORE)
    photo: Path = argument(**_PHOTO)
    top: int = option(5, help="How many of the nearest people to show.", minimum=1)


@dataclass(frozen=True)
class CalibrateRequest:
    """Faces to find a threshold on, and the share of strangers that it may accept."""

    store: Path = argument(**_STORE)
    faces: Path = argument(metavar="FACES", help="Your own faces (.npz), some of one person.")
    far: float = option(1e-3, help="False accept rate: the share of strangers that may be accepted.")
    pairs: Path | None = option(None, help="Pairs to find it on.", shown="all, people by the names of photographs")


@dataclass(frozen=True)
class Enrolled:
    """How many people were enrolled, and how many of those who were to be had been `already`."""

    enrolled: int
    already: int


@dataclass(frozen=True)
class Identified:
    """The nearest people, and as how many of all a stranger is expected to be accepted, where there is a threshold."""

    nearest: "tuple[Verdict, ...]"
    expected_false_accepts: float | None


@dataclass(frozen=True)
class Calibrated:
    """The threshold; the FAR that it stays below with 95 % confidence; the FAR of those who are hidden among."""

    calibration: "Calibration"
    far_upper_bound: float
    far_of_others: float | None

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        bounds = {"far_upper_bound": self.far_upper_bound, "far_of_others": self.far_of_others}
        return {**asdict(self.calibration), **bounds}


def extract_faces(
    request: FaceExtractRequest, network: FaceNetworkFile = _USUAL_NETWORK, report: Report = silent
) -> "tuple[FaceSet, list[LeftOut]]":
    """Describe faces and write the descriptors, which are raw; returns them, and the photographs that have none."""
    from featveil.datasets.face_sets import save_faces
    from featveil.pipelines.face_parts.face_templates import describe_bin, describe_photographs

    images, left_out = request.images, list["LeftOut"]()
    if request.largest and request.every:
        raise InputError("--largest and --all exclude each other")
    if request.out.suffix.lower() != ".npz":
        raise InputError(f"descriptors are written to an .npz file, got {request.out}")
    check_folder(request.out.parent)  # before the work
    describer = network.load()
    if any(path.suffix.lower() == ".bin" for path in images):
        if len(images) > 1:
            raise InputError("a .bin file is described by itself")
        faces = describe_bin(images[0], describer, report)
    else:
        which: Literal["all", "largest", "one"] = "all" if request.every else "largest" if request.largest else "one"
        faces, left_out = describe_photographs(named_images(images), describer, which, report)
    save_faces(faces, request.out)
    for one in left_out:
        _log.warning(f"left out {one.name}: {one.reason}")
    return faces, left_out


def create_store(request: StoreRequest, described: DescribedBy = _AS_DESCRIBED) -> "tuple[Settings, str]":
    """Make an empty store; returns its settings, which never change, and the known weaknesses of its defense in words.

    Raises InputError for faces that are too few or of another network, and a file that is there.
    """
    from featveil.defenses.lint import lint, summarize_weaknesses
    from featveil.stores.templates import Settings, TemplateStore

    among, network = request.among, described.load() if described != _AS_DESCRIBED else None
    if among.suffix.lower() == ".pool":
        kind, size, defense = _by_pool(request)
    else:
        kind, size, defense = _by_lifting(request, "face" if network is None else network.kind)
    if network is None:
        digest = _digest_of(among)
    elif (kind, size) == (network.kind, network.size):
        digest = network.digest
    else:
        raise InputError(
            f"{among} holds {kind} of size {size}, {described.model} describes {network.kind} of size {network.size}"
        )
    settings = Settings(kind, size, defense.spec(), digest, str(among.resolve()))
    TemplateStore.create(request.store, settings)
    weaknesses = summarize_weaknesses(lint(kind, defense, keep_geometry=False, apart=True))
    if weaknesses:
        _log.warning(weaknesses)
    return settings, weaknesses


def enroll(
    request: EnrollRequest, choice: FaceChoice = _USUAL_CHOICE, hidden: Among = _AS_CREATED, report: Report = silent
) -> Enrolled:
    """Add private templates; photographs and descriptors are not stored. People are enrolled 1,000 at a time.

    Those of a file who are enrolled already are left out. Raises InputError for a name that is taken, PrivacyError
    where a pool has too few faces left; no template is stored then.
    """
    from featveil.pipelines.face_parts.face_templates import check_enough, defense_of, templates

    store, settings = open_store(request.store)
    person, photo, already = request.person, request.photo, 0
    incomplete = person is None or photo is None
    if incomplete if request.everyone is None else (person, photo, choice.name) != (None, None, None):
        raise InputError("name a person and a face, or a file of faces with --everyone")
    if request.everyone is not None:
        faces = _first_of_everyone(request.everyone, settings)
        enrolled = set(store.people())
        already = sum(who in enrolled for who, _ in faces)
        faces = [(who, features) for who, features in faces if who not in enrolled]
    else:
        assert person is not None and photo is not None
        faces = [(person, _face(photo, settings, choice))]
    store.check_new(faces)  # before they use a pool up
    defense = defense_of(settings, hidden.place(settings), hidden.attribute)
    check_enough(faces, defense)
    return Enrolled(store.enroll(_counted(templates(faces, defense), len(faces), report)), already)


def verify(request: VerifyRequest, choice: FaceChoice = _USUAL_CHOICE) -> "Verdict":
    """Whether a face is that of a person in the store; raises InputError where nobody has that name."""
    from featveil.pipelines.face_parts.face_templates import parallel_probe

    store, settings = open_store(request.store)
    probe = _face(request.photo, settings, choice)
    seen = parallel_probe(probe, store.template(request.person)) if request.private else probe
    return store.verify(request.person, seen)


def identify(request: IdentifyRequest, choice: FaceChoice = _USUAL_CHOICE) -> Identified:
    """Who of the store is nearest to a face. The threshold's FAR is for one template: some of many accept anyone."""
    store, settings = open_store(request.store)
    nearest = store.identify(_face(request.photo, settings, choice), request.top)
    calibrated, enrolled = store.calibration(), len(store.people())
    expected = None if calibrated is None else calibrated.far * enrolled
    if expected is not None and expected > _MANY:
        _log.warning(f"any stranger is accepted by about {expected:.2g} of {enrolled:,} people at this threshold")
    return Identified(tuple(nearest), expected)


def calibrate(request: CalibrateRequest, hidden: Among = _AS_CREATED) -> Calibrated:
    """Find the threshold that accepts at most a stated share of strangers, on one's own faces, and store it."""
    from scipy.stats import beta

    from featveil.datasets.face_pairs import load_pairs
    from featveil.datasets.face_sets import load_faces
    from featveil.pipelines.face_parts.face_templates import accepted_others, find_threshold

    store, settings = open_store(request.store)
    faces = load_faces(request.faces, settings.kind)
    pairs = None if request.pairs is None else load_pairs(request.pairs, faces)
    among = hidden.place(settings)
    calibration = find_threshold(faces, pairs, settings, among, request.far, hidden.attribute)
    store.calibrate(calibration)
    others = accepted_others(faces, settings, among, calibration.threshold, hidden.attribute)
    if others is not None and others > _ALIKE * calibration.far:
        _log.warning(
            f"of people like those to hide among {100 * others:.2g} % are accepted, not"
            f" {100 * calibration.far:.2g} %: hide among people like those who will stand before the camera, and"
            " calibrate on such"
        )
    accepted = int(calibration.far * calibration.strangers + 1e-9)
    bound = float(beta.ppf(_CONFIDENCE, accepted + 1, max(calibration.strangers - accepted, 1)))
    return Calibrated(calibration, bound, others)


def open_store(path: Path) -> "tuple[TemplateStore, Settings]":
    """A store and its settings; raises InputError when there is none, FormatError for a file that is damaged."""
    from featveil.stores.templates import TemplateStore

    store = TemplateStore(path)
    return store, store.settings()


def _by_pool(request: StoreRequest) -> "tuple[str, int, Defense]":
    from featveil.registry import DEFENSES
    from featveil.stores.pool import Pool

    holdings, dimension = Pool(request.among).holdings(), request.dimension
    given = {"confounders": max(1, dimension // 2), "dimension": dimension, "pool": request.among}
    return holdings.kind, holdings.size, DEFENSES.make("hardened", given)


def _by_lifting(request: StoreRequest, kind: str) -> "tuple[str, int, Defense]":
    from featveil.pipelines.face_parts.face_templates import load_others
    from featveil.registry import DEFENSES

    others = load_others(request.among, kind, request.attribute)
    if request.strategy not in _STRATEGIES:
        raise InputError(f"templates are lifted by hybrid, adversarial or balanced, got {request.strategy!r:.80}")
    if request.strategy == "balanced" and others.labels is None:
        raise InputError("balanced needs labels of the faces to hide among: name one with --attribute")
    given = {"strategy": request.strategy, "dimension": request.dimension, "database": others}
    defense = DEFENSES.make("lifting", given).for_kind(others.kind)
    if len(others) <= defense.adversarial_directions:
        raise InputError(
            f"{request.among} holds {len(others):,} faces: templates of dimension {request.dimension} need more"
        )
    return others.kind, others.size, defense


def _digest_of(among: Path) -> str | None:
    """The network that described the faces in a file, where it says so."""
    from featveil.datasets.face_sets import load_faces

    return load_faces(among).model if among.suffix.lower() in ARRAYS else None


def _face(path: Path, settings: "Settings", choice: FaceChoice) -> "Features":
    """The one face of a photograph or of a file of descriptors."""
    import numpy as np

    from featveil.core import Features, Points
    from featveil.datasets.face_sets import load_faces
    from featveil.extractors.faces import faces_of

    name = choice.name
    if path.suffix.lower() not in ARRAYS:
        if name is not None:
            raise InputError("--name is for files of descriptors: crop a photograph, or use --largest")
        return faces_of(path, choice.load(), "largest" if choice.largest else "one")
    faces: FaceSet = load_faces(path, settings.kind)
    if name is None and len(faces) > 1:
        raise InputError(f"{path} holds {len(faces):,} faces: say which with --name, such as {faces.names[0]!r:.80}")
    if name is not None and name not in faces.names:
        raise InputError(f"{path} has no face called {name!r:.80}")
    row = 0 if name is None else faces.names.index(name)
    return Features(Points(faces.values[np.array([row])]), faces.kind)


def _first_of_everyone(path: Path, settings: "Settings") -> "Sequence[tuple[str, Features]]":
    """The first photograph of each person."""
    import numpy as np

    from featveil.core import Features, Points
    from featveil.datasets.face_sets import load_faces

    faces: FaceSet = load_faces(path, settings.kind)
    people, first = np.unique(faces.people, return_index=True)
    return [
        (str(person), Features(Points(faces.values[np.array([row])]), faces.kind))
        for person, row in zip(people, first, strict=True)
    ]


def _counted(items: Iterator[Item], total: int, report: Report) -> Iterator[Item]:
    for done, item in enumerate(items, start=1):
        report(done, total)
        yield item
