"""Many small operations in parallel: requests that each take a round trip, or files to read, hash and copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 16
_Item = TypeVar("_Item")
_Done = TypeVar("_Done")


def in_parallel(
    work: Callable[[_Item], _Done], items: Iterable[_Item], threads: int = AT_ONCE, name: str = "fetch"
) -> list[_Done]:
    """The results in order. After the first error no further item is started. The error is raised when the running ones
    have finished."""
    todo = list(items)
    threads = min(threads, len(todo))
    if threads < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(threads, thread_name_prefix=f"holdfast-{name}") as pool:
        return list(pool.map(work, todo))
