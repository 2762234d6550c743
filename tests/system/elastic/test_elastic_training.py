"""Real runs: worker processes with loader workers of their own, killed, and gone on with by another number of them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import holdfast
import holdfast.train as train
from support.elastic.elastic_training import PATIENCE_S, check_each_sample_once, final_state, trainer

pytestmark = pytest.mark.timeout(300)


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_equal(first, second)
    else:
        assert one == other


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return final_state(trainer(tmp_path_factory.mktemp("undisturbed"), 2, num_workers=0).fit())


@pytest.mark.parametrize(
    ("num_workers", "faults"),
    [
        (0, [(0, 2, 3)]),
        (2, [(1, 2, 5), (0, 2, 7)]),
        (1, [(0, 2, 0), (1, 2, 4), (1, 2, 5), (0, 2, 9)]),
    ],
)
def test_a_run_that_was_killed_ends_bit_for_bit_like_one_that_was_not(
    tmp_path: Path, undisturbed: dict[str, Any], num_workers: int, faults: Any
) -> None:
    """With dropout and augmentation, within epochs, whatever the number of loader workers."""
    state = final_state(trainer(tmp_path, 2, faults, num_workers, max_failures=len(faults)).fit())
    assert_equal(state, undisturbed)
    check_each_sample_once(state)
    assert len(list((tmp_path / "marks").iterdir())) == len(faults)


@pytest.mark.parametrize(("num_workers", "stateful"), [(0, False), (1, True)])
def test_from_four_workers_to_two_to_three(
    tmp_path: Path, undisturbed: dict[str, Any], num_workers: int, stateful: bool
) -> None:
    """The run is begun by four, which are killed in the middle of an epoch, and so on; once with torchdata's loader."""
    for workers, fault in ((4, (3, 4, 3)), (2, (0, 2, 5))):
        with pytest.raises(train.TrainingFailedError):
            trainer(tmp_path, workers, [fault], num_workers, stateful=stateful).fit()
        (tmp_path / "marks" / "0").unlink()
    state = final_state(trainer(tmp_path, 3, (), num_workers, stateful=stateful).fit())
    check_each_sample_once(state)
    assert [world_size for _, world_size, _ in state["history"]] == [4, 4, 2, 2, *[3] * 6]
    assert batches_of(state) == batches_of(undisturbed)  # of the same samples as with two workers all along


def test_nodes_that_go_and_come(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """An elastic attempt of four loses two nodes in the middle of an epoch, and later gets one."""
    marks = tmp_path / "marks"
    with holdfast.LocalCluster() as cluster:
        nodes = [cluster.add_node(cpus=1) for _ in range(4)]

        def change() -> None:
            await_file(marks / "awaits-2")
            cluster.remove_node(nodes[0])
            cluster.remove_node(nodes[3])
            await_file(marks / "awaits-3")
            cluster.add_node(cpus=1)

        changing = threading.Thread(target=change, daemon=True)
        changing.start()
        state = final_state(trainer(tmp_path, (2, 4), sizes={3: 2, 7: 3}, max_failures=4, engine=cluster).fit())
        changing.join(PATIENCE_S)
    check_each_sample_once(state)
    # Step 3 of the four was lost with their nodes; step 7 of the two was saved when they were asked to hand over.
    assert [world_size for _, world_size, _ in state["history"]] == [4, 4, *[2] * 5, *[3] * 3]
    assert batches_of(state) == batches_of(undisturbed)


def await_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.005)


def batches_of(state: dict[str, Any]) -> list[list[int]]:
    return [sorted(indices) for _, _, indices in state["history"]]
