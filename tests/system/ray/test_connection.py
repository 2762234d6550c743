"""How a script joins a Ray cluster, and what becomes of a run whose script leaves it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import ray

from holdfast.engine.ray.connection import connect
from holdfast.engine.ray.ray_address import why_unreachable
from support.ray_clusters.ray_machines import Machines, descendants, end, started_since, wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SCRIPT = """
import json, os, sys, threading, time
from pathlib import Path
import ray
import holdfast
import holdfast.train as train

home, address, do = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def loop(config):
    Path(config["begun"]).touch()
    while config["stays"]:
        time.sleep(0.1)
    train.report({"done": 1})

def fit(name, stays=False):
    config = {"begun": str(home / name), "stays": stays}
    failures = train.FailureConfig(max_failures=-1)
    run = train.RunConfig(name=f"run-{name}", storage_path=str(home), engine="ray", verbose=0, failure_config=failures)
    said[name] = train.DataParallelTrainer(loop, train_loop_config=config, run_config=run).fit().metrics

def try_to_fit(name):
    try:
        fit(name)
    except BaseException as error:
        said[name] = repr(error)

def leave():
    while not (home / "left").exists():
        time.sleep(0.05)
    holdfast.shutdown()

def lose(machines):
    while not (home / "left").exists():
        time.sleep(0.05)
    machines.kill_raylet_of_head()

said = {}
if do == "leave":
    holdfast.init(engine="ray", address=address, logging_level="ERROR", log_to_driver=False)
    leaving = threading.Thread(target=leave)
    leaving.start()
    try:
        fit("left", stays=True)
    except Exception as error:
        said["left"] = str(error)
    leaving.join()
    said["connected"] = ray.is_initialized()
elif do == "lose":
    from support.ray_clusters.ray_machines import Machines

    machines = Machines()
    machines.add()
    os.environ["RAY_ADDRESS"] = machines.address
    losing = threading.Thread(target=lose, args=[machines])
    losing.start()
    try:
        fit("left", stays=True)
    except Exception as error:
        said["left"] = str(error)
    losing.join()
    machines.close()
else:
    threads = [threading.Thread(target=try_to_fit, args=[name]) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
(home / "said.json").write_text(json.dumps(said))
"""


def said(home: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((home / "said.json").read_text())
    return found


def script(home: Path, machines: Machines, do: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    if do == "leave":
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
    command = [sys.executable, "-c", SCRIPT, str(home), machines.address, do]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return said(home)


@pytest.mark.soak
def test_a_run_whose_script_leaves_the_cluster_ends_and_joins_no_other(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would end the process, or, asked a moment later, start a cluster here."""
    machines.top_up(1)
    found = script(tmp_path, machines, "leave", monkeypatch)
    assert "the script disconnected from the Ray cluster" in str(found["left"])
    assert found["connected"] is False


@pytest.mark.soak
def test_a_run_ends_if_ray_loses_the_node_that_its_driver_is_on(tmp_path: Path) -> None:
    """Ray gives nothing more to such a script, and says nothing to it."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "", "lose"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "Ray has lost the node of this script" in str(said(tmp_path)["left"])


@pytest.mark.soak
def test_two_threads_may_begin_to_train_at_the_same_time(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.top_up(2)
    assert script(tmp_path, machines, "both", monkeypatch) == {"a": {"done": 1}, "b": {"done": 1}}


@pytest.mark.soak
@pytest.mark.skipif(not hasattr(ray.exceptions, "AuthenticationError"), reason="this Ray has no tokens")
def test_a_cluster_that_asks_for_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As "ray start" makes them where a token is found."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with Head({**os.environ, **token}) as address:
        check = [sys.executable, "-m", "holdfast", "cluster", "check", "--workers", "2", "--address", address]
        refused = subprocess.run(check, capture_output=True, text=True, timeout=240)
        assert refused.returncode == 2
        assert "set RAY_AUTH_MODE=token here too" in refused.stderr
        monkeypatch.setenv("RAY_ADDRESS", address)
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), address, "both"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, **token})
        assert done.returncode == 0, done.stderr
        assert said(tmp_path) == {"a": {"done": 1}, "b": {"done": 1}}


class Head:
    """A cluster by ``ray start``."""

    def __init__(self, env: dict[str, str]) -> None:
        self._home = tempfile.TemporaryDirectory()  # a short path, as Ray makes sockets in it
        self._env, self._before = {**env, "RAY_TMPDIR": self._home.name}, descendants()

    def __enter__(self) -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        where = ["--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}", f"--temp-dir={self._home.name}"]
        options = ["--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", *where, *options]
        self._process = subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self._is_up(address), "a head that answers")
        return address

    def _is_up(self, address: str) -> bool:
        return not why_unreachable(address) and bool(list(Path(self._home.name).glob("session_*/sockets/raylet")))

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)
        end(started_since(self._before))
        wait_until(lambda: not started_since(self._before), "the end of the head")
        self._home.cleanup()


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_connection_from_outside_is_refused_before_it_is_made(
    by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("it was made"))
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:1")
    with pytest.raises(ValueError, match="ray job submit"):
        connect() if by_variable else connect("ray://127.0.0.1:1")
