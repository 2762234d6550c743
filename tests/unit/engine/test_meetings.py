"""Nodes of a run that cannot talk to each other, though each can talk to the driver, are found out."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.engine.local.agent_process import Network
from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from holdfast.testing.engine_runs import PATIENCE_S, Watcher, configure
from holdfast.wire import messages as wire
from support.engine import dummies
from support.engine.two_machines import Cable, ip


@pytest.fixture
def near(cable: Cable) -> Network:
    """A node on this side of the cable, with an address of its own."""
    address = cable.driver.replace("10.", "10.1", 1)
    ip("address", "add", f"{address}/32", "dev", f"{cable.name}d")
    ip("-n", cable.name, "route", "add", f"{address}/32", "via", cable.driver)
    return Network((), cable.driver, address)


def wall_off(cable: Cable, near: Network) -> None:
    """What the far node sends to the near one gets nowhere; the driver is still reached."""
    ip("-n", cable.name, "route", "replace", "unreachable", f"{near.node_address}/32")


def meeting(run: Watcher, number: int, host: str, address: str, guest: str) -> str:
    run.session.send(host, wire.OpenDoor(number, address))
    door = run.take(wire.DoorOpen, host, meeting=number)
    assert not door.error
    run.session.send(guest, wire.Meet(number, address, door.port, door.token))
    return run.take(wire.Met, guest, meeting=number).error


def test_agents_meet_across_the_network_and_say_when_they_cannot(cable: Cable, near: Network, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        a, b = cluster.add_node(network=near), cluster.add_node(network=cable.network)
        run = Watcher(cluster, configure(tmp_path, dummies.wait_for_ever))
        for _ in (a, b):
            run.take(wire.NodeReady)
        assert meeting(run, 1, a, near.node_address, b) == ""
        assert meeting(run, 2, b, cable.node, a) == ""
        wall_off(cable, near)
        assert "Errno" in meeting(run, 3, a, near.node_address, b)
        run.session.send(a, wire.OpenDoor(4, "192.0.2.1"))
        assert "cannot listen at 192.0.2.1" in run.take(wire.DoorOpen, a, meeting=4).error
        run.session.close()


def alone_or_never(config: dict[str, Any]) -> int:
    """As an attempt whose ranks wait for each other, and cannot be heard."""
    world = train.get_context().get_world_size()
    while world > 1 and not Path(config["over"]).exists():
        time.sleep(0.01)
    train.report({"world": world})
    return world


@pytest.mark.timeout(300)
def test_an_attempt_that_cannot_begin_is_placed_without_a_node_that_cannot_talk_to_the_others(
    cable: Cable, near: Network, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DISPLAY", "plain")
    wall_off(cable, near)
    late = threading.Timer(PATIENCE_S, (tmp_path / "over").touch)
    late.start()
    with LocalCluster() as cluster:
        cluster.add_node(network=near, node_id="near")
        cluster.add_node(network=cable.network, node_id="far")
        trainer = train.DataParallelTrainer(
            alone_or_never,
            train_loop_config={"over": str(tmp_path / "over")},
            scaling_config=train.ScalingConfig(num_workers=(1, 2)),
            run_config=train.RunConfig(
                name="run",
                storage_path=str(tmp_path),
                engine=cluster,
                failure_config=train.FailureConfig(max_failures=0),
            ),
        )
        assert trainer.fit().return_value == 1
    late.cancel()
    late.join(PATIENCE_S)
    records = journal.read(RunLayout(tmp_path / "run"))[0]
    assert [record.body["world_size"] for record in records if record.kind == "GroupStarted"] == [2, 1]
    shown = "".join(capfd.readouterr())
    assert f"far cannot talk to near at {near.node_address}" in shown
    assert "is used only where the other nodes are not enough" in shown
