"""Where the privatize command puts its releases: one `.veil` file an image, or one private file for all.

Nothing is released unless it was recorded in the ledger, if there is one, and hardly ever is the reverse true.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from featveil.cli.console import complain
from featveil.cli.extract import Work, targets
from featveil.cli.releases import Releases
from featveil.cli.sources import Source
from featveil.core.errors import FeatveilError, InputError
from featveil.core.files import check_folder, make_folder, replacing

if TYPE_CHECKING:
    from featveil.core import Defense, Features, PrivateFeatures

# A private file is copied for each batch, so batches grow with it. Those that are charged do not: whatever kills the
# process takes the charges of a batch with it.
_BATCH = 16


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
        found = output.load(name)
        if not isinstance(found, PrivateFeatures) or found.defense != method.for_kind(base_kind(found.kind)).spec():
            raise InputError(f"{output.place(name)} was made with other settings: use those, or another output")
    return there


class VeilFiles:
    """One .veil file for each of `sources`: `out` itself, or in that folder."""

    def __init__(self, sources: dict[str, Source], out: Path) -> None:
        self.planned = targets(list(sources), out)
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
                work.advance()

    def _write(self, name: str, private: "PrivateFeatures", work: "Work[PrivateFeatures]", releases: Releases) -> None:
        """Written beside, charged, then moved into place."""
        from featveil.formats.veil import save

        target = self.planned[name]
        make_folder(target.parent)
        before = releases.images
        try:
            with replacing(target) as temporary:
                save(private, temporary)
                size = temporary.stat().st_size
                releases.count(private, name)
        except FeatveilError as error:
            charged = releases.account is not None and releases.images > before
            _failed(name, error, work, " (the ledger was charged for it)" if charged else "")
        else:
            work.written += 1
            work.features += len(private)
            releases.bytes += size


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

        found = self._found(names, work, releases)
        while (first := next(found, None)) is not None:
            before = releases.images - 1
            most = _BATCH if releases.account else max(_BATCH, len(self.before) + work.written)
            try:
                private_hloc.write(self.out, itertools.chain([first], itertools.islice(found, most - 1)))
            except FeatveilError as error:
                lost = f" (the ledger was charged for {releases.images - before} that were not released)"
                raise type(error)(f"{error}{lost if releases.account else ''}") from error
        if self._stopped is not None:
            raise self._stopped

    def _found(
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
                work.written += 1
                work.features += len(private)
                releases.bytes += size
                yield self.stored[name], private
            work.advance()


def _failed(name: str, error: FeatveilError, work: "Work[PrivateFeatures]", charged: str = "") -> None:
    """Count and show a failure; that of the only input ends the command."""
    message = f"{name}: {error}{charged}"
    if work.total == 1:
        raise type(error)(message) from error
    work.failed += 1
    complain("warning", message)
