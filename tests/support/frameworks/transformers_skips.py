"""Prints as JSON the rows of each step of a Transformers ``Trainer`` over a shard, whose checkpoints have no state of
it: ``python transformers_skips.py DIRECTORY RESUME TWICE``. RESUME: what ``train`` is to resume from, as JSON. TWICE:
whether the same shard was iterated over before. Without workers."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

import holdfast.data
from holdfast.train.huggingface.transformers import prepare_trainer

ROWS, BATCH, STEPS, EVERY = 12, 4, 6, 4  # an epoch has three batches


class Told(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.steps: list[list[int]] = []

    def forward(self, id: torch.Tensor) -> dict[str, torch.Tensor]:
        self.steps.append(id.tolist())
        return {"loss": self.weight.sum()}


def main(directory: str, resume: Any, is_used: bool) -> None:
    arguments = TrainingArguments(
        output_dir=directory,
        max_steps=STEPS,
        save_strategy="steps",
        save_steps=EVERY,
        save_total_limit=None,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    model, shard = Told(), holdfast.data.range(ROWS).random_shuffle(seed=1).iterator()
    if is_used:
        next(iter(shard.iter_batches(batch_size=BATCH)))
    trainer = Trainer(model, arguments, train_dataset=shard.iter_torch_batches(batch_size=BATCH))
    prepare_trainer(trainer).train(resume_from_checkpoint=resume)
    assert not arguments.ignore_data_skip
    print(json.dumps(model.steps))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
