from __future__ import annotations

import pytest

from holdfast.testing.fake_objects import Bucket


@pytest.fixture(params=["safe", "unsafe"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A store that creates safely, and one that does not."""
    return Bucket(creates_safely=request.param == "safe")
