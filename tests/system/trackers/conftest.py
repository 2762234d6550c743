from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cli.cli_shell import end_all


@pytest.fixture(autouse=True)
def ends_what_it_started() -> Iterator[None]:
    yield
    end_all()
