"""References in spaces and configs, on their way through a journal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import objects
from holdfast.objects import ObjectLostError, get, put
from holdfast.tune.search_space import choice, grid_search, uniform
from holdfast.tune.trainable import check_refs, find_refs, has_marks, load_refs, store_refs


def space() -> dict[str, Any]:
    return {
        "model": grid_search([put("model 1"), put("model 2")]),
        "data": {"train": choice([put("data 1"), put("data 2")]), "test": put("test")},
        "pair": (put("left"), 3),
        "lr": uniform(0, 1),
    }


def through_a_journal(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


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


def test_a_config_is_stored_and_comes_back_in_the_same_session() -> None:
    given = space()
    config = {"model": given["model"]["grid_search"][1], "lr": 0.5, "pair": [given["pair"][0], 3]}
    stored = through_a_journal(store_refs(config, given))
    assert stored["model"]["__ref__"]["at"] == ["model", "grid_search", 1]
    assert has_marks(stored)
    assert not has_marks(config)
    loaded = load_refs(stored)
    assert loaded == config
    assert get(loaded["pair"][0]) == "left"
    assert not has_marks(loaded)


def test_what_holds_no_reference_stays_as_it_is() -> None:
    config = {"a": [1, (2, 3)], "b": {}}
    assert store_refs(config) is config
    assert load_refs(config) is config


def test_in_a_later_session_the_space_must_be_given_again() -> None:
    given = space()
    config = {"model": given["model"]["grid_search"][1], "train": given["data"]["train"].categories[0], "lr": 0.5}
    stored = through_a_journal(store_refs(config, given))
    objects.close()
    put("another session")
    with pytest.raises(ObjectLostError, match=r"Tuner.restore\(path, trainable, param_space"):
        load_refs(stored)
    with pytest.raises(
        ObjectLostError, match=r"param_space refers to objects that are lost.*: model/grid_search/0, model"
    ):
        check_refs(given)
    again = space()
    check_refs(again)
    loaded = load_refs(stored, again)
    assert (get(loaded["model"]), get(loaded["train"]), loaded["lr"]) == ("model 2", "data 1", 0.5)
    with pytest.raises(ObjectLostError, match="model/grid_search/1"):
        load_refs(stored, given)


def test_the_nearest_place_counts_for_one_object_at_two_places() -> None:
    shared = put("shared")
    given = {"a": grid_search([1, shared]), "b": {"c": shared}}
    stored = store_refs({"a": shared, "b": {"c": shared}}, given)
    loaded = load_refs(stored, {"a": grid_search([1, "for a"]), "b": {"c": "for c"}})
    assert loaded == {"a": "for a", "b": {"c": "for c"}}


def test_a_space_that_has_less_than_before_is_refused() -> None:
    given = space()
    stored = store_refs({"model": given["model"]["grid_search"][1]}, given)
    with pytest.raises(ValueError, match="param_space has nothing at 'model/grid_search/1'"):
        load_refs(stored, {"model": grid_search([put("model 1")])})


def test_what_came_from_no_place_lives_as_long_as_its_session() -> None:
    made = put("by a function of sample_from")
    stored = store_refs({"made": made}, {"other": 1})
    assert stored["made"]["__ref__"]["at"] is None
    assert load_refs(stored, space())["made"] == made
    objects.close()
    with pytest.raises(ObjectLostError):
        load_refs(stored, space())


def test_a_journal_cannot_name_a_file_elsewhere() -> None:
    ref = put("mine")
    for session, name in ((ref.session, f"../{ref.session}/{ref.name}"), ("../elsewhere", ref.name)):
        with pytest.raises(ObjectLostError):
            load_refs({"x": {"__ref__": {"session": session, "name": name, "at": None}}})


def test_a_space_can_be_stored_with_its_choices() -> None:
    given = space()
    marked = store_refs(given)
    assert find_refs(marked) == []
    assert load_refs(marked) == given
