"""Workers without processes: prepared loaders of all ranks of a world, side by side in the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch._dynamo

from holdfast.train import checks
from holdfast.train.torch import prepare_data_loader
from holdfast.worker import session as sessions
from support.train.session_stand_in import SessionStandIn

assert torch._dynamo  # imported before holdfast, so that workers, which are forked from this process's seed, have it
Prepare = Callable[..., list[Any]]


@pytest.fixture
def prepare() -> Iterator[Prepare]:
    """``prepare(make, world_size, state=None)``: the loader of each rank, from what ``make()`` returns in it."""

    def prepared(make: Callable[[], Any], world_size: int, state: Any = None) -> list[Any]:
        loaders = []
        for rank in range(world_size):
            sessions.install(SessionStandIn(rank, world_size))  # type: ignore[arg-type]
            loader = prepare_data_loader(make())
            if state is not None:
                loader.load_state_dict(state)
            loaders.append(loader)
        return loaders

    yield prepared
    sessions.install(None)


@pytest.fixture(autouse=True)
def _warn_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_warned", set())
