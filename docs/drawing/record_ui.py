"""Take the pictures of docs/ui.md: real runs and a real search, in the pages of ``holdfast ui``.

    make pictures

A small network learns a sine on four workers; one of them is killed, and one raises. Another run hangs, and a search
with ASHA looks for a learning rate. Needs chromium.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from holdfast import train, tune
from holdfast.tune.schedulers import ASHAScheduler
from support.web.browsing import Tab, browser_tab
from support.web.web_server import WebServer, web_server

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
EPOCHS, WORKERS, WIDTH = 40, 4, 1040
DRAWN = "document.querySelectorAll('.js-plotly-plot .trace').length"


class Sine:
    """A network with one hidden layer, which learns sin(2x)."""

    def __init__(self, width: int) -> None:
        self.rng = np.random.default_rng(0)
        self.first, self.shift = self.rng.normal(size=(1, width)), np.zeros(width)
        self.second = self.rng.normal(size=(width, 1)) / width**0.5

    def learn(self, lr: float, steps: int = 20) -> float:
        for _ in range(steps):
            x = self.rng.uniform(-3, 3, size=(64, 1))
            hidden = np.tanh(x @ self.first + self.shift)
            error = hidden @ self.second - np.sin(2 * x)
            back = (error @ self.second.T) * (1 - hidden**2)
            self.second -= lr * hidden.T @ error / 64
            self.first -= lr * x.T @ back / 64
            self.shift -= lr * back.mean(0)
        return float((error**2).mean())

    def save(self, path: Path, epoch: int) -> None:
        np.savez(path, first=self.first, shift=self.shift, second=self.second, epoch=epoch)

    def load(self, path: Path) -> int:
        state = np.load(path)
        self.first, self.shift, self.second = state["first"], state["shift"], state["second"]
        return int(state["epoch"])


def train_loop(config: dict[str, Any]) -> None:
    rank, network, start = train.get_context().get_world_rank(), Sine(config["width"]), 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = network.load(Path(directory, f"rank-{rank}.npz"))
    print(f"training from epoch {start}", flush=True)
    for epoch in range(start, config["epochs"]):
        loss = network.learn(config["lr"])
        train.collective.barrier()
        strike(config, rank, epoch)
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
        metrics = {"epoch": epoch, "loss": loss, "weights": float(np.abs(network.second).mean())}
        with tempfile.TemporaryDirectory() as directory:
            network.save(Path(directory, f"rank-{rank}.npz"), epoch + 1)
            is_due = epoch % 5 == 4
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory) if is_due else None)
        time.sleep(config["pause_s"])


def strike(config: dict[str, Any], rank: int, epoch: int) -> None:
    """Each fault once, on one rank."""
    fault, faulty = config["faults"].get(str(epoch), (None, None))
    done = Path(config["marks"], str(epoch))
    if rank != faulty or done.exists():
        return
    done.touch()
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(600)
    print("shard 17: 0 rows", flush=True)
    raise ValueError("shard 17 has 0 rows, expected 4096")


def run(storage: Path, name: str, faults: dict[str, tuple[str, int]], **settings: Any) -> None:
    with tempfile.TemporaryDirectory() as marks:
        config = {"lr": 0.05, "width": 32, "epochs": EPOCHS, "pause_s": 0.05, "faults": faults, "marks": marks}
        trainer = train.DataParallelTrainer(
            train_loop,
            train_loop_config={**config, **settings},
            scaling_config=train.ScalingConfig(num_workers=WORKERS),
            run_config=train.RunConfig(
                name=name,
                storage_path=str(storage),
                verbose=0,
                failure_config=train.FailureConfig(max_failures=3, hang_timeout_s=5.0),
            ),
        )
        trainer.fit()


def objective(config: dict[str, Any]) -> None:
    network = Sine(config["width"])
    for step in range(27):
        tune.report({"loss": network.learn(config["lr"] * config["decay"] ** step, 40)})


def search(storage: Path) -> None:
    space = {
        "lr": tune.loguniform(1e-3, 0.2),
        "width": tune.choice([4, 8, 16, 32]),
        "decay": tune.choice([1.0, 0.9, 0.8]),
    }
    tune.Tuner(
        objective,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=60,
            max_concurrent_trials=2,
            scheduler=ASHAScheduler(max_t=27, grace_period=1, reduction_factor=3),
        ),
        run_config=tune.RunConfig(name="sine-search", storage_path=str(storage), verbose=0),
    ).fit()


def take(tab: Tab, name: str, until: str = "") -> None:
    """The page from its top to the end of an element, or the whole of it."""
    box = tab.page.locator(until).bounding_box() if until else None
    size = tab.page.viewport_size
    height = box["y"] + box["height"] + 16 if box else tab.page.evaluate("document.body.scrollHeight")
    clip = {"x": 0, "y": 0, "width": size["width"], "height": height}
    tab.page.screenshot(path=str(PICTURES / f"{name}.png"), full_page=True, clip=clip)


def remove(tab: Tab, *parts: str) -> None:
    """What a small picture has no room for; the path would be that of a temporary directory."""
    for part in (".path", *parts):
        tab.page.locator(part).evaluate("(part) => part.remove()")


def take_all(server: WebServer) -> None:
    with browser_tab(width=WIDTH) as tab:
        tab.page.goto(server.url)
        tab.page.locator("a", has_text="sine-wide").wait_for()
        remove(tab)
        take(tab, "ui-runs", "#rows")
        tab.page.goto(f"{server.origin}/run/0/sine")
        tab.awaits(f"{DRAWN} >= 2")
        remove(tab)
        take(tab, "ui-run", ".curve:nth-child(2)")
    with browser_tab(dark=True, width=WIDTH) as tab:
        tab.page.goto(server.url)
        tab.page.goto(f"{server.origin}/experiment/0/sine-search")
        tab.awaits(f"{DRAWN} >= 5")
        remove(tab, "#trials", ".jump", "#best", "#importance")
        take(tab, "ui-search", "#learning .legend")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage = Path(directory, "runs")
        run(storage, "sine", {"12": ("kill", 2), "27": ("raise", 0)})
        run(storage, "sine-hang", {"7": ("hang", 1)}, epochs=12)
        search(storage)
        living = [sys.executable, __file__, str(storage)]
        with subprocess.Popen(living, stderr=subprocess.DEVNULL) as job:
            try:
                while not (storage / "sine-wide" / "metrics").exists():
                    time.sleep(0.1)
                time.sleep(8)
                with web_server(storage) as server:
                    take_all(server)
            finally:
                job.send_signal(signal.SIGINT)
    for picture in sorted(PICTURES.glob("ui-*.png")):
        print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]), "sine-wide", {"9": ("kill", 3)}, width=64, lr=0.02, epochs=400, pause_s=0.3)
    else:
        main()
