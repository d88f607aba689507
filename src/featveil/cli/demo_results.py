"""What `featveil demo` prints beside the page that it writes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from featveil.demo.demo_page import Run


def demo_facts(run: "Run", out: Path) -> dict[str, Any]:
    """What --json prints."""
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
        "page": str(out / "index.html"),
        "features": len(run.release),
        "raw": vars(run.raw),
        "lifting": rows,
        "subset": [
            {"epsilon": row.epsilon, "image_epsilon": row.image_epsilon, "guess": row.guess, **vars(row.count)}
            for row in run.words.rows
        ],
        "concealed": {
            "matches": run.concealed.matches,
            "inliers": run.concealed.inliers,
            "unconceal": vars(run.concealed.leakage),
        },
        "attacks": [{"attack": row.attack, **vars(row.leakage)} for row in run.attacks],
        "views": [{"attack": attack, **score._asdict()} for attack, score in run.scored_views],
        "map": None if run.map is None else [vars(row) for row in run.map.rows],
        "faces": {
            "verified": {row.name: row.private < run.faces.private_stranger for row in run.faces.copies},
            "gender_named_right": dict(run.faces.guesses),
        },
    }


def demo_text(run: "Run", out: Path) -> str:
    """What is printed for a person, the page last."""
    from featveil.metrics import NEAR

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
    hidden = run.concealed
    lines += [
        f"concealed with raw    {hidden.inliers} of {hidden.matches}"
        f" (attack unconceal: {100 * hidden.leakage.exact:.0f} % exact)"
    ]
    lines += [
        f"attack {row.attack:<14} {100 * found.below_near:.0f} % nearer than {NEAR:g}, {100 * found.exact:.0f} % exact"
        for row in run.attacks
        for found in (row.leakage,)
    ]
    lines += [f"seen by {attack:<13} SSIM {score.ssim:.2f}" for attack, score in run.scored_views]
    lines += [
        f"map of {row.scheme}: {row.registered} of {row.images} images, {row.points:,} points"
        for row in (run.map.rows if run.map else ())
    ]
    passed = sum(row.private < run.faces.private_stranger for row in run.faces.copies)
    lines.append(f"face template         {passed} of {len(run.faces.copies)} copies of the photograph pass")
    return "\n".join([*lines, f"Open {(out / 'index.html').resolve()}"])
