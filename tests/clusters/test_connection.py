"""How a script joins a Ray cluster, and what becomes of a run whose script leaves it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ray_machines import Machines

from holdfast.engine.ray.connection import connect

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SCRIPT = """
import json, sys, threading, time
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
    run = train.RunConfig(name=f"run-{name}", storage_path=str(home), engine="ray", verbose=0)
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
else:
    threads = [threading.Thread(target=try_to_fit, args=[name]) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(json.dumps(said))
"""


def script(home: Path, machines: Machines, do: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    if do == "leave":
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
    command = [sys.executable, "-c", SCRIPT, str(home), machines.address, do]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.soak
def test_a_run_whose_script_leaves_the_cluster_ends_and_joins_no_other(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would end the process, or, asked a moment later, start a cluster here."""
    machines.top_up(1)
    found = script(tmp_path, machines, "leave", monkeypatch)
    assert "the script has left the Ray cluster" in str(found["left"])
    assert found["connected"] is False


@pytest.mark.soak
def test_two_threads_may_begin_to_train_at_the_same_time(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.top_up(2)
    assert script(tmp_path, machines, "both", monkeypatch) == {"a": {"done": 1}, "b": {"done": 1}}


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_connection_from_outside_is_refused_before_it_is_made(
    by_variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("it was made"))
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:1")
    with pytest.raises(ValueError, match="ray job submit"):
        connect() if by_variable else connect("ray://127.0.0.1:1")
