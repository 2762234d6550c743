"""The meaning of an object store's error: missing, taken, denied, worth a retry, or permanent.

Stores raise different exceptions, but all of them put the server's status and code into the text. The text may contain
a signed URL, which is shown without its query.
"""

from __future__ import annotations

import errno
import re

from holdfast.errors import (
    CheckpointDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)

WRITES = frozenset({"write", "create", "upload"})  # here, "not found" does not mean that the key is missing
CHECK_ACCESS = (
    "Check the credentials (are they there, not expired, allowed to do this?), the region, the endpoint and that the "
    "bucket exists. Committed checkpoints are safe. Fix this, then run the same command again."
)
SET_CLOCK = "Set this machine's clock right. Committed checkpoints are safe. Then run the same command again."
CHECK_SERVICE = (
    "Check the network and the service. Committed checkpoints are safe. Run the same command again when it is "
    "available."
)

_DENIED = re.compile(
    r"status code: 40[13]\b|NoSuchBucket|ContainerNotFound|bucket does not exist|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|ExpiredToken|InvalidToken|TokenRefreshRequired|RequestTimeTooSkewed|AccessDenied"
    r"|AuthenticationFailed|credential|169\.254\.169\.254|metadata\.google\.internal",
    re.IGNORECASE,
)
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_MISSING = re.compile(r"is a directory|not a regular file|does not exist", re.IGNORECASE)  # pyarrow has no types
_BEYOND = re.compile(r"status code: 416\b|range was invalid|Invalid range:", re.IGNORECASE)
_HOPELESS = re.compile(r"BadScheme|URL scheme is not allowed", re.IGNORECASE)
_STATUS = re.compile(r"status code: (\d{3}[^:<\n]*)")
_CODE = re.compile(r"<Code>\s*(\w+)\s*</Code>")
_REQUEST = re.compile(r"^.*Error performing \w+ \S+ in .* - ", re.DOTALL)
_QUERY = re.compile(r"\?\S+")
_BY_TYPE = {
    "AlreadyExistsError": ObjectExistsError,
    "PreconditionError": ObjectExistsError,
    "FileExistsError": ObjectExistsError,
    "PermissionDeniedError": StorageDeniedError,
    "PermissionError": StorageDeniedError,
    "UnauthenticatedError": StorageDeniedError,
    "NoCredentialsError": StorageDeniedError,
    "NotSupportedError": StorageError,
    "NotImplementedError": StorageError,
    "InvalidPathError": StorageError,
    "UnknownConfigurationKeyError": StorageError,
    "ValueError": StorageError,
    "TypeError": StorageError,
}


def judge(action: str, name: str, error: Exception) -> StorageError:
    """Our error for the meaning of the store's error."""
    if isinstance(error, StorageError):
        return error
    kind = _kind(action, error)
    if kind is ObjectMissingError:
        return ObjectMissingError(f"{name} does not exist.")
    if kind is ObjectExistsError:
        return ObjectExistsError(f"{name} already exists.")
    if kind is CheckpointDamagedError:
        return CheckpointDamagedError(f"{name} ends before the range that was asked for.")
    text = f"Could not {action} {name}: {cause(error)}"
    return kind(text if issubclass(kind, StorageUnavailableError) else f"{text}. Retrying would not help.")


def remedy(error: StorageError) -> str:
    if "RequestTimeTooSkewed" in str(error):
        return SET_CLOCK
    return CHECK_ACCESS if isinstance(error, StorageDeniedError) else CHECK_SERVICE


def cause(error: Exception) -> str:
    """The status and code that the server gave, or the first lines of the text."""
    text = str(error).partition("\n\nDebug source")[0]
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is not None:
        return " ".join(found.group(1).strip() for found in (status, code) if found is not None)
    text = _REQUEST.sub("", text)
    detail = " (the server cannot be reached)" if "kind: Connect" in str(error) else ""
    return (_QUERY.sub("", " ".join(text.split()))[:300] or type(error).__name__) + detail


def _kind(action: str, error: Exception) -> type[StorageError]:
    text = str(error)
    if _BEYOND.search(text):
        return CheckpointDamagedError
    if _HOPELESS.search(text):
        return StorageError
    if _DENIED.search(text.partition("\n\nDebug source")[0]):
        return StorageDeniedError
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError
    if isinstance(error, _NO_FILE) or (isinstance(error, OSError) and _MISSING.search(text)):
        return StorageUnavailableError if action in WRITES else ObjectMissingError
    for base in type(error).__mro__:
        if base.__name__ in _BY_TYPE:
            return _BY_TYPE[base.__name__]
    return StorageUnavailableError
