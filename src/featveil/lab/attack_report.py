"""Records of attacks on defenses -> rows, a table of every attack against every scheme, and a figure of it.

A cell is a mean over all attacked features of all victims, so a photograph with more features weighs more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core import InputError
from featveil.core.records import Record
from featveil.metrics import CLOSE, NEAR, Leakage
from featveil.metrics.leakage import MEASURED
from featveil.plotting.figures import blank_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOT_ADVERSARIES = ("chance", "oracle")
_PARTS = ("identity", "lifting", "subset", "metric", "concealer")
_WORD_SETS = ("subset", "metric")
_NARROWEST = 5.2  # inches of a figure: its title fits

Value = Callable[["AttackRow"], float]


@dataclass(frozen=True)
class AttackRow(Leakage):
    """One attack against one scheme over all victims; `count` features were attacked, `seconds` for each.

    Distances are shares of the descriptor's norm. `median` and `rank` are means of the photographs' medians.
    `image_epsilon` is that of an image with the mean number of `features`; `bound` is how often any attack can name the
    right word from one release, were all words equally common. None where nothing is guaranteed. `then` is the defense
    after a concealer, and `released_near` the share of guesses below NEAR of the concealed descriptor.
    """

    scheme: str
    defense: str
    then: str | None
    attack: str
    victims: int
    seconds: float
    epsilon: float | None
    image_epsilon: float | None
    bound: float | None
    released_near: float | None = None


def summarize_attacks(records: Sequence[Record]) -> list[AttackRow]:
    """One row for each scheme and attack, in the order of the records; raises InputError for other records."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.task != "attacks" or record.attack is None or not isinstance(record.value, tuple):
            raise InputError(f"a record of task {record.task} is not one of attacks: leave it out")
        groups.setdefault((record.scheme, record.attack), []).append(record)
    return [_row(members) for members in groups.values()]


def _success(row: AttackRow) -> float:
    """How often an attack succeeds: the share of words named right for word sets, else of guesses below NEAR."""
    return row.exact if (row.then or row.defense) in _WORD_SETS else row.below_near


def best_attacks(rows: Sequence[AttackRow], value: Value = _success) -> dict[str, AttackRow]:
    """Of each scheme the attack with the largest `value`; neither chance nor the oracle, which knows the truth.

    By default the value is the share of words named right for word sets, else that of guesses below NEAR. Among equals
    it is the attack with more guesses below NEAR, then below CLOSE, then the first.
    """
    found: dict[str, tuple[tuple[float, ...], AttackRow]] = {}
    for row in rows:
        if row.attack.split(" + ")[0] in _NOT_ADVERSARIES:
            continue
        rank = value(row), row.below_near, row.below_close
        if row.scheme not in found or rank > found[row.scheme][0]:
            found[row.scheme] = rank, row
    return {scheme: row for scheme, (_, row) in found.items()}


def attacks_markdown(records: Sequence[Record]) -> str:
    """The tables of shares below both distances and of exact recoveries, then all figures in one."""
    if not records:
        raise InputError("there is no record to make a table of")
    rows, one = summarize_attacks(records), records[0]
    found = one.parameters
    parts = [
        f"# Attacks on {one.dataset}\n",
        f"{found['kind']}, at most {found['max_features']} features of each of {max(row.victims for row in rows)}"
        f" photographs, of which attacks that treat each feature by itself see {found['sample']}; seed {one.seed}."
        " A name after + is what the adversary has beyond what the attack needs (`featveil attack --list`); geometry:"
        " the release has scale and orientation of the keypoints. The oracle knows the truth: it is no"
        " adversary. The second view that inlier and closest-pair are given is the victim's own photograph turned,"
        " tilted, smaller and darker, which flatters these two: another photograph of the place tells less. best: the"
        " attack with the largest number above, chance and oracle left out (none: all are 0). - : the attack does not"
        " apply.\n",
    ]
    shown: list[tuple[str, Value]] = [
        (f"Guesses nearer than {NEAR} to the hidden descriptor, in %", lambda row: row.below_near),
        (f"Guesses nearer than {CLOSE}, in %", lambda row: row.below_close),
        ("Exactly recovered (descriptor, or word for word sets), in %", lambda row: row.exact),
    ]
    for defense in _PARTS:
        chosen = [row for row in rows if row.defense == defense]
        for title, value in shown if chosen else ():
            parts.append(f"## {defense}: {title.lower()}\n\n{_grid(chosen, value)}")
        parts[-1] += _bounds(chosen)
        behind = [row for row in chosen if row.released_near is not None]
        if behind:
            title = f"Of the concealed descriptor, before the network is undone: guesses nearer than {NEAR}, in %"
            parts.append(f"## {defense}: {title.lower()}\n\n{_grid(behind, lambda row: row.released_near or 0.0)}")
    parts.append(f"## All figures\n\n{_list(rows)}")
    return "\n".join(parts)


def attack_cells(rows: Sequence[AttackRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text."""
    headings = ["scheme", "attack", "mean", "median", f"<{CLOSE} %", f"<{NEAR} %", "exact %", "rank", "answered %"]
    headings += ["features", "ms a feature", "epsilon", "epsilon an image"]
    return headings, [_cells(row) for row in rows]


def draw_attacks(rows: Sequence[AttackRow], path: str | Path, title: str = "") -> None:
    """Write a picture of the share below NEAR of every attack (lines) against every scheme (columns) as a PNG."""
    if not rows:
        raise InputError("there is no result to draw")
    parts = [[row for row in rows if row.defense == defense] for defense in _PARTS[1:]]
    parts = [part for part in parts if part] or [list(rows)]
    lines = [len({row.attack for row in part}) for part in parts]
    widest = max(len({row.scheme for row in part}) for part in parts)
    figure = blank_figure(max(0.52 * widest + 3.2, _NARROWEST), 0.3 * sum(lines) + 1.5 * len(parts))
    panels = figure.subplots(len(parts), 1, squeeze=False, gridspec_kw={"height_ratios": lines})
    for panel, part in zip(panels[:, 0], parts, strict=True):
        _heat(panel, part)
    write_figure(figure, path, f"{title}\nguesses nearer than {NEAR} to the hidden descriptor, %".strip())


def _cells(row: AttackRow) -> tuple[str, ...]:
    shares = (f"{100 * share:.1f}" for share in (row.below_close, row.below_near, row.exact))
    epsilons = ("-" if value is None else f"{value:,.6g}" for value in (row.epsilon, row.image_epsilon))
    answered = f"{row.rank:.0f}", f"{100 * row.answered:.0f}", str(row.count), f"{1000 * row.seconds:.1f}"
    return (row.scheme, row.attack, f"{row.mean:.3f}", f"{row.median:.3f}", *shares, *answered, *epsilons)


def _row(records: Sequence[Record]) -> AttackRow:
    one, total = records[0], sum(record.count for record in records)
    measured = [record.value for record in records if isinstance(record.value, tuple)]
    weights = {name: [record.count / total for record in records] for name in MEASURED}
    weights |= dict.fromkeys(("median", "rank"), [1 / len(records)] * len(records))
    values = {
        name: sum(value[place] * weight for value, weight in zip(measured, weights[name], strict=True))
        for place, name in enumerate(MEASURED)
    }
    epsilon, bound, then = (one.parameters.get(name) for name in ("epsilon", "bound", "then"))
    features = sum(int(str(record.parameters["features"])) for record in records) / len(records)
    return AttackRow(
        scheme=one.scheme,
        defense=str(one.parameters["defense"]),
        then=None if then is None else str(then),
        attack=str(one.attack),
        count=total,
        victims=len(records),
        seconds=sum(float(str(record.parameters["seconds"])) for record in records) / total,
        epsilon=None if epsilon is None else float(str(epsilon)),
        image_epsilon=None if epsilon is None else float(str(epsilon)) * features,
        bound=None if bound is None else float(str(bound)),
        released_near=_released(records, total),
        **values,
    )


def _released(records: Sequence[Record], total: int) -> float | None:
    """The share of guesses near the concealed descriptor; None where there is no concealer."""
    if any("released_below_near" not in record.parameters for record in records):
        return None
    return sum(float(str(one.parameters["released_below_near"])) * one.count for one in records) / total


def _grid(rows: Sequence[AttackRow], value: Value) -> str:
    schemes, attacks = _order(rows)
    cells = {(row.scheme, row.attack): f"{100 * value(row):.1f}" for row in rows}
    best = {scheme: row.attack if value(row) > 0 else "none" for scheme, row in best_attacks(rows, value).items()}
    lines = [["attack", *schemes], ["---", *("---:" for _ in schemes)]]
    lines += [[attack, *(cells.get((scheme, attack), "-") for scheme in schemes)] for attack in attacks]
    lines.append(["**best**", *(best.get(scheme, "-") for scheme in schemes)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _bounds(rows: Sequence[AttackRow]) -> str:
    """The last line of the table of exact recoveries: what the guarantee allows."""
    bounds = dict.fromkeys(row.scheme for row in rows) | {
        row.scheme: row.bound for row in rows if row.bound is not None
    }
    if all(bound is None for bound in bounds.values()):
        return ""
    cells = ["-" if bound is None else f"{100 * bound:.1f}" for bound in bounds.values()]
    return f"| **bound: one release, all words equally common** | {' | '.join(cells)} |\n"


def _list(rows: Sequence[AttackRow]) -> str:
    headings, cells = attack_cells(rows)
    rule = ["---", "---", *("---:" for _ in headings[2:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, rule, *cells))


def _order(rows: Sequence[AttackRow]) -> tuple[list[str], list[str]]:
    """Schemes and attacks in the order of their first row."""
    return list(dict.fromkeys(row.scheme for row in rows)), list(dict.fromkeys(row.attack for row in rows))


def _heat(panel: "Axes", rows: Sequence[AttackRow]) -> None:
    schemes, attacks = _order(rows)
    shares = {(row.scheme, row.attack): 100 * row.below_near for row in rows}
    grid = [[shares.get((scheme, attack), float("nan")) for scheme in schemes] for attack in attacks]
    panel.imshow(grid, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for line, attack in enumerate(attacks):
        for column, scheme in enumerate(schemes):
            share = shares.get((scheme, attack))
            if share is not None:
                colour = "white" if share < 55 else "black"
                panel.text(column, line, f"{share:.0f}", ha="center", va="center", fontsize=7.5, color=colour)
    panel.set_xticks(range(len(schemes)), schemes, rotation=40, ha="right", fontsize=8, rotation_mode="anchor")
    panel.set_yticks(range(len(attacks)), attacks, fontsize=8)
    panel.set_title(rows[0].defense, fontsize=9, loc="left")
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
