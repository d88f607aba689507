"""Units of an audit in several processes. Each has what was read of the photographs, and computes on one thread."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

from featveil.audit.measuring import Measuring, Unit
from featveil.core import FeatveilError
from featveil.core.records import Record

if TYPE_CHECKING:
    from featveil.audit.run import Audit

    Make = Callable[[Audit], Measuring]

_here: dict[str, Measuring] = {}  # of a worker: one process has one


def measure_units(
    audit: "Audit", units: Mapping[Unit, tuple[str, ...]], processes: int, make: "Make" = Measuring
) -> Iterator[Record]:
    """The records that `units` name, those of a unit together, as they get ready; each process measures by `make`.

    The processes are ended at once when the caller stops early. Raises FeatveilError when one of them dies.
    """
    with _workers(audit, min(processes, len(units)), make) as workers:
        futures = [workers.submit(_measure, unit, names) for unit, names in units.items()]
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BrokenProcessPool as error:
            raise FeatveilError(
                "a process of the audit was ended from outside, perhaps for want of memory: the same command goes on;"
                " give it fewer processes"
            ) from error


@contextmanager
def _workers(audit: "Audit", count: int, make: "Make") -> Iterator[ProcessPoolExecutor]:
    # Started afresh rather than forked: a fork copies locks of threads that it does not have.
    context, before = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    workers = ProcessPoolExecutor(count, context, _start, (audit, make))
    finished = False
    try:
        yield workers
        finished = True
    finally:
        if not finished:
            for process in multiprocessing.active_children():
                if process not in before:
                    process.terminate()
        workers.shutdown(wait=finished, cancel_futures=True)


def _start(audit: "Audit", make: "Make") -> None:
    """In a worker: Ctrl-C reaches every process of a terminal, but the first one decides; none outlives that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _here["measuring"] = make(audit)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _measure(unit: Unit, names: tuple[str, ...]) -> list[Record]:
    return list(_here["measuring"].records(unit, names))
