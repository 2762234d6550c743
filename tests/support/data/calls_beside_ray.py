"""The cases of ``beside_ray``: functions, order, parts."""
# ruff: noqa: ARG005 - functions that ignore what they are given

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from support.data.beside_ray import Anyhow, case, differs, ids, raised, rows_of, whole

# Functions


class Adder:
    def __init__(self, n: int, twice: bool = False) -> None:
        self.n = 2 * n if twice else n

    def __call__(self, value: Any, more: int = 0) -> Any:
        return {"id": value["id"] + self.n + more}


@case
def map_rows(d: Any) -> Any:
    found = d.range(3).map(lambda row: {"id": row["id"], "half": row["id"] / 2, "s": str(row["id"]), "l": [1, 2]})
    return whole(found)


@case
def map_class(d: Any) -> Any:
    found = d.range(4).map(Adder, fn_constructor_args=(10,), fn_constructor_kwargs={"twice": True}, concurrency=2)
    return Anyhow(ids(found))


@case
def map_with_arguments(d: Any) -> Any:
    return ids(d.range(3).map(lambda row, a, b=0: {"id": row["id"] + a + b}, fn_args=[1], fn_kwargs={"b": 5}))


@case
def map_arrays(d: Any) -> Any:
    found = d.range(2).map(lambda row: {"m": np.full((2, 3), row["id"], np.float32)})
    return [found.take_batch(2), rows_of(found)]


@case
def map_wrong(d: Any) -> Any:
    return [
        raised(lambda: d.range(2).map(lambda row: 1).take()),
        raised(lambda: d.range(2).map(lambda row: row["no"]).take()),
        raised(lambda: d.range(2).map(lambda row: None).take()),
    ]


@case
def map_batches_formats(d: Any) -> Any:
    base = d.range(6, override_num_blocks=1)
    return [
        ids(base.map_batches(lambda batch: {"id": batch["id"] * 2})),
        ids(base.map_batches(lambda batch: {"id": batch["id"] * 2}, batch_format="numpy")),
        ids(base.map_batches(lambda frame: frame.assign(id=frame["id"] + 1), batch_format="pandas")),
        ids(base.map_batches(lambda table: table, batch_format="pyarrow")),
    ]


@case
def map_batches_what_is_given(d: Any) -> Any:
    def seen(batch: Any) -> Any:
        size = len(batch["id"])
        return {"kind": [type(batch).__name__] * size, "size": [size] * size}

    base = d.range(10, override_num_blocks=1)
    return [
        rows_of(base.map_batches(seen, batch_size=4)),
        rows_of(base.map_batches(seen, batch_size=None)),
        rows_of(base.map_batches(seen, batch_size=4, batch_format="pandas")),
        rows_of(base.map_batches(lambda t: {"kind": [type(t).__name__] * len(t)}, batch_format="pyarrow")),
    ]


@case
def map_batches_what_is_returned(d: Any) -> Any:
    base = d.range(4, override_num_blocks=1)
    return [
        whole(base.map_batches(lambda batch: {"x": [1.5] * len(batch["id"]), "s": ["a"] * len(batch["id"])})),
        base.map_batches(lambda batch: {"m": np.ones((len(batch["id"]), 2)), "t": batch["id"] > 1}).take_batch(4),
        rows_of(base.map_batches(lambda batch: pd.DataFrame({"x": batch["id"] + 1}))),
        rows_of(base.map_batches(lambda batch: pa.table({"x": batch["id"]}))),
    ]


@case
def map_batches_ragged_arrays(d: Any) -> Any:
    found = d.range(3, override_num_blocks=1).map_batches(
        lambda batch: {"l": np.array([np.arange(n + 1) for n in batch["id"]], dtype=object)}
    )
    return [[list(map(int, row["l"])) for row in rows_of(found)], [len(item) for item in found.take_batch(3)["l"]]]


@case
def map_batches_class(d: Any) -> Any:
    found = d.range(8).map_batches(Adder, fn_constructor_args=(3,), fn_kwargs={"more": 1}, concurrency=2, batch_size=2)
    pool = d.range(4).map_batches(Adder, fn_constructor_kwargs={"n": 5}, compute=d.ActorPoolStrategy(size=1))
    return [Anyhow(ids(found)), Anyhow(ids(pool))]


@differs("a column of tensors has Arrow's own type")
def schema_of_tensors(d: Any) -> Any:
    return d.range(4, override_num_blocks=1).map_batches(lambda batch: {"m": np.ones((len(batch["id"]), 2))}).schema()


@case
def map_batches_generator(d: Any) -> Any:
    def halves(batch: Any) -> Any:
        yield {"id": batch["id"][:2]}
        yield {"id": batch["id"][2:]}

    return ids(d.range(5, override_num_blocks=1).map_batches(halves))


@differs("a batch with zero_copy_batch=False can be changed in place")
def map_batches_changed_in_place(d: Any) -> Any:
    def add(batch: Any) -> Any:
        batch["id"] += 1
        return batch

    return ids(d.range(4).map_batches(add, zero_copy_batch=False))


@differs("a function that changes the number of rows must say so: the cursor counts rows")
def map_batches_fewer_rows(d: Any) -> Any:
    return ids(d.range(4, override_num_blocks=1).map_batches(lambda batch: {"id": batch["id"][:1]}))


@case
def map_batches_fewer_rows_as_said(d: Any) -> Any:
    base = d.range(4, override_num_blocks=1)
    return ids(base.map_batches(lambda batch: {"id": batch["id"][:1]}, udf_modifying_row_count=True))


@case
def map_batches_wrong(d: Any) -> Any:
    base = d.range(4, override_num_blocks=1)
    return [
        raised(lambda: base.map_batches(lambda batch: batch["no"]).take()),
        raised(lambda: base.map_batches(lambda batch: 5).take()),
        raised(lambda: base.map_batches(lambda batch: {"a": [1, 2], "b": [1]}).take()),
        raised(lambda: base.map_batches(lambda batch: batch, batch_format="xml")),
        raised(lambda: base.map_batches(lambda batch: batch, batch_size=0)),
    ]


@differs("what is no function is refused when the plan is written")
def map_no_function(d: Any) -> Any:
    return raised(lambda: d.range(2).map("text"))


@case
def flat_map_rows(d: Any) -> Any:
    return ids(d.range(4).flat_map(lambda row: [row] * row["id"]))


@case
def flat_map_wrong(d: Any) -> Any:
    return raised(lambda: d.range(2).flat_map(lambda row: 5).take())


@case
def filter_function(d: Any) -> Any:
    found = d.range(10).filter(lambda row: row["id"] % 3 == 0)
    return [ids(found), found.count(), ids(d.range(3).filter(lambda row: False)), found.columns()]


@case
def filter_expression(d: Any) -> Any:
    return [
        ids(d.range(10).filter(expr="id > 6")),
        ids(d.range(10).filter(expr="id > 2 and id != 5")),
        raised(lambda: d.range(10).filter(expr="no > 6").take()),
        raised(lambda: d.range(3).filter()),
    ]


@case
def select_drop_and_rename(d: Any) -> Any:
    base = d.from_items([{"a": 1, "b": 2, "c": 3}])
    return [
        rows_of(base.select_columns(["c", "a"])),
        base.select_columns(["c", "a"]).columns(),
        rows_of(base.select_columns("a")),
        rows_of(base.drop_columns(["a", "c"])),
        rows_of(base.rename_columns({"a": "z"})),
        rows_of(base.rename_columns(["x", "y", "w"])),
        raised(lambda: base.select_columns(["no"]).take()),
        raised(lambda: base.drop_columns(["no"]).take()),
    ]


@case
def select_and_rename_wrong(d: Any) -> Any:
    base = d.from_items([{"a": 1, "b": 2}])
    return [
        raised(lambda: base.select_columns(["a", "a"]).take()),
        raised(lambda: base.rename_columns({}).take()),
        raised(lambda: base.rename_columns(["x"]).take()),
        raised(lambda: base.select_columns(5).take()),
        raised(lambda: base.drop_columns(["a", "a"]).take()),
    ]


@differs("a new name that another column has is refused; with Ray one of them is lost")
def rename_to_a_name_that_is_there(d: Any) -> Any:
    return raised(lambda: d.from_items([{"a": 1, "b": 2}]).rename_columns({"a": "b"}).take())


@case
def add_column_formats(d: Any) -> Any:
    base = d.range(3)
    return [
        rows_of(base.add_column("x", lambda frame: frame["id"] * 2)),
        rows_of(base.add_column("x", lambda batch: batch["id"] * 2, batch_format="numpy")),
        rows_of(base.add_column("x", lambda table: table["id"], batch_format="pyarrow")),
        rows_of(base.add_column("id", lambda frame: frame["id"] + 1)),
        raised(lambda: base.add_column("x", 3)),
        raised(lambda: base.add_column("x", lambda frame: frame["id"], batch_format="xml")),
    ]


@case
def add_column_constant(d: Any) -> Any:
    return rows_of(d.range(2).add_column("x", lambda frame: 5))


# Order and parts


@case
def random_shuffle_rows(d: Any) -> Any:
    found = d.range(100, override_num_blocks=4).random_shuffle(seed=1)
    return [Anyhow(ids(found)), ids(found) != list(range(100)), ids(found) == ids(found)]


@case
def randomize_block_order_rows(d: Any) -> Any:
    return Anyhow(ids(d.range(20, override_num_blocks=5).randomize_block_order(seed=1)))


@case
def sort_rows(d: Any) -> Any:
    base = d.from_items([{"a": n % 3, "b": -n} for n in range(7)])
    return [
        rows_of(base.sort("a").select_columns("a")),
        rows_of(base.sort("b", descending=True)),
        rows_of(base.sort(["a", "b"])),
        rows_of(base.sort(["a", "b"], descending=[True, False])),
        raised(lambda: base.sort("no").take()),
        raised(lambda: base.sort(["a", "b"], descending=[True]).take()),
    ]


@case
def sort_nulls_and_texts(d: Any) -> Any:
    base = d.from_items([{"a": "b"}, {"a": None}, {"a": "a"}])
    return [rows_of(base.sort("a")), rows_of(base.sort("a", descending=True))]


@case
def limit_rows(d: Any) -> Any:
    base = d.range(10, override_num_blocks=3)
    return [ids(base.limit(4)), ids(base.limit(0)), ids(base.limit(99)), base.limit(4).count()]


@case
def union_rows(d: Any) -> Any:
    return [
        Anyhow(ids(d.range(3).union(d.range(2), d.range(1)))),
        d.range(3).union(d.range(2)).count(),
    ]


@differs("a column has one type in all rows")
def union_of_other_types(d: Any) -> Any:
    return Anyhow(map(str, rows_of(d.from_items([{"a": 1}]).union(d.from_items([{"a": 1.5}])))))


@case
def union_of_other_columns(d: Any) -> Any:
    found = d.from_items([{"a": 1}]).union(d.from_items([{"b": "x"}]))
    return Anyhow(found.to_pandas().columns)


@case
def zip_rows(d: Any) -> Any:
    base = d.range(3)
    other = base.map(lambda row: {"x": row["id"] * 2})
    return [
        rows_of(base.zip(other)),
        rows_of(base.zip(base)),
        rows_of(base.zip(base, base)),
        raised(lambda: base.zip(d.range(4)).take()),
    ]


@case
def repartition_rows(d: Any) -> Any:
    found = d.range(10).repartition(4).materialize()
    return [Anyhow(ids(found)), found.num_blocks(), Anyhow(ids(d.range(10).repartition(3, shuffle=True)))]


@case
def repartition_wrong(d: Any) -> Any:
    return [raised(lambda: d.range(3).repartition()), raised(lambda: d.range(3).repartition(2, 3))]


@case
def train_test_split_rows(d: Any) -> Any:
    base = d.range(10, override_num_blocks=2)
    first, second = base.train_test_split(0.25)
    third, fourth = base.train_test_split(4)
    fifth, sixth = base.train_test_split(0.3, shuffle=True, seed=1)
    return [ids(first), ids(second), ids(third), ids(fourth), Anyhow(ids(fifth) + ids(sixth)), sixth.count()]


@case
def train_test_split_wrong(d: Any) -> Any:
    base = d.range(10)
    return [raised(lambda size=size: base.train_test_split(size)) for size in (0.0, 1.0, -1, 10, 11, "half")]  # type: ignore[misc]


@case
def split_rows(d: Any) -> Any:
    base = d.range(10, override_num_blocks=1)
    parts = base.split(3, equal=True)
    return [
        [part.count() for part in parts],
        len({number for part in parts for number in ids(part)}),
        Anyhow(number for part in base.split(2) for number in ids(part)),
        raised(lambda: base.split(0)),
    ]


@case
def split_at_positions(d: Any) -> Any:
    base = d.range(10)
    return [
        [ids(part) for part in base.split_at_indices([2, 5])],
        [ids(part) for part in base.split_at_indices([2, 2])],
        [ids(part) for part in base.split_at_indices([4, 20])],
        [ids(part) for part in base.split_proportionately([0.2, 0.5])],
        raised(lambda: base.split_at_indices([5, 2])),
        raised(lambda: base.split_at_indices([])),
        raised(lambda: base.split_at_indices([-1])),
        raised(lambda: base.split_proportionately([0.5, 0.5])),
    ]


@case
def streaming_split_rows(d: Any) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    def counted(parts: Any) -> list[list[int]]:
        with ThreadPoolExecutor(len(parts)) as pool:
            return list(pool.map(ids, parts))

    equal = counted(d.range(10, override_num_blocks=5).streaming_split(3, equal=True))
    every = counted(d.range(10, override_num_blocks=5).streaming_split(2))
    return [[len(part) for part in equal], Anyhow(number for part in every for number in part)]
