"""What the attack command says: the attacks there are, and what those that were run have recovered."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from featveil.cli.adversary import Obstacle, flag
from featveil.cli.console import complain, printable, table
from featveil.core.errors import MissingExtraError
from featveil.core.files import replacing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from featveil.attacks import Attack, Knowledge
    from featveil.core import PrivateFeatures
    from featveil.core.records import Record
    from featveil.metrics import Truth
    from featveil.pipelines.attack_parts.guesses import Guessed

FLOOR = "chance"

_MOST_NOTES = 12
_NORM_TOLERANCE = 0.01
_OTHER_NORMS = (
    "the hidden descriptors do not have norm 1, as database entries do: that attacks with a database fail shows nothing"
)
_GEOMETRY = (
    "scale and orientation of the keypoints are in the release: attacks may use them beside what is listed as known"
)
_WORDS = "exact, for words: the word that was hidden is named; its descriptor may still lie apart from the word"
_LIFTED_WITH_IT = (
    "the attacker's own database is the one that these features were lifted with: --database names another"
)


@dataclass(frozen=True)
class LeftOut:
    """An attack that was not named, and cannot be run on a file."""

    file: str
    attack: str
    obstacle: Obstacle


@dataclass
class Results:
    """What was found and failed so far; `notes` are what a reader must know, `sources` where knowledge comes from."""

    sources: dict[str, str] = field(default_factory=dict)
    records: "list[Record]" = field(default_factory=list)
    guesses: "list[Guessed]" = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    failed: int = 0

    def note_database(self, private: "PrivateFeatures", knowledge: "Knowledge", methods: "list[Attack]") -> None:
        """Remember that an attacker's own database is the lifting database, where an attack uses it."""
        from featveil.databases import conceal_database

        own, network = knowledge.database, knowledge.network
        if own is not None and network is not None and own.kind == network.kind:
            own = conceal_database(own, network)
        used = any("database" in (*method.needs, *method.uses) for method in methods)
        if used and own is not None and own.digest == private.defense.get("database"):
            self.notes[_LIFTED_WITH_IT] = None

    def note_geometry(self, private: "PrivateFeatures") -> None:
        """Remember that a release tells scale or orientation, which no attack lists as its knowledge."""
        keypoints = private.keypoints
        if keypoints is not None and (keypoints.scale is not None or keypoints.orientation is not None):
            self.notes[_GEOMETRY] = None

    def note_truth(self, private: "PrivateFeatures", truth: "Truth") -> None:
        """Remember what exact means for words, and that hidden descriptors are much longer or shorter than guesses."""
        import numpy as np

        from featveil.core import WordSets

        if isinstance(private.descriptors, WordSets):
            self.notes[_WORDS] = None
        if abs(float(np.median(np.linalg.norm(truth.points.values, axis=1))) - 1) > _NORM_TOLERANCE:
            self.notes[_OTHER_NORMS] = None

    def write(self, out: Path) -> None:
        """Write table.md and, where matplotlib is there, histogram.png of what was scored, now or in earlier runs."""
        from featveil.plotting.leakage_histograms import draw_leakage
        from featveil.plotting.leakage_tables import leakage_markdown, leakage_rows

        self.written = [guess.path for guess in self.guesses if guess.path is not None]
        if not self.records:
            return
        records = self._stored(out / "records.jsonl")
        run = {(record.dataset, record.attack) for record in records}
        absent = [one for one in self.left_out if (one.file, one.attack) not in run]
        with replacing(out / "table.md") as temporary:
            notes = [*self._notes(records), *_not_run(absent)]
            temporary.write_text(leakage_markdown(records, notes), encoding="utf-8")
        self.written += [str(out / name) for name in ("records.jsonl", "table.md")]
        try:
            draw_leakage(leakage_rows(records), out / "histogram.png", "Distance of guesses from the truth")
        except MissingExtraError as error:
            complain("warning", f"histogram.png was not drawn: {error}")
        else:
            self.written.append(str(out / "histogram.png"))

    def _stored(self, path: Path) -> "list[Record]":
        """All records of the files that were attacked now, of the same features, in `path`: also those of other runs.

        That they agree in seed, sample and database is sure: chance is measured in every run, and was checked.
        """
        from featveil.core.records import read_records
        from featveil.pipelines.attack_parts.records import TASK

        attacked = {(record.dataset, record.parameters["private"]) for record in self.records}
        return list(
            {
                (record.dataset, record.attack): record
                for record in read_records(path)
                if record.task == TASK and (record.dataset, record.parameters.get("private")) in attacked
            }.values()
        )

    def facts(self) -> dict[str, Any]:
        """For --json: over all files, for each file, and what is to be known about it."""
        from featveil.plotting.leakage_tables import leakage_rows

        each = [{"file": record.dataset, **asdict(leakage_rows([record])[0])} for record in self.records]
        return {
            "rows": [asdict(row) for row in leakage_rows(self.records)],
            "files": each,
            "guesses": [asdict(guess) for guess in self.guesses],
            "left_out": [{"file": o.file, "attack": o.attack, "reason": o.obstacle.message} for o in self.left_out],
            "sources": self.sources,
            "notes": self._notes(self.records),
            "failed": self.failed,
            "written": self.written,
        }

    def not_run(self) -> list[str]:
        """The attacks that were left out, by reason."""
        return _not_run(self.left_out)

    def text(self) -> "RenderableType":
        """For a person: a table for each scheme, what the attackers knew, what was left out and written."""
        parts = self._scored() if self.records else self._guessed()
        notes = self._notes(self.records)
        hidden = [f"and {len(notes) - _MOST_NOTES} more notes: see --json"] if len(notes) > _MOST_NOTES else []
        lines = [*notes[:_MOST_NOTES], *hidden, *self.not_run()]
        parts += [Text("")] if lines else []
        parts += [_hanging(line) for line in lines]
        shown = self.written if len(self.written) <= 4 else [*self.written[:3], f"and {len(self.written) - 3} more"]
        return Group(*parts, *(Text(printable(f"wrote {path}")) for path in shown))

    def _scored(self) -> "list[RenderableType]":
        from featveil.plotting.leakage_tables import leakage_cells, leakage_rows

        rows = leakage_rows(self.records)
        parts: list[RenderableType] = []
        for scheme in dict.fromkeys(row.scheme for row in rows):
            chosen = [row for row in rows if row.scheme == scheme]
            files = max(row.files for row in chosen)
            heading = f"{chosen[0].title}: {files} file{'s' if files > 1 else ''}"
            headings = ("attack", "features", "answers\n%", "mean", "median", "< 0.3\n%", "< 0.5\n%", "exact\n%")
            cells: list[tuple[object, ...]] = list(leakage_cells(chosen))
            made = table(*headings, "rank", "seconds", rows=cells)
            made.padding = (0, 1, 0, 0)  # a terminal has 80 columns
            knew = {row.knows: [one.attack for one in chosen if one.knows == row.knows] for row in chosen}
            lines = [f"known to {', '.join(attacks)}: {self._known(names)}" for names, attacks in knew.items()]
            parts += [Text(printable(f"{heading}\n"), style="bold"), made, Text(""), *map(_hanging, lines), Text("")]
        return parts[:-1]

    def _known(self, names: tuple[str, ...]) -> str:
        told = [_listed((name,)) + (f" ({self.sources[name]})" if name in self.sources else "") for name in names]
        return ", ".join(told) or "nothing"

    def _guessed(self) -> "list[RenderableType]":
        rows: list[tuple[object, ...]] = [
            (
                escape(printable(guess.file)),
                guess.attack,
                f"{guess.attacked:,}",
                f"{100 * guess.answered / guess.attacked:.1f}",
                f"{guess.seconds:.1f}",
            )
            for guess in self.guesses
        ]
        made = table("file", "attack", "features", "answered %", "seconds", rows=rows)
        made.columns[1].justify = "left"
        return [made, Text(""), Text("How near these guesses are is unknown without --truth.")]

    def _notes(self, records: "list[Record]") -> list[str]:
        """What a reader of `records` and of the guesses must know."""
        from featveil.plotting.leakage_tables import leakage_rows

        told = dict(self.notes)
        for row in leakage_rows(records):
            if row.count < row.attacked:
                told[
                    f"{row.attacked - row.count:,} of {row.attacked:,} features of {row.scheme} are not scored:"
                    " they share their position with others, and which truth is whose is unknown"
                ] = None
        noted = [(one.dataset, one.attack, one.parameters["note"]) for one in records]
        noted += [(guess.file, guess.attack, guess.note) for guess in self.guesses]
        several = len({file for file, _, _ in noted}) > 1
        return [*told, *(f"{attack}{f' on {file}' if several else ''}: {note}" for file, attack, note in noted if note)]


def _not_run(left_out: list[LeftOut]) -> list[str]:
    lines = []
    for short in dict.fromkeys(one.obstacle.short for one in left_out):
        names = dict.fromkeys(one.attack for one in left_out if one.obstacle.short == short)
        lines.append(f"not run, {short}: {', '.join(names)}")
    return lines


def list_attacks() -> "tuple[dict[str, Any], RenderableType]":
    """Every attack with what it needs, can use and applies to: for --json, and for a person."""
    from featveil.attacks import ATTACKS, MEANINGS, REPRESENTATIONS
    from featveil.pipelines.scoring import attack_parameters

    facts, parts = [], []
    for name, method in ATTACKS.items():
        settings = {key.partition(".")[2]: value for key, value in attack_parameters(method()).items()}
        applies = [REPRESENTATIONS[kind] for kind in method.breaks]
        facts.append(
            {
                "name": name,
                "summary": method.summary,
                "applies_to": applies,
                "needs": list(method.needs),
                "uses": list(method.uses),
                "parameters": settings,
            }
        )
        shown = {"applies to": ", ".join(applies), "needs": _listed(method.needs), "can use": _listed(method.uses)}
        shown["--set"] = ", ".join(f"{key}={value}" for key, value in settings.items())
        parts += [Text(name, style="bold"), _hanging(method.summary, " "), _indented(shown), Text("")]
    known = {f"{name.replace('_', ' ')} ({flag(name)})": meaning for name, meaning in MEANINGS.items()}
    heading = Text("What an adversary may know", style="bold")
    return {"attacks": facts, "knowledge": dict(MEANINGS)}, Group(*parts, heading, _indented(known))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name.replace("_", " ") for name in names) or "nothing"


def _indented(lines: dict[str, str]) -> "RenderableType":
    made = Table.grid(padding=(0, 2, 0, 0))
    for name, value in lines.items():
        if value:
            made.add_row(Text(name, style="dim"), Text(value))
    return Padding(made, (0, 0, 0, 2), expand=False)


def _hanging(line: str, before: str = "-") -> "RenderableType":
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_row(before, Text(printable(line)))
    return made
