"""Servers that live for the session."""

from support.object_stores.fixtures import (  # noqa: F401
    a_broken_connection_is_an_error,
    bucket,
    marks,
    obstore_is_running,
    proxy,
    s3,
    unconditional_s3,
)
