"""featveil face verify, identify: whether a face is that of someone enrolled. Exit codes tell as well."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from featveil.cli.console import Json, complain, show, table
from featveil.cli.face_inputs import Largest, Mean, Model, Name, Person, Photo, Scale, Store, face_of, open_store

if TYPE_CHECKING:
    from featveil.stores.templates import Verdict


_MANY = 0.1  # strangers accepted among all templates, from which on it is worth a warning


def verify(
    store: Store,
    person: Person,
    photo: Photo,
    name: Name = None,
    private: Annotated[
        bool, typer.Option("--private", help="Lift the probe along the template too, as a device would send it.")
    ] = False,
    model: Model = None,
    mean: Mean = 0.0,
    scale: Scale = 1.0,
    largest: Largest = False,
    json: Json = False,
) -> None:
    """Whether a face is that of a person in the store. Exit code 0: accepted, 1: refused, 3: no threshold yet.

    Example: featveil face verify people.sqlite ann door-camera.jpg
    """
    from featveil.pipelines.face_templates import parallel_probe

    opened, settings = open_store(store)
    probe = face_of(photo, name, settings, model, mean, scale, largest)
    verdict = opened.verify(person, parallel_probe(probe, opened.template(person)) if private else probe)
    show({**asdict(verdict), "accepted": verdict.accepted}, json, _told(verdict))
    if verdict.accepted is not True:
        raise typer.Exit(3 if verdict.accepted is None else 1)


def identify(
    store: Store,
    photo: Photo,
    name: Name = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the nearest people to show.")] = 5,
    model: Model = None,
    mean: Mean = 0.0,
    scale: Scale = 1.0,
    largest: Largest = False,
    json: Json = False,
) -> None:
    """Who of the store is nearest to a face. Exit code 0: someone is accepted, 1: nobody, 3: no threshold yet.

    The threshold's FAR is for one template. Among many, some accept a stranger: calibrate for a FAR far below 1 in
    their number.

    Example: featveil face identify people.sqlite door-camera.jpg --top 3
    """
    opened, settings = open_store(store)
    found = opened.identify(face_of(photo, name, settings, model, mean, scale, largest), top)
    rows: list[tuple[object, ...]] = [(escape(one.person), f"{one.distance:.4f}", _word(one)) for one in found]
    people = [{**asdict(one), "accepted": one.accepted} for one in found]
    calibrated, enrolled = opened.calibration(), len(opened.people())
    expected = None if calibrated is None else calibrated.far * enrolled
    if expected is not None and expected > _MANY:
        complain(
            "warning", f"any stranger is accepted by about {expected:.2g} of {enrolled:,} people at this threshold"
        )
    result = {"store": str(store), "nearest": people, "expected_false_accepts": expected}
    show(result, json, table("person", "distance", "", rows=rows))
    if found[0].accepted is not True:
        raise typer.Exit(3 if found[0].accepted is None else 1)


def _told(verdict: "Verdict") -> str:
    limit = "no threshold yet: featveil face calibrate"
    if verdict.threshold is not None:
        limit = f"threshold {verdict.threshold:.4f}"
    return f"{verdict.person}: {_word(verdict)} (distance {verdict.distance:.4f}, {limit})"


def _word(verdict: "Verdict") -> str:
    return {True: "accepted", False: "refused", None: "not decided"}[verdict.accepted]
