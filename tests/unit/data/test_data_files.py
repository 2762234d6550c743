"""Files that change while datasets read them, that are large, cut off or empty; how many requests a bucket gets."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest

import holdfast.data as data
from holdfast.data import Dataset, file_access
from holdfast.data.parquet_source import footer
from holdfast.errors import DataError
from holdfast.store.location import Location
from support.object_stores.fixtures import bucket, obstore_is_running, s3  # noqa: F401
from support.object_stores.servers import S3Server
from support.repository import SUPPORT


def write(place: str, name: str, content: bytes) -> None:
    Location.parse("test(path", place).open(30.0).put(name, content)


def parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    made: bytes = sink.getvalue().to_pybytes()
    return made


# Files that change


@pytest.fixture(params=["disk", "S3"])
def place(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> str:  # noqa: F811
    return bucket if request.param == "S3" else str(tmp_path)


def test_a_file_that_was_written_again_with_the_same_size(place: str) -> None:
    write(place, "a.parquet", parquet(aa=[1, 2, 3]))
    assert data.read_parquet(place).take_all() == [{"aa": 1}, {"aa": 2}, {"aa": 3}]
    write(place, "a.parquet", parquet(bb=[4, 5, 6]))
    assert data.read_parquet(place).take_all() == [{"bb": 4}, {"bb": 5}, {"bb": 6}]


def test_a_file_that_changes_after_its_dataset_was_made(place: str) -> None:
    old, new = parquet(aa=[1, 2, 3]), parquet(bb=[4, 5, 6])
    assert len(old) == len(new)
    write(place, "a.parquet", old)
    made = data.read_parquet(place)
    assert made.count() == 3
    write(place, "a.parquet", new)
    with pytest.raises(DataError, match=r"a\.parquet has changed since .* was made\. .*make the dataset again"):
        made.take_all()
    write(place, "a.parquet", parquet(bb=list(range(1000))))
    with pytest.raises(DataError, match=r"a\.parquet"):
        made.take_all()


def test_text_that_grows_or_shrinks_after_its_dataset_was_made(place: str) -> None:
    for name, now in (("a", "1\n2\n3\n"), ("b", "1\n")):
        write(place, f"{name}.txt", b"1\n2\n")
        made = data.read_text(f"{place}/{name}.txt")
        write(place, f"{name}.txt", now.encode())
        with pytest.raises(DataError, match=rf"{name}\.txt "):
            made.take_all()


def test_a_file_that_changes_within_a_tick_of_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(aa=[1, 2, 3]))
    before = path.stat()
    assert data.read_parquet(str(path)).columns() == ["aa"]
    path.write_bytes(parquet(bb=[4, 5, 6]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_ino == before.st_ino
    assert data.read_parquet(str(path)).columns() == ["bb"]


def test_the_footer_of_a_file_that_stays_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(aa=[1, 2, 3]))
    os.utime(path, (1e9, 1e9))
    (file,) = file_access.listed("test", str(path), None, None, False)
    kept = footer(file)[0]
    assert footer(file)[0] is kept
    os.utime(path, (2e9, 2e9))
    (again,) = file_access.listed("test", str(path), None, None, False)
    assert footer(again)[0] is not kept
    with pytest.raises(DataError, match="has changed"):
        footer(file)


def test_a_file_that_is_deleted_while_its_footer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = tmp_path / "a.parquet", pq.read_metadata
    path.write_bytes(parquet(aa=[1, 2, 3]))
    (file,) = file_access.listed("test", str(path), None, None, False)

    def deleted(source: Any) -> Any:
        path.unlink()
        return plain(source)

    monkeypatch.setattr(pq, "read_metadata", deleted)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read: .*No such file"):
        footer(file)


def test_a_copy_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written at another time, but it is the same file: unless its row groups are others."""
    (tmp_path / "a.parquet").write_bytes(parquet(aa=[1, 2, 3]))
    made = data.read_parquet(str(tmp_path))
    monkeypatch.setattr(file_access, "_machine", lambda: "another")
    os.utime(tmp_path / "a.parquet", (1e9, 1e9))
    assert made.count() == len(made.take_all()) == 3
    fewer = parquet(aa=[1, 2])
    (tmp_path / "a.parquet").write_bytes(fewer)
    (file,) = file_access.listed("test", str(tmp_path), None, None, False)
    piece = made._pieces()[0]
    object.__setattr__(piece, "file", file)
    with pytest.raises(DataError, match="has changed since the dataset was made: row group 0 had 3 rows"):
        made.take_all()


# JSON


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a"', "[1,", "[", '[{"a": 1}]]'])
def test_a_json_list_that_is_cut_off_names_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json cannot be read: .*Replace the file"):
        data.read_json(str(tmp_path)).take_all()


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.csv.gz", "a.txt.gz"])
def test_files_that_are_cut_off_name_themselves(name: str, tmp_path: Path) -> None:
    lines = b'{"a": 1}\n' * 20_000 if "json" in name else b"a\n" + b"1\n" * 20_000
    (tmp_path / name).write_bytes(gzip.compress(lines)[:-60] if name.endswith("gz") else lines[:-4])
    read = {"a.csv.gz": data.read_csv, "a.txt.gz": data.read_text}.get(name, data.read_json)
    with pytest.raises(DataError, match=rf"{name} cannot be read"):
        read(str(tmp_path / name)).take_all()


def blocks_of(dataset: Dataset, nbytes: int) -> Dataset:
    dataset.context.target_chunk_bytes = nbytes
    return dataset


@pytest.mark.parametrize("ending", ["", "\n", "\n\n  \n"])
def test_json_lines_are_read_in_blocks_that_have_the_same_columns(ending: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": number, "t": "2024-01-01 00:00:00"} for number in range(1000)]
    rows[900] = {"a": 1.5, "rare": "here", "t": "soon"}
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, rows)) + ending)
    whole = data.read_json(str(tmp_path))
    parts = blocks_of(data.read_json(str(tmp_path)), 2000)
    assert parts.take_all() == whole.take_all()
    chunks = [chunk.table for chunk in parts._chunks()]
    assert len(chunks) > 10
    assert {chunk.schema for chunk in chunks} == {whole.schema().base_schema}
    (tmp_path / "b.json").write_text('{"a": 1}\n' * 500 + json.dumps({"b": 3000 * "x"}) + '\n{"a": [2]}\n' * 500)
    with pytest.raises(DataError, match=r"b\.json: a column has values of several types.*explicit_schema"):
        blocks_of(data.read_json(str(tmp_path / "b.json")), 2000).take_all()


def test_json_with_options(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("".join(json.dumps({"a": n}, indent=1) + "\n" for n in range(300)))
    options = pyarrow.json.ParseOptions(newlines_in_values=True)
    assert blocks_of(data.read_json(str(tmp_path), parse_options=options), 500).sum("a") == sum(range(300))
    (tmp_path / "b.json").write_text("".join(f'{{"a": {n}}}\n' for n in range(300)))
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema([("a", pa.float32())]))
    read = blocks_of(data.read_json(str(tmp_path / "b.json"), parse_options=options), 500)
    assert read.schema().types == [pa.float32()]
    assert read.count() == 300
    (tmp_path / "c.json").write_text('[{"a": 1},\n{"a": 2},\n{"a": 3}]')
    assert blocks_of(data.read_json(str(tmp_path / "c.json")), 5).take_all() == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_json_lines_are_read_with_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("w") as file:
        for number in range(40):
            file.writelines(f'{{"number": {number}, "text": "{letter * 40}"}}\n' for letter in "abcdefgh" * 400)
    size = (tmp_path / "a.json").stat().st_size
    read = blocks_of(data.read_json(str(tmp_path)), 100_000)
    before, most = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        for _ in read.iter_batches(batch_size=1000):
            most = max(most, pa.total_allocated_bytes() - before)
        python = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most + python < size // 2, (most, python, size)


# Nothing but columns


def nothing(place: Path) -> dict[str, Dataset]:
    pq.write_table(pa.table({"id": pa.array([], pa.int64()), "t": pa.array([], pa.string())}), place / "a.parquet")
    (place / "a.csv").write_text("id,t\n")
    files = data.read_parquet(str(place / "a.parquet"))
    table = pa.table({"id": pa.array([], pa.int64()), "t": pa.array([], pa.string())})
    some = data.from_items([{"id": 1, "t": "x"}, {"id": 2, "t": "y"}], override_num_blocks=2)
    return {
        "parquet": files,
        "csv": data.read_csv(str(place / "a.csv")),
        "arrow": data.from_arrow(table),
        "shuffled": files.random_shuffle(),
        "filtered": some.filter(lambda row: row["id"] > 2),
        "by expression": some.filter(expr="id > 2"),
        "filtered while it is read": data.read_parquet(str(place / "a.parquet"), filter="id > 2"),
        "after a map": some.map(lambda row: {"id": row["id"], "t": row["t"]}).filter(lambda _: False),
        "in batches": some.map_batches(lambda batch: batch, batch_size=1).filter(expr="id > 2"),
        "shuffled and filtered": some.random_shuffle().filter(lambda _: False),
        "filtered and shuffled": some.filter(lambda _: False).random_shuffle(),
        "counted": some.filter(lambda _: False).counted(),
        "sorted": some.filter(lambda _: False).sort("id"),
        "limited": some.limit(0),
        "blocks": files.repartition(3),
        "united": files.union(some.filter(expr="id > 2")),
        "zipped": files.zip(files).select_columns(["id", "t"]),
        "added": files.rename_columns({"id": "number"}).rename_columns({"number": "id"}),
        "materialized": some.filter(lambda _: False).materialize(),
        "split": some.split_at_indices([0])[0],
    }


def test_columns_without_rows(tmp_path: Path) -> None:
    for name, dataset in nothing(tmp_path).items():
        assert dataset.columns() == ["id", "t"], name
        assert dataset.schema().base_schema.field("id").type in (pa.int64(), pa.null()), name
        assert dataset.count() == 0, name
        assert dataset.take_all() == list(dataset.iter_batches()) == [], name
        assert list(dataset.to_pandas().columns) == ["id", "t"], name
        assert dataset.materialize().columns() == ["id", "t"], name
        assert dataset.sum("id") is None, name
        assert dataset.unique("id") == [], name


def test_operations_on_rows_that_were_all_dropped() -> None:
    nothing = data.range(10).filter(lambda _: False)
    assert nothing.map(lambda _: {"x": 1}).select_columns("x").take_all() == []
    assert nothing.map_batches(lambda batch: {"x": batch["id"]}).filter(expr="x > 1").take_all() == []
    some = data.range(10, override_num_blocks=2).filter(lambda row: row["id"] > 6)
    named = some.map_batches(lambda batch: {"x": batch["id"]}).select_columns("x")
    assert named.to_pandas().to_dict("list") == {"x": [7, 8, 9]}
    assert named.materialize().columns() == ["x"]
    assert named.schema().names == ["x"]


# Requests


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is asked for."""
    asked: list[int] = []
    plain = obstore.get

    def noted(store: Any, path: str, *, options: Any = None) -> Any:
        start, stop = options["range"]
        asked.append(stop - start)
        return plain(store, path, options=options)

    monkeypatch.setattr(obstore, "get", noted)
    return asked


@pytest.mark.parametrize("compress", [None, gzip.compress, bz2.compress])
def test_text_in_a_bucket_is_read_in_large_parts(compress: Any, bucket: str, requests: list[int]) -> None:  # noqa: F811
    draw = np.random.default_rng(0).integers(0, 1 << 60, 300_000)
    lines = [f"line {number}" for number in draw]
    content = "\n".join(lines).encode()
    made = compress(content, 1) if compress else content
    name = {None: "a.txt", gzip.compress: "a.txt.gz", bz2.compress: "a.txt.bz2"}[compress]
    write(bucket, name, made)
    read = data.read_text(f"{bucket}/{name}")
    assert [row["text"] for row in read.iter_rows()] == lines
    assert sum(requests) == len(made), "each byte once"
    assert len(requests) <= 4, requests
    requests.clear()
    read.context.target_chunk_rows = 1000
    assert read.take(1) == [{"text": lines[0]}]
    if compress is None:
        assert sum(requests) < len(made), "the first rows need the first part"


def test_csv_and_json_in_a_bucket_are_read_in_large_parts(bucket: str, requests: list[int]) -> None:  # noqa: F811
    values = list(range(200_000))
    write(bucket, "a.csv.gz", gzip.compress(("id\n" + "".join(f"{n}\n" for n in values)).encode(), 1))
    write(bucket, "a.json", "".join(f'{{"id": {n}}}\n' for n in values).encode())
    assert data.read_csv(f"{bucket}/a.csv.gz").sum("id") == sum(values)
    assert len(requests) <= 2
    requests.clear()
    assert data.read_json(f"{bucket}/a.json").sum("id") == sum(values)
    assert len(requests) <= 4


# The calls of the guides


def files_of_the_guides(place: str) -> None:
    for number in range(3):
        table = pa.table({"id": [2 * number, 2 * number + 1]})
        write(f"{place}/year=202{number}", "a.parquet", parquet(id=table["id"]))
        csv = b"id\n" + b"".join(b"%d\n" % value.as_py() for value in table["id"])
        write(f"{place}/csv", f"{number}.csv.gz", gzip.compress(csv))
        write(f"{place}/csv/deep", f"{number}.csv", csv)
        lines = b"".join(b'{"id": %d}\n' % value.as_py() for value in table["id"])
        write(f"{place}/json", f"{number}.jsonl.gz", gzip.compress(lines))


def test_patterns_compression_and_paths(place: str) -> None:
    """The same in a bucket as on a disk."""
    files_of_the_guides(place)

    def ids(dataset: Dataset) -> list[int]:
        return [row["id"] for row in dataset.iter_rows()]

    assert ids(data.read_csv(f"{place}/csv/*.csv.gz")) == list(range(6))
    assert ids(data.read_csv(f"{place}/csv/[0]*.gz")) == [0, 1]
    assert ids(data.read_csv(f"{place}/csv/deep/*")) == list(range(6))
    assert ids(data.read_json(f"{place}/json")) == list(range(6))
    assert [row["text"] for row in data.read_text(f"{place}/json/0*").iter_rows()] == ['{"id": 0}', '{"id": 1}']
    assert len(data.read_csv(f"{place}/csv/*").input_files()) == 6, "also of the directory that matches"
    assert len(data.read_csv(f"{place}/**/*.csv").input_files()) == 3
    years = data.read_parquet(f"{place}/year=*/*.parquet", include_paths=True)
    assert [(row["id"], row["year"], row["path"]) for row in years.iter_rows()][2:4] == [
        (2, "2021", f"{place}/year=2021/a.parquet"),
        (3, "2021", f"{place}/year=2021/a.parquet"),
    ]
    assert ids(data.read_parquet(f"{place}/year=*1")) == [2, 3]
    two = [f"{place}/csv/0.csv.gz", f"{place}/csv/2.csv.gz"]
    read = data.read_csv(two, include_paths=True)
    assert [(row["id"], row["path"]) for row in read.iter_rows()] == [
        (0, two[0]),
        (1, two[0]),
        (4, two[1]),
        (5, two[1]),
    ]
    assert read.input_files() == two
    with pytest.raises(FileNotFoundError, match="no such file"):
        data.read_csv(f"{place}/csv/*.nothing")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/data.csv", ["a1/data.csv", "a1/deep/data.csv", "data.csv"]),
        ("a*/**/b.csv", ["a1/b.csv", "a1/deep/b.csv"]),
        ("**/de*", ["a1/deep/b.csv", "a1/deep/data.csv", "a1/deep/x_b.csv"]),
        ("a1/**", ["a1/b.csv", "a1/data.csv", "a1/deep/b.csv", "a1/deep/data.csv", "a1/deep/x_b.csv"]),
        ("*/data.csv", ["a1/data.csv"]),
    ],
)
def test_patterns_with_any_directories(pattern: str, found: list[str], place: str) -> None:
    for name in ("data", "old_data", "a1/data", "a1/b", "a1/deep/data", "a1/deep/b", "a1/deep/x_b", ".kept/data"):
        directory, _, file = f"{place}/{name}.csv".rpartition("/")
        write(directory, file, b"id\n1\n")
    files = data.read_csv(f"{place}/{pattern}").input_files()
    assert sorted(files) == [f"{place}/{name}" for name in found]


def test_file_systems_of_the_user(bucket: str, s3: S3Server) -> None:  # noqa: F811
    files_of_the_guides(bucket)
    script = [sys.executable, "-W", "ignore", str(SUPPORT / "data" / "own_filesystems.py"), s3.url, bucket]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
