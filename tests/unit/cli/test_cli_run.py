"""``holdfast run``: a script as the workers of a run, as a person starts it, with what goes wrong too."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli.cli_shell import PATIENCE_S, holdfast, holdfast_json, start, wait_for_checkpoint

STEPS = """
import os, sys, tempfile, time
from pathlib import Path
import neighbour
from holdfast import train

step, rank = 0, train.get_context().get_world_rank()
if (checkpoint := train.get_checkpoint()) is not None:
    with checkpoint.as_directory() as directory:
        step = int(Path(directory, "step").read_text())
print("main", __name__, Path(__file__).name, sys.argv[1:], neighbour.NAME, os.environ["RANK"], os.environ["WORLD_SIZE"])
while step < int(sys.argv[1]):
    step += 1
    if step == 3 and "--fail" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        train.collective.barrier()
        sys.exit("planned") if rank == 1 else time.sleep(60)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "step").write_text(str(step))
        train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))
    time.sleep(0.02 if "--slow" in sys.argv else 0)
sys.exit(0)
"""
PLAIN_TORCH = """
import os, signal
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
print("sum", total.item(), "attempt", attempt, os.environ["LOCAL_RANK"], flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    home = tmp_path / "code"
    home.mkdir()
    (home / "neighbour.py").write_text("NAME = 'beside'\n")
    (home / "steps.py").write_text(STEPS)
    (home / "plain.py").write_text(PLAIN_TORCH)
    return home / "steps.py"


def test_a_script_that_fails_once_goes_on_and_ends_well(script: Path, tmp_path: Path) -> None:
    options = ("--workers", 2, "--max-failures", 1, "--keep", 2, "--storage", tmp_path, "--name", "run")
    done = holdfast("run", *options, script, 5, "--fail", "--json")
    shown = holdfast_json("show", tmp_path / "run")
    assert (shown["state"], shown["reports"], shown["metrics"]) == ("finished", 5, {"step": 5})
    assert [failure["text"] for failure in shown["failures"]] == ["rank 1 raised SystemExit: planned"]
    assert shown["configuration"]["train_loop_config"] == {
        "script": str(script),
        "arguments": ["5", "--fail", "--json"],
    }
    assert len(shown["checkpoints"]) <= 3
    said = "main __main__ steps.py ['5', '--fail', '--json'] beside"
    assert sorted(re.findall(rf"^\(rank \d\) {re.escape(said)} .*", done.stdout, re.MULTILINE)) == [
        f"(rank {rank}) {said} {rank} 2" for rank in (0, 0, 1, 1)
    ]


def test_plain_torch_meets_anew_after_a_kill(script: Path, tmp_path: Path) -> None:
    options = ("--workers", 2, "--max-failures", 1, "--storage", tmp_path, "--name", "run")
    done = holdfast("run", *options, script.with_name("plain.py"))
    assert sorted(re.findall(r"sum .*", done.stdout)) == ["sum 3.0 attempt 1 0", "sum 3.0 attempt 1 1"]
    assert "rank 1 was killed by SIGKILL (signal 9)\n  retry 1 of 1" in done.stderr


@pytest.mark.parametrize("workers", ["0", "1:2"])
def test_json_and_a_module(script: Path, tmp_path: Path, workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    options = ("--workers", workers, "--storage", tmp_path, "--name", "run", "--json")
    text = holdfast("run", *options, "-m", "steps", 2).stdout
    told = json.loads(text[text.index("{") :])
    assert told == {
        "path": str(tmp_path / "run"),
        "state": "finished",
        "metrics": {"step": 2},
        "checkpoint": str(tmp_path / "run" / "checkpoints" / "checkpoint_000002"),
        "error": None,
    }


def test_a_failed_run_says_why_and_how_to_go_on(script: Path, tmp_path: Path) -> None:
    done = holdfast("run", "--workers", 2, "--storage", tmp_path, script, 5, "--fail", code=1, traces=True)
    assert 'sys.exit("planned")' in done.stderr
    again = re.search(r"Fix the cause\. To .*, run this: holdfast run (--name \S+ .*)", done.stderr)
    assert again is not None
    told = json.loads(holdfast("run", "--json", "--max-failures", "1", *again[1].split()[:-1]).stdout)
    assert told["metrics"] == {"step": 5}


def test_a_stopped_run_goes_on_by_the_same_command(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "run", "--storage", str(tmp_path), "--name", "run", str(script)]
    process = start([*command, "100000", "--slow"])
    wait_for_checkpoint(tmp_path, 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    reports = holdfast_json("show", tmp_path / "run")["reports"]
    assert reports >= 3
    subprocess.run([*command, str(reports + 1)], check=True, capture_output=True, timeout=PATIENCE_S)
    assert holdfast_json("show", tmp_path / "run")["metrics"] == {"step": reports + 1}


def test_a_reader_that_has_gone_ends_no_run(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "run", "--storage", str(tmp_path), "--name", "run", str(script)]
    with subprocess.Popen([*command, "50", "--slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=PATIENCE_S) == 0
    assert holdfast_json("show", tmp_path / "run")["metrics"] == {"step": 50}


OWN_TRAINER = """
from holdfast import train
train.DataParallelTrainer(print).fit()
"""


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["none.py"], "script none.py does not exist. Pass a Python file, or -m and a module"),
        (["."], "script . is a directory"),
        (["-m", "none.such"], "module 'none.such' cannot be imported"),
        ([], "the following arguments are required: SCRIPT"),
        (["--workers", "many", "steps.py"], "'many': use a number, as in 4, or a range, as in 1:4"),
        (["--workers", "4:1", "steps.py"], "--workers=(4, 1): an elastic range needs 1 <= min <= max"),
        (["--name", "a/b", "steps.py"], "--name='a/b': not a valid name"),
        (["--max-failures", "-2", "steps.py"], "--max-failures=-2: must be at least -1"),
        (["--keep", "0", "steps.py"], "--keep=0: must be at least 1"),
        (["--hang-timeout", "long", "steps.py"], "'long': use a number of seconds, or auto"),
        (["--engine", "mars", "steps.py"], "engine='mars'"),
        (["--storage", "ftp://host", "steps.py"], "--storage='ftp://host': ftp:// is not supported"),
        (["--gpus", "1000", "steps.py"], "the workers need 1000 GPUs"),
        (["own.py"], "own.py creates its own trainer, so run it once, with Python: python own.py"),
    ],
)
def test_wrong_input(script: Path, arguments: list[str], remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    Path("own.py").write_text(OWN_TRAINER)
    done = holdfast("run", *arguments, code=2, HOLDFAST_STORAGE_PATH=str(script.parent / "runs"))
    assert remedy in done.stderr
    assert done.stdout == ""
    assert not (script.parent / "runs").exists()


def test_a_script_that_is_no_python(script: Path, tmp_path: Path) -> None:
    script.write_text("def x(:\n")
    done = holdfast("run", "--storage", tmp_path, script, code=1, traces=True)
    assert "SyntaxError: invalid syntax" in done.stderr


def test_a_run_that_is_driven_already(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "run", "--storage", str(tmp_path), "--name", "run", str(script)]
    process = start([*command, "100000", "--slow"])
    wait_for_checkpoint(tmp_path, 1)
    done = holdfast("run", "--storage", tmp_path, "--name", "run", script, 5, code=1)
    assert f"is being driven by process {process.pid}" in done.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT
