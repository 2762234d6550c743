"""Each test begins and ends without a session, in places of its own: others' sessions come and go at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.objects import object_refs, object_session


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    own = [tmp_path / "memory", tmp_path / "disk"]
    object_refs.close()
    monkeypatch.setattr(object_session, "_roots", lambda: own)
    yield own
    object_refs.close()
    assert [path for root in own if root.is_dir() for path in root.iterdir() if str(os.getpid()) in path.name] == []
