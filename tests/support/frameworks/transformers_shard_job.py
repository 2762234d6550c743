"""Transformers over a shard of a dataset, whose rows the model counts; checkpoints in the middle of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from holdfast import train
from holdfast.train.huggingface.transformers import TransformersReportCallback, fit, prepare_trainer
from holdfast.train.torch import TorchTrainer
from support.frameworks.counted_rows import BATCH, END, EPOCHS, ROWS, STEPS, datasets, note_counts
from support.frameworks.framework_job import await_change, note, run, strike

EVERY = 4


class Counts(torch.nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.job = config
        self.seen = torch.nn.Parameter(torch.zeros(ROWS))

    def forward(self, id: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": -self.seen[id].sum() * train.get_context().get_world_size()}  # DDP takes the mean of the ranks


class Events(TrainerCallback):
    """A Trainer does not count the epochs of an iterable: its shard does."""

    def __init__(self, config: dict[str, Any], model: Counts) -> None:
        self.config, self.model = config, model

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        strike(self.config, state.global_step)
        await_change(self.config, state.global_step + 1)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        data = train.get_dataset_shard("train").state_dict()
        epochs = data["epoch"] + (data["left"] == [])  # it ends at the last of its steps, before the end of the shard
        note_counts(self.config, epochs, self.model.seen.detach())
        if "joins" in self.config and epochs == EPOCHS:
            control.should_training_stop = True


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=str(Path(config["home"]) / "output"),
        max_steps=1000 if "joins" in config else STEPS,  # else the number of workers changes
        save_strategy="steps",
        save_steps=config.get("every", EVERY),
        max_grad_norm=0,
        report_to=[],
        disable_tqdm=True,
    )
    model = Counts(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = Trainer(
        model,
        arguments,
        train_dataset=train.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
        callbacks=[TransformersReportCallback(), Events(config, model)],
    )
    fit(prepare_trainer(trainer))
    strike(config, END)


def digest(directory: str) -> bytes:
    from safetensors.torch import load_file

    return bytes(load_file(Path(directory) / "checkpoint" / "model.safetensors")["seen"].numpy().tobytes())


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step", datasets=datasets())
