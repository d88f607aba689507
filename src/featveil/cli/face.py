"""featveil face: enroll, verify and identify people by private templates. Exit codes tell as well."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, progress, show, table
from featveil.cli.options import command
from featveil.pipelines import face as verbs
from featveil.pipelines.face import Among, DescribedBy, FaceChoice, FaceNetworkFile, open_store

if TYPE_CHECKING:
    from featveil.stores.templates import Settings, Verdict

app = typer.Typer(no_args_is_help=True, help="Enroll, verify and identify people by private face templates.")

Store = Annotated[Path, typer.Argument(metavar="STORE", help="Template store (SQLite file).")]


@app.command()
@command
def extract(request: verbs.FaceExtractRequest, network: FaceNetworkFile, json: Json = False) -> None:
    """Describe the faces on photographs by vectors that are near for one person. Names are relative to their folder.

    Example: featveil face extract people/ --out people.npz
    """
    with progress("faces") as report:
        faces, left_out = verbs.extract_faces(request, network, report)
    facts = {"out": str(request.out), "faces": len(faces), "kind": faces.kind, "model": faces.model}
    text = f"{len(faces):,} faces of kind {faces.kind} in {request.out}"
    text += f", {len(left_out):,} left out" * bool(left_out)
    note = "These are raw: whoever has them knows who is on the photographs."
    show({**facts, "left_out": len(left_out)}, json, f"{text}\n{note}")


@app.command()
@command
def create(request: verbs.StoreRequest, described: DescribedBy, json: Json = False) -> None:
    """Make a template store. It fixes the network and the defense of all templates.

    Whoever has the faces that others are hidden among can take them out again: a pool that nobody else has is safer.

    Example: featveil face create people.sqlite --among others.npz --dimension 16
    """
    settings, weaknesses = verbs.create_store(request, described)
    facts = {"store": str(request.store), **_described(settings), "weaknesses": weaknesses}
    text = f"{request.store}: an empty store for {settings.kind} descriptors of size {settings.size}"
    show(facts, json, f"{text}, lifted to dimension {request.dimension}")


@app.command()
@command
def enroll(request: verbs.EnrollRequest, choice: FaceChoice, hidden: Among, json: Json = False) -> None:
    """Add a private template. The photograph and its descriptor are not stored.

    --everyone adds 1,000 people at a time; run again after an interruption, it goes on with those who are missing.

    Example: featveil face enroll people.sqlite ann ann.jpg
    """
    with progress("enrolled") as report:
        result = verbs.enroll(request, choice, hidden, report)
    who = f"{result.enrolled:,} enrolled" if request.everyone is not None else f"{request.person} is enrolled"
    text = f"{who} in {request.store}" + f", {result.already:,} had been before" * (result.already > 0)
    show({"store": str(request.store), **asdict(result)}, json, text)


@app.command()
@command
def verify(request: verbs.VerifyRequest, choice: FaceChoice, json: Json = False) -> None:
    """Whether a face is that of a person in the store. Exit code 0: accepted, 1: refused, 3: no threshold yet.

    Example: featveil face verify people.sqlite ann door-camera.jpg
    """
    verdict = verbs.verify(request, choice)
    limit = "no threshold yet: featveil face calibrate"
    if verdict.threshold is not None:
        limit = f"threshold {verdict.threshold:.4f}"
    text = f"{verdict.person}: {_word(verdict)} (distance {verdict.distance:.4f}, {limit})"
    show({**asdict(verdict), "accepted": verdict.accepted}, json, text)
    _exit(verdict)


@app.command()
@command
def identify(request: verbs.IdentifyRequest, choice: FaceChoice, json: Json = False) -> None:
    """Who of the store is nearest to a face. Exit code 0: someone is accepted, 1: nobody, 3: no threshold yet.

    The threshold's FAR is for one template. Among many, some accept a stranger: calibrate for a FAR far below 1 in
    their number.

    Example: featveil face identify people.sqlite door-camera.jpg --top 3
    """
    result = verbs.identify(request, choice)
    people = [{**asdict(one), "accepted": one.accepted} for one in result.nearest]
    facts = {"store": str(request.store), "nearest": people, "expected_false_accepts": result.expected_false_accepts}
    rows: list[tuple[object, ...]] = [(one.person, f"{one.distance:.4f}", _word(one)) for one in result.nearest]
    show(facts, json, table("person", "distance", "", rows=rows))
    _exit(result.nearest[0])


@app.command()
def revoke(
    store: Store,
    person: Annotated[str, typer.Argument(help="Name of the person in the store.")],
    json: Json = False,
) -> None:
    """Delete someone's template. A new one of the same photograph links to it: enroll from another one.

    Example: featveil face revoke people.sqlite ann
    """
    opened, _ = open_store(store)
    opened.revoke(person)
    show({"store": str(store), "revoked": person}, json, f"the template of {person} is deleted from {store}")


@app.command()
@command
def calibrate(request: verbs.CalibrateRequest, hidden: Among, json: Json = False) -> None:
    """Find the threshold that accepts at most a stated share of strangers, on your own faces, and store it.

    Example: featveil face calibrate people.sqlite staff.npz --far 0.001
    """
    result = verbs.calibrate(request, hidden)
    calibration = result.calibration
    text = (
        f"threshold   {calibration.threshold:.4f}\n"
        f"FAR         at most {calibration.far:g} of {calibration.strangers:,} pairs of strangers"
        f" (below {result.far_upper_bound:.2g} at 95 % confidence, were they independent)\n"
        f"TAR         {100 * calibration.true_accept_rate:.1f} % of {calibration.mated:,} pairs of one person"
    )
    show({"store": str(request.store), **result.facts()}, json, text)


@app.command()
def info(store: Store, json: Json = False) -> None:
    """What a store holds, its defense and its threshold.

    Example: featveil face info people.sqlite
    """
    opened, settings = open_store(store)
    people, stored = opened.people(), opened.calibration()
    threshold = "none yet: featveil face calibrate"
    if stored is not None:
        threshold = f"{stored.threshold:.4f} (FAR {stored.far:g})"
    unnamed = ", of a network that is not known: no photographs (featveil face create --model)"
    names = ", ".join(people[:10]) + (", ..." if len(people) > 10 else "")
    text = (
        f"store       {store}\n"
        f"holds       {len(people):,} private templates{f': {names}' if people else ''}\n"
        f"kind        {settings.kind}, size {settings.size}{'' if settings.kind != 'face' else unnamed}\n"
        f"defense     {settings.defense['name']}, dimension {settings.dimension}\n"
        f"threshold   {threshold}"
    )
    calibration = None if stored is None else asdict(stored)
    show({"store": str(store), **_described(settings), "people": people, "calibration": calibration}, json, text)


def _exit(verdict: "Verdict") -> None:
    """Say by the exit code what was decided."""
    if verdict.accepted is not True:
        raise typer.Exit(3 if verdict.accepted is None else 1)


def _word(verdict: "Verdict") -> str:
    return {True: "accepted", False: "refused", None: "not decided"}[verdict.accepted]


def _described(settings: "Settings") -> dict[str, object]:
    return {"kind": settings.kind, "size": settings.size, "model": settings.model, "defense": settings.defense}
