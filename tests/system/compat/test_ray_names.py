"""Every name that Ray Train and Ray Tune export is there, or is deliberately not."""

from __future__ import annotations

import pytest

from support.compat import ray_names


@pytest.fixture(scope="module")
def absent() -> set[str]:
    return ray_names.all_missing()


def test_no_name_is_undecided(absent: set[str]) -> None:
    undecided = sorted(name for name in absent if not ray_names.decision(name))
    assert not undecided, "add them, or say in support/compat/ray_names.py why not"


def test_what_is_there_is_not_said_to_be_missing(absent: set[str]) -> None:
    assert set(ray_names.NOT_HERE) <= absent
