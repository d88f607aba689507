"""Records of an audit's pictures -> the part of its page that shows what the best attackers see."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from featveil.audit.frontier_svg import marker_svg
from featveil.audit.rows import PHOTOGRAPH, PICTURES_TASK, SKIPPED, UNSCORED, AuditRow
from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics.reconstruction import METRIC, Reconstruction
from featveil.plotting.pictures import Picture, embedded

_LONGEST = 256  # pixels of a picture's long side on the page
_RAW, _FLOOR = "read", "chance"
_ALMOST, _HARDLY = 0.75, 0.25  # of the way from random descriptors to raw ones
_TELLING = 0.02  # SSIM between these two, below which a photograph tells nothing
_LOST = "its file is not there any more: run the audit again"

_Key = tuple[str, str, str, str | None]  # dataset, scheme or, where nothing is hidden, "", what is sent, attack


@dataclass(frozen=True, eq=False)
class _Shown:
    """A picture of the page, and how near it is to the photograph; `reason` where there is none."""

    picture: Picture | None
    score: Reconstruction | None
    reason: str = ""


class AuditPictures:
    """What records of pictures tell, with the pictures of their `folder`, by dataset, scheme and attack."""

    def __init__(self, records: Iterable[Record] = (), folder: Path | None = None) -> None:
        self.victims: dict[str, str] = {}
        self._shown: dict[_Key, _Shown] = {}
        for record in records:
            key = _key(record)
            self._shown[key] = _shown(record, folder)
            self.victims[record.dataset] = str(record.parameters["victim"])

    def __bool__(self) -> bool:
        return bool(self._shown)

    def section(self, rows: Sequence[AuditRow], numbers: dict[str, int], optimal: set[str], name: str) -> str:
        """The pictures of one dataset, a line for each scheme; `name` starts the ids of the schemes' cards.

        `numbers` are those of the schemes, `optimal` the ones on the frontier.
        """
        dataset = rows[0].dataset
        photograph = self._shown.get((dataset, PHOTOGRAPH, "", None))
        title = f"<h3>{html.escape(dataset)}: {html.escape(self.victims.get(dataset, ''))}</h3>"
        if not any(found.picture is not None for key, found in self._shown.items() if key[0] == dataset):
            reason = photograph.reason if photograph else "none was made"
            return f"{title}\n<p>There are no pictures: {html.escape(reason)}.</p>"
        parts = [title]
        for row in rows:
            number = numbers[row.scheme]
            marker = marker_svg(row.defense, row.scheme in optimal)
            heading = f'{marker} <a href="#{name}-s{number}">{number} {html.escape(row.scheme)}</a>'
            parts.append(f'<section class="seen"><h4>{heading}</h4>\n{self._line(row, photograph)}\n</section>')
        return "\n".join(parts)

    def _line(self, row: AuditRow, photograph: _Shown | None) -> str:
        sent = _sent(row.keypoints, row.geometry)
        raw, floor = (self._shown.get((row.dataset, "", sent, attack)) for attack in (_RAW, _FLOOR))
        shown = [("Photograph", photograph), ("Raw descriptors", raw)]
        if row.defense != "identity":
            best = self._shown.get((row.dataset, row.scheme, sent, row.best.attack)) if row.best else None
            shown.append((f"Best attack: {row.best.attack if row.best else 'none was run'}", best))
            told = describe_view(row, *(found.score if found else None for found in (best, raw, floor)))
        else:
            told = "Nothing is hidden: the attacker paints the raw descriptors."
        shown.append(("Random descriptors", floor))
        figures = "\n".join(_figure(title, found, row) for title, found in shown)
        return f'<p>{html.escape(told)}</p>\n<div class="four">\n{figures}\n</div>'


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


def _figure(title: str, shown: _Shown | None, row: AuditRow) -> str:
    shown = shown or _Shown(None, None, "it was not painted")
    score = "" if shown.score is None else f"<br>SSIM {shown.score.ssim:.2f}"
    caption = f"<figcaption><b>{html.escape(title)}</b>{score}</figcaption>"
    if shown.picture is None:
        return f'<figure><p class="none">No picture: {html.escape(shown.reason)}.</p>{caption}</figure>'
    text = html.escape(f"{title}, {row.scheme}", quote=True)
    return f'<figure><img {embedded(shown.picture)} alt="{text}">{caption}</figure>'


def _shown(record: Record, folder: Path | None) -> _Shown:
    if record.metric == SKIPPED:
        return _Shown(None, None, str(record.parameters.get("reason")).rstrip("."))
    score = Reconstruction(*record.value) if isinstance(record.value, tuple) else None
    name = str(record.parameters.get("picture"))
    if folder is None or Path(name).name != name:
        return _Shown(None, score, _LOST)
    picture = _thumbnail(folder / name)
    return _Shown(picture, score, "" if picture is not None else _LOST)


def _thumbnail(path: Path) -> Picture | None:
    try:
        found = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    except (OSError, cv2.error):
        return None
    if found is None:
        return None
    picture = cv2.cvtColor(found, cv2.COLOR_BGR2RGB)
    factor = min(1.0, _LONGEST / max(picture.shape[:2]))
    size = max(1, round(picture.shape[1] * factor)), max(1, round(picture.shape[0] * factor))
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)


def _key(record: Record) -> _Key:
    found = record.parameters
    whole = record.metric in (METRIC, UNSCORED, SKIPPED) and "victim" in found
    if record.metric == METRIC:
        whole = whole and isinstance(record.value, tuple) and len(record.value) == len(Reconstruction._fields)
    if record.task != PICTURES_TASK or not whole:
        raise InputError(f"a record of task {record.task} ({record.metric}) is not one of an audit's pictures")
    if record.scheme == PHOTOGRAPH and record.attack is None:
        return record.dataset, PHOTOGRAPH, "", None
    scheme = "" if found.get("defense") == "identity" else record.scheme
    return record.dataset, scheme, _sent(found.get("keypoints"), found.get("geometry")), record.attack


def _sent(keypoints: object, geometry: object) -> str:
    return f"{keypoints}{' with geometry' if geometry else ''}"
