"""Opens the store of a location. The store's library is imported only here, when it is needed.

obstore reads the usual environment variables itself; URL options override them. Added here: short names for options,
plain http if the endpoint says so, profiles of ``~/.aws``, and no request to a metadata address when
``AWS_EC2_METADATA_DISABLED`` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import StorageDeniedError
from holdfast.store.objects import aws_profile
from holdfast.store.objects.base import ObjectStore

if TYPE_CHECKING:
    from holdfast.store.location import Location

_ALIASES = {
    "endpoint_override": "endpoint",
    "endpoint_url": "endpoint",
    "anonymous": "skip_signature",
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "account": "account_name",
}
_CLIENT_OPTIONS = frozenset({"timeout", "connect_timeout", "proxy_url", "allow_invalid_certificates", "allow_http"})
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_SERVER_OPTIONS = frozenset({"endpoint", "base_url", "account_name", "host", "port"})
_OTHER_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_TRUE = ("1", "true", "yes", "on")
_memories: dict[str, Any] = {}


def open_location(location: Location, patience_s: float) -> ObjectStore:
    if location.path is not None:
        from holdfast.store.objects.files import FileObjects

        return FileObjects(location.path)
    if hasattr(location.filesystem, "_strip_protocol") or hasattr(location.filesystem, "get_file_info"):
        return _open_fsspec(location, patience_s)
    from holdfast.store.objects.obstores import ObstoreObjects

    store = location.filesystem if location.filesystem is not None else build(location)
    return ObstoreObjects(store, str(location), prefix=location.key, patience_s=patience_s)


def server_of(location: Location) -> str:
    """What distinguishes servers that have the same URL: the endpoint and, on Azure, the account. No secrets."""
    scheme = location.root.partition(":")[0].replace("abfss", "az")
    found = dict(_server_options(location.filesystem)) or dict(_server_options(dict(location.options)))
    found.setdefault("endpoint", found.pop("base_url", "") or _first(os.environ, _ENDPOINTS.get(scheme, ())))
    if scheme == "az":
        found.setdefault("account_name", _first(os.environ, _ACCOUNTS))
    return " ".join(f"{name}={value.rstrip('/')}" for name, value in sorted(found.items()) if value)


def _server_options(value: Any) -> Iterator[tuple[str, str]]:
    """The options of a file system from any library. For a wrapper, those of the wrapped file system."""
    if isinstance(value, Mapping):
        for name, option in value.items():
            known = _ALIASES.get(name, name)
            if known in _SERVER_OPTIONS and isinstance(option, (str, int)):
                yield known, str(option)
            elif name != "proxy_options":
                yield from _server_options(option)
    elif hasattr(value, "storage_options"):  # of fsspec
        yield from _server_options(value.storage_options)
    elif hasattr(value, "get_file_info") and not isinstance(value, type):  # of pyarrow, also for its handlers
        for argument in value.__reduce__()[1]:
            yield from _server_options(argument)
    elif hasattr(value, "config"):  # of obstore
        yield from _server_options(dict(value.config))


def _open_fsspec(location: Location, patience_s: float) -> ObjectStore:
    from holdfast.store.objects.fsspecs import FsspecObjects

    filesystem = location.filesystem
    if not hasattr(filesystem, "_strip_protocol"):
        from holdfast.store.objects.arrow import ArrowFileSystem

        filesystem = ArrowFileSystem(filesystem)
    return FsspecObjects(filesystem, location.key, str(location), patience_s=patience_s)


def build(location: Location) -> Any:
    """obstore's store for the whole bucket."""
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    scheme, _, bucket = location.root.partition("://")
    if scheme == "memory":
        return _memories.setdefault(bucket, MemoryStore())
    config = {_ALIASES.get(name, name): value for name, value in location.options}
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore, "abfss": AzureStore}[scheme]
    if scheme == "abfss":
        scheme = "az"
        bucket, _, host = bucket.partition("@")
        if host:
            config.setdefault("account_name", host.partition(".")[0])
    client = _client_options(scheme, config)
    provider = None
    if scheme == "s3":
        provider = _credentials(location, config)
        _region(config)
    try:
        return kind(bucket, config=config, client_options=client, credential_provider=provider)
    except (BaseError, ValueError) as error:
        text = str(error).partition("\n\nDebug source")[0]
        raise ValueError(f"{location}: the store cannot be set up: {text}") from None


def _client_options(scheme: str, config: dict[str, str]) -> dict[str, Any]:
    """Removes the options of the HTTP client from the others, and returns them."""
    plain = config.pop("scheme", "https")
    client: dict[str, Any] = {name: config.pop(name) for name in _CLIENT_OPTIONS & config.keys()}
    if "endpoint" in config and "://" not in config["endpoint"]:
        config["endpoint"] = f"{plain}://{config['endpoint']}"
    endpoint = config.get("endpoint") or config.get("base_url") or _first(os.environ, _ENDPOINTS[scheme])
    if endpoint.startswith("http://"):
        client.setdefault("allow_http", True)
    if scheme == "gs" and "endpoint" in config:
        config["base_url"] = config.pop("endpoint")
    return client


def _credentials(location: Location, config: dict[str, str]) -> Any:
    """The credentials; None if obstore finds them itself."""
    anonymous = config.get("skip_signature", os.environ.get("AWS_SKIP_SIGNATURE", "")).lower() in _TRUE
    if anonymous or "access_key_id" in config or _first(os.environ, _OTHER_CREDENTIALS):
        return None
    provider = aws_profile.provider()
    if provider is None and os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() in _TRUE:
        raise StorageDeniedError(
            f"There are no credentials for {location}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE "
            "to a profile that has them, or anonymous=true in the URL's options for a public bucket."
        )
    return provider


def _region(config: dict[str, str]) -> None:
    region = aws_profile.region()
    if region and "region" not in config and not _first(os.environ, ("AWS_REGION", "AWS_DEFAULT_REGION")):
        config["region"] = region


def _first(values: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((values[name] for name in names if values.get(name)), "")
