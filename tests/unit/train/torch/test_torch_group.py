from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch.distributed as dist

from holdfast.train.torch import TorchConfig
from holdfast.train.torch.torch_config import PRELOAD
from support.repository import SUPPORT

PAIR_PROGRAM = SUPPORT / "train" / "group_pair.py"
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(scope="module", autouse=True)
def _first_store() -> None:
    """The first store opens what torch keeps for the life of the process; no test shall be blamed for that."""
    dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture(autouse=True)
def _leaves_no_group() -> Iterator[None]:
    yield
    assert not dist.is_initialized()


@pytest.fixture(scope="module")
def pair() -> Any:
    env = {**os.environ, "HOLDFAST_PREFORK": "0"}
    done = subprocess.run([sys.executable, str(PAIR_PROGRAM)], capture_output=True, text=True, timeout=110, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_processes_train_in_one_group(pair: Any) -> None:
    for rank, answer in enumerate(pair["train"]):
        assert answer["left"], answer
        said = answer["said"]
        assert said["total"] == 3.0
        assert said["gradient"] == [[2.0, 2.0]]  # the mean of rank 0's zeros and rank 1's fours
        assert (said["kind"], said["backend"]) == ("DistributedDataParallel", "gloo")
        assert said["env"] == {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
        }


def test_a_rank_that_returns_at_once_does_not_leave_before_the_others_have_come(pair: Any) -> None:
    assert pair["short"] == [[{"said": 0, "left": True}, {"said": 1, "left": True}]] * 60


def test_a_rank_that_raises_does_not_wait_for_its_peers(pair: Any) -> None:
    first, second = pair["fail"]
    assert "rank 0 gives up" in first["error"]
    assert "all_reduce" in second["error"]


def test_one_rank_has_a_group_too_and_leaves_everything_as_it_was(session: Any) -> None:
    before = dict(os.environ)

    def train(config: dict[str, int]) -> int:
        assert dist.is_initialized()
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        assert all(name in os.environ for name in VARIABLES)
        dist.barrier()
        return config["x"] + 1

    wrapped = cloudpickle.loads(cloudpickle.dumps(TorchConfig(init_method="tcp").wrap(train)))
    assert wrapped({"x": 1}) == 2
    assert dict(os.environ) == before
    assert session.requests == []


@pytest.mark.usefixtures("session")
def test_the_store_listens_on_loopback_only() -> None:
    def listening() -> set[str]:
        lines = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
        port = f":{int(os.environ['MASTER_PORT']):04X}"
        return {line.split()[1] for line in lines if line.split()[1].endswith(port) and line.split()[3] == "0A"}

    if sys.platform != "linux":
        pytest.skip("needs /proc/net")
    loopback = socket.inet_aton("127.0.0.1")[::-1].hex().upper()
    found = TorchConfig().wrap(listening)()
    assert [address.split(":")[0] for address in found] == [loopback]


@pytest.mark.usefixtures("session")
def test_one_rank_that_raises_leaves_no_group() -> None:
    def train() -> None:
        raise ValueError("no")

    before = dict(os.environ)
    with pytest.raises(ValueError, match="no"):
        TorchConfig().wrap(train)()
    assert dict(os.environ) == before


@pytest.mark.usefixtures("session")
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_groups_leave_no_descriptor_and_no_thread() -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    wrapped = TorchConfig().wrap(dist.barrier)
    wrapped()
    before = held()
    for _ in range(5):
        wrapped()
    assert held() == before


@pytest.mark.usefixtures("session")
def test_a_function_that_ends_the_group_itself_is_fine() -> None:
    TorchConfig().wrap(dist.destroy_process_group)()


@pytest.mark.usefixtures("session")
def test_the_users_network_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = TorchConfig().wrap(lambda: os.environ["GLOO_SOCKET_IFNAME"])
    assert wrapped() in ("lo", "lo0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", wrapped())
    assert wrapped() == os.environ["GLOO_SOCKET_IFNAME"]


PRELOADED = """
import importlib, io, os, sys
import numpy  # its BLAS has a thread of its own, which knows how to live through a fork
def threads():
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
before = threads()
for name in {names!r}:
    importlib.import_module(name)
assert threads() == before, "importing started a thread"
import torch, torch.distributed as dist
assert not torch.cuda.is_initialized()
imported = set(sys.modules)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
dist.init_process_group("gloo", store=dist.PrefixStore("gen1", store), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
for kind in (torch.optim.SGD, torch.optim.AdamW):
    optimizer = kind(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
data = torch.utils.data.TensorDataset(torch.ones(4))
for _ in torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
    pass
file = io.BytesIO()
torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict()), file)
file.seek(0)
torch.load(file, weights_only=True)
dist.destroy_process_group()
late = sorted(name for name in set(sys.modules) - imported if name.startswith("torch"))
assert not late, f"imported late: {{late}}"
"""


def test_preloading_leaves_nothing_to_import_and_starts_no_thread() -> None:
    assert PRELOAD[0] == "torch"
    done = subprocess.run(
        [sys.executable, "-c", PRELOADED.format(names=PRELOAD)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
