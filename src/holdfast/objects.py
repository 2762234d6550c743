"""``holdfast.put`` and ``holdfast.get``: objects that the driver, its trials and their workers share on a machine."""

from holdfast.wire.objects.refs import ObjectLostError, ObjectRef, close, discard, exists, get, put
from holdfast.wire.objects.refs import local as _local

__all__ = ["ObjectLostError", "ObjectRef", "close", "discard", "exists", "get", "open_session", "put"]


def open_session() -> str:
    """Begin the session before workers start, so that what they put outlives them; its name is returned."""
    return _local.session().name
