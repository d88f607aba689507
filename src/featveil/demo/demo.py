"""Two images -> everything that the demo shows of them, of a room and of a face, and the release that it is about."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from featveil.attacks import ATTACKS
from featveil.core import Features, FeatveilError, InputError, PrivateFeatures
from featveil.core.files import check_folder, make_folder, replacing
from featveil.datasets.board import views
from featveil.demo.astronaut import FaceDemo, show_faces
from featveil.demo.gated_room import GatedRoom
from featveil.demo.room import RoomMaps, show_room
from featveil.demo.two_views import (
    DIMENSIONS,
    SHOWN_DIMENSION,
    Concealed,
    Count,
    LeakRow,
    Row,
    View,
    Words,
    attack_release,
    attacker_views,
    conceal,
    hidden,
    lift,
    match_sides,
    name_words,
    read_side,
)
from featveil.formats.veil import encode
from featveil.metrics import NEAR
from featveil.metrics.reconstruction import Reconstruction
from featveil.pipelines.scoring import Outcome
from featveil.plotting.pictures import Picture, draw_keypoints

_STEPS = 7 + len(DIMENSIONS)  # raw and lifted matches, words, attacks, concealer, room, faces, pictures


@dataclass(frozen=True, eq=False)
class Run:
    """Everything the page shows. Pictures are uint8 RGB."""

    query: Picture
    reference: Picture
    positions: Picture
    raw_matches: Picture
    one_side_matches: Picture
    both_sides_matches: Picture
    raw: Count
    rows: Sequence[Row]
    shown: int  # dimension of the pictures
    words: Words
    concealed: Concealed
    attacks: Sequence[LeakRow]
    views: Sequence[View] | str  # what attackers see, or why that was not painted
    map: RoomMaps | None  # None without pycolmap
    faces: FaceDemo
    release: PrivateFeatures
    file_bytes: int
    raw_bytes: int
    seconds: float

    @property
    def scored_views(self) -> list[tuple[str, Reconstruction]]:
        """The attacks whose pictures are shown, and how near these come."""
        shown = [] if isinstance(self.views, str) else [*self.views]
        shown += [] if isinstance(self.concealed.view, str) else [self.concealed.view]
        return [(view.attack, view.score) for view in shown if view.score is not None]


def demo(
    out: Path, images: tuple[Path, Path] | None = None, report: Callable[[int, int], None] = lambda done, total: None
) -> Run:
    """Show a query and a reference image (default: the bundled ones): write index.html and query.veil to `out`.

    `report` is called with steps (done, total). Raises InputError for images that cannot be read or have no features,
    and a folder that cannot be written; nothing is written then.
    """
    from featveil.demo.demo_page import render

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder")
    check_folder(out.parent)
    run = show(views() if images is None else images, report)
    files = {"query.veil": encode(run.release), "index.html": render(run).encode("utf-8")}
    make_folder(out)
    for name, content in files.items():  # the page comes last
        with replacing(out / name) as temporary:
            temporary.write_bytes(content)
    return run


def show(images: tuple[Path, Path], report: Callable[[int, int], None] = lambda done, total: None) -> Run:
    """Everything the page shows; `report` is called with steps (done, total)."""
    started = time.monotonic()
    steps = iter(range(1, _STEPS + 1))

    def done() -> None:
        report(next(steps), _STEPS)

    query, reference = map(read_side, images)
    assert isinstance(query.features, Features) and isinstance(reference.features, Features)
    assert query.panel.image is not None and reference.panel.image is not None
    raw = match_sides(query, reference)
    done()
    lifted = {}
    for dimension in DIMENSIONS:
        lifted[dimension] = lift(query.features, reference.features, reference, dimension)
        done()
    shown = lifted[SHOWN_DIMENSION]
    words = name_words(query.features, reference)
    done()
    outcomes = attack_release(shown.private, query.features)
    done()
    concealed = conceal(query.features, reference.features, reference, query.panel.image)
    done()
    room = show_room()
    done()
    faces = show_faces()
    done()
    seen = _views(shown.private, query.features, query.panel.image, outcomes)
    done()
    return Run(
        query=query.panel.image,
        reference=reference.panel.image,
        positions=draw_keypoints(hidden(shown.private).panel),
        raw_matches=raw.picture,
        one_side_matches=shown.one_side,
        both_sides_matches=shown.both_sides,
        raw=raw.count,
        rows=[one.row for one in lifted.values()],
        shown=SHOWN_DIMENSION,
        words=words,
        concealed=concealed,
        attacks=[LeakRow(name, ATTACKS[name].summary, outcome.leakage) for name, outcome in outcomes.items()],
        views=seen,
        map=room,
        faces=faces,
        release=shown.private,
        file_bytes=len(encode(shown.private)),
        raw_bytes=len(encode(query.features)),
        seconds=time.monotonic() - started,
    )


def _views(
    private: PrivateFeatures, query: Features, image: Picture, outcomes: dict[str, Outcome]
) -> Sequence[View] | str:
    """The photograph and what can be painted of it, or why nothing can."""
    try:
        return attacker_views(private, query, image, outcomes)
    except FeatveilError as error:
        return str(error)


def demo_facts(run: Run) -> dict[str, Any]:
    """What the page shows, as numbers."""
    rows = [
        {
            "dimension": row.dimension,
            "private_raw": vars(row.one_side),
            "private_private": vars(row.both_sides),
            "redrawn": row.redrawn,
        }
        for row in run.rows
    ]
    return {
        "features": len(run.release),
        "raw": vars(run.raw),
        "lifting": rows,
        "subset": [
            {"epsilon": row.epsilon, "image_epsilon": row.image_epsilon, "guess": row.guess, **vars(row.count)}
            for row in run.words.rows
        ],
        "concealed": {**vars(run.concealed.count), "unconceal": vars(run.concealed.leakage)},
        "attacks": [{"attack": row.attack, **vars(row.leakage)} for row in run.attacks],
        "views": [{"attack": attack, **score._asdict()} for attack, score in run.scored_views],
        "map": None if run.map is None else [vars(row) for row in run.map.rows],
        "gate": None if run.map is None else _gate_facts(run.map.gate),
        "faces": {
            "verified": {copy.name: copy.private < run.faces.private_stranger for copy in run.faces.copies},
            "gender_named_right": {guess.strategy: guess.right for guess in run.faces.guesses},
        },
    }


def _gate_facts(gate: GatedRoom) -> dict[str, Any]:
    return {
        "tau": gate.tau,
        "room": vars(gate.room),
        "portrait": vars(gate.portrait),
        "raw_errors": gate.raw_errors,
        "gated_errors": gate.gated_errors,
        "bytes": {"raw": gate.raw_bytes, "gated": gate.gated_bytes, "sketch": gate.sketch_bytes},
    }


def demo_lines(run: Run) -> list[str]:
    """The same in lines for a person."""
    lines = [f"raw with raw          {run.raw.inliers} of {run.raw.matches} matches agree"]
    for row in run.rows:
        lines += [
            f"private with raw      {row.one_side.inliers} of {row.one_side.matches} (dimension {row.dimension})",
            f"private with private  {row.both_sides.inliers} of {row.both_sides.matches}"
            + (f" (same database part drawn: reference released again, {row.redrawn} x)" if row.redrawn else ""),
        ]
    lines += [
        f"words with raw        {row.count.inliers} of {row.count.matches}"
        f" (epsilon {row.epsilon:g} a feature, {row.image_epsilon:,.0f} for the image)"
        for row in run.words.rows
    ]
    concealed = run.concealed
    lines += [
        f"concealed with raw    {concealed.count.inliers} of {concealed.count.matches}"
        f" (attack unconceal: {100 * concealed.leakage.exact:.0f} % exact)"
    ]
    lines += [
        f"attack {row.attack:<14} {100 * row.leakage.below_near:.0f} % nearer than {NEAR:g},"
        f" {100 * row.leakage.exact:.0f} % exact"
        for row in run.attacks
    ]
    lines += [f"seen by {attack:<13} SSIM {score.ssim:.2f}" for attack, score in run.scored_views]
    lines += [
        f"map of {row.scheme}: {row.registered} of {row.images} images, {row.points:,} points"
        for row in (run.map.rows if run.map else ())
    ]
    if run.map is not None:
        room, portrait = run.map.gate.room, run.map.gate.portrait
        lines += [
            f"gate sends            {room.sent:,} of {room.features:,} features of the room,"
            f" {portrait.sent} of {portrait.features} of a portrait in front of it"
        ]
    passed = sum(copy.private < run.faces.private_stranger for copy in run.faces.copies)
    return [*lines, f"face template         {passed} of {len(run.faces.copies)} copies of the photograph pass"]
