"""Files of gated queries and a map -> a file of pairs: which images of the map see what the queries see."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.sources import has_features

if TYPE_CHECKING:
    from featveil.formats.collections import Collection

Votes = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class RetrieveRequest:
    """Which gated queries to look up in which map, how many images to name of each, and where the pairs go."""

    queries: tuple[Path, ...] = argument(
        metavar="QUERY...", help="Gated: .veil files, folders of them, or private .h5 files."
    )
    model: Path = option(help="Folder of the COLMAP model that the sketch was built from.")
    out: Path = option(help="Pairs file for hloc: one query and one image of the map per line.")
    top: int = option(20, minimum=1, help="Most images of the map per query.")


@dataclass(frozen=True)
class RetrieveResult:
    """The images of the map with their votes, most first, of each query by name; `out` has the pairs."""

    out: Path
    queries: dict[str, Votes]

    @property
    def pairs(self) -> int:
        """How many were written."""
        return sum(map(len, self.queries.values()))


def retrieve_files(request: RetrieveRequest, report: Report = silent) -> RetrieveResult:
    """Name the images of the map that see the points which each query names, and write them as pairs.

    An image of the map is not paired with a query of its own name. Raises InputError for queries that name no points,
    or those of another map; nothing is written then.
    """
    from featveil.formats.lists import check_name, write_entries
    from featveil.geometry.models import read_model
    from featveil.pipelines.map_parts.votes import ImageVotes

    _check_output(request)
    votes = ImageVotes(read_model(request.model))
    queries = [(stored, name) for stored in map(_open, request.queries) for name in stored.names]
    ranked: dict[str, Votes] = {}
    for stored, name in queries:
        check_name(name)
        if name in ranked:
            raise InputError(f"two queries are called {name!r}: retrieve them apart")
        try:
            images = votes.rank(stored.read(name))
        except InputError as error:
            raise InputError(f"query {name!r}: {error}") from error
        ranked[name] = tuple(one for one in images if one[0] != name)[: request.top]
        report(len(ranked), len(queries))
    write_entries(request.out, ((name, image) for name, images in ranked.items() for image, _ in images))
    return RetrieveResult(request.out, ranked)


def _open(path: Path) -> "Collection":
    """The gated queries at `path`."""
    from featveil.formats.collections import open_collection

    if path.exists() and not has_features(path):
        raise InputError(f"{path} holds no gated query: privatize the photograph with --defense gate")
    return open_collection(path)


def _check_output(request: RetrieveRequest) -> None:
    """Raise InputError, before any work, when the pairs cannot be written or would replace an input."""
    out = request.out
    check_folder(out.parent)
    if out.suffix.lower() != ".txt" or out.is_dir():
        raise InputError(f"pairs are one text file: name a .txt file instead of {out}")
    if out.resolve().parent == request.model.resolve():
        raise InputError(f"{out} would lie in the model: name another folder")
