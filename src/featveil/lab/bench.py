"""The engine of every study: measure the cases that a file lacks, then write the table and the figures of all records.

A bench is a file of this folder with a `BENCH`: it states its options, the cases that they ask for, how one of them is
measured, and how records become rows, a table and a figure. `featveil bench` lists what is here by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from featveil.core import InputError, MissingExtraError
from featveil.core.files import make_folder, replacing
from featveil.core.options import option, parameters_of
from featveil.core.records import Parameter, Record, Value, read_records
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed
from featveil.plotting.tables import markdown_table as lay_out

RECORDS = "records.jsonl"
TABLE = "table.md"
CURVE = "curve.png"
HPATCHES = "Folder of scenes in HPatches layout."

Progress = Callable[[str], AbstractContextManager[Report]]
Row = TypeVar("Row")
S = TypeVar("S")  # what is measured
R = TypeVar("R")  # all rows of a table
O = TypeVar("O")  # noqa: E741  options


class BenchOptions(Protocol):
    """What the options of every bench have: where records go, and the seed of its draws."""

    @property
    def out(self) -> Path:
        """The folder."""

    @property
    def seed(self) -> int:
        """Of a study, which may be repeatable; a release never is."""


B = TypeVar("B", bound=BenchOptions)


def out_option(files: str = "records.jsonl, table.md and curve.png") -> Any:
    """Where the results go."""
    return option(help=f"Folder for {files}.")


def features_option(default: int = 2000) -> Any:
    """How many features are used."""
    return option(default, help="Features to use of each image, the strongest.")


def kind_option() -> Any:
    """What describes features."""
    return option("sift", help="Descriptor kind.")


def seed_option() -> Any:
    """Of the draws of a study."""
    return option(0, help="A study may be repeatable; a release never is.")


def concealers_option() -> Any:
    """Networks that are compared with the other schemes."""
    facts: dict[str, Any] = {"flags": ("--concealer",), "shown": "none", "repeated": True}
    return option((), help="Network file of a concealer (may be repeated).", **facts)


def refuse_none(options: Any, *names: str) -> None:
    """Raise InputError where one of the lists called `names` is empty: "none" is for others."""
    for name in names:
        if not getattr(options, name):
            raise InputError(f"{parameters_of(type(options))[name].flags[0]} names nothing: give one or more values")


@dataclass(frozen=True)
class Measured:
    """What measuring one case gave; `count` things were counted, `parameters` are what was not known before."""

    value: Value
    count: int
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True)
class Case(Generic[S]):
    """One thing to measure: `parameters` are what its record states before that, `subject` is what `measure` takes.

    `dataset`, `metric` and `unit` are named where they are not those of the study or the bench.
    """

    scheme: str
    parameters: Mapping[str, Parameter]
    subject: S
    attack: str | None = None
    dataset: str | None = None
    metric: str | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Study(Generic[S]):
    """What one run shall measure; `shared` is what all records of its file state, and `dataset` where it is one.

    `cases` is called whenever they are needed, and must be quick: what is slow waits until a case is measured, in
    objects that its neighbours share. `pictures` is called when all is measured, and gives the files that it wrote.
    `bench` is who measures, where another one publishes.
    """

    cases: Callable[[], Iterable[Case[S]]]
    shared: Mapping[str, Parameter]
    seed: int = 0
    dataset: str | None = None
    pictures: Callable[[Sequence[Record]], Sequence[Path]] = lambda records: ()
    bench: "Bench[Any, Any, Any] | None" = None


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table: its heading, and the text of a row in it.

    A terminal has 80 columns, so `screen` is a shorter heading for it, or None to leave the column to table.md, and
    `brief` a shorter text.
    """

    heading: str
    cell: Callable[[Row], str]
    left: bool = False
    screen: str | None = ""
    brief: Callable[[Row], str] | None = None


@dataclass(frozen=True)
class Results:
    """What a bench has to say: `facts` for --json, `screen` for a person, `notes` on what was not done."""

    facts: Mapping[str, Any]
    screen: RenderableType
    notes: Sequence[str] = ()


class Stopped(KeyboardInterrupt):
    """Ctrl-C while cases were measured: the same command goes on from `path`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The same command goes on from {path}")
        self.path = path


@contextmanager
def silent(name: str) -> Iterator[Report]:
    """No progress is shown."""
    yield lambda done, total: None


def as_facts(rows: Any) -> dict[str, Any]:
    """Rows for --json, which has no infinity: what is not finite is None there."""
    return {"rows": [{name: None if value == inf else value for name, value in asdict(row).items()} for row in rows]}


@dataclass(frozen=True, eq=False)
class Plain(Generic[O]):
    """A bench without records: `run` measures and says everything; its help is what `featveil bench NAME` shows."""

    name: str
    run: Callable[[O, Progress], Results]

    @property
    def options(self) -> type[O]:
        """The dataclass of its options."""
        options: type[O] = _options_of(self.run)
        return options

    @property
    def help(self) -> str:
        """What it does, with an example."""
        return self.run.__doc__ or ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Bench(Generic[B, S, R]):
    """One study: options -> cases -> records -> rows `R` -> table and figures.

    `prepare` gives the studies that its options ask for; its help is what `featveil bench NAME` shows. `key` are the
    parameters that tell cases apart, `named` those that a table needs of every record, and `length` how many values it
    needs. `task` is the name of its records. `text` is table.md, of the rows and the records. `figures` are drawn by
    file name, with the `title` of the first record. `whole_file`: the table is of all records of these `tasks` in the
    file, not only of those that were asked for.
    """

    name: str = field(kw_only=False)
    prepare: Callable[[B, Progress], Study[S] | Sequence[Study[Any]]] = field(kw_only=False)
    measure: Callable[[S], Measured]
    key: tuple[str, ...]
    metric: str = ""
    unit: str = ""
    rows: Callable[[Sequence[Record]], R]
    text: Callable[[R, Sequence[Record]], str]
    screen: Callable[[R], RenderableType]
    figures: Mapping[str, Callable[[R, Path, str], None]] = field(default_factory=dict)
    title: Callable[[Record], str] = lambda record: record.dataset
    facts: Callable[[R], dict[str, Any]] = as_facts
    task: str = ""
    tasks: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    length: int | None = None
    packages: tuple[str, ...] = ()
    usual: Mapping[str, Parameter] = field(default_factory=dict)
    whole_file: bool = False

    @property
    def options(self) -> type[B]:
        """The dataclass of its options."""
        options: type[B] = _options_of(self.prepare)
        return options

    @property
    def help(self) -> str:
        """What it does, with an example."""
        return self.prepare.__doc__ or ""

    def run(self, options: B, progress: Progress = silent) -> Results:
        """Measure what the folder of `options` lacks and publish it; raises Stopped when Ctrl-C ends the measuring."""
        check_seed(options.seed)
        prepared = self.prepare(options, progress)
        studies = [prepared] if isinstance(prepared, Study) else prepared
        make_folder(options.out)
        path, records = options.out / RECORDS, list[Record]()
        for study in studies:
            bench = study.bench or self
            try:
                with progress(bench.name) as report:
                    records += bench.resume(study, path, report)
            except KeyboardInterrupt:
                raise Stopped(path) from None
        if self.whole_file:
            records = [record for record in read_records(path) if record.task in (self.tasks or (self.records_of,))]
        pictures = [picture for study in studies for picture in study.pictures(records)]
        return self.publish(records, options.out, pictures)

    def measured(self, study: Study[S], done: frozenset[Key] = frozenset()) -> Iterator[Record]:
        """One record for each case that is not in `done`, in order."""
        for case in study.cases():
            if self._key(study, case) not in done:
                yield self._record(study, case, self.measure(case.subject))

    def resume(self, study: Study[S], path: str | Path, report: Report = lambda done, total: None) -> list[Record]:
        """Measure what `path` does not hold yet, append each record once measured, return all that were asked for.

        `report` is called with records (done, total). Raises InputError when the file has other settings.
        """
        shared: dict[str, Parameter] = {} if study.dataset is None else {"dataset": study.dataset}
        shared |= {"seed": study.seed, **study.shared}
        wanted = {self._key(study, case): case.parameters for case in study.cases()}
        plan = Plan(self.records_of, self.key, shared, wanted, self.usual)
        return resume(path, plan, lambda done: self.measured(study, done), report)

    def summarize(self, records: Sequence[Record]) -> R:
        """The rows of the table; raises InputError for records of something else, and for damaged ones."""
        for record in records:
            self._check(record)
        return self.rows(records)

    def markdown(self, records: Sequence[Record]) -> str:
        """The table, with what its columns mean."""
        if not records:
            raise InputError("there is no record to make a table of")
        return self.text(self.summarize(records), records)

    def publish(self, records: Sequence[Record], out: Path, pictures: Sequence[Path] = ()) -> Results:
        """Write the table and, where matplotlib is there, the figures; say what was measured."""
        text, rows = self.markdown(records), self.summarize(records)
        with replacing(out / TABLE) as temporary:
            temporary.write_text(text, encoding="utf-8")
        files, notes = [out / RECORDS, out / TABLE], list[str]()
        for name, draw in self.figures.items():
            try:
                draw(rows, out / name, self.title(records[0]))
                files.append(out / name)
            except MissingExtraError as error:
                notes.append(f"{name} was not drawn: {error}")
        return Results(
            {**self.facts(rows), "files": [str(path) for path in (*files, *pictures)]}, self.screen(rows), notes
        )

    @property
    def records_of(self) -> str:
        """The task that its records name."""
        return self.task or self.name

    def _key(self, study: Study[S], case: Case[S]) -> Key:
        named = {"dataset": case.dataset or study.dataset, "seed": study.seed}
        stated = {**named, "scheme": case.scheme, "attack": case.attack, **study.shared, **case.parameters}
        return tuple(str(stated.get(name)) for name in self.key)

    def _record(self, study: Study[S], case: Case[S], measured: Measured) -> Record:
        return Record(
            task=self.records_of,
            dataset=case.dataset or study.dataset or "",
            scheme=case.scheme,
            metric=case.metric or self.metric,
            value=measured.value,
            unit=case.unit or self.unit,
            count=measured.count,
            seed=study.seed,
            versions=versions(*self.packages),
            attack=case.attack,
            parameters={**case.parameters, **measured.parameters, **study.shared},
        )

    def _check(self, record: Record) -> None:
        known = record.task in (self.tasks or (self.records_of,)) and record.metric == (self.metric or record.metric)
        if not known or any(name not in record.parameters for name in self.named):
            raise InputError(f"a record of task {record.task} is not one of {self.name}: leave it out")
        if self.length is not None and (not isinstance(record.value, tuple) or len(record.value) != self.length):
            raise InputError(f"a record of {self.name} lacks some of its {self.length} values: this file is damaged")


def headings_and_cells(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The table as texts."""
    return [column.heading for column in columns], [tuple(column.cell(row) for column in columns) for row in rows]


def markdown_table(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> str:
    """The table in Markdown."""
    return lay_out(*headings_and_cells(columns, rows), [column.heading for column in columns if column.left])


def screen_table(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    """The table on a terminal: without the columns that it leaves to table.md."""
    shown = [column for column in columns if column.screen is not None]
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        drawn.add_column(column.screen or column.heading, justify="left" if column.left else "right")
    for row in rows:
        drawn.add_row(*((column.brief or column.cell)(row) for column in shown))
    return drawn


def heading(text: str) -> Text:
    """A line above a table on a terminal, without characters that steer it."""
    return Text("".join(letter if letter.isprintable() else "?" for letter in text) + "\n", style="bold")


def _options_of(function: Callable[..., Any]) -> Any:
    return get_type_hints(function)["options"]
