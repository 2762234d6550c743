"""Where a run is, read from a message: what follows from it for a worker, a node and an engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import pytest

from holdfast.store.location import Location
from holdfast.worker.run_address import RunAddress, address_in


def on_disk(directory: Path) -> RunAddress:
    return address_in(SimpleNamespace(run_dir=str(directory), storage=b""))


def uploaded(directory: Path) -> RunAddress:
    location = Location.parse("test(", "s3://bucket/runs/run?region=x")
    return address_in(SimpleNamespace(run_dir=str(directory), storage=cloudpickle.dumps(location)))


def test_a_worker_learns_where_the_run_is(tmp_path: Path) -> None:
    assert str(on_disk(tmp_path).location()) == str(tmp_path)
    found = uploaded(tmp_path).location()
    assert (str(found), found.options) == ("s3://bucket/runs/run", (("region", "x"),))


def test_only_the_directory_of_a_run_on_a_disk_is_needed_on_all_nodes(tmp_path: Path) -> None:
    assert on_disk(tmp_path).directory_of_all == str(tmp_path)
    assert uploaded(tmp_path).directory_of_all == ""


@pytest.mark.parametrize("is_disk", [True, False])
def test_a_lost_node_loses_what_only_it_had(is_disk: bool, tmp_path: Path) -> None:
    for name in ("node-0", "node-1"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    (on_disk if is_disk else uploaded)(tmp_path).node_lost("node-0")
    assert (tmp_path / "node-0").exists() == is_disk
    assert (tmp_path / "node-1").exists()


def test_a_node_does_one_or_the_other(tmp_path: Path) -> None:
    found = [address.files(lambda: "in place", lambda: "held") for address in (on_disk(tmp_path), uploaded(tmp_path))]
    assert found == ["in place", "held"]
