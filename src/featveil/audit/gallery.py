"""Records of an audit's pictures -> the part of its page that shows what the best attackers see."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from featveil.audit.rows import PHOTOGRAPH, PICTURES_TASK, SKIPPED, UNSCORED, AuditRow
from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics.reconstruction import METRIC, Reconstruction
from featveil.plotting.pictures import EmbeddedPicture, Picture, embedded

_LONGEST = 256  # pixels of a picture's long side on the page
_RAW, _FLOOR = "read", "chance"
_ALMOST, _HARDLY = 0.75, 0.25  # of the way from random descriptors to raw ones
_TELLING = 0.02  # SSIM between these two, below which a photograph tells nothing
_LOST = "its file is not there any more: run the audit again"

_Key = tuple[str, str, str, str | None]  # dataset, scheme or, where nothing is hidden, "", what is sent, attack


@dataclass(frozen=True, eq=False)
class ShownPicture:
    """A picture of the page, and how near it is to the photograph; `reason` where there is none."""

    picture: EmbeddedPicture | None
    score: Reconstruction | None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class PictureLine:
    """The pictures of one scheme with their titles, and what they say."""

    description: str
    views: tuple[tuple[str, ShownPicture], ...]


class AuditPictures:
    """What records of pictures tell, with the pictures of their `folder`, by dataset, scheme and attack."""

    def __init__(self, records: Iterable[Record] = (), folder: Path | None = None) -> None:
        self.victims: dict[str, str] = {}
        self._shown: dict[_Key, ShownPicture] = {}
        for record in records:
            key = _key(record)
            self._shown[key] = _shown(record, folder)
            self.victims[record.dataset] = str(record.parameters["victim"])

    def __bool__(self) -> bool:
        return bool(self._shown)

    def missing(self, dataset: str) -> str:
        """Why there is no picture of a dataset; empty where there is one."""
        if any(shown.picture is not None for key, shown in self._shown.items() if key[0] == dataset):
            return ""
        photograph = self._shown.get((dataset, PHOTOGRAPH, "", None))
        return photograph.reason if photograph else "none was made"

    def line(self, row: AuditRow) -> "PictureLine":
        """The pictures of one scheme."""
        sent = _sent(row.keypoints, row.geometry)
        raw, floor = (self._shown.get((row.dataset, "", sent, attack)) for attack in (_RAW, _FLOOR))
        views = [("Photograph", self._shown.get((row.dataset, PHOTOGRAPH, "", None))), ("Raw descriptors", raw)]
        description = "Nothing is hidden: the attacker paints the raw descriptors."
        if row.defense != "identity":
            best = self._shown.get((row.dataset, row.scheme, sent, row.best.attack)) if row.best else None
            views.append((f"Best attack: {row.best.attack if row.best else 'none was run'}", best))
            description = describe_view(row, *(shown.score if shown else None for shown in (best, raw, floor)))
        views.append(("Random descriptors", floor))
        unpainted = ShownPicture(None, None, "it was not painted")
        return PictureLine(description, tuple((title, shown or unpainted) for title, shown in views))


def describe_view(
    row: AuditRow, best: Reconstruction | None, raw: Reconstruction | None, floor: Reconstruction | None
) -> str:
    """What the best attacker's picture says of a scheme, in a sentence."""
    if row.best is None:
        return "No attack on it was run."
    if best is None or raw is None or floor is None:
        return "How near the pictures come is not known."
    if raw.ssim - floor.ssim < _TELLING:
        return (
            "At these keypoints raw descriptors are painted hardly better than random ones: the pictures do not tell"
            " how well the scheme hides them."
        )
    share = (best.ssim - floor.ssim) / (raw.ssim - floor.ssim)
    start = f"What {row.best.attack} guesses is painted "
    if share >= _ALMOST:
        return start + "as well as raw descriptors, or almost: the scheme hides nothing of the photograph from it."
    if share > _HARDLY:
        return start + f"better than random descriptors and worse than raw ones, {100 * share:.0f}% of the way between."
    return start + "hardly better than random descriptors are: the attacker sees what positions alone tell."


def _shown(record: Record, folder: Path | None) -> ShownPicture:
    if record.metric == SKIPPED:
        return ShownPicture(None, None, str(record.parameters.get("reason")).rstrip("."))
    score = Reconstruction(*record.value) if isinstance(record.value, tuple) else None
    name = str(record.parameters.get("picture"))
    if folder is None or Path(name).name != name:
        return ShownPicture(None, score, _LOST)
    picture = _thumbnail(folder / name)
    return ShownPicture(None, score, _LOST) if picture is None else ShownPicture(embedded(picture), score)


def _thumbnail(path: Path) -> Picture | None:
    try:
        stored = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    except (OSError, cv2.error):
        return None
    if stored is None:
        return None
    picture = cv2.cvtColor(stored, cv2.COLOR_BGR2RGB)
    factor = min(1.0, _LONGEST / max(picture.shape[:2]))
    size = max(1, round(picture.shape[1] * factor)), max(1, round(picture.shape[0] * factor))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def _key(record: Record) -> _Key:
    given = record.parameters
    whole = record.metric in (METRIC, UNSCORED, SKIPPED) and "victim" in given
    if record.metric == METRIC:
        whole = whole and isinstance(record.value, tuple) and len(record.value) == len(Reconstruction._fields)
    if record.task != PICTURES_TASK or not whole:
        raise InputError(f"a record of task {record.task} ({record.metric}) is not one of an audit's pictures")
    if record.scheme == PHOTOGRAPH and record.attack is None:
        return record.dataset, PHOTOGRAPH, "", None
    scheme = "" if given.get("defense") == "identity" else record.scheme
    return record.dataset, scheme, _sent(given.get("keypoints"), given.get("geometry")), record.attack


def _sent(keypoints: object, geometry: object) -> str:
    return f"{keypoints}{' with geometry' if geometry else ''}"
