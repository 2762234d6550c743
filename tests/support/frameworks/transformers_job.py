"""A Transformers training with dropout, a shuffled data set and checkpoints in the middle of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from holdfast import train
from holdfast.train.huggingface.transformers import RayTrainReportCallback, fit, prepare_trainer
from holdfast.train.torch import TorchTrainer
from support.frameworks.framework_job import note, run, strike

EPOCHS, BATCHES, EVERY = 2, 5, 2


class Strikes(TrainerCallback):
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        strike(self.config, state.global_step)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 50, (BATCHES * 4 * config.get("workers", 2), 8), generator=generator)
    data = [{"input_ids": row, "labels": int(row.sum() % 2)} for row in tokens]
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=2, **sizes))
    args = TrainingArguments(
        output_dir=str(Path(config["home"]) / "output"),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=4,
        save_strategy="steps",
        save_steps=EVERY,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        learning_rate=0.01,
    )
    assert args.world_size == train.get_context().get_world_size(), "the Trainer has joined the process group"
    trainer = Trainer(model, args, train_dataset=data, callbacks=[RayTrainReportCallback(), Strikes(config)])
    fit(prepare_trainer(trainer))


def digest(directory: str) -> bytes:
    from safetensors.torch import load_file

    state = load_file(Path(directory) / "checkpoint" / "model.safetensors")
    return b"".join(value.numpy().tobytes() for _, value in sorted(state.items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step")
