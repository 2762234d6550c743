"""A Transformers ``Trainer`` in a script as Ray's guides write it, with another import root: their callback and
``prepare_trainer``, a save with each epoch, and ``trainer.train`` from the run's checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import holdfast.train.huggingface.transformers
from holdfast import train
from holdfast.train.huggingface.transformers import RayTrainReportCallback
from holdfast.train.torch import TorchTrainer
from support.frameworks.framework_job import note, run, strike

EPOCHS, BATCHES = 3, 5


class Strikes(TrainerCallback):
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        strike(self.config, state.global_step)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    tokens = torch.randint(0, 50, (BATCHES * 4 * 2, 8), generator=torch.Generator().manual_seed(5))
    data = [{"input_ids": row, "labels": int(row.sum() % 2)} for row in tokens]
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=2, **sizes))
    args = TrainingArguments(
        output_dir=str(Path(config["home"]) / "output"),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=4,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        learning_rate=0.01,
    )
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:8], callbacks=[Strikes(config)])
    trainer.add_callback(RayTrainReportCallback())
    trainer = holdfast.train.huggingface.transformers.prepare_trainer(trainer)
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            path = os.path.join(directory, RayTrainReportCallback.CHECKPOINT_NAME)
            trainer.train(resume_from_checkpoint=path)
    else:
        trainer.train()


def digest(directory: str) -> bytes:
    from safetensors.torch import load_file

    state = load_file(Path(directory) / "checkpoint" / "model.safetensors")
    return b"".join(value.numpy().tobytes() for _, value in sorted(state.items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step")
