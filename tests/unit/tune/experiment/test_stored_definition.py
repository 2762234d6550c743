"""What of an experiment and of its configs comes back from storage, and what has to be passed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.objects import put
from holdfast.store.location import Location
from holdfast.tune import RunConfig, TuneConfig
from holdfast.tune.experiment.definition import Definition, restored
from holdfast.tune.experiment.stored_definition import (
    Missing,
    NotStorableError,
    config_from_store,
    config_to_store,
    described,
    made,
    missing_in,
)
from holdfast.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter
from holdfast.tune.search_space import choice, generate, grid_search, loguniform, randint, sample_from, uniform
from holdfast.tune.stopper import CombinedStopper, MaximumIterationStopper, TrialPlateauStopper


class Model:
    """Something that JSON does not hold."""


def through_a_journal(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_schedulers_and_searchers_are_made_again_with_their_arguments() -> None:
    scheduler = made(through_a_journal(described(ASHAScheduler("epoch", max_t=7, grace_period=2), "scheduler")))
    assert isinstance(scheduler, ASHAScheduler)
    assert scheduler.made_with == {"time_attr": "epoch", "max_t": 7, "grace_period": 2}
    search = ConcurrencyLimiter(BasicVariantGenerator(random_state=3), max_concurrent=2)
    again = made(through_a_journal(described(search, "search_alg")))
    assert isinstance(again, ConcurrencyLimiter)
    assert again.max_concurrent == 2
    assert again.searcher.made_with == {"random_state": 3}
    mutations = {"lr": [0.1, 0.2], "decay": uniform(0, 1)}
    population = made(through_a_journal(described(PopulationBasedTraining(hyperparam_mutations=mutations), "s")))
    assert population.made_with["hyperparam_mutations"] == mutations
    stopper = made(
        through_a_journal(described(CombinedStopper(MaximumIterationStopper(3), TrialPlateauStopper("a")), "s"))
    )
    assert isinstance(stopper, CombinedStopper)


def test_spaces_come_back_and_draw_the_same() -> None:
    space = {"a": uniform(0, 1), "b": {"c": loguniform(1e-3, 1), "d": choice(["x", "y"])}, "e": grid_search([1, 2])}
    again = made(through_a_journal(described({**space, "f": randint(0, 9)}, "param_space")))
    drawn = [variant.config for variant in generate({**space, "f": randint(0, 9)}, 3, random_state=5)]
    assert [variant.config for variant in generate(again, 3, random_state=5)] == drawn


@pytest.mark.parametrize("part", [sample_from(lambda: 1), Model(), print])
def test_what_is_the_users_own_is_not_stored_and_says_where_it_was(part: Any) -> None:
    with pytest.raises(NotStorableError, match=r"param_space\['model'\]\['x'\]"):
        described({"model": {"x": part}}, "param_space")


def test_a_scheduler_of_the_users_own_is_not_stored() -> None:
    class Mine(ASHAScheduler):
        pass

    with pytest.raises(NotStorableError, match="Mine"):
        described(Mine(), "scheduler")


def space() -> dict[str, Any]:
    return {
        "model": grid_search([Model(), Model()]),
        "data": {"train": choice([put("data 1"), put("data 2")]), "fixed": Model()},
        "lr": uniform(0, 1),
    }


def test_objects_in_configs_come_from_the_space_that_is_passed_again() -> None:
    given = space()
    config = next(generate(given, 1, random_state=1)).config
    stored = through_a_journal(config_to_store(config, given))
    assert stored["lr"] == config["lr"]
    same = config_from_store(stored, given)
    assert same == config
    later = space()
    again = config_from_store(stored, later)
    assert again["model"] is later["model"]["grid_search"][0]
    assert again["data"]["fixed"] is later["data"]["fixed"]
    assert again["data"]["train"] in later["data"]["train"].categories
    assert missing_in(again) == []


def test_without_the_space_what_lacks_is_named() -> None:
    given = space()
    config = next(generate(given, 1, random_state=1)).config
    found = config_from_store(through_a_journal(config_to_store(config, given)), {})
    assert isinstance(found["model"], Missing)
    assert missing_in(found) == ["model", "data/train", "data/fixed"]
    assert found["lr"] == config["lr"]


def test_an_experiment_resumes_on_the_engine_that_it_had(tmp_path: Path) -> None:
    """Unless another is named: on the local one, datasets of Ray Data would be refused."""
    made = Definition("fn", {}, TuneConfig(), RunConfig(name="a", storage_path=str(tmp_path), engine="ray"))
    identity = through_a_journal(made.identity())
    place = Location.parse("test(path", tmp_path)
    assert restored(identity, place, None, None, None).run_config.engine == "ray"
    assert restored(identity, place, None, None, RunConfig(verbose=0)).run_config.engine == "ray"
    assert restored(identity, place, None, None, RunConfig(engine="local")).run_config.engine == "local"
    del identity["engine"]  # of an older version
    assert restored(identity, place, None, None, None).run_config.engine is None
