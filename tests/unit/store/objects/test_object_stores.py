"""The contract suite on every store that runs here, and on those that the environment names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from urllib.parse import parse_qsl

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from obstore.store import LocalStore, MemoryStore

from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.objects.files import FileObjects
from holdfast.store.objects.fsspecs import FsspecObjects
from holdfast.store.objects.obstores import ObstoreObjects
from holdfast.testing.object_store_contract import ObjectStoreContract
from support.object_stores.servers import S3Server, make_bucket

PATIENCE_S = 20.0


class TestLocalDisk(ObjectStoreContract):
    closes = False

    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
        yield from closing(FileObjects(tmp_path_factory.mktemp("files") / "objects"))


class TestObstoreMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        yield from closing(ObstoreObjects(MemoryStore(), "memory://test", prefix="some/where", patience_s=PATIENCE_S))


class TestObstoreLocal(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
        directory = tmp_path_factory.mktemp("objects")
        yield from closing(
            ObstoreObjects(LocalStore(directory, automatic_cleanup=True), str(directory), patience_s=PATIENCE_S)
        )


class TestFsspecMemory(ObjectStoreContract):
    conditional_writes = False

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        filesystem = MemoryFileSystem()
        yield from closing(Location.parse("test(path", f"/{uuid.uuid4().hex}", filesystem).open(PATIENCE_S))


class TestFsspecLocal(ObjectStoreContract):
    conditional_writes = False

    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
        directory = str(tmp_path_factory.mktemp("objects"))
        yield from closing(FsspecObjects(LocalFileSystem(), directory, directory, patience_s=PATIENCE_S))


class TestS3(ObjectStoreContract):
    @pytest.fixture
    def store(self, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        yield from closing(Location.parse("test(path", f"s3://{s3.make_bucket()}/some/where").open(PATIENCE_S))


class TestS3AtTheRoot(ObjectStoreContract):
    @pytest.fixture
    def store(self, s3: S3Server) -> Iterator[ObjectStore]:
        bucket = s3.make_bucket()
        yield from closing(Location.parse("test(path", "/", s3.store(bucket)).open(PATIENCE_S))


class TestS3WithoutConditionalWrites(ObjectStoreContract):
    conditional_writes = False

    @pytest.fixture
    def store(self, unconditional_s3: S3Server) -> Iterator[ObjectStore]:
        bucket = unconditional_s3.make_bucket()
        yield from closing(Location.parse("test(path", "runs", unconditional_s3.store(bucket)).open(PATIENCE_S))


if "HOLDFAST_TEST_S3" in os.environ:  # http://host:port?access_key_id=...&secret_access_key=...
    GIVEN_S3, _, GIVEN_KEYS = os.environ["HOLDFAST_TEST_S3"].partition("?")

    class TestGivenS3(ObjectStoreContract):
        @pytest.fixture(scope="class")
        @classmethod
        def bucket(cls) -> str:
            name = f"holdfast-{uuid.uuid4().hex[:12]}"
            make_bucket(GIVEN_S3, name, **dict(parse_qsl(GIVEN_KEYS)))
            return name

        @pytest.fixture
        def store(self, bucket: str) -> Iterator[ObjectStore]:
            url = f"s3://{bucket}/{uuid.uuid4().hex}?endpoint={GIVEN_S3}&{GIVEN_KEYS}"
            yield from closing(Location.parse("test(path", url).open(PATIENCE_S))


if "HOLDFAST_TEST_AZURE" in os.environ:  # az://container?account=...&account_key=...&endpoint=...
    GIVEN_AZURE, _, GIVEN_OPTIONS = os.environ["HOLDFAST_TEST_AZURE"].partition("?")

    class TestGivenAzure(ObjectStoreContract):
        @pytest.fixture
        def store(self) -> Iterator[ObjectStore]:
            url = f"{GIVEN_AZURE}/{uuid.uuid4().hex}?{GIVEN_OPTIONS}"
            yield from closing(Location.parse("test(path", url).open(PATIENCE_S))


def closing(store: ObjectStore) -> Iterator[ObjectStore]:
    yield store
    store.close()
