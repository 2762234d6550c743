"""A driver that is killed, again and again: nothing reported is repeated, nothing finished runs again, nothing lacks.

``make soak`` kills a hundred times and more; the test run has a sample of it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.store.journal import Record, read
from holdfast.store.layout import RunLayout
from holdfast.tune.search import BasicVariantGenerator
from support.tune import counting

SCRIPT = Path(counting.__file__)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
ENDS_WITHIN_S = 120.0


def records(storage: Path) -> list[Record]:
    found, damage = read(RunLayout(storage / "counted"))
    assert all("cut short" in each.what for each in damage), damage
    return found


def reported(storage: Path) -> set[str]:
    """As the lines of the log of epochs."""
    return {f"{r.body['trial']} {r.body['iteration']}" for r in records(storage) if r.kind == "Reported"}


def ended(storage: Path) -> set[str]:
    return {r.body["trial"] for r in records(storage) if r.kind == "Ended"}


def epochs(storage: Path) -> list[str]:
    log = storage / "epochs.log"
    return log.read_text().splitlines() if log.exists() else []


def start(storage: Path, scheduler: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PAUSE_S": "0.05", "HOLDFAST_DISPLAY": "off"}
    return subprocess.Popen([sys.executable, SCRIPT, storage, scheduler], env=environment, stderr=subprocess.PIPE)


def wait_for_progress(process: subprocess.Popen[bytes], storage: Path, more: int) -> None:
    """Until so many more epochs were done, or the script has ended."""
    wanted, deadline = len(epochs(storage)) + more, time.monotonic() + ENDS_WITHIN_S
    while len(epochs(storage)) < wanted and process.poll() is None:
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.005)


def run_through_kills(storage: Path, scheduler: str, choice: random.Random, most: int) -> Counter[str]:
    """Kill it up to so many times, then let it end; what was seen on the way."""
    seen: Counter[str] = Counter()
    while True:
        safe, over, before = reported(storage), ended(storage), len(epochs(storage))
        process = start(storage, scheduler)
        if sum(seen.values()) < most:
            wait_for_progress(process, storage, choice.randint(0, 6))
            time.sleep(choice.random() * 0.1)
            number = choice.choice(SIGNALS)
            if process.poll() is None:
                process.send_signal(number)
                seen[signal.Signals(number).name] += 1
        _, errors = process.communicate(timeout=ENDS_WITHIN_S)
        again = [line for line in epochs(storage)[before:] if line in safe]
        if scheduler != "pbt":  # which goes back to a donor's epoch on purpose
            assert not again, f"reported already: {again}"
        rerun = {line.split()[0] for line in epochs(storage)[before:]} & over
        assert not rerun, f"finished already: {rerun}"
        if process.returncode == 0:
            return seen
        before_main = process.returncode == 1 and errors.strip().endswith(b"KeyboardInterrupt")  # Python itself started
        ended_by_signal = process.returncode in (-signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM, 143)
        assert ended_by_signal or before_main, errors.decode()


def check_results(storage: Path, scheduler: str) -> None:
    grid = tune.Tuner.restore(str(storage / "counted"), counting.count).get_results()
    assert len(grid) == 4
    assert grid.num_errors == 0
    assert grid.num_terminated == 4
    for result in grid:
        rows = list(result.metrics_dataframe["epoch"])
        if scheduler == "pbt":  # who takes over from a trial that is ahead resumes from there
            assert rows == sorted(set(rows)), "a result is there twice"
        else:
            assert rows == list(range(1, len(rows) + 1)), "a result lacks, or is there twice"
            assert result.metrics["total"] == result.config["step"] * result.metrics["epoch"]
        if scheduler == "fifo":
            assert len(rows) == counting.EPOCHS
    assert max(result.metrics["epoch"] for result in grid) == counting.EPOCHS


@pytest.mark.parametrize("scheduler", ["fifo", "asha", "pbt"])
def test_an_experiment_survives_its_drivers(tmp_path: Path, scheduler: str) -> None:
    seen = run_through_kills(tmp_path, scheduler, random.Random(scheduler), most=3)
    assert seen
    check_results(tmp_path, scheduler)


def test_an_interrupted_experiment_decides_as_one_that_was_not(tmp_path: Path) -> None:
    """One trial at a time, so that the order of results is the same; the driver of the second is stopped in between."""

    def outcome(storage: Path, stops: int) -> list[tuple[int, int]]:
        for attempt in range(20):
            scheduler = counting.SCHEDULERS["asha"]()
            search = BasicVariantGenerator(random_state=7, max_concurrent=1)
            experiment = counting.tuner(str(storage), scheduler, samples=6, search_alg=search)
            experiment._definition.tune_config.max_concurrent_trials = 1
            if attempt < stops:
                experiment._definition.run_config.callbacks = [_Stop(after=4)]
            try:
                grid = experiment.fit()
            except KeyboardInterrupt:
                continue
            return [(result.config["step"], result.metrics["training_iteration"]) for result in grid]
        raise AssertionError("it never came to its end")

    assert outcome(tmp_path / "stopped", stops=4) == outcome(tmp_path / "whole", stops=0)


class _Stop(tune.Callback):
    """Presses Ctrl+C after so many results."""

    def __init__(self, after: int) -> None:
        self._left = after

    def on_trial_result(self, *args: object, **info: object) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_of_kills(tmp_path: Path) -> None:
    """TUNE_KILLS=100 by default, SOAK_SEED=0."""
    seed, wanted = int(os.environ.get("SOAK_SEED", "0")), int(os.environ.get("TUNE_KILLS", "100"))
    total: Counter[str] = Counter()
    number = 0
    while sum(total.values()) < wanted:
        scheduler = ("fifo", "asha", "pbt")[number % 3]
        storage = tmp_path / str(number)
        storage.mkdir()
        total += run_through_kills(storage, scheduler, random.Random(f"{seed} {number}"), most=8)
        check_results(storage, scheduler)
        number += 1
    print(f"\n{number} experiments, {sum(total.values())} interruptions: {dict(total)}")
    print("reported epochs repeated: 0, finished trials run again: 0, results missing: 0, processes left: 0")
