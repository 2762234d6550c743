"""The calls of the data guides, on local files and on an S3 server; errors that name the rows and the file."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import holdfast.data as data
from holdfast.errors import DataError
from support.object_stores.fixtures import bucket, obstore_is_running, s3  # noqa: F401
from support.repository import SUPPORT


def ids(dataset: Any) -> list[int]:
    return [row["id"] for row in dataset.iter_rows()]


def test_what_is_written_is_read_again_on_disk(tmp_path: Path) -> None:
    written_and_read(str(tmp_path / "files"))


def test_what_is_written_is_read_again_on_s3(bucket: str) -> None:  # noqa: F811
    written_and_read(bucket)


def written_and_read(place: str) -> None:
    made = data.range(100, override_num_blocks=3).map(lambda row: {"id": row["id"], "text": f"row {row['id']}"})
    made.write_parquet(f"{place}/parquet", min_rows_per_file=40)
    made.write_csv(f"{place}/csv")
    made.write_json(f"{place}/json")
    assert len(data.read_parquet(f"{place}/parquet").input_files()) == 3
    for read in (data.read_parquet(f"{place}/parquet"), data.read_csv(f"{place}/csv"), data.read_json(f"{place}/json")):
        assert read.take(2) == [{"id": 0, "text": "row 0"}, {"id": 1, "text": "row 1"}]
        assert ids(read) == list(range(100))
        assert read.count() == 100
        assert read.columns() == ["id", "text"]
    lines = data.read_text(f"{place}/csv").take_all()
    assert [line["text"] for line in lines][:2] == ['"id","text"', '0,"row 0"']
    some = data.read_parquet(f"{place}/parquet", columns=["id"], include_paths=True)
    assert some.columns() == ["id", "path"]
    assert {row["path"] for row in some.iter_rows()} == set(some.input_files())


def test_where_datasets_come_from() -> None:
    assert data.from_items([1, "a"][:1]).take() == [{"item": 1}]
    assert data.from_numpy(np.ones((3, 2, 2))).take_batch(2)["data"].shape == (2, 2, 2)
    assert data.from_numpy([np.arange(3), np.arange(2)]).count() == 5
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
    assert data.from_pandas(frame).to_pandas().equals(frame)
    assert data.from_arrow(pa.table({"a": [1]})).take() == [{"a": 1}]
    assert data.range_tensor(4, shape=(2,)).take_batch(4)["data"].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    pairs = torch.utils.data.TensorDataset(torch.arange(4.0), torch.arange(4))
    items = data.from_torch(pairs).map_batches(lambda batch: {"x": np.stack([item[0] for item in batch["item"]])})
    assert items.take_batch()["x"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_images(tmp_path: Path) -> None:
    for number in range(3):
        Image.fromarray(np.full((4, 6, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    read = data.read_images(str(tmp_path), size=(2, 3), mode="RGB")
    assert read.count() == 3
    assert [batch["image"].shape for batch in read.iter_batches(batch_size=2)] == [(2, 2, 3, 3), (1, 2, 3, 3)]
    grey = data.read_images(str(tmp_path), mode="L", include_paths=True).take(2)
    assert [(row["image"].shape, Path(row["path"]).name) for row in grey] == [((4, 6), "0.png"), ((4, 6), "1.png")]
    Image.fromarray(np.zeros((5, 6, 3), np.uint8)).save(tmp_path / "taller.png")
    batch = data.read_images(str(tmp_path)).take_batch(4)["image"]
    assert [image.shape for image in batch] == [(4, 6, 3)] * 3 + [(5, 6, 3)]
    resized = data.read_images(str(tmp_path)).map(lambda row: {"image": row["image"][:4]})
    assert next(iter(resized.iter_torch_batches(batch_size=4)))["image"].shape == (4, 4, 6, 3)
    (tmp_path / "3.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"3\.png cannot be read"):
        data.read_images(str(tmp_path)).take_all()


def test_columns_of_types_that_do_not_fit() -> None:
    numbers, words = data.from_items([{"a": 1}]), data.from_items([{"a": "x"}])
    with pytest.raises(DataError, match="column 'a' has values of int64 and string"):
        numbers.union(words).to_pandas()
    assert numbers.union(data.from_items([{"a": 1.5}])).to_pandas()["a"].tolist() == [1.0, 1.5]


class AddN:
    made: ClassVar[list[int]] = []

    def __init__(self, n: int) -> None:
        self.n = n
        AddN.made.append(n)

    def __call__(self, batch: dict[str, Any], more: int = 0) -> dict[str, Any]:
        return {"id": batch["id"] + self.n + more}


def test_functions_and_classes() -> None:
    base = data.range(1000, override_num_blocks=8)
    AddN.made.clear()
    added = base.map_batches(AddN, batch_size=50, concurrency=2, fn_constructor_args=[3], fn_kwargs={"more": 1})
    assert ids(added) == list(range(4, 1004))
    assert 1 <= len(AddN.made) <= 2
    pool = base.map_batches(AddN, compute=data.ActorPoolStrategy(size=1), fn_constructor_kwargs={"n": 1})
    assert ids(pool)[:2] == [1, 2]
    frames = base.map_batches(lambda frame: frame.assign(id=frame["id"] * 2), batch_format="pandas")
    assert ids(frames)[-1] == 1998
    tables = base.map_batches(lambda table: table, batch_format="pyarrow", batch_size=7)
    assert ids(tables) == list(range(1000))

    def halves(batch: dict[str, Any]) -> Any:
        yield {"id": batch["id"][::2]}
        yield {"id": batch["id"][1::2]}

    assert sorted(ids(base.map_batches(halves))) == list(range(1000))
    sizes: list[int] = []
    list(base.map_batches(lambda b: sizes.append(len(b["id"])) or b, batch_size=50).iter_batches())
    assert sorted(set(sizes)) == [25, 50], "a batch never crosses the end of a block of 125 rows"


def test_rows_and_columns() -> None:
    base = data.range(10)
    assert ids(base.filter(lambda row: row["id"] > 7)) == [8, 9]
    assert ids(base.filter(expr=pc.field("id") > 7)) == [8, 9]
    assert ids(base.flat_map(lambda row: [row, row] if row["id"] < 2 else [])) == [0, 0, 1, 1]
    wide = base.add_column("twice", lambda frame: frame["id"] * 2)
    assert wide.take(2) == [{"id": 0, "twice": 0}, {"id": 1, "twice": 2}]
    assert wide.drop_columns(["id"]).columns() == ["twice"]
    assert wide.select_columns("id").columns() == ["id"]
    assert wide.rename_columns({"id": "number"}).columns() == ["number", "twice"]
    assert ids(base.sort("id", descending=True))[:2] == [9, 8]
    assert ids(base.limit(3)) == [0, 1, 2]
    assert ids(base.union(base, data.range(2)))[-3:] == [9, 0, 1]
    assert base.zip(wide).take(1) == [{"id": 0, "id_1": 0, "twice": 0}]
    with pytest.raises(DataError, match="10 rows and the other 9"):
        base.zip(data.range(9)).take()
    assert base.repartition(4).num_blocks() == 4
    assert [len(batch["id"]) for batch in base.repartition(target_num_rows_per_block=4).iter_batches(batch_size=3)]
    assert 0 < base.random_sample(0.5, seed=1).count() < 10


def test_parquet_that_is_filtered_while_it_is_read(tmp_path: Path) -> None:
    table = pa.table(
        {"id": list(range(100)), "odd": [n % 2 == 1 for n in range(100)], "x": [n / 2 for n in range(100)]}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    place, expression = str(tmp_path), (pc.field("id") >= 95) & pc.field("odd")
    whole = data.read_parquet(place, filter=expression)
    assert ids(whole) == [95, 97, 99]
    assert whole.count() == 3
    assert whole.columns() == ["id", "odd", "x"]
    some = data.read_parquet(place, filter=expression, columns=["x"], include_paths=True)
    assert some.columns() == ["x", "path"], "a filter may use columns that are not read"
    assert [row["x"] for row in some.iter_rows()] == [47.5, 48.5, 49.5]
    assert [piece.base.columns for piece in some._pieces()[:1]] == [("x", "id", "odd")], "and no others are read"
    parts = [ids(part) for part in whole.streaming_split(2)]
    assert sorted(parts[0] + parts[1]) == [95, 97, 99]
    assert ids(data.read_parquet(place, filter="id >= 95 and odd", columns=["id"])) == [95, 97, 99]
    assert ids(data.read_parquet(place, filter=pc.field("id") < 0)) == []
    with pytest.raises(DataError, match=rf"filter.*wrong.*failed on rows 0-9 of {tmp_path}/a.parquet"):
        ids(data.read_parquet(place, filter=pc.field("wrong") > 1))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a > 1", [2, 3]),
        ("a >= 1 and not b == 'y'", [3]),
        ("b in ['x', 'z'] or a == 1", [0, 1, 3]),
        ("b not in ['x']", [1, 2, 3]),
        ("0 < a < 3", [1, 2]),
        ("a * 2 + 1 == 5", [2]),
        ("is_null(b)", [2]),
        ("a > -1 and a < 1", [0]),
    ],
)
def test_filters_as_texts(text: str, kept: list[int]) -> None:
    rows = data.from_items([{"a": 0, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}])
    assert [row["a"] for row in rows.filter(expr=text).iter_rows()] == kept


def test_filters_that_are_not_understood() -> None:
    for text in ("a >", "print(a)", "a is None", "a > [x for x in y]", "lambda: 1"):
        with pytest.raises(ValueError, match=r"filter\(expr=.*Compare columns with values"):
            data.range(3).filter(expr=text)
    with pytest.raises(TypeError, match="pass a text"):
        data.range(3).filter(expr=5)


def test_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": None}]).show(1)
    assert capsys.readouterr().out == "{'a': 1, 'b': 'x'}\n"


def test_parts() -> None:
    base = data.range(10)
    train, test = base.train_test_split(0.3)
    assert (ids(train), ids(test)) == (list(range(7)), [7, 8, 9])
    train, test = base.train_test_split(2, shuffle=True, seed=1)
    assert sorted(ids(train) + ids(test)) == list(range(10))
    assert [ids(part) for part in base.split(3, equal=True)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert [part.count() for part in base.split(3)] == [3, 3, 4]
    assert [ids(part) for part in base.split_at_indices([2, 5])] == [[0, 1], [2, 3, 4], [5, 6, 7, 8, 9]]
    assert [part.count() for part in base.split_proportionately([0.2, 0.5])] == [2, 5, 3]
    shards = base.filter(lambda row: row["id"] < 8).streaming_split(3, equal=True)
    assert sorted(row["id"] for shard in shards for row in shard.iter_rows()) == [0, 1, 2, 3, 4, 5]


def test_numbers() -> None:
    values = np.random.default_rng(0).normal(5, 2, 1000)
    base = data.from_pandas(pd.DataFrame({"v": values, "k": np.arange(1000) % 3}), override_num_blocks=7)
    assert base.sum("v") == pytest.approx(values.sum())
    assert base.mean("v") == pytest.approx(values.mean())
    assert base.std("v") == pytest.approx(values.std(ddof=1))
    assert (base.min("v"), base.max("v")) == (values.min(), values.max())
    assert base.sum(["v", "k"])["sum(k)"] == 999
    assert base.unique("k") == [0, 1, 2]
    nulls = data.from_items([{"v": 1}, {"v": None}])
    assert nulls.mean("v") == 1
    assert nulls.mean("v", ignore_nulls=False) is None
    with pytest.raises(ValueError, match="no column 'x'"):
        base.sum("x")


def test_batches_of_tensors() -> None:
    base = data.range(10).map_batches(lambda batch: {"x": batch["id"] / 2, "m": np.ones((len(batch["id"]), 3))})
    first = next(iter(base.iter_torch_batches(batch_size=4, dtypes={"x": torch.float32})))
    assert (first["x"].dtype, first["m"].shape) == (torch.float32, (4, 3))
    made = base.iter_torch_batches(batch_size=4, collate_fn=lambda batch: torch.as_tensor(batch["x"]).sum())
    assert sum(float(value) for value in made) == pytest.approx(22.5)
    again = base.iter_batches(batch_size=4, drop_last=True)
    assert [len(list(again)) for _ in range(2)] == [2, 2], "it can be iterated again"
    assert base.materialize().count() == 10
    with pytest.raises(ValueError, match="batch_size=0"):
        base.iter_batches(batch_size=0)
    with pytest.raises(ValueError, match="batch_format"):
        base.iter_batches(batch_format="xml")


def test_an_error_names_the_rows_and_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "a.parquet", row_group_size=250)

    def bad(batch: dict[str, Any]) -> dict[str, Any]:
        if 600 in batch["id"]:
            raise ValueError("planned")
        return batch

    with pytest.raises(DataError, match=rf"map_batches\(bad\) failed on rows 500-749 of {tmp_path}/a.parquet.*planned"):
        ids(data.read_parquet(str(tmp_path)).map_batches(bad))
    with pytest.raises(DataError, match=r"map\(<lambda>\) failed on the row number 7 of rows 0-9 of range"):
        data.range(10).map(lambda row: {"id": 1 / (row["id"] - 7)}).take()
    with pytest.raises(DataError, match=r"returned 1 rows for 10, .*udf_modifying_row_count=True"):
        data.range(10).map_batches(lambda batch: {"id": batch["id"][:1]}).take()
    assert data.range(10).map_batches(lambda batch: {"id": batch["id"][:1]}, udf_modifying_row_count=True).count() == 1


def test_a_damaged_file_names_itself(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": list(range(5000))}), tmp_path / f"{name}.parquet", row_group_size=1000)
    good = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(good[:-20])
    with pytest.raises(DataError, match=r"b\.parquet cannot be read"):
        data.read_parquet(str(tmp_path))
    (tmp_path / "b.parquet").write_bytes(good[:2000] + bytes(4000) + good[6000:])
    with pytest.raises(DataError, match=r"b\.parquet \(row group \d\) cannot be read"):
        ids(data.read_parquet(str(tmp_path)))
    with pytest.raises(FileNotFoundError, match="no such file"):
        data.read_parquet(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="has no column wrong; it has id"):
        data.read_parquet(str(tmp_path / "a.parquet"), columns=["wrong"])


def test_a_million_rows_in_flat_memory(tmp_path: Path) -> None:
    """By all memory that a process of its own has at a time: twice as many rows need no more."""
    rows = 1_000_000
    table = pa.table({"id": np.arange(rows), **{f"x{n}": np.arange(rows) / (n + 1) for n in range(15)}})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100_000, compression="none", use_dictionary=False)
    size = table.nbytes
    del table
    once = highest_memory(tmp_path, rows)
    (tmp_path / "b.parquet").hardlink_to(tmp_path / "a.parquet")
    (tmp_path / "c.parquet").hardlink_to(tmp_path / "a.parquet")
    thrice = highest_memory(tmp_path, 3 * rows)
    assert thrice - once < size // 4, f"{once} and {thrice}, of {size} bytes for a million rows"


def highest_memory(directory: Path, rows: int) -> int:
    script = [sys.executable, str(SUPPORT / "data" / "flat_memory.py"), str(directory)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen, most = map(int, done.stdout.split())
    assert seen == rows
    return most


def test_a_dataset_is_a_value() -> None:
    base = data.range(100).map(lambda row: {"id": row["id"] + 1}).random_shuffle(seed=1)
    copied = pickle.loads(cloudpickle.dumps(base))
    assert ids(copied) == ids(base)
    assert repr(base) == "Dataset(range(100) | map | random_shuffle(1, 268435456))"


def test_no_thread_is_left_by_a_loop_that_ends_early() -> None:
    before = set(threading.enumerate())
    loop = iter(data.range(100_000, override_num_blocks=50).map(lambda row: row).iter_batches(batch_size=10))
    next(loop)
    loop.close()
    assert set(threading.enumerate()) <= before


def test_what_is_left_out_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"Dataset has no groupby\. In its place: to_pandas\(\)\.groupby"):
        data.range(1).groupby("id")
    with pytest.raises(AttributeError, match=r"read_sql.*map_batches"):
        data.read_sql("select 1")
    with pytest.raises(AttributeError, match="has no 'nonsense'"):
        data.range(1).nonsense()
