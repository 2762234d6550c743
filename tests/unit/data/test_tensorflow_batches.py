"""What is given to TensorFlow, without TensorFlow: a stand-in notes what it gets."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast.data as data
from holdfast.train.actor_batches import ActorBatches


class GivenDataset:
    def __init__(self, batches: Any, specs: Any) -> None:
        self.batches, self.specs, self.options = batches, specs, None

    def with_options(self, options: Any) -> GivenDataset:
        self.options = options
        return self


@pytest.fixture(autouse=True)
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: Any = ModuleType("tensorflow")
    made.string = "string"
    made.TensorSpec = lambda shape, dtype, name: (shape, dtype if dtype == "string" else np.dtype(dtype).name, name)
    made.convert_to_tensor = lambda array, dtype: ("tensor", array.tolist(), dtype)
    off = SimpleNamespace(OFF="off")
    made.data = SimpleNamespace(
        Dataset=SimpleNamespace(from_generator=lambda make, output_signature: GivenDataset(make, output_signature)),
        Options=lambda: SimpleNamespace(experimental_distribute=SimpleNamespace(auto_shard_policy=None)),
        experimental=SimpleNamespace(AutoShardPolicy=off),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", made)
    monkeypatch.delitem(sys.modules, "holdfast.data.tensorflow_batches", raising=False)
    importlib.import_module("holdfast.data.tensorflow_batches")
    yield
    sys.modules.pop("holdfast.data.tensorflow_batches")


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else [plain(each) for each in value]


def test_ours() -> None:
    rows = data.from_items([{"x": n, "y": n / 2, "s": f"row {n}", "l": [n, n + 1]} for n in range(3)])
    made = rows.to_tf(["x", "s"], "y", additional_columns="l", batch_size=2)
    assert made.specs == (
        {"x": ((None,), "int64", "x"), "s": ((None,), "string", "s")},
        ((None,), "float64", "y"),
        ((None, None), "int64", "l"),
    )
    assert made.options.experimental_distribute.auto_shard_policy == "off", "it is a shard already"
    for _ in range(2):  # an epoch each
        first, second = (plain(batch) for batch in made.batches())
        assert first == [{"x": [0, 1], "s": ["row 0", "row 1"]}, [0.0, 0.5], [[0, 1], [1, 2]]]
        assert second == [{"x": [2], "s": ["row 2"]}, [1.0], [[2, 3]]]
    assert len(list(rows.to_tf("x", "y", batch_size=2, drop_last=True).batches())) == 1
    assert rows.to_tf("x", "y", feature_type_spec="given").specs[0] == "given"
    tensors = data.range_tensor(2, shape=(2, 3)).to_tf("data", "data")
    assert tensors.specs[0] == ((None, 2, 3), "int64", "data")
    with pytest.raises(ValueError, match="no column 'z'; the dataset has x, y, s, l"):
        rows.to_tf("z", "y")


def test_batches_of_tensors() -> None:
    batches = data.from_items([{"x": 1, "y": 2}, {"x": 3, "y": 4}]).iter_tf_batches(dtypes={"x": "float32"})
    assert list(batches) == [{"x": ("tensor", [1, 3], "float32"), "y": ("tensor", [2, 4], None)}]


class RaysTensors(pa.ExtensionType):  # type: ignore[misc]
    """As Ray's type of tensors before 2.60, which names their values ``scalar_type``."""

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.float32()), "rays.tensors")
        self.shape, self.scalar_type = (2, 2), pa.float32()

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


OF_RAY = RaysTensors()  # a schema does not keep it alive


class RaysShard(ActorBatches):
    """As the shard of a dataset of Ray Data, whose batches come from elsewhere."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def schema(self) -> Any:
        schema = pa.schema([("image", OF_RAY), ("label", pa.int64()), ("text", pa.large_string())])
        return SimpleNamespace(names=schema.names, base_schema=schema)

    def _received(self, how: str, options: dict[str, Any]) -> Iterator[Any]:
        self.asked.append((how, options))
        images = np.empty(1, object)
        images[0] = np.ones((2, 2), np.float32)
        yield {"image": images, "label": np.array([7]), "text": np.array(["seven"], object)}


def test_rays() -> None:
    shard = RaysShard()
    made = shard.to_tf("image", ["label", "text"], batch_size=16, local_shuffle_seed=3)
    assert made.specs == (
        ((None, 2, 2), "float32", "image"),
        {"label": ((None,), "int64", "label"), "text": ((None,), "string", "text")},
    )
    assert [plain(batch) for batch in made.batches()] == [
        [[[[1.0, 1.0], [1.0, 1.0]]], {"label": [7], "text": ["seven"]}]
    ]
    ((how, options),) = shard.asked
    assert how == "iter_batches"
    assert (options["batch_size"], options["batch_format"], options["local_shuffle_seed"]) == (16, "numpy", 3)
    (tensors,) = RaysShard().iter_tf_batches(dtypes="int32")
    assert tensors["label"] == ("tensor", [7], "int32")
    with pytest.raises(ValueError, match="no column 'z'; the dataset has image, label, text"):
        shard.to_tf("z", "label")
