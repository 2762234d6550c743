"""The columns of JSON files that have several blocks are found once for each version of a file."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast.data as data
from holdfast.data import json_lines
from holdfast.store.location import Location
from support.object_stores.fixtures import bucket, obstore_is_running, s3  # noqa: F401

FILES = 65


@pytest.mark.parametrize("kind", ["disk", "S3"])
def test_the_columns_of_many_json_files_are_found_once(
    kind: str,
    bucket: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = bucket if kind == "S3" else str(tmp_path)
    store = Location.parse("test(path", place).open(30.0)
    found: list[str] = []
    plain = json_lines._unified

    def noted(one: Any, other: Any, shown: str) -> Any:
        found.append(shown)
        return plain(one, other, shown)

    monkeypatch.setattr(json_lines, "_unified", noted)
    for number in range(FILES):
        store.put(f"{number}.json", b'{"a": 1}\n{"a": 2}\n')
        if kind == "disk":  # a file that was written a moment ago is not remembered
            os.utime(tmp_path / f"{number}.json", (1e9, 1e9))
    read = data.read_json(place)
    read.context.target_chunk_bytes = 10
    assert [read.sum("a") for _ in range(2)] == [3 * FILES] * 2
    assert len(found) == 2 * FILES, "each of two blocks once"
    store.put("0.json", b'{"b": 1}\n{"b": 2}\n')
    again = data.read_json(f"{place}/0.json")
    again.context.target_chunk_bytes = 10
    assert again.columns() == ["b"]


def test_columns_that_are_forgotten_while_they_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(OrderedDict[Any, Any]):
        def __contains__(self, key: object) -> bool:  # as if another thread came in between
            self.clear()
            return True

    table = pa.table({"a": [1]})
    monkeypatch.setattr(json_lines, "_schemas", Forgetful())
    for _ in range(2):
        assert json_lines._known("a.json", "1", iter([table])) == table.schema
