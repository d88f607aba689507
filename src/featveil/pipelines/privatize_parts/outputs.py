"""Where verbs put what they make of each input: one `.veil` file per image, or one private file for all.

Nothing is released unless it was recorded in the ledger, if there is one, and hardly ever is the reverse true.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from featveil.core.errors import FeatveilError, InputError, NotMappedError
from featveil.core.files import check_folder, flush, make_folder, replacing
from featveil.core.resuming import Report
from featveil.pipelines.privatize_parts.releases import Releases
from featveil.pipelines.sources import HDF5, Source

if TYPE_CHECKING:
    from featveil.core import Defense, Features, PrivateFeatures

# A private file is copied for each batch, so batches grow with it. Those that are charged do not: whatever kills the
# process takes the charges of a batch with it.
_BATCH = 16

_NOT_FOLDERS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".npz", ".npy", ".safetensors", ".db")

Item = TypeVar("Item")

logger = getLogger(__name__)


class Work(Generic[Item]):
    """Counts what was written, skipped and failed of `total` inputs, and what shows another place than a gate's map.

    What failed or shows another place is a warning at once.
    """

    def __init__(self, make: Callable[[Path], Item], total: int, report: Report) -> None:
        self._make, self.total, self._report = make, total, report
        self.written = self.skipped = self.failed = self.elsewhere = self.features = 0

    def tried(self, path: Path) -> Item | None:
        """What is made of `path`, or None when that failed. The only input there is may not fail."""
        item: Item | None = None
        try:
            item = self._make(path)
        except FeatveilError as error:
            if self.total == 1:
                raise
            message = str(error) if str(path) in str(error) else f"{path}: {error}"
            if isinstance(error, NotMappedError):
                self.elsewhere += 1
                self._leave_out(message)
            else:
                self.fail(message)
        return item

    def count(self, features: int) -> None:
        """One more was written, of so many features."""
        self.written += 1
        self.features += features

    def fail(self, message: str) -> None:
        """One more failed."""
        self.failed += 1
        self._leave_out(message)

    def advance(self) -> None:
        """Report how far it is."""
        self._report(self.written + self.skipped + self.failed + self.elsewhere, self.total)

    def check_any(self) -> None:
        """Raise InputError when nothing could be used, NotMappedError when all of it shows other places."""
        if self.written or self.skipped:
            return
        if self.failed:
            raise InputError(f"none of the {self.total} inputs could be used, nothing was written: see the lines above")
        if self.elsewhere:
            raise NotMappedError(f"none of the {self.total} inputs shows a mapped place, nothing was written")

    def _leave_out(self, message: str) -> None:
        logger.warning(message)
        self.advance()


def targets(names: Iterable[str], out: Path) -> dict[str, Path]:
    """Where each of `names` is written: `out` itself if it is a .veil file, else .veil files in that folder.

    Raises InputError when `out` cannot hold them. Makes nothing.
    """
    names = list(names)
    check_folder(out.parent)
    if not out.exists() and (out.suffix.lower() in _NOT_FOLDERS or out.suffix.lower() in HDF5):
        raise InputError(f"{out} would be a folder with a misleading name: name a .veil file or a folder")
    if out.suffix == ".veil" and not out.is_dir():
        if len(names) > 1:
            raise InputError(f"{len(names)} inputs do not fit one file {out}: name a folder")
        return dict.fromkeys(names, out)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file that does not end in .veil: name a folder or a .veil file")
    planned = {name: out / (name if name.endswith(".veil") else f"{name}.veil") for name in names}
    for name, path in planned.items():
        if not path.resolve().is_relative_to(out.resolve()):
            raise InputError(f"{name!r} leads out of the folder {out}: rename it first")
    if len(set(planned.values())) < len(planned):
        raise InputError(f"two inputs would be written to one file in {out}: use two folders")
    return planned


class Output(Protocol):
    """Where releases go, by the names of their sources."""

    def place(self, name: str) -> str:
        """Where the release of `name` is, in words."""
        ...

    def there(self) -> set[str]:
        """The names that were released here before."""
        ...

    def load(self, name: str) -> "Features | PrivateFeatures":
        """What is there of `name`."""
        ...

    def release(self, names: list[str], work: "Work[PrivateFeatures]", releases: Releases) -> None:
        """Make, charge and write the releases of `names`."""
        ...


def names_to_skip(output: Output, method: "Defense", resume: bool, overwrite: bool) -> set[str]:
    """What is there and shall stay; raises InputError when it would be replaced unasked or was made in another way."""
    from featveil.core import PrivateFeatures, base_kind

    there = output.there()
    if there and not resume and not overwrite:
        raise InputError(
            f"{output.place(min(there))} exists: --resume keeps it, --overwrite releases again"
            " (two releases of one image together reveal more than one)"
        )
    if not resume:
        return set()
    for name in there:
        stored = output.load(name)
        if not isinstance(stored, PrivateFeatures) or stored.defense != method.for_kind(base_kind(stored.kind)).spec():
            raise InputError(f"{output.place(name)} was made with other settings: use those, or another output")
    return there


class VeilFiles:
    """One .veil file for each of `sources`: `out` itself, or in that folder."""

    def __init__(self, sources: dict[str, Source], out: Path) -> None:
        self.planned = targets(sources, out)
        inputs = {source.path.resolve() for source in sources.values()}
        for target in self.planned.values():
            if target.resolve() in inputs:
                raise InputError(f"{target} is an input: choose another output")

    def place(self, name: str) -> str:
        """The path."""
        return str(self.planned[name])

    def there(self) -> set[str]:
        """The names whose file exists."""
        return {name for name, target in self.planned.items() if target.exists()}

    def load(self, name: str) -> "Features | PrivateFeatures":
        """What the file holds."""
        from featveil.formats.veil import load

        return load(self.planned[name])

    def release(self, names: list[str], work: "Work[PrivateFeatures]", releases: Releases) -> None:
        """One after the other."""
        for name in names:
            private = work.tried(Path(name))
            if private is not None:
                self._write(name, private, work, releases)

    def _write(self, name: str, private: "PrivateFeatures", work: "Work[PrivateFeatures]", releases: Releases) -> None:
        """Written beside, charged, then moved into place."""
        from featveil.formats.veil import encode

        target = self.planned[name]
        make_folder(target.parent)
        before = releases.images
        try:
            with replacing(target) as temporary:
                temporary.write_bytes(encode(private))
                flush(temporary)  # before it is charged
                size = temporary.stat().st_size
                releases.count(private, name)
        except FeatveilError as error:
            charged = releases.account is not None and releases.images > before
            _failed(name, error, work, " (the ledger was charged for it)" if charged else "")
        else:
            releases.bytes += size
            work.count(len(private))
            work.advance()


class PrivateFile:
    """One private file `out` for all `sources`, named as in hloc: without `.veil`."""

    def __init__(self, sources: dict[str, Source], out: Path) -> None:
        from featveil.formats import private_hloc

        if out.resolve() in {source.path.resolve() for source in sources.values()}:
            raise InputError(f"{out} is an input: choose another output")
        check_folder(out.parent)
        self.out = out
        self.stored = {name: name.removesuffix(".veil") if source.is_veil else name for name, source in sources.items()}
        if len(set(self.stored.values())) < len(sources):
            raise InputError(f"two inputs would have one name in {out}: use two files")
        self.before = set(private_hloc.names(out)) if out.exists() else set()
        private_hloc.check_names(self.before.union(self.stored.values()))
        self._stopped: BaseException | None = None

    def place(self, name: str) -> str:
        """The image and the file."""
        return f"{self.stored[name]!r} in {self.out}"

    def there(self) -> set[str]:
        """The names that are in the file."""
        return {name for name, stored in self.stored.items() if stored in self.before}

    def load(self, name: str) -> "PrivateFeatures":
        """What the file holds of `name`."""
        from featveil.formats import private_hloc

        return private_hloc.read(self.out, self.stored[name])

    def release(self, names: list[str], work: "Work[PrivateFeatures]", releases: Releases) -> None:
        """In batches, each written beside, charged and moved into place as a whole.

        What ends the command while a release is made, such as Ctrl-C, ends it after those before were written.
        """
        from featveil.formats import private_hloc

        released = self._charged(names, work, releases)
        while (first := next(released, None)) is not None:
            before = releases.images - 1
            most = _BATCH if releases.account else max(_BATCH, len(self.before) + work.written)
            try:
                private_hloc.write(self.out, itertools.chain([first], itertools.islice(released, most - 1)))
            except FeatveilError as error:
                lost = f" (the ledger was charged for {releases.images - before} that were not released)"
                raise type(error)(f"{error}{lost if releases.account else ''}") from error
        if self._stopped is not None:
            raise self._stopped

    def _charged(
        self, names: list[str], work: "Work[PrivateFeatures]", releases: Releases
    ) -> Iterator[tuple[str, "PrivateFeatures"]]:
        """Releases that were checked and charged."""
        from featveil.formats import private_hloc

        for name in names:
            try:
                private = work.tried(Path(name))
                if private is None:
                    continue
                size = len(private_hloc.encoded(self.stored[name], private))
                releases.count(private, name)
            except FeatveilError as error:
                if work.total == 1:
                    raise
                _failed(name, error, work)
            except BaseException as error:
                self._stopped = error
                return
            else:
                releases.bytes += size
                work.count(len(private))
                yield self.stored[name], private
                work.advance()


def _failed(name: str, error: FeatveilError, work: "Work[PrivateFeatures]", charged: str = "") -> None:
    """Count a failure; that of the only input ends the run."""
    message = f"{name}: {error}{charged}"
    if work.total == 1:
        raise type(error)(message) from error
    work.fail(message)
