from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(
    str(Path(__file__).resolve().parent.parent / "cli")
)  # the shell and the job that the tests there use too


@pytest.fixture(autouse=True)
def ends_what_it_started() -> Iterator[None]:
    from cli_shell import end_all

    yield
    end_all()
