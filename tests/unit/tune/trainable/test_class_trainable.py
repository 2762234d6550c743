"""Class trainables in a real process: steps, checkpoints, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.errors import CheckpointDamagedError
from holdfast.tune.trainable import Trainable, class_entry
from support.tune.one_trial import rows, run_trial, trainer

WITHIN_S = 120.0


class Counter(Trainable):
    """Counts; fails, waits or ends as its config says."""

    def setup(self, config: dict[str, Any]) -> None:
        self.total = 0
        self.settings = config
        self.note("setup")

    def note(self, what: str) -> None:
        if "notes" in self.settings:
            with open(self.settings["notes"], "a") as file:
                file.write(f"{what}\n")

    def step(self) -> dict[str, Any]:
        if self.total == self.settings.get("fails_at") and not self._restored:
            raise RuntimeError("failed as told")
        self.total += 1
        self.note(f"step {self.total}")
        if self.total == self.settings.get("hangs_at"):
            self.note("hangs")
            time.sleep(WITHIN_S)
        return {
            "total": self.total,
            "done": self.total >= self.settings["steps"],
            "should_checkpoint": self.total == self.settings.get("saves_at"),
        }

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        self.note(f"save {self.total}")
        if self.settings.get("as_files"):
            Path(checkpoint_dir, "sub").mkdir()
            Path(checkpoint_dir, "sub", "total").write_text(str(self.total))
            return checkpoint_dir if self.settings["as_files"] == "returns it" else None
        return {"total": self.total, "a set": {1, 2}}

    def load_checkpoint(self, checkpoint: Any) -> None:
        if self.settings.get("as_files"):
            self.total = int(Path(checkpoint, "sub", "total").read_text())
        else:
            assert checkpoint["a set"] == {1, 2}
            self.total = checkpoint["total"]
        self.note(f"load {self.total}")

    def cleanup(self) -> None:
        self.note("cleanup")


class NoSaving(Trainable):
    def step(self) -> dict[str, Any]:
        return {"done": self.iteration == 2, "training": self.training_iteration}


def notes(path: Path) -> list[str]:
    return (path / "notes").read_text().split("\n")[:-1] if (path / "notes").exists() else []


def saved(result: train.Result) -> list[int]:
    return [int(metrics["total"]) for _, metrics in result.best_checkpoints]


def config(path: Path, **more: Any) -> dict[str, Any]:
    return {"notes": str(path / "notes"), "steps": 5, **more}


def test_it_steps_until_it_is_done(tmp_path: Path) -> None:
    result = run_trial(tmp_path, class_entry(Counter), config(tmp_path))
    assert [row["total"] for row in rows(result)] == [1, 2, 3, 4, 5]
    assert [row["training_iteration"] for row in rows(result)] == [1, 2, 3, 4, 5]
    assert result.metrics["done"] is True
    assert result.metrics["trial_id"] == "trial"
    assert result.metrics["time_total_s"] >= result.metrics["time_this_iter_s"] >= 0
    assert not any(name.startswith("config") for name in result.metrics)
    assert saved(result) == [5]  # at its end, unless it is told otherwise
    assert notes(tmp_path) == ["setup", *[f"step {n}" for n in range(1, 6)], "save 5", "cleanup"]


def test_it_saves_when_that_is_due(tmp_path: Path) -> None:
    every_second = run_trial(tmp_path / "1", class_entry(Counter, 2, False), {"steps": 5, "saves_at": 3})
    assert saved(every_second) == [2, 3, 4]
    never = run_trial(tmp_path / "2", class_entry(Counter, 0, False), {"steps": 2})
    assert never.checkpoint is None


def test_it_saves_with_the_result_that_reaches_a_criterion_to_stop(tmp_path: Path) -> None:
    """The driver stops the trial then; here nobody does, and so each of the later results is such a one too."""
    stop = {"total": 3, "time/never": 0, "done": "no number"}
    assert saved(run_trial(tmp_path / "1", class_entry(Counter, stop=stop), {"steps": 4})) == [3, 4]
    not_at_end = class_entry(Counter, checkpoint_at_end=False, stop=stop)
    assert saved(run_trial(tmp_path / "2", not_at_end, {"steps": 4})) == []
    assert class_entry(Counter, stop=lambda _trial_id, _result: True).stop == {}


@pytest.mark.parametrize("as_files", [False, True, "returns it"])
def test_it_goes_on_from_its_checkpoint(tmp_path: Path, as_files: Any) -> None:
    failures = train.FailureConfig(max_failures=1, backoff_s=0)
    entry = class_entry(Counter, checkpoint_frequency=2)
    given = config(tmp_path, fails_at=3, as_files=as_files)
    result = run_trial(tmp_path, entry, given, failure_config=failures)
    assert [row["total"] for row in rows(result)] == [1, 2, 3, 4, 5]
    assert result.metrics["training_iteration"] == 5
    assert result.metrics["iterations_since_restore"] == 3
    assert notes(tmp_path).count("cleanup") == 2
    assert "load 2" in notes(tmp_path)


def test_a_class_that_cannot_save_trains_all_the_same(tmp_path: Path) -> None:
    result = run_trial(tmp_path, class_entry(NoSaving), {})
    assert [row["training"] for row in rows(result)] == [0, 1, 2]
    assert result.checkpoint is None
    with pytest.raises(ValueError, match="NoSaving has no save_checkpoint"):
        class_entry(NoSaving, checkpoint_frequency=1)
    with pytest.raises(ValueError, match="NoSaving has no save_checkpoint"):
        class_entry(NoSaving, checkpoint_at_end=True)


def test_what_is_no_trainable_class_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pass a subclass of holdfast\.tune\.Trainable"):
        class_entry(dict)  # type: ignore[arg-type]


class Wrong(Counter):
    def step(self) -> Any:
        return [1] if self.settings["wrong"] == "step" else super().step()

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return "/somewhere/else"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("step", r"Wrong.step\(\) returned \[1\]: return a dict"), ("save", "Wrong.save_checkpoint returned '/somewhere")],
)
def test_wrong_returns_are_named(tmp_path: Path, wrong: str, says: str) -> None:
    with pytest.raises(train.WorkerGroupError, match=says):
        run_trial(tmp_path, class_entry(Wrong), config(tmp_path, wrong=wrong))
    assert notes(tmp_path)[-1] == "cleanup"


def test_a_damaged_checkpoint_is_never_unpickled(tmp_path: Path) -> None:
    result = run_trial(tmp_path, class_entry(Counter), {"steps": 1})
    pickle = Path(result.checkpoint.path, "_dict_checkpoint.pkl")
    data = bytearray(pickle.read_bytes())
    data[len(data) // 2] ^= 1
    pickle.write_bytes(data)
    with pytest.raises(CheckpointDamagedError, match="damaged"):
        Counter({"steps": 1}).restore(result.checkpoint)


STOPPED = """
import sys
from pathlib import Path
from support.tune.one_trial import trainer
from test_class_trainable import Counter
from holdfast.tune.trainable import class_entry

config = {{"steps": 9, "hangs_at": 3, "notes": {notes!r}}}
trainer(Path({storage!r}), class_entry(Counter, 2), config).fit()
"""


def test_cleanup_comes_when_the_run_is_stopped(tmp_path: Path) -> None:
    """In the middle of a step, by a signal to the driver, which the worker gets too."""
    script = tmp_path / "script.py"
    script.write_text(STOPPED.format(notes=str(tmp_path / "notes"), storage=str(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])}
    with subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.DEVNULL) as process:
        await_note(tmp_path, "hangs", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 128 + signal.SIGTERM
    assert notes(tmp_path)[-2:] == ["hangs", "cleanup"]


def await_note(path: Path, note: str, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + WITHIN_S
    while note not in notes(path):
        assert time.monotonic() < deadline, f"no {note!r} in {notes(path)}"
        assert process is None or process.poll() is None, f"it has ended: {notes(path)}"
        time.sleep(0.02)


class Killed(Counter):
    def step(self) -> dict[str, Any]:
        if self.total == 1 and not self._restored:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().step()


def test_a_sigterm_from_elsewhere_is_no_good_end(tmp_path: Path) -> None:
    """The worker cleans up, dies of the signal, and is started again."""
    failures = train.FailureConfig(max_failures=1, backoff_s=0)
    result = run_trial(tmp_path, class_entry(Killed, 1), config(tmp_path, steps=3), failure_config=failures)
    assert [row["total"] for row in rows(result)] == [1, 2, 3]
    assert notes(tmp_path).count("cleanup") == 2


def test_asked_for_a_checkpoint_it_saves_once_more_before_it_is_stopped(tmp_path: Path) -> None:
    """The grace after a SIGTERM to the driver is for a checkpoint of the steps since the last one."""

    def entry(given: dict[str, Any]) -> None:
        class Slow(Counter):
            def step(self) -> dict[str, Any]:
                self.total += 1
                self.note(f"step {self.total}")
                time.sleep(0.01)
                return {"total": self.total}

        class_entry(Slow, checkpoint_at_end=False)(given)

    failures = train.FailureConfig(preemption_grace_s=WITHIN_S)
    run = trainer(tmp_path, entry, config(tmp_path), failure_config=failures)
    watcher = threading.Thread(
        target=lambda: (await_note(tmp_path, "step 3"), os.kill(os.getpid(), signal.SIGTERM)), daemon=True
    )
    watcher.start()
    with pytest.raises(SystemExit):
        run.fit()
    watcher.join()
    result = train.Result.from_path(str(tmp_path / "trial"))
    steps = [int(note.split()[1]) for note in notes(tmp_path) if note.startswith("step")]
    assert saved(result) == [steps[-1]]
    assert result.checkpoint is not None
