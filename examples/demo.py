"""`make demo`: a worker is killed in the middle of training, and the result is the same, bit for bit.

A small transformer learns to write licence text, one character after the other, with two workers: once undisturbed,
and once with a SIGKILL on the way. At the end the weights and all metrics of the two runs are compared.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast import train
from holdfast.train.torch import TorchTrainer, prepare_model

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"
STEPS = 160
REPORT_EVERY = 8
KILL_RANK, KILL_STEP = 1, 85
CONTEXT = 64
BATCH = 8
WIDTH = 64


class Transformer(nn.Module):
    """Two layers that predict the next character."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(alphabet, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, alphabet)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=text.device)
        hidden = self.characters(text) + self.positions.weight
        return self.head(self.layers(hidden, mask=mask, is_causal=True))


def read_text() -> tuple[torch.Tensor, int]:
    text = TEXT.read_text()
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[character] for character in text]), len(alphabet)


def batch(text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(text) - CONTEXT, (BATCH,))
    windows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def train_loop(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    rank = train.get_context().get_world_rank()
    text, alphabet = read_text()
    torch.manual_seed(rank)
    network = Transformer(alphabet)
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.002)
    first_step = load(network, optimizer, rank)

    for step in range(first_step, STEPS):
        inputs, targets = batch(text)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if config["scene"] is not None:
            play(Path(config["scene"]), rank, step, first_step)
        optimizer.step()
        if (step + 1) % REPORT_EVERY == 0:
            with tempfile.TemporaryDirectory() as directory:
                save(Path(directory), network, optimizer, rank, step)
                metrics = {"step": step, "loss": loss.item()}
                train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))


def save(directory: Path, network: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    torch.save(torch.get_rng_state(), directory / f"random-{rank}.pt")
    if rank == 0:
        state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, directory / "state.pt")


def load(network: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> int:
    """Take up the last checkpoint, if there is one. Returns the step to begin with."""
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        state = torch.load(Path(directory) / "state.pt")
        torch.set_rng_state(torch.load(Path(directory) / f"random-{rank}.pt"))
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]) + 1


def play(scene: Path, rank: int, step: int, first_step: int) -> None:
    """Kill this worker in the middle of a step, the first time that it comes there; note when it is back in one."""
    killed, recovered = scene / "killed", scene / "recovered"
    if rank == KILL_RANK and step == KILL_STEP and not killed.exists():
        print(f"step {step}: I am pid {os.getpid()}, and this is my last line: SIGKILL", flush=True)
        killed.write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == KILL_RANK and step == first_step and killed.exists():
        print(f"step {step}: I am pid {os.getpid()}, and I continue", flush=True)
        recovered.write_text(repr(time.time() - float(killed.read_text())))


def fit(name: str, storage_path: str, scene: Path | None) -> train.Result:
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"scene": None if scene is None else str(scene)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name, storage_path=storage_path, failure_config=train.FailureConfig(max_failures=1)
        ),
    )
    return trainer.fit()


def digest_weights(result: train.Result) -> str:
    digest = hashlib.sha256()
    with result.checkpoint.as_directory() as directory:
        weights = torch.load(Path(directory) / "state.pt")["model"]
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()


def digest_metrics(result: train.Result) -> str:
    rows = [f"{metrics['step']} {metrics['loss'].hex()}" for _, metrics in result.best_checkpoints]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def compare(quiet: train.Result, killed: train.Result) -> bool:
    print(f"{'':10}{'undisturbed':20}{'killed once':20}")
    same = True
    for what, digest in (("weights", digest_weights), ("metrics", digest_metrics)):
        first, second = digest(quiet), digest(killed)
        same = same and first == second
        print(f"{what:10}{first[:16]:20}{second[:16]:20}{'identical' if first == second else 'DIFFERENT'}")
    print(f"{'last loss':10}{quiet.metrics['loss']:<20.6f}{killed.metrics['loss']:<20.6f}")
    return same


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as storage_path:
        scene = Path(storage_path) / "scene"
        scene.mkdir()
        print("A small transformer learns to write licence text, with two workers on this machine.\n")
        print(f"1. {STEPS} steps, undisturbed", flush=True)
        quiet = fit("undisturbed", storage_path, None)
        print(f"\n2. The same, but rank {KILL_RANK} is killed in the middle of step {KILL_STEP}", flush=True)
        killed = fit("killed", storage_path, scene)
        if not (scene / "recovered").exists():
            print("The worker was never killed, so this proves nothing.")
            return 1
        print("\n3. The two side by side (sha256)\n")
        same = compare(quiet, killed)
        print(f"\nFrom the kill to the next training step: {float((scene / 'recovered').read_text()):.2f} s.")
    print("A worker died, and nothing was lost: bit for bit the same." if same else "The two runs DIFFER.")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
