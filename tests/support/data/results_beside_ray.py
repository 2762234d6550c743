"""The cases of ``beside_ray``: what is taken out of datasets, and written to files."""
# ruff: noqa: ARG005 - functions that ignore what they are given

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from support.data.beside_ray import Anyhow, case, differs, ids, raised, rows_of

VALUES = [{"i": n, "f": n / 2, "s": f"row {n}", "t": n % 2 == 0} for n in range(5)]


def with_nulls(d: Any) -> Any:
    return d.from_items([{"v": 1, "k": "a"}, {"v": None, "k": None}, {"v": 4, "k": "b"}, {"v": 4, "k": "a"}])


@case
def iter_rows_types(d: Any) -> Any:
    return [[type(value).__name__ for value in row.values()] for row in d.from_items(VALUES[:2]).iter_rows()]


@case
def iter_batches_sizes(d: Any) -> Any:
    base = d.range(10, override_num_blocks=3)
    return [
        [batch["id"].tolist() for batch in base.iter_batches(batch_size=4)],
        [batch["id"].tolist() for batch in base.iter_batches(batch_size=4, drop_last=True)],
        sum(len(batch["id"]) for batch in base.iter_batches(batch_size=None)),
        [len(batch["id"]) for batch in d.range(300).iter_batches()],
        [batch["id"].tolist() for batch in base.iter_batches(batch_size=4, prefetch_batches=0)],
        raised(lambda: list(base.iter_batches(batch_format="xml"))),
    ]


@differs("a batch of no rows is refused; with Ray there are no batches")
def iter_batches_of_no_rows(d: Any) -> Any:
    return raised(lambda: list(d.range(10, override_num_blocks=3).iter_batches(batch_size=0)))


@case
def iter_batches_formats(d: Any) -> Any:
    base = d.from_items(VALUES, override_num_blocks=1)
    return [
        next(iter(base.iter_batches(batch_size=3))),
        next(iter(base.iter_batches(batch_size=3, batch_format="numpy"))),
        next(iter(base.iter_batches(batch_size=3, batch_format="pandas"))),
        next(iter(base.iter_batches(batch_size=3, batch_format="pyarrow"))),
    ]


@case
def iter_batches_nulls(d: Any) -> Any:
    return next(iter(with_nulls(d).iter_batches(batch_size=4)))


@case
def iter_batches_again(d: Any) -> Any:
    batches = d.range(5).iter_batches(batch_size=2)
    return [[batch["id"].tolist() for batch in batches] for _ in range(2)]


@case
def iter_batches_local_shuffle(d: Any) -> Any:
    found = d.range(50).iter_batches(batch_size=10, local_shuffle_buffer_size=20, local_shuffle_seed=1)
    lists = [batch["id"].tolist() for batch in found]
    return [Anyhow(number for part in lists for number in part), [len(part) for part in lists]]


@differs("columns that dtypes does not name stay as they are; with Ray it is a KeyError")
def iter_torch_batches_types(d: Any) -> Any:
    import torch

    base = d.from_items(VALUES, override_num_blocks=1).drop_columns(["s"])
    return [
        next(iter(base.iter_torch_batches(batch_size=3))),
        next(iter(base.iter_torch_batches(batch_size=3, dtypes=torch.float32))),
        next(iter(base.iter_torch_batches(batch_size=3, dtypes={"i": torch.int32, "f": torch.float16}))),
        [len(batch["i"]) for batch in base.iter_torch_batches(batch_size=2, drop_last=True)],
    ]


@case
def iter_torch_batches_plain(d: Any) -> Any:
    import torch

    base = d.from_items(VALUES, override_num_blocks=1).select_columns(["i", "f"])
    return [
        next(iter(base.iter_torch_batches(batch_size=3))),
        next(iter(base.iter_torch_batches(batch_size=3, dtypes=torch.float32))),
        next(iter(base.iter_torch_batches(batch_size=3, dtypes={"i": torch.int32, "f": torch.float16}))),
        [len(batch["i"]) for batch in base.iter_torch_batches(batch_size=2, drop_last=True)],
    ]


@case
def iter_torch_batches_lists(d: Any) -> Any:
    base = d.from_items([{"l": [1, 2]}, {"l": [3, 4]}], override_num_blocks=1)
    return next(iter(base.iter_torch_batches(batch_size=2)))


@case
def iter_torch_batches_tensors(d: Any) -> Any:
    return next(iter(d.range_tensor(3, shape=(2, 2)).iter_torch_batches(batch_size=3)))


@case
def iter_torch_batches_collated(d: Any) -> Any:
    import torch

    def collate(batch: Any) -> Any:
        return torch.as_tensor(batch["id"]) * 2, type(batch).__name__

    return list(d.range(4).iter_torch_batches(batch_size=2, collate_fn=collate))


@case
def iter_torch_batches_wrong(d: Any) -> Any:
    import torch

    base = d.from_items(VALUES)
    both = {"dtypes": torch.float32, "collate_fn": lambda batch: batch}
    return [
        raised(lambda: list(base.iter_torch_batches(batch_size=2))),
        raised(lambda: base.iter_torch_batches(**both)),
    ]


@case
def iterator_of_a_dataset(d: Any) -> Any:
    iterator = d.range(4).iterator()
    return [
        [batch["id"].tolist() for batch in iterator.iter_batches(batch_size=3)],
        [row["id"] for row in iterator.iter_rows()],
        iterator.schema(),
        iterator.materialize().count(),
    ]


@case
def take_rows(d: Any) -> Any:
    base = d.range(30, override_num_blocks=3)
    return [
        base.take(3),
        len(base.take()),
        base.take(0),
        len(base.take(99)),
        len(base.take_all()),
        raised(lambda: base.take_all(limit=5)),
        len(base.take_all(limit=30)),
    ]


@case
def take_batch_formats(d: Any) -> Any:
    base = d.from_items(VALUES, override_num_blocks=1)
    return [
        base.take_batch(2),
        base.take_batch(2, batch_format="pandas"),
        base.take_batch(2, batch_format="pyarrow"),
        len(base.take_batch()["i"]),
        raised(lambda: d.range(0).take_batch()),
        raised(lambda: base.take_batch(2, batch_format="xml")),
    ]


@case
def show_rows(d: Any) -> Any:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        d.from_items(VALUES).show(2)
    return said.getvalue().splitlines()


@case
def count_and_columns(d: Any) -> Any:
    base = d.from_items(VALUES)
    return [base.count(), base.columns(), base.filter(lambda row: row["t"]).count(), d.range(0).count()]


@case
def schema_of_types(d: Any) -> Any:
    found = d.from_items(VALUES).schema()
    return [found.names, [str(kind) for kind in found.types], found]


@case
def schema_after_functions(d: Any) -> Any:
    mapped = d.range(3).map_batches(lambda batch: {"x": batch["id"].astype(np.float32), "s": ["a"] * len(batch["id"])})
    return [mapped.schema(), mapped.columns(), d.range(3).filter(lambda row: row["id"] > 0).schema()]


@case
def sums(d: Any) -> Any:
    base, nulls = d.from_items(VALUES), with_nulls(d)
    return [
        base.sum("i"),
        base.sum("f"),
        base.sum(["i", "f"]),
        nulls.sum("v"),
        nulls.sum("v", ignore_nulls=False),
        d.range(4).sum(),
        raised(lambda: base.sum("no")),
    ]


@case
def sums_of_nothing(d: Any) -> Any:
    nothing = d.range(3).filter(lambda row: False)
    return [nothing.sum("id"), nothing.mean("id"), nothing.min("id"), nothing.std("id")]


@case
def least_and_most(d: Any) -> Any:
    base, nulls = d.from_items(VALUES), with_nulls(d)
    return [
        base.min("i"),
        base.max("f"),
        base.min(["i", "f"]),
        nulls.max("v"),
        nulls.min("v", ignore_nulls=False),
        d.range(4).max(),
    ]


@case
def least_and_most_texts(d: Any) -> Any:
    return [d.from_items(VALUES).min("s"), d.from_items(VALUES).max("s")]


@case
def means(d: Any) -> Any:
    base, nulls = d.from_items(VALUES), with_nulls(d)
    return [base.mean("i"), base.mean(["i", "f"]), nulls.mean("v"), nulls.mean("v", ignore_nulls=False)]


@case
def deviations(d: Any) -> Any:
    base = d.from_items(VALUES)
    return [base.std("i"), base.std("i", ddof=0), base.std(["i", "f"]), with_nulls(d).std("v"), d.range(1).std("id")]


@case
def means_of_truths(d: Any) -> Any:
    return [d.from_items(VALUES).mean("t"), d.from_items(VALUES).sum("t")]


@case
def unique_values(d: Any) -> Any:
    base = with_nulls(d)
    return [
        Anyhow(base.unique("k")),
        Anyhow(base.unique("v")),
        Anyhow(base.unique("k", ignore_nulls=True)),
        raised(lambda: base.unique("no")),
    ]


@case
def materialized(d: Any) -> Any:
    found = d.range(5).map(lambda row: {"id": row["id"] + 1}).materialize()
    return [ids(found), type(found).__name__, found.count(), isinstance(found, d.Dataset)]


@case
def to_pandas_frames(d: Any) -> Any:
    base = d.from_items(VALUES)
    return [base.to_pandas(), raised(lambda: base.to_pandas(limit=2)), base.to_pandas(limit=5)]


@case
def to_pandas_tensors(d: Any) -> Any:
    frame = d.range_tensor(2, shape=(2,)).to_pandas()
    return [np.asarray(item).tolist() for item in frame["data"]]


@case
def to_arrow_references(d: Any) -> Any:
    if d.__name__.startswith("ray"):
        import ray

        get = ray.get
    else:
        import holdfast

        get = holdfast.get
    tables = [get(ref) for ref in d.from_items(VALUES, override_num_blocks=1).to_arrow_refs()]
    return [table for table in tables if table.num_rows]


@differs("Ray Data 2.60 names no files")
def input_files_of_reads(d: Any, work: Path) -> Any:
    pq.write_table(pa.table({"id": [1]}), work / "a.parquet")
    return [[Path(name).name for name in d.read_parquet(str(work)).input_files()], d.range(3).input_files()]


@case
def a_dataset_is_not_iterable(d: Any) -> Any:
    return [raised(lambda: list(d.range(3))), raised(lambda: len(d.range(3)))]


@case
def random_sample_rows(d: Any) -> Any:
    return [
        d.range(1000).random_sample(1.0).count(),
        d.range(1000).random_sample(0.0).count(),
        300 < d.range(1000).random_sample(0.5, seed=1).count() < 700,
        raised(lambda: d.range(3).random_sample(2)),
    ]


# Files


def files_in(work: Path) -> list[Path]:
    return sorted(path for path in work.rglob("*") if path.is_file())


@case
def write_parquet_files(d: Any, work: Path) -> Any:
    d.from_items(VALUES).write_parquet(str(work / "out"))
    found = pq.read_table(work / "out")
    return [found.schema, Anyhow(map(str, found.to_pylist())), {path.suffix for path in files_in(work)} == {".parquet"}]


@case
def write_parquet_twice(d: Any, work: Path) -> Any:
    for _ in range(2):
        d.range(5).write_parquet(str(work / "out"))
    return pq.read_table(work / "out").num_rows


@case
def write_parquet_options(d: Any, work: Path) -> Any:
    d.range(100, override_num_blocks=1).write_parquet(str(work / "out"), min_rows_per_file=50, compression="gzip")
    codecs = {pq.read_metadata(path).row_group(0).column(0).compression for path in files_in(work)}
    return [sum(pq.read_metadata(path).num_rows for path in files_in(work)), sorted(codecs)]


@case
def write_parquet_row_groups(d: Any, work: Path) -> Any:
    d.range(100, override_num_blocks=1).write_parquet(str(work / "out"), row_group_size=10)
    return [pq.read_metadata(path).num_row_groups for path in files_in(work)]


@case
def write_csv_files(d: Any, work: Path) -> Any:
    d.from_items(VALUES, override_num_blocks=1).write_csv(str(work / "out"))
    (file,) = files_in(work)
    return [file.suffix, file.read_text()]


@case
def write_json_files(d: Any, work: Path) -> Any:
    rows = [{**row, "l": [1, 2], "n": None} for row in VALUES]
    d.from_items(rows, override_num_blocks=1).write_json(str(work / "out"))
    (file,) = files_in(work)
    return [file.suffix, [json.loads(line) for line in file.read_text().splitlines()]]


@case
def csv_written_and_read_again(d: Any, work: Path) -> Any:
    d.from_items(VALUES, override_num_blocks=1).write_csv(str(work / "c"))
    found = d.read_csv(str(work / "c"))
    return [found.schema(), rows_of(found)]


@case
def written_and_read_again(d: Any, work: Path) -> Any:
    base = d.from_items(VALUES)
    base.write_parquet(str(work / "p"))
    base.write_json(str(work / "j"))
    reads = (d.read_parquet(str(work / "p")), d.read_json(str(work / "j")))
    return [[read.schema(), Anyhow(map(str, rows_of(read)))] for read in reads]
