"""References in spaces and configs."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import objects
from holdfast.objects import ObjectLostError, get, put
from holdfast.tune.search_space import choice, grid_search, uniform
from holdfast.tune.trainable import check_refs, find_refs


def space() -> dict[str, Any]:
    return {
        "model": grid_search([put("model 1"), put("model 2")]),
        "data": {"train": choice([put("data 1"), put("data 2")]), "test": put("test")},
        "pair": (put("left"), 3),
        "lr": uniform(0, 1),
    }


def test_references_are_found_in_grids_and_choices() -> None:
    found = {path: get(ref) for path, ref in find_refs(space())}
    assert found == {
        ("model", "grid_search", 0): "model 1",
        ("model", "grid_search", 1): "model 2",
        ("data", "train", 0): "data 1",
        ("data", "train", 1): "data 2",
        ("data", "test"): "test",
        ("pair", 0): "left",
    }


def test_references_of_an_earlier_session_are_refused() -> None:
    given = space()
    check_refs(given)
    objects.close()
    put("another session")
    with pytest.raises(
        ObjectLostError, match=r"param_space refers to objects that are lost.*: model/grid_search/0, model"
    ):
        check_refs(given)
