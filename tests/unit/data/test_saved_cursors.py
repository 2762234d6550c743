"""Which datasets take a saved cursor: the same rows in the same order, wherever they are; and no others."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import holdfast.data as data
from holdfast.data import DataContext, Dataset
from holdfast.data.calls import Computation
from holdfast.data.plan_digest import digest_of


def middle(dataset: Dataset) -> dict[str, Any]:
    """After a batch of an epoch."""
    iterator = dataset.iterator()
    loop: Any = iter(iterator.iter_batches(batch_size=2))
    next(loop)
    state = iterator.state_dict()
    loop.close()
    return state


def resumed(dataset: Dataset, state: dict[str, Any]) -> list[Any]:
    iterator = dataset.iterator()
    iterator.load_state_dict(state)
    return list(iterator.iter_rows())


def written(place: Path, **files: str) -> str:
    place.mkdir()
    for name, text in files.items():
        (place / f"{name}.csv").write_text(text)
    return str(place)


def test_files_that_were_copied_or_moved(tmp_path: Path) -> None:
    files = {"a": "x\n1\n2\n3\n", "b": "x\n4\n"}
    state = middle(data.read_csv(written(tmp_path / "here", **files)))
    again = resumed(data.read_csv(written(tmp_path / "there", **files)), state)
    assert [row["x"] for row in again] == [3, 4]
    one = middle(data.read_csv(str(tmp_path / "here" / "a.csv")))
    assert resumed(data.read_csv(str(tmp_path / "there" / "a.csv")), one) == [{"x": 3}]


@pytest.mark.parametrize(
    "files",
    [
        {"a": "x\n1\n2\n3\n", "c": "x\n4\n"},  # another name
        {"a": "x\n1\n2\n", "b": "x\n3\n4\n"},  # the same size together
        {"a": "x\n1\n2\n3\n4\n"},
    ],
)
def test_files_of_other_names_or_sizes(files: dict[str, str], tmp_path: Path) -> None:
    state = middle(data.read_csv(written(tmp_path / "here", a="x\n1\n2\n3\n", b="x\n4\n")))
    with pytest.raises(ValueError, match=r"load_state_dict: .*set_epoch"):
        resumed(data.read_csv(written(tmp_path / "there", **files)), state)


def test_a_file_in_another_directory_of_the_dataset(tmp_path: Path) -> None:
    for place, name in (("here", "k=1"), ("there", "k=2")):
        (tmp_path / place / name).mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / place / name / "a.parquet")
        pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / place / "b.parquet")
    state = middle(data.read_parquet(str(tmp_path / "here")))
    with pytest.raises(ValueError, match="other data"):
        resumed(data.read_parquet(str(tmp_path / "there")), state)


def test_other_row_groups_of_files_of_one_size(tmp_path: Path) -> None:
    for name, groups in (("one", [2, 4]), ("two", [4, 2])):
        (tmp_path / name).mkdir()
        with pq.ParquetWriter(tmp_path / name / "a.parquet", pa.schema([("x", pa.int64())])) as writer:
            for rows in groups:
                writer.write_table(pa.table({"x": [7] * rows}))
    one, two = tmp_path / "one" / "a.parquet", tmp_path / "two" / "a.parquet"
    assert one.stat().st_size == two.stat().st_size
    state = middle(data.read_parquet(str(one)).random_shuffle())
    with pytest.raises(ValueError, match="other data"):
        resumed(data.read_parquet(str(two)).random_shuffle(), state)


OTHERS: dict[str, tuple[Callable[[], Dataset], Callable[[], Dataset]]] = {
    "values": (lambda: data.from_items([1, 2, 3]), lambda: data.from_items([1, 2, 4])),
    "texts": (lambda: data.from_items(["a", "b", "c"]), lambda: data.from_items(["a", "b", "d"])),
    "columns": (lambda: data.from_items([{"a": 1}] * 3), lambda: data.from_items([{"b": 1}] * 3)),
    "nulls": (lambda: data.from_items([{"a": 1}, {"a": None}]), lambda: data.from_items([{"a": None}, {"a": 1}])),
    "arrays": (lambda: data.from_numpy(np.ones((4, 2))), lambda: data.from_numpy(np.zeros((4, 2)))),
    "blocks": (
        lambda: data.from_items(list(range(9)), override_num_blocks=2),
        lambda: data.from_items(list(range(9)), override_num_blocks=3),
    ),
    "a filter": (lambda: data.range(9).filter(expr="id > 1"), lambda: data.range(9).filter(expr="id > 2")),
    "an expression": (
        lambda: data.range(9).filter(expr=pc.field("id") > 1),
        lambda: data.range(9).filter(expr=pc.field("id") >= 1),
    ),
    "a sample": (lambda: data.range(99).random_sample(0.5), lambda: data.range(99).random_sample(0.5, seed=1)),
    "the other side": (
        lambda: data.range(3).zip(data.from_items([1, 2, 3])),
        lambda: data.range(3).zip(data.from_items([1, 2, 4])),
    ),
    "what was materialized": (
        lambda: data.from_items([1, 2, 3]).map(lambda row: row).materialize(),
        lambda: data.from_items([1, 2, 4]).map(lambda row: row).materialize(),
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_rows_or_another_order(kind: str) -> None:
    one, other = OTHERS[kind]
    state = middle(one())
    left = one().count() - 2
    assert len(resumed(one(), state)) == left
    with pytest.raises(ValueError, match=r"load_state_dict: .*set_epoch"):
        resumed(other(), state)


def test_functions_are_not_compared() -> None:
    state = middle(data.range(5).map(lambda row: {"x": row["id"]}))
    assert resumed(data.range(5).map(lambda row: {"x": -row["id"]}), state) == [{"x": -2}, {"x": -3}, {"x": -4}]
    held = middle(data.range(5).map(lambda row: {"x": row["id"]}).materialize())
    assert len(resumed(data.range(5).map(lambda row: {"x": row["id"] + 1e-9}).materialize(), held)) == 3


def test_the_digest_is_the_same_in_every_process() -> None:
    rows = [{"n": n if n % 3 else None, "t": f"row {n}" * (n % 4), "b": n % 2 == 0, "l": [n] * n} for n in range(100)]
    for plan in (
        data.from_items(rows, override_num_blocks=7),
        data.from_items([{"o": object}, {"o": 3}]),
        data.from_numpy(np.ones((40, 3, 2), np.float32)),
        data.from_arrow(pa.table({"d": pa.array(["x", "y", None] * 5).dictionary_encode()}).slice(3, 9)),
        data.range(100).map(lambda row: row).random_shuffle(),
    ):
        sent = pickle.loads(cloudpickle.dumps(plan._plan))
        assert digest_of(sent) == digest_of(plan._plan), plan
        assert digest_of(pickle.loads(cloudpickle.dumps(sent))) == digest_of(plan._plan), plan


def test_how_a_table_was_made_does_not_count() -> None:
    """What is under a null, or in the bits after the last row, are no values."""
    values = pa.array([1.5, None, 3.0])
    bitmap, numbers = values.buffers()
    under = np.array([1.5, 7.0, 3.0])
    texts, hidden = pa.array(["a", None, "c"]), pa.py_buffer(np.array([0, 1, 2, 3], np.int32))
    made = {
        "pandas": (values, pa.array(np.array([1.5, np.nan, 3.0]), from_pandas=True)),
        "under a null": (values, pa.Array.from_buffers(pa.float64(), 3, [bitmap, pa.py_buffer(under)])),
        "after the end": (values, pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(b"\xfd"), numbers])),
        "all are valid": (
            pa.array([1, 2]),
            pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\xff"), pa.array([1, 2]).buffers()[1]]),
        ),
        "texts": (texts, pa.Array.from_buffers(pa.string(), 3, [bitmap, hidden, pa.py_buffer(b"axc")])),
        "views": (pa.array(["a", None], pa.string_view()), pa.array(["a", None], pa.string_view())),
        "blocks": (values, pa.chunked_array([values[:2], values[2:]])),
    }
    for name, (one, other) in made.items():
        first, second = (data.from_arrow(pa.table({"x": each}))._plan for each in (one, other))
        assert digest_of(first) == digest_of(second), name


def test_a_large_table_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.data.plan_digest._WHOLE_BYTES", 1000)
    monkeypatch.setattr("holdfast.data.plan_digest._SAMPLE_ROWS", 3)
    values = np.arange(10_000)
    whole = digest_of(data.from_numpy(values)._plan)
    assert digest_of(data.from_numpy(values.copy())._plan) == whole
    assert digest_of(data.from_numpy(values + 1)._plan) != whole
    values[-1] = 0
    assert digest_of(data.from_numpy(values)._plan) != whole


def test_a_pickled_range_of_an_older_version() -> None:
    piece = data.range(5, override_num_blocks=1)._pieces()[0]
    older = {name: value for name, value in vars(piece).items() if name != "row_bytes"}
    made: Any = object.__new__(type(piece))
    made.__setstate__({**older, "nbytes": 40, "chunk_rows": 3})
    assert (made.row_bytes, made.nbytes) == (8, 40)
    with Computation(DataContext()) as run:
        assert [chunk.table.num_rows for chunk in made.stream(run)] == [5]
    assert pickle.loads(cloudpickle.dumps(piece)).row_bytes == 8


def texts_of_samples(path: str, wanted: Callable[[Dataset], Dataset]) -> list[str]:
    return [chunk.where for chunk in wanted(data.read_csv(path))._chunks()]


def test_what_a_sample_draws_by_does_not_depend_on_chunks_without_rows(tmp_path: Path) -> None:
    """A cursor that was saved before files began with such a chunk has the same rows left. Errors show the text too."""
    place = written(tmp_path / "here", a="x\n1\n2\n3\n", b="x\n", c="x\n4\n")
    a, c = f"rows 0-2 of {place}/a.csv", f"row 0 of {place}/c.csv"
    plain = texts_of_samples(place, lambda read: read.map_batches(lambda batch: batch, batch_size=2))
    assert plain == [a, a, c]
    shuffled = texts_of_samples(place, lambda read: read.random_shuffle(seed=1))
    assert len(shuffled) == 1
    assert shuffled[0] in {f"2 shuffled chunks, the first of them {first}" for first in (a, c)}
    nothing = data.read_csv(f"{place}/b.csv").random_shuffle(seed=1)
    assert (nothing.columns(), nothing.count()) == (["x"], 0)


V1 = {
    "version": 1,
    "plan": "from_items | random_shuffle(3, 268435456)",
    "rows": 9,
    "epoch": 2,
    "left": [[4, 9]],
    "block": 0,
    "block_start": 0,
    "shuffle": None,
}


def test_a_state_of_the_first_version() -> None:
    """Written by a release that compared the plan's text and the number of rows alone."""
    plan = data.from_items(list(range(9)), override_num_blocks=2).random_shuffle(seed=3)
    iterator = plan.iterator()
    iterator.set_epoch(2)
    whole = list(iterator.iter_rows())
    assert resumed(plan, V1) == whole[4:] == [{"item": n} for n in (4, 6, 8, 3, 1)]
    with pytest.raises(ValueError, match="another dataset"):
        resumed(data.range(9), V1)
    with pytest.raises(ValueError, match="pass what state_dict"):
        resumed(plan, {**V1, "version": 3})
