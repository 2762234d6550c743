"""Each test ends without a session of shared objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import objects


@pytest.fixture(autouse=True)
def _no_objects_are_left() -> Iterator[None]:
    yield
    objects.close()
