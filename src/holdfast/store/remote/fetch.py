"""Many small requests at once: on an object store each costs a round trip, and they do not wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.errors import ObjectMissingError
from holdfast.store.objects.base import ObjectStore

_AT_ONCE = 16
_Item = TypeVar("_Item")
_Done = TypeVar("_Done")


def in_parallel(work: Callable[[_Item], _Done], items: Iterable[_Item]) -> list[_Done]:
    """The results in order; the first error is raised after all that was begun has ended."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(min(_AT_ONCE, len(todo)), thread_name_prefix="holdfast-fetch") as pool:
        return list(pool.map(work, todo))


def get_all(objects: ObjectStore, keys: Sequence[str]) -> list[bytes | None]:
    """The content of each, None for those that are not there."""

    def get(key: str) -> bytes | None:
        try:
            return objects.get(key)
        except ObjectMissingError:
            return None

    return in_parallel(get, keys)
