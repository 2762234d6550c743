"""``holdfast.put`` and ``holdfast.get``: objects that the driver, its trials and their workers share on a machine."""

from holdfast.objects.object_refs import ObjectLostError, ObjectRef, close, discard, exists, get, open_session, put

__all__ = ["ObjectLostError", "ObjectRef", "close", "discard", "exists", "get", "open_session", "put"]
