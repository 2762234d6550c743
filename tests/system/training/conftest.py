"""A real S3 server, reached as a user's environment would have it."""

from support.object_stores.fixtures import bucket, obstore_is_running, s3  # noqa: F401
