"""Dealing out rows to threads, and keeping others (BLAS, this module itself) from starting their own."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")

_SINGLE: ContextVar[bool] = ContextVar("single_threaded", default=False)

# Pairs below which starting threads costs more than it gains.
_SINGLE_THREADED = 250_000


def each_group(stripes: Sequence[slice], pairs: int, work: Callable[[Sequence[slice]], Result]) -> list[Result]:
    """Deal the stripes out to as many groups as there are threads, or to one if `pairs` are few, and run `work`."""
    workers = min(threads(), len(stripes)) if pairs >= _SINGLE_THREADED else 1
    groups = [stripes[worker::workers] for worker in range(workers)]
    with one_thread_each():
        if workers == 1:
            return [work(groups[0])]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, groups))


def each_stripe(stripes: Sequence[slice], pairs: int, work: Callable[[slice], None]) -> None:
    """Run `work` on every stripe, in parallel where that pays."""

    def work_through(group: Sequence[slice]) -> None:
        for stripe in group:
            work(stripe)

    each_group(stripes, pairs, work_through)


def threads() -> int:
    """Threads to use: FEATVEIL_THREADS, else the cores this process may run on."""
    if _SINGLE.get():
        return 1
    wanted = os.environ.get("FEATVEIL_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def single_threaded() -> Iterator[None]:
    """Keep the distances' own work on the calling thread, for measuring."""
    token = _SINGLE.set(True)
    try:
        yield
    finally:
        _SINGLE.reset(token)


@cache
def _controller() -> Any:
    import scipy.linalg.cython_blas  # noqa: F401 - compiled code uses its library, which must be loaded to be held

    return ThreadpoolController()


def one_thread_each() -> AbstractContextManager[Any]:
    """Hold the BLAS library to one thread: stripes are the unit of parallel work."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit
