"""How often a pass over a dataset calls the user's functions, makes the user's classes, and with which settings."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import holdfast.data as data
from holdfast.data import DataIterator, Dataset
from holdfast.data.calls import Computation
from holdfast.data.pieces import Chunk
from holdfast.data.shuffle_window import WindowPiece
from holdfast.errors import DataError


class Plain:
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Plain.made += 1

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


AFTER: dict[str, Callable[[Dataset], Dataset]] = {
    "nothing": lambda ds: ds,
    "random_shuffle": lambda ds: ds.random_shuffle(),
    "windows": lambda ds: ds.random_shuffle().random_shuffle(seed=3),
    "repartition": lambda ds: ds.repartition(16),
    "zip": lambda ds: ds.zip(data.range(800)),
    "zipped": lambda ds: data.range(800).zip(ds),
    "limit": lambda ds: ds.limit(150),
    "sort": lambda ds: ds.sort("id"),
    "union": lambda ds: ds.union(data.range(3)).union(ds),
    "map": lambda ds: ds.random_shuffle().map(lambda row: row),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("most", [1, 2])
def test_a_class_has_as_many_instances_as_its_concurrency(after: str, most: int) -> None:
    base = data.range(800, override_num_blocks=8).map_batches(Plain, concurrency=most)
    plan = AFTER[after](base)
    Plain.made = 0
    assert sum(len(batch["id"]) for batch in plan.iter_batches()) == plan.count()
    assert 1 <= Plain.made <= most


def test_a_class_within_a_local_shuffle_of_a_resumed_epoch() -> None:
    """What remains are several runs of rows, one for each former rank."""
    plan = data.range(800, override_num_blocks=8).map_batches(Plain, concurrency=1)
    first, second = plan.streaming_split(2)
    loops = [iter(each.iter_batches(batch_size=30, local_shuffle_buffer_size=16)) for each in (first, second)]
    seen = [value for loop in loops for value in next(loop)["id"].tolist()]
    state = first.state_dict()
    for loop in loops:
        loop.close()
    resumed = plan.iterator()
    resumed.load_state_dict(state)
    Plain.made = 0
    for batch in resumed.iter_batches(batch_size=30, local_shuffle_buffer_size=16):
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(800))
    assert Plain.made == 1


def test_no_instance_is_kept_after_the_pass() -> None:
    list(data.range(80).map_batches(Plain).random_shuffle().iter_batches())
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Plain]


class Called:
    """A function that notes the rows that it is called with."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self.rows.append(row["id"])
        return row


def as_counted(ds: Dataset) -> Dataset:
    return ds.filter(expr="id >= 0").counted()


@pytest.mark.parametrize("blocks", [1, 8])
@pytest.mark.parametrize("before", [lambda ds: ds, lambda ds: ds.limit(75), lambda ds: ds.repartition(3), as_counted])
def test_a_rank_of_a_shuffled_dataset_computes_its_own_rows_alone(blocks: int, before: Any) -> None:
    called = Called()
    base = before(data.range(80, override_num_blocks=blocks))
    plan = base.map(called).random_shuffle(seed=4)
    shards = plan.streaming_split(4)
    seen = [[row["id"] for row in shard.iter_rows()] for shard in shards]
    assert sorted(called.rows) == list(range(base.count())), "each row is computed once"
    assert [value for part in seen for value in part] == [row["id"] for row in plan.iter_rows()]


def test_a_resume_within_a_shuffled_window_computes_the_rest_alone() -> None:
    called = Called()
    plan = data.range(10_000, override_num_blocks=4).map(called).random_shuffle(seed=4)
    loop = iter(plan.iter_batches(batch_size=1000))
    whole = [value for batch in loop for value in batch["id"].tolist()]
    iterator = plan.iterator()
    loop = iter(iterator.iter_batches(batch_size=1000))
    for _ in range(9):
        next(loop)
    state = iterator.state_dict()
    loop.close()
    resumed = plan.iterator()
    resumed.load_state_dict(state)
    called.rows.clear()
    assert [value for batch in resumed.iter_batches(batch_size=1000) for value in batch["id"].tolist()] == whole[9000:]
    assert sorted(called.rows) == sorted(whole[9000:])


def test_an_error_in_a_shuffled_window_names_the_rows_and_the_file(tmp_path: Path) -> None:
    data.range(100).write_parquet(str(tmp_path), row_group_size=50)

    def bad(batch: dict[str, Any]) -> dict[str, Any]:
        if 70 in batch["id"]:
            raise ValueError("planned")
        return batch

    shards = data.read_parquet(str(tmp_path)).map_batches(bad).random_shuffle(seed=1).streaming_split(2)
    with pytest.raises(DataError, match=rf"map_batches\(bad\) failed on \d+ of rows 50-9. of {tmp_path}/.*planned"):
        [list(shard.iter_rows()) for shard in shards]


class Shorter:
    """Of a file that has lost rows."""

    rows, nbytes = 3, 24

    def stream(self, run: Any, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        yield Chunk(pa.table({"id": [1]}), "row 0 of a.parquet")


def test_rows_that_a_shuffled_window_lacks() -> None:
    with Computation(data.DataContext()) as run, pytest.raises(DataError, match=r"row 0 of a\.parquet.*are missing"):
        list(WindowPiece((Shorter(),), (1,)).stream(run))


def test_settings_of_a_dataset_are_those_of_its_passes() -> None:
    sizes: list[int] = []

    def noted(batch: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(batch["id"]))
        return batch

    plan = data.range(10_000, override_num_blocks=1)
    plan.context.target_chunk_rows = 1000
    for made in (plan, plan.random_shuffle(), plan.sort("id"), plan.materialize(), plan.filter(expr="id >= 0")):
        sizes.clear()
        list(made.map_batches(noted).iter_batches())
        assert sizes == [1000] * 10, made
    sizes.clear()
    made = plan.map_batches(noted).filter(expr="id >= 0").repartition(2)
    list(made.iter_batches())
    assert set(sizes) == {1000}, "also of what is computed to know the blocks"
    sizes.clear()
    rows = DataIterator(plan.map_batches(noted)._plan, None, plan.context).iter_batches(batch_size=None)
    assert [len(batch["id"]) for batch in rows] == [1000] * 10
    assert sizes == [1000] * 10
    assert data.DataContext.get_current().target_chunk_rows == 65_536
