"""The Transformers Trainer over two workers. The guide docs/transformers.md explains it."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from holdfast import train  # 1
from holdfast.train.huggingface.transformers import TransformersReportCallback, fit  # 2
from holdfast.train.torch import TorchTrainer  # 3


def main():
    torch.manual_seed(0)
    tokens = torch.randint(0, 50, (64, 8))
    data = [{"input_ids": row, "labels": int(row.sum() % 2)} for row in tokens]
    model = BertForSequenceClassification(
        BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )
    arguments = TrainingArguments(
        output_dir="output", num_train_epochs=2, save_strategy="steps", save_steps=3, save_total_limit=2, report_to=[]
    )
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.add_callback(TransformersReportCallback())  # 4
    fit(trainer)  # 5: instead of trainer.train()


if __name__ == "__main__":
    run = train.RunConfig(name="bert", storage_path="runs", failure_config=train.FailureConfig(max_failures=3))  # 6
    TorchTrainer(main, scaling_config=train.ScalingConfig(num_workers=2), run_config=run).fit()  # 7: instead of main()
