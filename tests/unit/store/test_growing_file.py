"""A file that grows is in the run's directory, or comes to an object store as it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store import growing_file
from holdfast.store.growing_file import GrowingFile
from holdfast.store.location import Location
from holdfast.store.remote import parts
from holdfast.testing.fake_objects import Bucket, FakeObjects


def test_on_a_disk_every_line_is_there_when_it_is_written(tmp_path: Path) -> None:
    with GrowingFile(Location.parse("path", tmp_path), "events/a.jsonl") as file:
        file.write("one\n")
        assert (tmp_path / "events/a.jsonl").read_text() == "one\n"
        assert file.due() is None, "nothing has to be uploaded"
        file.write("\udcff\n")
    assert (tmp_path / "events/a.jsonl").read_text() == "one\n\\udcff\n"


def test_in_an_object_store_it_is_there_from_time_to_time_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    bucket = Bucket()
    monkeypatch.setattr(Location, "open", lambda _location, _patience_s: FakeObjects(bucket))
    location, objects = Location.parse("path", "s3://bucket/run"), FakeObjects(bucket)
    with GrowingFile(location, "events/a.jsonl") as file:
        file.write("one\n")
        assert parts.fetch(objects, "events/a.jsonl") == b""
        due = file.due()
        assert due is not None
        assert 0 < due <= growing_file._UPLOAD_EVERY_S
        file.upload()
        assert parts.fetch(objects, "events/a.jsonl") == b"one\n"
        file.write("two\n")
    assert parts.fetch(objects, "events/a.jsonl") == b"one\ntwo\n"
    assert list(tmp_path.iterdir()) == [], "the temporary directory is removed"
