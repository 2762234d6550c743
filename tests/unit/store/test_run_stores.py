"""The contract of what stores runs, on disk and on an object store in memory."""

from __future__ import annotations

import uuid
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from holdfast.store.location import Location
from holdfast.testing.store_contract import DiskRunContract, ObjectRunContract


@pytest.fixture(scope="session", autouse=True)
def obstore_is_running() -> None:
    """Its threads start before a test counts what it left open."""
    obstore.put(MemoryStore(), "warm", b"")


class TestDisk(DiskRunContract):
    @pytest.fixture
    def location(self, tmp_path: Path) -> Location:
        return Location.parse("(path", tmp_path / "run")


class TestMemory(ObjectRunContract):
    @pytest.fixture
    def location(self) -> Location:
        return Location.parse("(path", f"memory://{uuid.uuid4().hex}/runs/run")
