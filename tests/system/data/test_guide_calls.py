"""What Ray's guides on loading data do besides plain calls: their own split, tables in workers, collate classes, public
buckets, images in buckets, preprocessing that is kept in memory."""

from __future__ import annotations

import io
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

import holdfast
import holdfast.data
from holdfast import train
from holdfast.data.collate_fn import ArrowBatchCollateFn, NumpyBatchCollateFn, PandasBatchCollateFn
from holdfast.errors import StorageDeniedError
from holdfast.store.location import Location
from support.object_stores.servers import KEYS, S3Server


class OwnConfig(train.DataConfig):
    """The last rows for the first rank, and every row of the other dataset for all."""

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: Any,
        worker_node_ids: Any,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        context = holdfast.data.DataContext.get_current()
        context.execution_options = train.DataConfig.default_ingest_options()
        parts = datasets["train"].streaming_split(world_size, equal=True, locality_hints=worker_node_ids)
        return [{"train": part, "words": datasets["words"].iterator()} for part in reversed(parts)]


def read_both() -> None:
    shard, words = train.get_dataset_shard("train"), train.get_dataset_shard("words")
    assert shard is train.get_dataset_shard("train"), "it counts epochs"
    rows = [[row["id"] for row in shard.iter_rows()] for _ in range(2)]
    devices = {str(batch["id"].device) for batch in shard.iter_torch_batches(batch_size=4)}
    held = shard.materialize()  # and then tables, as the guide on XGBoost makes them
    table = pa.concat_tables([holdfast.get(reference) for reference in held.to_arrow_refs()])
    tables = [table.column("id").to_pylist(), held.to_pandas()["id"].tolist()]
    told = {"words": [row["item"] for row in words.iter_rows()], "devices": sorted(devices), "tables": tables}
    train.report({"rows": rows, **told})


def test_a_data_config_of_the_users_own(tmp_path: Path) -> None:
    datasets = {"train": holdfast.data.range(21), "words": holdfast.data.from_items(["hold", "fast"])}
    result = train.DataParallelTrainer(
        read_both,
        datasets=datasets,
        dataset_config=OwnConfig(),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    last = list(range(10, 20))
    assert result.metrics == {
        "rows": [last, last],
        "words": ["hold", "fast"],
        "devices": ["cpu"],
        "tables": [last, last],
    }
    with pytest.raises(ValueError, match="dataset_config"):
        train.DataParallelTrainer.restore(str(tmp_path / "run"), train_loop_per_worker=read_both, datasets=datasets)


class Few(train.DataConfig):
    def configure(self, *_: Any, **__: Any) -> Any:
        return [{}]


def test_a_data_config_that_gives_too_little() -> None:
    marked = Few().mark({"train": holdfast.data.range(3)})
    with pytest.raises(TypeError, match=r"a dict of\s*iterators for each of the 2 workers"):
        marked["train"].shard(0, 2)
    with pytest.raises(KeyError, match="gave rank 0 no dataset 'train'"):
        marked["train"].shard(0, 1)
    with pytest.raises(TypeError, match=r"'words' is a list: OwnConfig has a configure\(\) of its own"):
        OwnConfig().mark({"words": ["hold"]})


def test_the_default_data_config_can_be_asked_too() -> None:
    datasets = {"train": holdfast.data.range(5), "all": holdfast.data.range(3)}
    first, second = train.DataConfig(datasets_to_split=["train"]).configure(datasets, 2)
    assert [sum(1 for _ in own["train"].iter_rows()) for own in (first, second)] == [2, 3]
    assert [sum(1 for _ in own["all"].iter_rows()) for own in (first, second)] == [3, 3]


class OfArrow(ArrowBatchCollateFn):
    def __call__(self, batch: Any) -> Any:
        return torch.as_tensor(batch.column("id").to_numpy()) if isinstance(batch, pa.Table) else None


class OfPandas(PandasBatchCollateFn):
    def __call__(self, batch: Any) -> Any:
        return torch.as_tensor(batch["id"].to_numpy().copy()) if hasattr(batch, "iloc") else None


class OfNumpy(NumpyBatchCollateFn):
    def __call__(self, batch: Any) -> Any:
        return torch.as_tensor(batch["id"]) if isinstance(batch["id"], np.ndarray) else None


@pytest.mark.parametrize("kind", [OfArrow, OfPandas, OfNumpy])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_collate_classes(kind: Any) -> None:
    batches = holdfast.data.range(5).iter_torch_batches(batch_size=3, collate_fn=kind())
    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4]]


def test_a_public_bucket(bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bucket.replace("s3://", f"{s3.url}/")
    headers = {"x-amz-acl": "public-read", "Authorization": f"AWS {KEYS['access_key_id']}:"}
    headers["Content-Type"] = "text/plain"
    lines = b"ham\tone\nspam\ttwo\n"
    urllib.request.urlopen(urllib.request.Request(f"{place}/a/lines.txt", lines, headers, method="PUT")).close()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(StorageDeniedError, match="no credentials"):
        holdfast.data.read_text(f"{bucket}/a/lines.txt")
    public = bucket.replace("s3://", "s3://anonymous@")
    found = holdfast.data.read_text(f"{public}/a/lines.txt")
    first, second = found.train_test_split(0.5)
    assert [row["text"] for part in (first, second) for row in part.iter_rows()] == ["ham\tone", "spam\ttwo"]


def test_images_in_a_bucket(bucket: str) -> None:
    store = Location.parse("test(path", bucket).open(5.0)
    for number in range(3):
        held = io.BytesIO()
        Image.fromarray(np.full((4, 6, 3), number, np.uint8)).save(held, "png")
        store.put(f"{number}.png", held.getvalue())
    found = holdfast.data.read_images(bucket, size=(2, 3), mode="RGB", include_paths=True)
    assert [row["path"] for row in found.iter_rows()] == [f"{bucket}/{number}.png" for number in range(3)]
    assert next(iter(found.select_columns("image").iter_torch_batches(batch_size=3)))["image"].shape == (3, 2, 3, 3)


def test_preprocessing_that_is_kept_in_memory() -> None:
    calls: list[int] = []

    def normalized(batch: dict[str, Any]) -> dict[str, Any]:
        calls.append(len(batch["id"]))
        batch["share"] = batch["id"] / 9
        del batch["id"]
        return batch

    held = holdfast.data.range(10).map_batches(normalized).materialize()
    made = len(calls)
    again = held.map_batches(lambda batch: {"share": batch["share"] * 2})
    assert [round(sum(row["share"] for row in again.iter_rows())) for _ in range(2)] == [10, 10]
    assert len(calls) == made, "it is computed once"
