"""What the face commands are given: a store, a network, and faces on photographs or in files of descriptors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.core import Features
    from featveil.datasets.face_sets import FaceSet
    from featveil.extractors.face_networks import FaceNetwork
    from featveil.stores.templates import Settings, TemplateStore

Store = Annotated[Path, typer.Argument(metavar="STORE", help="Template store (SQLite file).")]
Person = Annotated[str, typer.Argument(help="Name of the person in the store.")]
Photo = Annotated[Path, typer.Argument(metavar="FACE", help="Photograph, or a descriptor: .npy, or .npz with --name.")]
Name = Annotated[str | None, typer.Option(help="Which of the faces in an .npz file.", show_default="the only one")]
Largest = Annotated[bool, typer.Option("--largest", help="Take the largest face of the photograph.")]
Model = Annotated[
    Path | None,
    typer.Option(help="Face network: an ArcFace-style ONNX file.", show_default="dlib's, of the extra faces"),
]
Mean = Annotated[float, typer.Option(help="Taken off the pixels for the network; 127.5 for InsightFace's.")]
Scale = Annotated[float, typer.Option(help="What pixels are then divided by; 127.5 for InsightFace's.")]
Among = Annotated[
    Path | None, typer.Option(help="Faces to hide among, or the pool.", show_default="where they were at creation")
]
Attribute = Annotated[str | None, typer.Option(help="Attribute of the other faces that 'balanced' balances.")]


def open_store(store: Path) -> "tuple[TemplateStore, Settings]":
    from featveil.stores.templates import TemplateStore

    opened = TemplateStore(store)
    return opened, opened.settings()


def network_of(model: Path | None, mean: float, scale: float) -> "FaceNetwork":
    from featveil.extractors.face_networks import DlibNetwork, OnnxNetwork

    if model is None:
        if (mean, scale) != (0, 1):
            raise InputError("--mean and --scale belong to --model")
        return DlibNetwork()
    return OnnxNetwork(model, mean, scale)


def face_of(
    path: Path, name: str | None, settings: "Settings", model: Path | None, mean: float, scale: float, largest: bool
) -> "Features":
    """The one face of a photograph or of a file of descriptors."""
    import numpy as np

    from featveil.core import Features, Points
    from featveil.datasets.face_sets import load_faces
    from featveil.extractors.faces import faces_of
    from featveil.pipelines.face_templates import ARRAYS

    if path.suffix.lower() not in ARRAYS:
        if name is not None:
            raise InputError("--name is for files of descriptors: crop a photograph, or use --largest")
        return faces_of(path, network_of(model, mean, scale), "largest" if largest else "one")
    faces: FaceSet = load_faces(path, settings.kind)
    if name is None and len(faces) > 1:
        raise InputError(f"{path} holds {len(faces):,} faces: say which with --name, such as {faces.names[0]!r:.80}")
    if name is not None and name not in faces.names:
        raise InputError(f"{path} has no face called {name!r:.80}")
    row = 0 if name is None else faces.names.index(name)
    return Features(Points(faces.values[np.array([row])]), faces.kind)


def first_of_everyone(path: Path, settings: "Settings") -> "list[tuple[str, Features]]":
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
