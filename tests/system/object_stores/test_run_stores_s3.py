"""The contract of what stores runs, on a real S3 server."""

from __future__ import annotations

import pytest

from holdfast.store.location import Location
from holdfast.testing.store_contract import ObjectRunContract


class TestS3(ObjectRunContract):
    @pytest.fixture
    def location(self, bucket: str) -> Location:
        return Location.parse("(path", f"{bucket}/run")
