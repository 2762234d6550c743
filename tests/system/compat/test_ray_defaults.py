"""Defaults of Ray's public functions and classes are the same here, or differ on purpose."""

from __future__ import annotations

from support.compat import ray_defaults


def test_defaults_are_rays_but_for_those_that_were_decided() -> None:
    found = ray_defaults.differences()
    assert {name: found[name] for name in found if name not in ray_defaults.DECIDED} == {}


def test_what_was_decided_differs() -> None:
    assert ray_defaults.DECIDED.keys() <= ray_defaults.differences().keys()
