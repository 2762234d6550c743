"""Methods, properties and parameters of Ray's public names are there, or are deliberately not."""

from __future__ import annotations

from support.compat import ray_members


def test_no_member_is_undecided() -> None:
    undecided = [name for name in ray_members.differences() if not ray_members.decision(name)]
    assert not undecided, "add them, or say in support/compat/ray_members.py why not"


def test_what_is_there_is_not_said_to_be_missing() -> None:
    found = ray_members.differences()
    idle = [start for start in ray_members.NOT_HERE if not any(name.startswith(start) for name in found)]
    assert not idle
