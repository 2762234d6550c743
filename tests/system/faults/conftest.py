"""Training in the test's own process: workers are forked from a seed that has already imported what they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch._dynamo

import holdfast.train as train
from support.faults.fault_training import trainer

assert torch._dynamo


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], train.Result]:
    """The run that nothing happened to; made once."""
    done: list[train.Result] = []

    def run() -> train.Result:
        if not done:
            storage: Path = tmp_path_factory.mktemp("undisturbed")
            done.append(trainer(storage, {}).fit())
        return done[0]

    return run
