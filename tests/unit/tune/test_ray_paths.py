"""What scripts from Ray import from ``tune.utils``, ``tune.search.sample`` and ``tune.search.variant_generator``."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.tune.execution.placement_groups import PlacementGroupFactory, resource_dict_to_pg_factory
from holdfast.tune.registry import get_env
from holdfast.tune.search import sample, variant_generator
from holdfast.tune.utils import (
    deep_update,
    diagnose_serialization,
    flatten_dict,
    merge_dicts,
    unflattened_lookup,
    validate_save_restore,
    wait_for_gpu,
)


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (sample.Float(0, 1).uniform(), tune.uniform(0, 1)),
        (sample.Float(1e-4, 1).loguniform(), tune.loguniform(1e-4, 1)),
        (sample.Float(0, 1).uniform().quantized(0.1), tune.quniform(0, 1, 0.1)),
        (sample.Float(0, 1).normal(2, 3).quantized(0.5), tune.qrandn(2, 3, 0.5)),
        (sample.Integer(1, 9).uniform().quantized(2), tune.qrandint(1, 9, 2)),
        (sample.Integer(1, 9).loguniform(), tune.lograndint(1, 9)),
        (sample.Categorical((1, 2)).uniform(), tune.choice([1, 2])),
        (sample.Categorical((1, 2)).grid(), tune.grid_search([1, 2])),
    ],
)
def test_domains_are_made_in_steps(made: Any, written: Any) -> None:
    assert made == written


@pytest.mark.parametrize(
    ("domain", "sampler"),
    [
        (tune.uniform(0, 1), sample.Uniform()),
        (tune.qloguniform(2, 8, 2), sample.Quantized(sample.LogUniform(), 2.0)),
        (tune.randn(1, 2), sample.Normal(1.0, 2.0)),
        (tune.randint(0, 3), sample.Uniform()),
        (tune.choice([1]), sample.Uniform()),
    ],
)
def test_a_domain_says_how_it_draws(domain: Any, sampler: Any) -> None:
    assert domain.get_sampler() == sampler
    assert not domain.is_grid()
    assert not domain.is_function()
    assert tune.sample_from(lambda: 1).is_function()


def test_bounds_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        sample.Float(0, 1).loguniform()
    with pytest.raises(ValueError, match="multiples of q"):
        sample.Float(0, 1).quantized(0.3)


def test_a_space_by_its_parts() -> None:
    space = {"a": 1, "b": {"c": tune.uniform(0, 1)}, "d": tune.grid_search([1, 2])}
    constants, domains, grids = variant_generator.parse_spec_vars(space)
    assert constants == [(("a",), 1)]
    assert domains == [(("b", "c"), tune.uniform(0, 1))]
    assert grids == [(("d",), tune.choice([1, 2]))]
    found = list(variant_generator.generate_variants(space, random_state=3))
    assert [config["d"] for _, config in found] == [1, 2]
    assert found[0][0].keys() == {("b", "c"), ("d",)}
    variant_generator.assign_value(space, ("b", "c"), 5)
    variant_generator.assign_value(space, ("e", "f"), 6)
    assert (space["b"], space["e"]) == ({"c": 5}, {"f": 6})


def test_nested_dicts() -> None:
    nested = {"a": {"b": 1, "c": [{"d": 2}]}, "e": {}}
    assert flatten_dict(nested) == {"a/b": 1, "a/c": [{"d": 2}], "e": {}}
    assert flatten_dict(nested, delimiter=".", flatten_list=True) == {"a.b": 1, "a.c.0.d": 2, "e": {}}
    with pytest.raises(ValueError, match="another delimiter"):
        flatten_dict({"a/b": 1}, prevent_delimiter=True)
    assert unflattened_lookup("a/b", nested) == 1
    assert unflattened_lookup("a/x", nested, default=7) == 7
    with pytest.raises(KeyError, match="a/b"):
        unflattened_lookup("a/x", nested)
    assert merge_dicts({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    with pytest.raises(ValueError, match="unknown key 'x'"):
        deep_update({"a": 1}, {"x": 2})
    changed = {"a": {"type": "one", "b": 1}, "c": {"d": 1}}
    new = {"a": {"type": "two"}, "c": {"e": 2}}
    deep_update(changed, new, False, ["c"], ["a"])
    assert changed == {"a": {"type": "two"}, "c": {"d": 1, "e": 2}}


class Counter(tune.Trainable):
    forgets = False

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "training_iteration": self.count}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.count = 0 if self.forgets else checkpoint["count"]


class Forgetful(Counter):
    forgets = True


def test_a_class_that_restores_and_one_that_does_not() -> None:
    assert validate_save_restore(Counter) is True
    with pytest.raises(ValueError, match="4 became 1"):
        validate_save_restore(Forgetful)


def test_what_cannot_be_sent_to_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    lock, number = threading.Lock(), 3

    def bad(_config: dict[str, Any]) -> None:
        print(lock, number)

    assert diagnose_serialization(bad) == {"lock"}
    assert "Create lock inside the trainable" in capsys.readouterr().out
    assert diagnose_serialization(len) is True


def test_a_gpu_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU here: an ``nvidia-smi`` that says less memory is in use each time it is asked."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\nn=$(cat {tmp_path}/n 2>/dev/null || echo 300); echo $((n - 100)) > {tmp_path}/n\n"
        'echo "0, GPU-abc, $n, 1000"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(RuntimeError, match="was not freed in 1 checks"):
        wait_for_gpu(target_util=0.15, retry=1)
    assert wait_for_gpu(gpu_id="GPU-abc", target_util=0.15, delay_s=0)
    with pytest.raises(ValueError, match="nvidia-smi lists 0, GPU-abc"):
        wait_for_gpu(gpu_id=5)


def test_resources_and_environments_by_name() -> None:
    assert resource_dict_to_pg_factory({"cpu": 2, "custom_resources": {"disk": 1}}) == PlacementGroupFactory(
        [{"CPU": 2, "disk": 1}]
    )
    tune.register_env("maze", dict)
    assert get_env("maze") is dict
    with pytest.raises(ValueError, match="registered: 'maze'"):
        get_env("desert")


def test_a_normal_sampler_needs_a_deviation() -> None:
    from holdfast.tune.search import sample

    assert sample.Normal(sd=2.0).mean == 0.0
    with pytest.raises(ValueError, match="greater than 0"):
        sample.Normal()


def test_whether_init_was_called() -> None:
    assert not holdfast.is_initialized()
    holdfast.init()
    try:
        assert holdfast.is_initialized()
    finally:
        holdfast.shutdown()
    assert not holdfast.is_initialized()


def test_modules_that_are_one_here() -> None:
    from holdfast.tune.stopper.trial_plateau import TrialPlateauStopper
    from holdfast.tune.utils.log import Verbosity, has_verbosity, set_verbosity
    from holdfast.tune.utils.util import validate_warmstart

    from holdfast.tune.search.searcher import ConcurrencyLimiter

    assert TrialPlateauStopper is tune.stopper.TrialPlateauStopper  # type: ignore[attr-defined]
    assert ConcurrencyLimiter is tune.search.ConcurrencyLimiter  # type: ignore[attr-defined]
    assert tune.RunConfig(verbose=Verbosity.V1_EXPERIMENT).verbose == 1  # type: ignore[arg-type]
    assert has_verbosity(Verbosity.V2_TRIAL_NORM)
    set_verbosity(1)
    assert not has_verbosity(2)
    set_verbosity(Verbosity.V3_TRIAL_DETAILS)
    validate_warmstart(["a", "b"], [{"a": 1, "b": 2}, [3, 4]], [0.5, 0.6])
    with pytest.raises(ValueError, match="does not have one value for each"):
        validate_warmstart(["a", "b"], [{"a": 1}], None)
    with pytest.raises(ValueError, match="1 evaluated_rewards for 2"):
        validate_warmstart(["a"], [[1], [2]], [0.5])
    with pytest.raises(TypeError, match="neither a dict nor a list"):
        validate_warmstart(["a"], [5], None)  # type: ignore[list-item]


def test_the_trainable_of_examples(tmp_path: Path) -> None:
    from holdfast.tune.utils.mock_trainable import MyTrainableClass

    first = MyTrainableClass({"width": 2, "height": 3, "mock_error": True})
    assert first.train()["episode_reward_mean"] == pytest.approx(1.3863, abs=1e-4)
    with pytest.raises(RuntimeError, match="on purpose"):
        first.train()
    first.save(str(tmp_path))
    second = MyTrainableClass({"mock_error": True})
    second.restore(str(tmp_path))
    assert (second.train()["training_iteration"], second.timestep) == (2, 2)
