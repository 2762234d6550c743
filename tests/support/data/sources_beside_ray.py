"""The cases of ``beside_ray``: objects in memory, and files."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from support.data.beside_ray import Anyhow, case, differs, ids, raised, rows_of, whole

# Objects in memory


@case
def from_items_dicts(d: Any) -> Any:
    return whole(d.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": None}]))


@case
def from_items_values(d: Any) -> Any:
    return whole(d.from_items([1, 2, 3]))


@case
def from_items_of_many_types(d: Any) -> Any:
    day = datetime.datetime(2024, 2, 3, 4, 5, 6)
    row = {"f": 1.5, "t": True, "y": b"ab", "d": day, "l": [1, 2], "n": None, "k": {"x": 1}, "s": "text"}
    return rows_of(d.from_items([row, row]))


@differs("pyarrow's type for times, with microseconds")
def schema_of_times(d: Any) -> Any:
    return d.from_items([{"d": datetime.datetime(2024, 2, 3, 4, 5, 6)}]).schema()


@case
def from_items_lists_of_one_length(d: Any) -> Any:
    return whole(d.from_items([{"l": [1, 2]}, {"l": [3, 4]}]))


@case
def from_items_lists_of_many_lengths(d: Any) -> Any:
    found = d.from_items([{"l": [1, 2]}, {"l": [3]}])
    return [rows_of(found), found.schema(), [list(item) for item in found.take_batch(2)["l"]]]


@case
def from_items_arrays(d: Any) -> Any:
    found = d.from_items([{"m": np.ones((2, 2), np.float32) * n} for n in range(3)])
    return [rows_of(found), found.take_batch(3)]


@differs("a key that a row lacks is None; with Ray only if another row of the block has it")
def from_items_without_a_key(d: Any) -> Any:
    return Anyhow(map(str, rows_of(d.from_items([{"a": 1, "b": 2}, {"a": 3}]))))


@case
def from_items_without_a_key_in_one_block(d: Any) -> Any:
    return rows_of(d.from_items([{"a": 1, "b": 2}, {"a": 3}], override_num_blocks=1))


@case
def from_items_empty(d: Any) -> Any:
    return [d.from_items([]).count(), d.from_items([]).take(3)]


@case
def range_of_numbers(d: Any) -> Any:
    return [whole(d.range(5)), d.range(0).count(), d.range(1000).count()]


@case
def range_of_tensors(d: Any) -> Any:
    found = d.range_tensor(3, shape=(2, 2))
    return [rows_of(found), found.take_batch(3), rows_of(d.range_tensor(2)), found.columns()]


@case
def from_numpy_arrays(d: Any) -> Any:
    flat, deep = np.arange(4, dtype=np.int32), np.arange(8.0).reshape(2, 2, 2)
    return [whole(d.from_numpy(flat)), d.from_numpy(deep).take_batch(2), rows_of(d.from_numpy([flat, flat[:2]]))]


@case
def from_numpy_texts_and_truths(d: Any) -> Any:
    return [whole(d.from_numpy(np.array(["a", "bc"]))), whole(d.from_numpy(np.array([True, False])))]


@case
def from_pandas_frames(d: Any) -> Any:
    frame = pd.DataFrame({"i": [1, 2], "f": [0.5, np.nan], "s": ["x", None], "t": [True, False]})
    return [rows_of(d.from_pandas(frame)), d.from_pandas([frame, frame]).count(), d.from_pandas(frame).columns()]


@case
def from_pandas_times_and_categories(d: Any) -> Any:
    times = pd.to_datetime(["2024-01-01", "2024-01-02"])
    frame = pd.DataFrame({"t": times, "c": pd.Categorical(["a", "b"])}, index=[7, 8])
    return [[{name: str(value) for name, value in row.items()} for row in rows_of(d.from_pandas(frame))]]


@case
def from_arrow_tables(d: Any) -> Any:
    table = pa.table({"a": [1, 2], "s": ["x", None], "l": [[1], [2, 3]]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return [
        rows_of(d.from_arrow(table)),
        d.from_arrow(table).schema(),
        d.from_arrow([table, table]).count(),
        rows_of(d.from_arrow(sink.getvalue().to_pybytes())),
    ]


@case
def from_torch_items(d: Any) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    class Squares(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            if index >= 4:
                raise IndexError(index)
            return index * index

    pairs = rows_of(d.from_torch(TensorDataset(torch.arange(3.0))))
    return [rows_of(d.from_torch(Squares())), [[float(value) for value in row["item"]] for row in pairs]]


# Files


def parquet(work: Path, files: int = 2) -> str:
    for number in range(files):
        start = 5 * number
        table = pa.table({"id": range(start, start + 5), "s": [f"row {n}" for n in range(start, start + 5)]})
        pq.write_table(table, work / f"{number}.parquet", row_group_size=2)
    return str(work)


@case
def read_parquet_directory(d: Any, work: Path) -> Any:
    return whole(d.read_parquet(parquet(work)))


@case
def read_parquet_files_and_columns(d: Any, work: Path) -> Any:
    parquet(work)
    one = d.read_parquet(str(work / "1.parquet"), columns=["s"])
    both = d.read_parquet([str(work / "1.parquet"), str(work / "0.parquet")])
    return [rows_of(one), one.columns(), Anyhow(ids(both)), both.count()]


@case
def read_parquet_paths(d: Any, work: Path) -> Any:
    found = d.read_parquet(parquet(work), include_paths=True)
    return [[row["id"], Path(row["path"]).name] for row in rows_of(found)]


@differs("Ray Data 2.60 has taken filter= out")
def read_parquet_filtered(d: Any, work: Path) -> Any:
    import pyarrow.dataset as pds

    found = d.read_parquet(parquet(work), filter=pds.field("id") > 6)
    named = d.read_parquet(str(work), filter=pds.field("id") > 6, columns=["id"])
    return [ids(found), rows_of(named), named.columns(), found.count()]


@differs("Ray Data 2.60 has taken filter= out")
def read_parquet_filtered_by_another_column(d: Any, work: Path) -> Any:
    import pyarrow.dataset as pds

    found = d.read_parquet(parquet(work), filter=pds.field("s") == "row 3", columns=["id"])
    return [rows_of(found), found.columns()]


@case
def read_parquet_partitions(d: Any, work: Path) -> Any:
    for year in (2023, 2024):
        (work / f"year={year}" / "kind=a").mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), work / f"year={year}" / "kind=a" / "0.parquet")
    found = d.read_parquet(str(work))
    return [rows_of(found), found.schema(), rows_of(d.read_parquet(str(work), columns=["id", "year"]))]


@case
def read_parquet_lists(d: Any, work: Path) -> Any:
    lists = {"i": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32())), "r": [[1.5], []], "s": [["a"], ["b", "c"]]}
    pq.write_table(pa.table({**lists, "n": [None, [1]]}), work / "0.parquet")
    found = d.read_parquet(str(work))
    return [rows_of(found), found.schema(), found.take_batch(2)]


@case
def read_parquet_other_files_beside(d: Any, work: Path) -> Any:
    parquet(work)
    (work / "_SUCCESS").write_text("")
    (work / "notes.txt").write_text("nothing")
    return d.read_parquet(str(work)).count()


@case
def read_parquet_shuffled_files(d: Any, work: Path) -> Any:
    return Anyhow(ids(d.read_parquet(parquet(work), shuffle="files")))


@case
def read_parquet_tensors(d: Any, work: Path) -> Any:
    d.range_tensor(3, shape=(2, 2)).write_parquet(str(work / "t"))
    return d.read_parquet(str(work / "t")).take_batch(3)


@case
def read_parquet_nowhere(d: Any, work: Path) -> Any:
    return [raised(lambda: d.read_parquet(str(work / "no")).count()), raised(lambda: d.read_parquet([]).count())]


@case
def read_csv_files(d: Any, work: Path) -> Any:
    (work / "a.csv").write_text("id,s,f,day\n1,x,0.5,2024-01-02\n2,,,2024-01-03\n")
    (work / "b.csv").write_text("id,s,f,day\n3,z,1.5,2024-01-04\n")
    return [whole(d.read_csv(str(work))), d.read_csv(str(work)).count()]


@case
def read_csv_options(d: Any, work: Path) -> Any:
    from pyarrow import csv

    (work / "a.csv").write_text("1|x\n2|y\n")
    return rows_of(
        d.read_csv(
            str(work / "a.csv"),
            parse_options=csv.ParseOptions(delimiter="|"),
            read_options=csv.ReadOptions(column_names=["n", "s"]),
            convert_options=csv.ConvertOptions(column_types={"n": pa.float32()}),
        )
    )


@case
def read_csv_compressed_with_paths(d: Any, work: Path) -> Any:
    (work / "a.csv.gz").write_bytes(gzip.compress(b"id\n1\n2\n"))
    return [[row["id"], Path(row["path"]).name] for row in rows_of(d.read_csv(str(work), include_paths=True))]


@case
def read_csv_extensions(d: Any, work: Path) -> Any:
    (work / "a.csv").write_text("id\n1\n")
    (work / "b.txt").write_text("id\n2\n")
    return [ids(d.read_csv(str(work), file_extensions=["csv"])), Anyhow(ids(d.read_csv(str(work))))]


@case
def read_json_lines(d: Any, work: Path) -> Any:
    lines = [{"a": 1, "n": {"x": 1.5}, "l": [1, 2]}, {"a": 2, "n": {"x": 2.5}, "l": [3, 4]}]
    (work / "a.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = d.read_json(str(work))
    return [rows_of(found), found.schema(), rows_of(d.read_json(str(work), lines=True))]


@case
def read_json_list(d: Any, work: Path) -> Any:
    (work / "a.json").write_text('[{"a": 1}, {"a": 2}]')
    return rows_of(d.read_json(str(work)))


@case
def read_json_compressed(d: Any, work: Path) -> Any:
    (work / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    return rows_of(d.read_json(str(work)))


@case
def read_text_lines(d: Any, work: Path) -> Any:
    (work / "a.txt").write_text("one\n\n  two  \r\nthree")
    return [rows_of(d.read_text(str(work))), rows_of(d.read_text(str(work), drop_empty_lines=False))]


@case
def read_text_encoding(d: Any, work: Path) -> Any:
    (work / "a.txt").write_bytes("grün\n".encode("latin-1"))
    return [rows_of(d.read_text(str(work), encoding="latin-1")), raised(lambda: d.read_text(str(work)).take())]


def pictures(work: Path) -> str:
    from PIL import Image

    for number in range(3):
        Image.fromarray(np.full((4, 6, 3), 10 * number, np.uint8)).save(work / f"{number}.png")
    return str(work)


@case
def read_images_of_one_size(d: Any, work: Path) -> Any:
    found = d.read_images(pictures(work))
    return [found.take_batch(3), found.columns(), [row["image"].shape for row in rows_of(found)]]


@case
def read_images_resized_and_grey(d: Any, work: Path) -> Any:
    found = d.read_images(pictures(work), size=(2, 3), mode="L", include_paths=True)
    return [[row["image"], Path(row["path"]).name] for row in rows_of(found)]


@case
def read_images_damaged(d: Any, work: Path) -> Any:
    (work / "a.png").write_bytes(b"no image")
    return raised(lambda: d.read_images(str(work)).take())
