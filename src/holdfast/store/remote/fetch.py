"""Gets objects that may not exist, one or many in one round of requests."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ObjectMissingError
from holdfast.store.objects.base import ObjectStore
from holdfast.store.parallel import in_parallel


def get_all(objects: ObjectStore, keys: Sequence[str]) -> list[bytes | None]:
    """The content of each object; None for those that do not exist."""
    return in_parallel(lambda key: get_if_there(objects, key), keys)


def get_if_there(objects: ObjectStore, key: str) -> bytes | None:
    try:
        return objects.get(key)
    except ObjectMissingError:
        return None
