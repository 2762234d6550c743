"""A run's files on a machine: one place for each run, and in it one for each driver, which the next one takes over."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.location import Location
from holdfast.store.scratch import epoch_directory, remove, run_directory, take_over, trial_directory


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def leave(run: Path, epoch: int, owner: str, name: str) -> None:
    directory = epoch_directory(run, epoch) / owner
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).touch()


def test_each_run_has_its_own_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def place(url: str, id: str = "1") -> Path:
        return run_directory(tmp_path, Location.parse("url", url), id)

    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    places = [place("s3://b/x"), place("s3://b/y"), place("s3://b/x", "2"), place("s3://b/x?endpoint=http://one")]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://two")
    places.append(place("s3://b/x"))
    assert len(set(places)) == 5
    assert place("s3://b/x") == place("s3://b/x/?endpoint_url=http://two/&region=eu")
    assert {path.parent for path in places} == {tmp_path}


def test_the_next_driver_takes_over_what_is_left(run: Path) -> None:
    leave(run, 1, "driver", "old")
    leave(run, 1, "node", "other owner")
    own = take_over(epoch_directory(run, 3), "driver")
    assert own == epoch_directory(run, 3) / "driver"
    assert files(run) == ["epoch-000001/node/other owner", "epoch-000003/driver/old"]


def test_what_a_relieved_driver_still_writes_is_not_mixed_with_its_successor_s(run: Path) -> None:
    leave(run, 1, "node", "pending")
    take_over(epoch_directory(run, 2), "node")
    leave(run, 1, "node", "late")
    take_over(epoch_directory(run, 2), "node")
    assert files(run) == ["epoch-000002/node/pending"]
    leave(run, 1, "node", "later")
    take_over(epoch_directory(run, 10), "node")
    assert files(run) == ["epoch-000010/node/pending"]


def test_a_driver_takes_nothing_of_a_later_one(run: Path) -> None:
    leave(run, 2, "node", "new")
    assert files(take_over(epoch_directory(run, 1), "node")) == []
    assert files(run) == ["epoch-000002/node/new"]


def test_a_relieved_driver_removes_nothing_of_its_successor(run: Path) -> None:
    leave(run, 1, "driver", "old")
    leave(run, 2, "driver", "new")
    leave(run, 2, "node", "new")
    remove(epoch_directory(run, 1))
    assert files(run) == ["epoch-000002/driver/new", "epoch-000002/node/new"]
    remove(epoch_directory(run, 1), owner="driver")
    assert files(run) == ["epoch-000002/driver/new", "epoch-000002/node/new"]


def test_the_last_one_removes_all(run: Path) -> None:
    leave(run, 1, "gone", "old")
    leave(run, 2, "driver", "new")
    trial_directory(run, "t").parent.mkdir()
    remove(epoch_directory(run, 2))
    assert not run.exists()


def test_only_the_owner_s_files_are_removed_where_nodes_have_pending_ones(run: Path) -> None:
    leave(run, 2, "driver", "new")
    leave(run, 2, "node", "pending")
    remove(epoch_directory(run, 2), owner="driver")
    assert files(run) == ["epoch-000002/node/pending"]
    remove(epoch_directory(run, 2), owner="node")
    assert not run.exists()
