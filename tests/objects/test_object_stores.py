"""The contract suite on every store that runs here, and on those that the environment names."""

from __future__ import annotations

import os
import uuid
from urllib.parse import parse_qsl, urlsplit

import pytest
from obstore.store import LocalStore, MemoryStore
from servers import S3Server, make_bucket

from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.objects.files import FileObjects
from holdfast.store.objects.obstores import ObstoreObjects
from holdfast.testing.object_store_contract import ObjectStoreContract

PATIENCE_S = 20.0


class TestLocalDisk(ObjectStoreContract):
    closes = False

    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
        return FileObjects(tmp_path_factory.mktemp("files") / "objects")


class TestObstoreMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return ObstoreObjects(MemoryStore(), "memory://test", prefix="some/where", patience_s=PATIENCE_S)


class TestObstoreLocal(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
        directory = tmp_path_factory.mktemp("objects")
        return ObstoreObjects(LocalStore(directory, automatic_cleanup=True), str(directory), patience_s=PATIENCE_S)


class TestS3(ObjectStoreContract):
    @pytest.fixture
    def store(self, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        return Location.parse("test(path", f"s3://{s3.make_bucket()}/some/where").open(PATIENCE_S)


class TestS3AtTheRoot(ObjectStoreContract):
    @pytest.fixture
    def store(self, s3: S3Server) -> ObjectStore:
        bucket = s3.make_bucket()
        return Location.parse("test(path", "/", s3.store(bucket)).open(PATIENCE_S)


class TestS3WithoutConditionalWrites(ObjectStoreContract):
    conditional_writes = False

    @pytest.fixture
    def store(self, unconditional_s3: S3Server) -> ObjectStore:
        bucket = unconditional_s3.make_bucket()
        return Location.parse("test(path", "runs", unconditional_s3.store(bucket)).open(PATIENCE_S)


@pytest.mark.skipif("HOLDFAST_TEST_S3" not in os.environ, reason="HOLDFAST_TEST_S3 names no server")
class TestGivenS3(ObjectStoreContract):
    """HOLDFAST_TEST_S3=http://host:port?access_key_id=...&secret_access_key=..."""

    @pytest.fixture(scope="class")
    def bucket(self) -> str:
        name = f"holdfast-{uuid.uuid4().hex[:12]}"
        make_bucket(_endpoint("HOLDFAST_TEST_S3"), name, **_options("HOLDFAST_TEST_S3"))
        return name

    @pytest.fixture
    def store(self, bucket: str) -> ObjectStore:
        query = urlsplit(os.environ["HOLDFAST_TEST_S3"]).query
        url = f"s3://{bucket}/{uuid.uuid4().hex}?endpoint={_endpoint('HOLDFAST_TEST_S3')}&{query}"
        return Location.parse("test(path", url).open(PATIENCE_S)


@pytest.mark.skipif("HOLDFAST_TEST_AZURE" not in os.environ, reason="HOLDFAST_TEST_AZURE names no container")
class TestGivenAzure(ObjectStoreContract):
    """HOLDFAST_TEST_AZURE=az://container?account=...&account_key=...&endpoint=..."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        start, _, query = os.environ["HOLDFAST_TEST_AZURE"].partition("?")
        return Location.parse("test(path", f"{start}/{uuid.uuid4().hex}?{query}").open(PATIENCE_S)


def _endpoint(variable: str) -> str:
    parts = urlsplit(os.environ[variable])
    return f"{parts.scheme}://{parts.netloc}"


def _options(variable: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(os.environ[variable]).query))
