"""The cursor by brute force: random plans, cut anywhere, resumed by any number of ranks; every row exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast.data
from holdfast.data import DataContext, DataIterator, Dataset, file_access
from holdfast.data.shard_steps import ShardWorld

ROWS = 97


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("parquet")
    for number, (start, stop, group) in enumerate([(0, 40, 7), (40, 41, 1), (41, ROWS, 20)]):
        table = pa.table({"id": list(range(start, stop))})
        pq.write_table(table, directory / f"{number}.parquet", row_group_size=group)
    return directory


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("csv")
    for number, (start, stop) in enumerate([(0, 30), (30, ROWS)]):
        text = "id\n" + "".join(f"{value}\n" for value in range(start, stop))
        (directory / f"{number}.csv").write_text(text)
    return directory


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row] * (row["id"] % 3)


def counted(ds: Dataset) -> Dataset:
    return ds if ds._pieces() != ds._plan.pieces(1, ds.context) else ds.counted()


CHANGES: dict[str, Callable[[Dataset], Dataset]] = {
    "as it is": lambda ds: ds,
    "map": lambda ds: ds.map(lambda row: {"id": row["id"]}),
    "map_batches": lambda ds: ds.map_batches(lambda batch: {"id": batch["id"] + 0}, batch_size=5),
    "filter": lambda ds: ds.filter(lambda row: row["id"] % 7 != 2),
    "flat_map": lambda ds: ds.flat_map(twice),
    "counted": counted,
    "random_shuffle": lambda ds: ds.random_shuffle(seed=4),
    "randomize_block_order": lambda ds: ds.randomize_block_order(seed=1),
    "limit": lambda ds: ds.limit(61),
    "repartition": lambda ds: ds.repartition(6),
    "union": lambda ds: ds.union(holdfast.data.range(30)),
    "zip": lambda ds: ds.zip(ds).select_columns(["id"]),
    "sort": lambda ds: ds.sort("id", descending=True),
}


def source(draw: random.Random, parquet: Path, csv: Path) -> Dataset:
    return draw.choice(
        [
            lambda: holdfast.data.read_parquet(str(parquet)),
            lambda: holdfast.data.read_csv(str(csv)),
            lambda: holdfast.data.range(ROWS, override_num_blocks=draw.randrange(1, 9)),
            lambda: holdfast.data.from_items([{"id": n} for n in range(ROWS)], override_num_blocks=4),
        ]
    )()


def ranks(plan: Dataset, world: int, state: dict[str, Any] | None) -> list[DataIterator]:
    made = [DataIterator(plan._plan, ShardWorld(rank, world), plan.context) for rank in range(world)]
    for iterator in made:
        if state is not None:
            iterator.load_state_dict(state)
    return made


def run(plan: Dataset, draw: random.Random, options: dict[str, Any]) -> tuple[Counter[int], int]:
    """An epoch with ranks in step, which ends after some batches and goes on in another world. The rows of it, and the
    number of changes."""
    seen: Counter[int] = Counter()
    state: dict[str, Any] | None = None
    worlds = 0
    while True:
        world = draw.choice([1, 2, 3, 4])
        together = ranks(plan, world, state)
        size = draw.choice([1, 2, 3, 8, 20])
        loops = [
            iter(each.iter_batches(batch_size=size, prefetch_batches=draw.choice([0, 1, 3]), **options))
            for each in together
        ]
        most = draw.randrange(1, 8)
        for _ in range(most):
            batches = [next(loop, None) for loop in loops]
            for batch in batches:
                seen.update(batch["id"].tolist() if batch is not None else ())
            if all(batch is None for batch in batches):
                assert {each.epoch for each in together} == {1}
                return seen, worlds
        states = [each.state_dict() for each, batch in zip(together, batches, strict=True) if batch is not None]
        for loop in loops:
            loop.close()
        if len(states) == world:
            assert all(each == states[0] for each in states), "all ranks have the same state"
        state = json.loads(json.dumps(states[0]))
        worlds += 1


@pytest.mark.parametrize("seed", range(40))
def test_every_row_once_through_any_worlds(seed: int, parquet: Path, csv: Path) -> None:
    """Some of these plans are counted and others are not; a cut falls within row groups, batches and windows."""
    draw = random.Random(seed)
    for _ in range(4):
        plan = source(draw, parquet, csv)
        names = [draw.choice(list(CHANGES)) for _ in range(draw.randrange(0, 4))]
        for name in names:
            plan = CHANGES[name](plan)
        whole = Counter(row["id"] for row in plan.take_all())
        shuffle = draw.choice([None, None, 1, 5, 16])
        options = (
            {"local_shuffle_buffer_size": shuffle, "local_shuffle_seed": draw.choice([None, 3])} if shuffle else {}
        )
        seen, worlds = run(plan, draw, options)
        assert seen == whole, (names, plan, options, worlds)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("shuffle", [None, 16])
def test_a_cut_at_every_batch(kind: str, shuffle: int | None, parquet: Path, csv: Path) -> None:
    plan = holdfast.data.read_parquet(str(parquet)) if kind == "parquet" else holdfast.data.read_csv(str(csv))
    for cut in range(1, 13):
        seen: Counter[int] = Counter()
        state: dict[str, Any] | None = None
        for world, most in ((4, cut), (2, 3), (3, 1000)):
            together = ranks(plan, world, state)
            loops = [iter(each.iter_batches(batch_size=3, local_shuffle_buffer_size=shuffle)) for each in together]
            for _ in range(most):
                batches = [next(loop, None) for loop in loops]
                if all(batch is None for batch in batches):
                    break
                for batch in batches:
                    seen.update(batch["id"].tolist() if batch is not None else ())
            state = together[0].state_dict()
            for loop in loops:
                loop.close()
            if state["epoch"] == 1:
                break
        assert seen == Counter(range(ROWS)), cut


def test_single_rows_have_a_cursor_too(parquet: Path, csv: Path) -> None:
    for plan in (holdfast.data.read_parquet(str(parquet)), holdfast.data.read_csv(str(csv))):
        for world in (1, 3):
            together = ranks(plan, world, None)
            loops = [iter(each.iter_rows()) for each in together]
            seen = [next(loop)["id"] for _ in range(9) for loop in loops]
            state = together[-1].state_dict()
            assert all(each.state_dict() == state for each in together)
            rest = [row["id"] for each in ranks(plan, 2, state) for row in each.iter_rows()]
            for loop in loops:
                loop.close()
            assert sorted(seen + rest) == list(range(ROWS)), (plan, world)


def test_the_order_is_a_function_of_seed_and_epoch(parquet: Path) -> None:
    plan = holdfast.data.read_parquet(str(parquet)).random_shuffle(seed=9)

    def epochs(iterator: DataIterator, count: int) -> list[list[int]]:
        return [[row["id"] for row in iterator.iter_rows()] for _ in range(count)]

    first, second = epochs(plan.iterator(), 2)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert epochs(plan.iterator(), 2) == [first, second]
    later = plan.iterator()
    later.set_epoch(1)
    assert epochs(later, 1) == [second]
    assert [row["id"] for row in plan.iter_rows()] == first, "a Dataset gives its first epoch"
    other = holdfast.data.read_parquet(str(parquet)).random_shuffle(seed=10)
    assert epochs(other.iterator(), 1) != [first]


def test_a_large_dataset_is_shuffled_in_windows(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataContext.get_current(), "shuffle_window_bytes", 300)
    plan = holdfast.data.read_parquet(str(parquet)).random_shuffle(seed=9)
    assert plan.num_blocks() > 2
    assert sorted(row["id"] for row in plan.iter_rows()) == list(range(ROWS))


def test_seeking_reads_no_row_group_before(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.data.parquet_source import RowGroup

    plan = holdfast.data.read_parquet(str(parquet))
    iterator = plan.iterator()
    loop = iter(iterator.iter_batches(batch_size=10, prefetch_batches=0))
    seen = [value for _ in range(9) for value in next(loop)["id"]]
    loop.close()
    opened: list[tuple[str, int]] = []
    whole = RowGroup._whole
    monkeypatch.setattr(
        RowGroup, "_whole", lambda self, run: opened.append((self.file.shown, self.group)) or whole(self, run)
    )
    resumed = plan.iterator()
    resumed.load_state_dict(iterator.state_dict())
    rest = [value for batch in resumed.iter_batches(batch_size=10) for value in batch["id"]]
    assert seen + rest == list(range(ROWS))
    assert opened == [(str(parquet / "2.parquet"), 2)], "the row groups before are not read"


def test_a_rank_computes_its_own_blocks_alone_once_they_are_counted() -> None:
    called: list[int] = []

    def odd(row: dict[str, Any]) -> bool:
        called.append(row["id"])
        return row["id"] % 2 == 1

    plan = holdfast.data.range(80, override_num_blocks=8).filter(odd).counted()
    assert plan.count() == 40
    called.clear()
    first, second = ([row["id"] for row in each.iter_rows()] for each in ranks(plan, 2, None))
    assert first + second == list(range(1, 80, 2))
    assert sorted(called) == list(range(80)), "each rank reads half of the blocks"
    shuffled = plan.random_shuffle(seed=2)
    assert sorted(row["id"] for each in ranks(shuffled, 3, None) for row in each.iter_rows()) == first + second
    with pytest.raises(ValueError, match="before the dataset is shuffled"):
        holdfast.data.range(80).random_shuffle().filter(odd).counted()


@pytest.mark.parametrize("change", [-1, 1])
def test_a_function_that_gives_other_rows_than_were_counted(change: int) -> None:
    limit = [5]
    plan = holdfast.data.range(10, override_num_blocks=1).filter(lambda row: row["id"] < limit[0]).counted()
    limit[0] += change
    for give in (lambda: list(plan.iter_rows()), lambda: list(plan.random_shuffle().iter_rows())):
        with pytest.raises(holdfast.errors.DataError, match=f"had 5 rows when .* has {5 + change} now"):
            give()


def test_a_file_that_lost_rows_after_they_were_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine, whose copy of it is of the same size: here it is seen that the file was written again."""
    (tmp_path / "a.csv").write_text("id\n1\n2\n3\n")
    plan = holdfast.data.read_csv(str(tmp_path)).counted()
    (tmp_path / "a.csv").write_text("id\n1\n234\n")
    with pytest.raises(holdfast.errors.DataError, match=r"a\.csv has changed since the dataset was made\. Files"):
        list(plan.iter_batches(batch_size=3))
    monkeypatch.setattr(file_access, "_machine", lambda: "another")
    with pytest.raises(holdfast.errors.DataError, match="fewer rows than were counted"):
        list(plan.iter_batches(batch_size=3))


def test_the_state_of_another_dataset_is_refused() -> None:
    state = holdfast.data.range(10).iterator().state_dict()
    with pytest.raises(ValueError, match="another dataset"):
        holdfast.data.range(11).iterator().load_state_dict(state)
    with pytest.raises(ValueError, match="another dataset"):
        holdfast.data.range(10).random_shuffle().iterator().load_state_dict(state)
    with pytest.raises(ValueError, match="state_dict"):
        holdfast.data.range(10).iterator().load_state_dict({})


def test_another_local_shuffle_is_refused_within_an_epoch() -> None:
    iterator = holdfast.data.range(100).iterator()
    loop = iter(iterator.iter_batches(batch_size=10, local_shuffle_buffer_size=20))
    next(loop)
    loop.close()
    resumed = holdfast.data.range(100).iterator()
    resumed.load_state_dict(iterator.state_dict())
    with pytest.raises(ValueError, match="another order"):
        next(iter(resumed.iter_batches(batch_size=10)))


def test_an_epoch_that_was_left_is_over() -> None:
    iterator = holdfast.data.range(100).iterator()
    loop = iter(iterator.iter_batches(batch_size=10))
    next(loop)
    loop.close()
    assert iterator.epoch == 0
    assert sum(len(batch["id"]) for batch in iterator.iter_batches(batch_size=10)) == 100
    assert iterator.epoch == 2


def test_a_state_at_the_last_batch_ends_the_epoch() -> None:
    iterator = holdfast.data.range(20).iterator()
    loop = iter(iterator.iter_batches(batch_size=10))
    next(loop)
    next(loop)
    resumed = holdfast.data.range(20).iterator()
    resumed.load_state_dict(iterator.state_dict())
    loop.close()
    assert list(resumed.iter_batches(batch_size=10)) == []
    assert resumed.epoch == 1
    assert len(list(resumed.iter_batches(batch_size=10))) == 2
