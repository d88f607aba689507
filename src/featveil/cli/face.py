"""featveil face: enroll, verify and identify people by private templates."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli import face_extract, face_probes
from featveil.cli.console import Json, complain, progress, show
from featveil.cli.face_inputs import (
    Among,
    Attribute,
    Largest,
    Mean,
    Model,
    Name,
    Person,
    Scale,
    Store,
    face_of,
    first_of_everyone,
    network_of,
    open_store,
)
from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.stores.templates import Settings

_ALIKE = 3  # times the stated FAR, up to which strangers of two sorts count as alike

app = typer.Typer(no_args_is_help=True, help="Enroll, verify and identify people by private face templates.")

app.command()(face_extract.extract)


@app.command()
def create(
    store: Store,
    among: Annotated[Path, typer.Option(help="Faces to hide others among (.npz, .npy, database), or a pool.")],
    strategy: Annotated[
        str, typer.Option(help="Lifting: hybrid, adversarial or balanced. A pool is always hardened.")
    ] = "hybrid",
    dimension: Annotated[int, typer.Option(help="Dimension of the templates.")] = 16,
    attribute: Attribute = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="ONNX file of the network that described them, where FACES do not say.", show_default="theirs"
        ),
    ] = None,
    mean: Mean = 0.0,
    scale: Scale = 1.0,
    json: Json = False,
) -> None:
    """Make a template store. It fixes the network and the defense of all templates.

    Whoever has the faces that others are hidden among can take them out again: a pool that nobody else has is safer.

    Example: featveil face create people.sqlite --among others.npz --dimension 16
    """
    from featveil.datasets.face_sets import load_faces
    from featveil.defenses import Hardened, Lifting
    from featveil.defenses.lint import lint, summarize_weaknesses
    from featveil.pipelines.face_templates import ARRAYS, load_others
    from featveil.stores.pool import Pool
    from featveil.stores.templates import Settings, TemplateStore

    defense: Hardened | Lifting
    digest = None
    said = model is not None or (mean, scale) != (0, 1)
    named = network_of(model, mean, scale) if said else None
    if among.suffix.lower() == ".pool":
        holdings = Pool(among).holdings()
        kind, size = holdings.kind, holdings.size
        defense = Hardened(max(1, dimension // 2), dimension, Pool(among))
    else:
        others = load_others(among, "face" if named is None else named.kind, attribute)
        kind, size = others.kind, others.size
        digest = load_faces(among).model if among.suffix.lower() in ARRAYS else None
        if strategy not in ("hybrid", "adversarial", "balanced"):
            raise InputError(f"templates are lifted by hybrid, adversarial or balanced, got {strategy!r:.80}")
        if strategy == "balanced" and others.labels is None:
            raise InputError("balanced needs labels of the faces to hide among: name one with --attribute")
        defense = Lifting(strategy, dimension, database=others).for_kind(kind)
        if len(others) <= defense.adversarial_directions:
            raise InputError(f"{among} holds {len(others):,} faces: templates of dimension {dimension} need more")
    if named is not None:
        if (kind, size) != (named.kind, named.size):
            raise InputError(
                f"{among} holds {kind} of size {size}, {model} describes {named.kind} of size {named.size}"
            )
        digest = named.digest
    settings = Settings(kind, size, defense.spec(), digest, str(among.resolve()))
    TemplateStore.create(store, settings)
    weaknesses = summarize_weaknesses(lint(kind, defense, keep_geometry=False, apart=True))
    if weaknesses:
        complain("warning", weaknesses)
    text = f"{store}: an empty store for {kind} descriptors of size {size}, lifted to dimension {dimension}"
    show({"store": str(store), **_described(settings), "weaknesses": weaknesses}, json, text)


@app.command()
def enroll(
    store: Store,
    person: Annotated[
        str | None, typer.Argument(help="Name of the person.", show_default="with --everyone: all")
    ] = None,
    photo: Annotated[
        Path | None, typer.Argument(metavar="FACE", help="Photograph, or a descriptor (.npy, .npz).")
    ] = None,
    name: Name = None,
    everyone: Annotated[
        Path | None, typer.Option(help="Enroll each person of an .npz file with their first photograph instead.")
    ] = None,
    model: Model = None,
    mean: Mean = 0.0,
    scale: Scale = 1.0,
    largest: Largest = False,
    among: Among = None,
    attribute: Attribute = None,
    json: Json = False,
) -> None:
    """Add a private template. The photograph and its descriptor are not stored.

    --everyone adds 1,000 people at a time; run again after an interruption, it goes on with those who are missing.

    Example: featveil face enroll people.sqlite ann ann.jpg
    """
    from featveil.pipelines.face_templates import check_enough, defense_of, templates

    opened, settings = open_store(store)
    incomplete = person is None or photo is None
    if incomplete if everyone is None else (person, photo, name) != (None, None, None):
        raise InputError("name a person and a face, or a file of faces with --everyone")
    already = 0
    if everyone is not None:
        faces = first_of_everyone(everyone, settings)
        enrolled = set(opened.people())
        already = sum(who in enrolled for who, _ in faces)
        faces = [(who, features) for who, features in faces if who not in enrolled]
    else:
        assert person is not None
        assert photo is not None
        faces = [(person, face_of(photo, name, settings, model, mean, scale, largest))]
    opened.check_new(faces)  # before they use a pool up
    defense = defense_of(settings, _among(among, settings), attribute)
    check_enough(faces, defense)
    with progress("enrolled") as report:
        made = opened.enroll(_counted(templates(faces, defense), len(faces), report))
    text = f"{made:,} enrolled in {store}" if everyone is not None else f"{person} is enrolled in {store}"
    text += f", {already:,} had been before" * (already > 0)
    show({"store": str(store), "enrolled": made, "already": already}, json, text)


app.command()(face_probes.verify)
app.command()(face_probes.identify)


@app.command()
def revoke(store: Store, person: Person, json: Json = False) -> None:
    """Delete someone's template. A new one of the same photograph links to it: enroll from another one.

    Example: featveil face revoke people.sqlite ann
    """
    opened, _ = open_store(store)
    opened.revoke(person)
    show({"store": str(store), "revoked": person}, json, f"the template of {person} is deleted from {store}")


@app.command()
def calibrate(
    store: Store,
    faces: Annotated[Path, typer.Argument(metavar="FACES", help="Your own faces (.npz), some of one person.")],
    far: Annotated[float, typer.Option(help="False accept rate: the share of strangers that may be accepted.")] = 1e-3,
    pairs: Annotated[
        Path | None, typer.Option(help="Pairs to find it on.", show_default="all, people by the names of photographs")
    ] = None,
    among: Among = None,
    attribute: Attribute = None,
    json: Json = False,
) -> None:
    """Find the threshold that accepts at most a stated share of strangers, on your own faces, and store it.

    Example: featveil face calibrate people.sqlite staff.npz --far 0.001
    """
    from scipy.stats import beta

    from featveil.datasets.face_pairs import load_pairs
    from featveil.datasets.face_sets import load_faces
    from featveil.pipelines.face_templates import accepted_others
    from featveil.pipelines.face_templates import calibrate as calibrated

    opened, settings = open_store(store)
    known = load_faces(faces, settings.kind)
    listed = None if pairs is None else load_pairs(pairs, known)
    made = calibrated(known, listed, settings, _among(among, settings), far, attribute)
    opened.calibrate(made)
    others = accepted_others(known, settings, _among(among, settings), made.threshold, attribute)
    if others is not None and others > _ALIKE * made.far:
        complain(
            "warning",
            f"of people like those to hide among {100 * others:.2g} % are accepted, not {100 * made.far:.2g} %: hide"
            " among people like those who will stand before the camera, and calibrate on such",
        )
    accepted = int(made.far * made.strangers + 1e-9)
    bound = float(beta.ppf(0.95, accepted + 1, max(made.strangers - accepted, 1)))
    text = (
        f"threshold   {made.threshold:.4f}\n"
        f"FAR         at most {made.far:g} of {made.strangers:,} pairs of strangers (below {bound:.2g} at 95 %"
        " confidence, were they independent)\n"
        f"TAR         {100 * made.true_accept_rate:.1f} % of {made.mated:,} pairs of one person"
    )
    show({"store": str(store), **asdict(made), "far_upper_bound": bound, "far_of_others": others}, json, text)


@app.command()
def info(store: Store, json: Json = False) -> None:
    """What a store holds, its defense and its threshold.

    Example: featveil face info people.sqlite
    """
    opened, settings = open_store(store)
    people, found = opened.people(), opened.calibration()
    threshold = "none yet: featveil face calibrate" if found is None else f"{found.threshold:.4f} (FAR {found.far:g})"
    unnamed = ", of a network that is not known: no photographs (featveil face create --model)"
    names = ", ".join(people[:10]) + (", ..." if len(people) > 10 else "")
    text = (
        f"store       {store}\n"
        f"holds       {len(people):,} private templates{f': {names}' if people else ''}\n"
        f"kind        {settings.kind}, size {settings.size}{'' if settings.kind != 'face' else unnamed}\n"
        f"defense     {settings.defense['name']}, dimension {settings.dimension}\n"
        f"threshold   {threshold}"
    )
    calibration = None if found is None else asdict(found)
    result = {"store": str(store), **_described(settings), "people": people, "calibration": calibration}
    show(result, json, text)


def _counted(templates: Any, total: int, report: Any) -> Any:
    for done, one in enumerate(templates, start=1):
        report(done, total)
        yield one


def _among(given: Path | None, settings: "Settings") -> Path:
    if given is not None:
        return given
    if settings.among is None or not Path(settings.among).exists():
        raise InputError(f"the faces to hide among are not at {settings.among}: say where with --among")
    return Path(settings.among)


def _described(settings: "Settings") -> dict[str, object]:
    return {"kind": settings.kind, "size": settings.size, "model": settings.model, "defense": settings.defense}
