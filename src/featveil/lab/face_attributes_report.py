"""Records of attribute attacks -> rows, the table in Markdown, and bars as in the paper's figure 5."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from featveil.core import InputError
from featveil.core.records import Record
from featveil.lab.face_verification_report import draw_bars
from featveil.plotting.figures import LEVELS, blank_figure, quiet, write_figure
from featveil.plotting.tables import markdown_table

ATTACKERS = ("chance", "knn", "trained", "unmix")


@dataclass(frozen=True)
class AttributeRow:
    """How often each attacker names an attribute right under one scheme, by its name; `best` of all but chance."""

    strategy: str
    dimension: int
    attribute: str
    right: dict[str, float]
    victims: int

    @property
    def best(self) -> float:
        """Of the attackers that look."""
        return max((share for name, share in self.right.items() if name != "chance"), default=self.right["chance"])


def summarize_attributes(records: Sequence[Record]) -> list[AttributeRow]:
    """One row for each scheme and attribute, in the order of the records, attribute by attribute."""
    groups: dict[tuple[str, int, str], dict[str, Record]] = {}
    for record in records:
        found = record.parameters
        if record.task != "face-attributes" or record.attack not in ATTACKERS or "attribute" not in found:
            raise InputError(f"a record of task {record.task} is not one of attribute attacks: leave it out")
        key = str(found["strategy"]), int(str(found["dimension"])), str(found["attribute"])
        groups.setdefault(key, {})[str(record.attack)] = record
    rows = [
        AttributeRow(*key, {name: float(str(one.value)) for name, one in found.items()}, found["chance"].count)
        for key, found in groups.items()
        if "chance" in found
    ]
    order = list(dict.fromkeys(row.attribute for row in rows))
    return sorted(rows, key=lambda row: order.index(row.attribute))


def attribute_cells(rows: Sequence[AttributeRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headings, and the cells of each row as text, in percent."""
    headings = ["attribute", "scheme", "m", "chance", "K-NN", "trained", "unmix", "best"]
    cells = [
        (
            row.attribute,
            row.strategy,
            str(row.dimension or ""),
            *(f"{100 * row.right[name]:.1f}" if name in row.right else "-" for name in ATTACKERS),
            f"{100 * row.best:.1f}",
        )
        for row in rows
    ]
    return headings, cells


def attributes_markdown(records: Sequence[Record]) -> str:
    """The whole table."""
    if not records:
        raise InputError("there is no record to make a table of")
    one, rows = records[0], summarize_attributes(records)
    return "\n".join(
        [
            f"# Attributes of faces in {one.dataset}\n",
            f"How often an attacker names them right, in percent, on {rows[0].victims:,} victims (seed {one.seed})."
            " chance: always the most frequent label. K-NN: the paper's attacker, its ten nearest labelled faces vote."
            " trained: learns from its own faces, hidden by the same defense. unmix: knows the faces that others are"
            " hidden among, and reads what is left without them. hybrid+ and balanced balance the attribute in the"
            " row.\n",
            markdown_table(*attribute_cells(rows), left=("attribute", "scheme")),
        ]
    )


def draw_attributes(rows: Sequence[AttributeRow], path: str | Path, title: str) -> None:
    """A line of panels for each attribute: the paper's attacker on the left, the best one on the right."""
    attributes = list(dict.fromkeys(row.attribute for row in rows))
    strategies = list(dict.fromkeys(row.strategy for row in rows if row.strategy != "raw"))
    dimensions = sorted({row.dimension for row in rows if row.strategy != "raw"})
    figure = blank_figure(11.5, 2.3 * len(attributes) + 0.4)
    panels = figure.subplots(len(attributes), 2, sharex=True, sharey="row", squeeze=False)
    for line, attribute in zip(panels, attributes, strict=True):
        chosen = [row for row in rows if row.attribute == attribute]
        for panel, name in zip(line, ("knn", "best"), strict=True):
            share = {
                (row.strategy, row.dimension): 100 * (row.best if name == "best" else row.right[name])
                for row in chosen
                if row.strategy != "raw" and (name == "best" or name in row.right)
            }
            draw_bars(panel, strategies, dimensions, share)
            for row in (one for one in chosen if one.strategy == "raw"):
                height = 100 * (row.best if name == "best" else row.right.get(name, row.best))
                panel.axhline(height, color=LEVELS["raw"], linestyle="--", linewidth=1.3, label="raw")
            panel.axhline(100 * chosen[0].right["chance"], color="black", linewidth=1.3, label="chance")
            panel.set_ylim(0, 103)
            quiet(panel)
        line[0].set_ylabel(f"{attribute}\nnamed right (%)", fontsize=9)
    panels[0][0].set_title("the paper's attacker (K-NN)", fontsize=9)
    panels[0][1].set_title("the best attacker", fontsize=9)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    write_figure(figure, path, title)
