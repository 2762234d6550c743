"""Many objects with one round of requests."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ObjectMissingError
from holdfast.store.objects.base import ObjectStore
from holdfast.store.parallel import in_parallel


def get_all(objects: ObjectStore, keys: Sequence[str]) -> list[bytes | None]:
    """The content of each, None for those that are not there."""

    def get(key: str) -> bytes | None:
        try:
            return objects.get(key)
        except ObjectMissingError:
            return None

    return in_parallel(get, keys)
