"""An experiment in an object store, and a run that is given its name."""

from __future__ import annotations

import pytest

from holdfast.errors import NotARunError
from holdfast.store.location import Location
from holdfast.store.remote import remote_runfile
from holdfast.train import DataParallelTrainer, RunConfig, ScalingConfig


def train_fn() -> None:
    raise AssertionError("it must not come to that")


def test_an_experiment_is_not_overwritten_by_a_run_of_its_name(place: str) -> None:
    objects = Location.parse("place", f"{place}/same").open(5.0)
    remote_runfile.write(objects, {"kind": "experiment", "name": "same"})
    run = RunConfig(storage_path=place, name="same", verbose=0)
    with pytest.raises(NotARunError, match="is an experiment, not a training run"):
        DataParallelTrainer(train_fn, scaling_config=ScalingConfig(num_workers=0), run_config=run).fit()
    assert remote_runfile.read(objects) == {"kind": "experiment", "name": "same"}
    objects.close()
    assert not DataParallelTrainer.can_restore(f"{place}/same")
