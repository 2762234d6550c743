"""Constants that scripts import from Ray's modules are there with Ray's values, or are deliberately not."""

from __future__ import annotations

from support.compat import ray_constants


def test_no_constant_is_undecided() -> None:
    undecided = sorted(name for name in ray_constants.missing() if not ray_constants.is_decided(name))
    assert not undecided, "add them, or say in support/compat/ray_constants.py why not"


def test_what_is_there_is_not_said_to_be_missing() -> None:
    absent = ray_constants.missing()
    idle = [start for start in ray_constants.NOT_HERE if not any(name.startswith(start) for name in absent)]
    assert not idle


def test_values_are_rays() -> None:
    assert not ray_constants.different()
