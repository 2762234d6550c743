"""Who shares objects, and that they go with their session, in real processes."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast.train as train
from holdfast.objects import ObjectLostError, close, exists, get, object_session, open_session, put

WITHIN_S = 120.0
SCRIPT = """
import os, pickle, sys
from pathlib import Path
from holdfast.objects import get, put
from holdfast.objects import object_session
object_session._roots = lambda: [Path(place) for place in {places!r}]
{before}
reference = put({{"pid": os.getpid()}})
sys.stdout.buffer.write(pickle.dumps(reference))
sys.stdout.flush()
sys.stdin.read()
"""
ALONE = "object_session._ancestors = lambda: iter(())"


def start(before: str = "") -> tuple[subprocess.Popen[bytes], Any]:
    """A script that puts something; it ends when its input does."""
    script = SCRIPT.format(before=before, places=[str(root) for root in object_session._roots()])
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, pickle.load(process.stdout)


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=WITHIN_S)


def test_objects_go_when_their_process_ends() -> None:
    process, reference = start(ALONE)
    assert get(reference) == {"pid": process.pid}
    assert reference.session != open_session()
    end(process)
    assert not Path(reference.place).exists()
    with pytest.raises(ObjectLostError):
        get(reference)


def test_what_a_killed_process_left_goes_when_the_next_session_begins() -> None:
    living, kept = start(ALONE)
    killed, left = start(ALONE)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=WITHIN_S)
    assert Path(left.place).is_dir()
    put("begins a session")
    assert not Path(left.place).exists()
    assert get(kept) == {"pid": living.pid}
    end(living)


def test_a_pid_that_another_process_has_now_does_not_save_what_was_left() -> None:
    """As after a reboot, or once the pids have gone round."""
    put(1)
    mine = object_session._name(os.getpid())
    namespace, pid, start_time = mine.split("-")
    stale = Path(object_session._roots()[0], f"{namespace}-{pid}-{int(start_time) + 1}")
    elsewhere = Path(object_session._roots()[0], f"1{namespace}-{pid}-{start_time}")  # another container's
    strange = Path(object_session._roots()[0], f"{namespace}-of-somebody")
    for path in (stale, elsewhere, strange):
        path.mkdir(mode=0o700)
    try:
        object_session.sweep()
        assert not stale.exists()
        assert elsewhere.exists()
        assert strange.exists()
    finally:
        elsewhere.rmdir()
        strange.rmdir()


def test_a_process_below_puts_into_the_session_above() -> None:
    name = open_session()
    process, reference = start()
    end(process)
    assert reference.session == name
    assert get(reference) == {"pid": process.pid}


def test_a_fork_uses_the_session_and_does_not_end_it() -> None:
    mine = put("mine")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            theirs = put(get(mine) + " and theirs")
            os.write(writing, pickle.dumps(theirs))
            close()
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        theirs = pickle.load(file)
    assert os.waitpid(pid, 0)[1] == 0
    assert get([mine, theirs]) == ["mine", "mine and theirs"]


def test_a_process_whose_session_was_ended_begins_another() -> None:
    first = put(1)
    close()
    second = put(2)
    assert (exists(first), get(second)) == (False, 2)


def test_workers_share_with_their_driver_and_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the workers know of the real places only
    data = put(np.arange(1000.0))

    def fn(config: dict[str, Any]) -> Any:
        rank = train.get_context().get_world_rank()
        found = get(config["data"])
        mine = put(found[rank])
        both = [train.collective.broadcast_from_rank_zero(mine), mine]
        train.report({"sum": float(found.sum()), "first": float(get(both[0])), "writeable": found.flags.writeable})
        train.collective.barrier()
        return mine

    result = train.DataParallelTrainer(
        fn,
        train_loop_config={"data": data},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert result.metrics is not None
    assert (result.metrics["sum"], result.metrics["first"], result.metrics["writeable"]) == (499500.0, 0.0, False)
    assert get(result.return_value) == 0.0  # the worker has gone, what it put is there
    assert result.return_value.session == data.session
    close()
    assert not Path(data.place).exists()
