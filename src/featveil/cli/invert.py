"""featveil invert: features, raw or private -> the picture that an attacker sees."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.adversary import Adversary, Files, obstacle
from featveil.cli.chosen_attacks import make_attacks
from featveil.cli.concealing import ConcealedBy
from featveil.cli.console import Json, complain, progress, show
from featveil.cli.extract import HDF5, read_features
from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.kinds import base_kind

if TYPE_CHECKING:
    from featveil.attacks import Attack, Guess
    from featveil.core import Features, PrivateFeatures
    from featveil.extractors.images import Image
    from featveil.pipelines.painters import Painter

_GEOMETRIES = {"positions": "positions only", "full": "positions, scale, orientation, response"}
_FEW_FOUND = 0.3  # of features in their own image, however it was encoded since
_GAP = 8  # pixels between two pictures


def invert(
    features: Annotated[Path, typer.Argument(help="A .veil file, raw or private, an .h5 file or an image.")],
    out: Annotated[Path | None, typer.Option(help="The picture, a .png file.", show_default="none")] = None,
    inverter: Annotated[
        Path | None, typer.Option(help="Inverter, an .onnx file.", show_default="the built-in one, for raw SIFT")
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help="Recover the descriptors first: NAME, see featveil attack --list.")
    ] = None,
    original: Annotated[
        Path | None,
        typer.Option(help="Image to compare with.", show_default="FEATURES, if it is an image"),
    ] = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="The original at the left of the picture.")
    ] = False,
    positions_only: Annotated[
        bool,
        typer.Option("--positions-only", help="Of keypoints read positions alone, as of most private files."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(min=32, help="Pixels of the picture's long side.", show_default="by the number of features"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The image, in a file of many.", show_default="the only one")] = None,
    kind: Annotated[str | None, typer.Option(help="Descriptor kind, where a file does not say it.")] = None,
    max_features: Annotated[int, typer.Option(min=1, help="Of an image, the strongest.")] = 2048,
    database: Annotated[
        Path | None, typer.Option(help="Attack: own descriptors, or none.", show_default="the built-in one")
    ] = None,
    lifting_database: Annotated[
        Path | None,
        typer.Option(help="Attack: what was lifted with, or none.", show_default="the built-in one if named"),
    ] = None,
    codebook: Annotated[
        Path | None, typer.Option(help="Codebook of word sets.", show_default="the built-in one if named")
    ] = None,
    others: Annotated[list[Path] | None, typer.Option(help="Attack: other private images.")] = None,
    repeats: Annotated[list[Path] | None, typer.Option(help="Attack: further releases of these features.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Attack: another image of the place.")] = None,
    concealer: ConcealedBy = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="A parameter of the attack: NAME=VALUE.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the attack's own draws.")] = 0,
    json: Json = False,
) -> None:
    """Paint what features show, with a trained network: what an attacker sees who has them.

    Raw SIFT needs nothing else; raw files also tell scale and orientation of keypoints, which the picture gains from.
    To compare one with what is seen of a private file, use --positions-only. For private features give an inverter that
    was trained on such (featveil train inverter --defense ...), or an attack that recovers the descriptors first. With
    an original it says how near the picture is, and how near a grey one would be.

    Example: featveil invert query.veil --attack database --out seen.png --original photo.jpg
    """
    from featveil.pipelines.painters import at_size, load_painter, paint, without_geometry

    _check_asked(features, out, original, side_by_side)
    method = None if attack is None else _one_attack(attack, settings or [])
    seen = _read(features, name, kind, max_features)
    seen = without_geometry(seen) if positions_only else seen
    painter, truth = load_painter(inverter, base_kind(seen.kind)), _original(seen, original, features)
    several = tuple(others or ()), tuple(repeats or ())
    adversary = Adversary(Files(database, lifting_database, codebook, *several, reference, concealer))
    told: dict[str, Any] = {"features": len(seen), "kind": seen.kind, "attack": None, "answered": None}
    with progress("inverting"):
        words, found = _words(seen, adversary, features.name), seen
        if method is not None:
            guess, found = _recovered(seen, method, adversary, painter, (seed, features.name))
            told |= {"attack": method.name, "answered": float(guess.answered.mean())}
        picture = paint(at_size(found, _size(found, size)), painter, words)
    told["geometry"] = "full" if painter.reads_all(found) else "positions"
    _warn_of_another_defense(found, painter)
    _finish(picture, truth, painter, out, side_by_side, told, json)


def _check_asked(features: Path, out: Path | None, original: Path | None, side_by_side: bool) -> None:
    """Raise InputError, before any work, when nothing would come of it."""
    from featveil.extractors.images import IMAGE_SUFFIXES

    if out is not None and out.suffix.lower() != ".png":
        raise InputError(f"the picture is a .png file, not {out.name}")
    if out is not None:
        check_folder(out.parent)
    known = original is not None or features.suffix.lower() in IMAGE_SUFFIXES
    if side_by_side and (out is None or not known):
        raise InputError("--side-by-side needs the picture, --out FILE.png, and an --original")
    if out is None and not known:
        raise InputError("nothing would come of it: name the picture, --out FILE.png, or an --original to compare with")


def _one_attack(name: str, settings: list[str]) -> "Attack":
    methods, _ = make_attacks([name], settings)
    if len(methods) > 1:
        raise InputError("a picture is of one attack: name one")
    if "truth" in methods[0].needs:
        raise InputError(f"{name} knows the truth, which no file has: see featveil bench inversion")
    return methods[0]


def _read(path: Path, name: str | None, kind: str | None, max_features: int) -> "Features | PrivateFeatures":
    """The features of a file; of several images the one called `name`."""
    from featveil.formats import colmap_database, hloc, private_hloc

    module: Any = None
    if path.suffix.lower() in HDF5:
        module = private_hloc if path.is_file() and private_hloc.is_private(path) else hloc
    elif path.is_file() and colmap_database.is_database(path):
        module = colmap_database
    if module is None:
        if name is not None:
            raise InputError(f"--name is for files with features of many images, which {path} is not")
        return read_features(path, kind or "sift", max_features)
    names = module.names(path)
    if name is None and len(names) != 1:
        raise InputError(f"{path} has features of {len(names)} images: --name one of them")
    chosen = names[0] if name is None else name
    found: Features | PrivateFeatures = (
        module.read(path, chosen) if module is private_hloc else module.read(path, chosen, kind)
    )
    if len(found) == 0:
        raise InputError(f"image {chosen!r} in {path} has no features")
    return found


def _original(seen: "Features | PrivateFeatures", original: Path | None, features: Path) -> "Image | None":
    """The image that the features are of, if there is one; warns of another, raises InputError for another size."""
    from featveil.extractors import read_image
    from featveil.extractors.images import IMAGE_SUFFIXES
    from featveil.pipelines.painters import keypoints_found

    path = original or (features if features.suffix.lower() in IMAGE_SUFFIXES else None)
    if path is None:
        return None
    image = read_image(path)
    if seen.image_size is not None and tuple(seen.image_size) != (image.shape[1], image.shape[0]):
        raise InputError(
            f"the features are of an image of {seen.image_size[0]} x {seen.image_size[1]} pixels, {path} has"
            f" {image.shape[1]} x {image.shape[0]}: give the image they were extracted from"
        )
    if original is not None and (share := keypoints_found(seen, image)) is not None and share < _FEW_FOUND:
        complain("warning", f"{100 * share:.0f}% of the features are where {path.name} has any: is it their image?")
    return image


def _size(seen: "Features | PrivateFeatures", longest: int | None) -> tuple[int, int]:
    """(width, height) of the picture."""
    from featveil.pipelines.painters import picture_size

    if longest is None or seen.image_size is None:
        return picture_size(seen)
    factor = longest / max(seen.image_size)
    return max(1, round(seen.image_size[0] * factor)), max(1, round(seen.image_size[1] * factor))


def _words(seen: "Features | PrivateFeatures", adversary: Adversary, name: str) -> Any:
    """The codebook (K, d) of word sets."""
    import numpy as np

    from featveil.core import PrivateFeatures, WordSets

    if not isinstance(seen, PrivateFeatures) or not isinstance(seen.descriptors, WordSets):
        return None
    codebook = adversary.knowledge(seen, name).codebook
    return None if codebook is None else np.asarray(codebook.values, np.float32)


def _recovered(
    seen: "Features | PrivateFeatures",
    method: "Attack",
    adversary: Adversary,
    painter: "Painter",
    draws: tuple[int, str],
) -> "tuple[Guess, Features]":
    """What the attack makes of all features, as raw ones."""
    from featveil.attacks import attack
    from featveil.core import PrivateFeatures
    from featveil.core.seeding import generator
    from featveil.pipelines.painters import check_reads_raw, recovered

    if not isinstance(seen, PrivateFeatures):
        raise InputError("these are raw features: nothing is hidden, so there is nothing to attack")
    check_reads_raw(painter, base_kind(seen.kind))
    seed, name = draws
    known = adversary.knowledge(seen, name)
    if (why := obstacle(seen, method, known)) is not None:
        raise InputError(why.message)
    guess = attack(seen, method, known, generator(seed, name, method.name))
    return guess, recovered(seen, guess)


def _warn_of_another_defense(seen: "Features | PrivateFeatures", painter: "Painter") -> None:
    """Say when the inverter was trained on the same representation, but another defense or database."""
    from featveil.core import PrivateFeatures
    from featveil.pipelines.painters import training_command

    trained = painter.inverter.card.get("defense")
    if isinstance(seen, PrivateFeatures) and trained is not None and trained != seen.defense:
        complain("warning", f"{painter.name} was trained on another defense, so it sees less: {training_command(seen)}")


def _finish(
    picture: "Image",
    truth: "Image | None",
    painter: "Painter",
    out: Path | None,
    side_by_side: bool,
    told: dict[str, Any],
    json: bool,
) -> None:
    """Write the picture, and say how near it is."""
    import numpy as np

    from featveil.metrics.reconstruction import compare
    from featveil.pipelines.painters import blank, resized
    from featveil.plotting.pictures import write_picture

    height, width = picture.shape[:2]
    told |= {"size": [width, height], "inverter": painter.name, "digest": painter.digest}
    lines = [f"{width} x {height} pixels of {told['features']:,} features, painted by {painter.name}"]
    lines.append(f"read of keypoints: {_GEOMETRIES[told['geometry']]}")
    if told["attack"] is not None:
        lines.append(f"recovered by {told['attack']}, which answers {100 * told['answered']:.0f}% of them")
    if truth is not None:
        truth = resized(truth, (width, height))
        found = {"picture": compare(picture, truth), "grey picture": compare(blank(truth), truth)}
        lines += [
            f"{name:12}  MAE {one.mae:.3f}  SSIM {one.ssim:.3f}  PSNR {one.psnr:.2f} dB" for name, one in found.items()
        ]
        told |= {**found["picture"]._asdict(), "blank": found["grey picture"]._asdict()}
    if out is not None:
        gap = np.full((height, _GAP, 3), 255, np.uint8)
        write_picture(np.hstack([truth, gap, picture]) if side_by_side and truth is not None else picture, out)
        lines.append(f"wrote {out}")
    show({**told, "out": None if out is None else str(out)}, json, "\n".join(lines))
