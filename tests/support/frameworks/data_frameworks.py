"""Datasets to TensorFlow, and from Hugging Face: ``python data_frameworks.py FUNCTION`` checks one of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import holdfast.data as data


def rows() -> data.Dataset:
    return data.from_items([{"x": n, "y": n / 2, "s": f"row {n}", "l": [n, n + 1]} for n in range(5)])


def arrays(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: arrays(part) for name, part in batch.items()}
    return [arrays(part) for part in batch] if isinstance(batch, tuple) else batch.numpy().tolist()


def check_tf_datasets() -> None:
    made = rows().to_tf("x", "y", batch_size=2)
    assert [(spec.dtype.name, spec.shape.as_list()) for spec in made.element_spec] == [
        ("int64", [None]),
        ("float64", [None]),
    ]
    assert [arrays(batch) for batch in made] == [[[0, 1], [0.0, 0.5]], [[2, 3], [1.0, 1.5]], [[4], [2.0]]]
    whole = [arrays(batch) for batch in rows().to_tf(["x", "s"], "y", batch_size=2, drop_last=True)]
    assert whole[0] == [{"x": [0, 1], "s": [b"row 0", b"row 1"]}, [0.0, 0.5]]
    assert len(whole) == 2
    assert arrays(next(iter(rows().to_tf("l", "x", additional_columns="y", batch_size=2)))) == [
        [[0, 1], [1, 2]],
        [0, 1],
        [0.0, 0.5],
    ]
    assert [arrays(batch) for batch in rows().select_columns("x").iter_tf_batches(batch_size=4)] == [
        {"x": [0, 1, 2, 3]},
        {"x": [4]},
    ]
    with pytest.raises(ValueError, match="no column 'z'; the dataset has x, y, s, l"):
        rows().to_tf("z", "y")


def check_keras() -> None:
    import keras

    table = data.range_tensor(64, shape=(2, 2)).map_batches(
        lambda batch: {"image": batch["data"].astype(np.float32), "y": batch["data"][:, 0, 0].astype(np.float32)}
    )
    features, labels = next(iter(table.to_tf("image", "y", batch_size=3)))
    assert (features.shape.as_list(), labels.numpy().tolist()) == ([3, 2, 2], [0.0, 1.0, 2.0])
    model = keras.Sequential([keras.Input((2, 2)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(loss="mse")
    history = model.fit(table.to_tf("image", "y", batch_size=16), epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def check_hugging_face() -> None:
    import datasets

    labels = datasets.Features({"t": datasets.Value("string"), "l": datasets.ClassLabel(names=["no", "yes"])})
    theirs = datasets.Dataset.from_dict({"t": ["a", "b", "c"], "l": [0, 1, 1]}, features=labels)
    ours = data.from_huggingface(theirs)
    assert ours.take_all() == [{"t": "a", "l": 0}, {"t": "b", "l": 1}, {"t": "c", "l": 1}]
    chosen = theirs.filter(lambda row: row["l"] == 1).shuffle(seed=1)  # its table has indices of another
    assert [row["t"] for row in data.from_huggingface(chosen).take_all()] == list(chosen["t"])
    assert data.from_huggingface(theirs.to_iterable_dataset()).take_all() == ours.take_all()
    with pytest.raises(TypeError, match=r"dataset\['train'\]"):
        data.from_huggingface(datasets.DatasetDict({"train": theirs}))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
