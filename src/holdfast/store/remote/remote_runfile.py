"""run.json on an object store: the run's identity and configuration, replaced only as a whole."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ObjectMissingError
from holdfast.store import runfile
from holdfast.store.objects.base import ObjectStore

KEY = "run.json"


def write(objects: ObjectStore, body: dict[str, Any]) -> None:
    objects.put(KEY, runfile.content_of(body))


def read(objects: ObjectStore) -> dict[str, Any]:
    try:
        content = objects.get(KEY)
    except ObjectMissingError:
        raise runfile.missing(objects.url) from None
    return runfile.parse(content, f"{objects.url}/{KEY}")
