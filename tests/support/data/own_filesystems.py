"""Datasets in file systems of the user's: ``python own_filesystems.py URL PLACE``, of an S3 server and in it. They
leave threads and connections behind, so this is a process of its own."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow.fs
from obstore.fsspec import FsspecStore
from obstore.store import S3Store

import holdfast.data as data
from support.object_stores.servers import KEYS


def check(filesystem: Any, inside: str, name: str) -> None:
    read = data.read_parquet([f"{inside}/year=2020", f"{inside}/year=2021"], filesystem=filesystem)
    assert [row["id"] for row in read.iter_rows()] == [0, 1, 2, 3], name
    assert data.read_csv(f"{inside}/csv/*.gz", filesystem=filesystem).sum("id") == 15, name
    place = f"{inside}/copies-{name}"
    for values in ([1, 2], [3, 4]):  # of one size
        data.from_items(values).write_csv(place, filesystem=filesystem)
        data.from_items([{"id": value} for value in values]).write_parquet(f"{place}/parquet", filesystem=filesystem)
    assert data.read_parquet(f"{place}/parquet", filesystem=filesystem).sum("id") == 10, name


def main(url: str, place: str) -> None:
    bucket, _, key = place.removeprefix("s3://").partition("/")
    options: Any = {"endpoint": url, "region": "us-east-1", "client_options": {"allow_http": True}, **KEYS}
    check(S3Store(bucket, **options), key, "obstore")
    check(FsspecStore("s3", **options), f"{bucket}/{key}", "fsspec")
    server = {"endpoint_override": url.removeprefix("http://"), "scheme": "http", "region": "us-east-1"}
    access: Any = {"access_key": KEYS["access_key_id"], "secret_key": KEYS["secret_access_key"]}
    check(pyarrow.fs.S3FileSystem(**access, **server), f"{bucket}/{key}", "pyarrow")


if __name__ == "__main__":
    main(*sys.argv[1:])
