"""Attacks on private features of files whose truth is unknown: the guesses themselves, one .npz file each."""

import json
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.attacks import Attack, Guess, attack
from featveil.core import FeatveilError, InputError
from featveil.core.files import make_folder, replacing
from featveil.core.records import Parameter
from featveil.core.resuming import Report, versions
from featveil.core.seeding import generator
from featveil.pipelines.attack_parts.attack_records import Failed, Settings, Target, reporting
from featveil.pipelines.scoring import scheme_name


@dataclass(frozen=True)
class Guessed:
    """One attack on one file: of `attacked` features `answered` got a guess. `path` holds them, unless it is None."""

    file: str
    scheme: str
    attack: str
    knows: tuple[str, ...]
    attacked: int
    answered: int
    seconds: float
    note: str
    path: str | None


def run_guesses(
    target: Target,
    methods: Sequence[Attack],
    settings: Settings,
    folder: Path | None,
    failed: Failed,
    report: Report = lambda done, total: None,
) -> list[Guessed]:
    """The guesses of all `methods`, written to FILE.ATTACK.npz in `folder` unless that is None.

    A file holds values (k, d), answered (k,), words (k,) where there are any, rows (k,), which private features they
    are of, released (k, d), the guesses behind a concealer where there is one, and a JSON text `about`. What was
    written before with the same settings is kept. `failed` is called for an attack that ends in an error. Raises
    InputError when a file is there that was made with others.
    """

    def guesses() -> Iterator[Guessed]:
        for method in methods:
            path = None if folder is None else guess_path(folder, target.name, method)
            wanted = {"seed": settings.seed, **target.parameters(method, settings)}
            if path is not None and path.exists():
                yield _guessed(target, _check_same(path, wanted), path)
                continue
            try:
                about = _run(target, method, settings, wanted, path)
            except FeatveilError as error:
                failed(method, error)
            else:
                yield _guessed(target, about, path)

    return list(reporting(guesses(), len(methods), report))


def guess_path(folder: Path, name: str, method: Attack) -> Path:
    """Where the guesses of `method` on the private file `name` are kept."""
    return folder / f"{name.removesuffix('.veil')}.{method.name}.npz"


def _run(
    target: Target, method: Attack, settings: Settings, wanted: dict[str, Parameter], path: Path | None
) -> dict[str, Any]:
    rows = target.rows(method, settings)
    taken = target.taken(rows)
    started = time.perf_counter()
    guess = attack(taken.private, method, taken.knowledge, generator(settings.seed, target.name, method.name))
    about = {**wanted, "seconds": round(time.perf_counter() - started, 4), "note": guess.note, "versions": versions()}
    about |= {"attacked": len(guess), "answered": int(guess.answered.sum())}
    if path is not None:
        _write(path, guess, np.arange(len(guess)) if rows is None else rows, about)
    return about


def _write(path: Path, guess: Guess, rows: NDArray[np.int64], about: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {"values": guess.values, "answered": guess.answered, "rows": rows}
    arrays |= {} if guess.words is None else {"words": guess.words}
    arrays |= {} if guess.released is None else {"released": guess.released}
    make_folder(path.parent)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **arrays)


def _check_same(path: Path, wanted: dict[str, Parameter]) -> dict[str, Any]:
    """What `path` says about its guesses; raises InputError unless that includes all that is `wanted`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            about = json.loads(str(content["about"]))
        missing = [name for name in (*wanted, "seconds", "note", "attacked", "answered") if name not in about]
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is there and holds no guesses: name another folder") from error
    if missing or any(about[name] != value for name, value in wanted.items()):
        raise InputError(f"{path} was made with other settings: name another folder, or delete the file")
    return dict(about)


def _guessed(target: Target, about: dict[str, Any], path: Path | None) -> Guessed:
    return Guessed(
        file=target.name,
        scheme=scheme_name(target.private.defense),
        attack=str(about["attack"]),
        knows=tuple(about["knows"]),
        attacked=int(about["attacked"]),
        answered=int(about["answered"]),
        seconds=float(about["seconds"]),
        note=str(about["note"]),
        path=None if path is None else str(path),
    )
