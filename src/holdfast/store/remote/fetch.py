"""Objects that may not be there, one or many with one round of requests."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ObjectMissingError
from holdfast.store.objects.base import ObjectStore
from holdfast.store.parallel import in_parallel


def get_all(objects: ObjectStore, keys: Sequence[str]) -> list[bytes | None]:
    """The content of each, None for those that are not there."""
    return in_parallel(lambda key: get_if_there(objects, key), keys)


def get_if_there(objects: ObjectStore, key: str) -> bytes | None:
    try:
        return objects.get(key)
    except ObjectMissingError:
        return None
