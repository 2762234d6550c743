"""Job: save a large checkpoint a few times, and write down how long the save took and how long the loop then stood."""

import contextlib
import json
import os
import sys
import tempfile
import time

import torch

import holdfast.train
from holdfast.train.torch import TorchTrainer


def train_fn(config):
    rank = holdfast.train.get_context().get_world_rank()
    options = {}
    if config["upload"] == "ASYNC":
        mode = holdfast.train.CheckpointUploadMode.ASYNC
        options = {"checkpoint_upload_mode": mode, "delete_local_checkpoint_after_upload": True}
    state = {"weights": torch.rand(config["size"] // 4)} if rank == 0 else {}
    for step in range(config["checkpoints"] + 1):
        if rank != 0:
            holdfast.train.report({"step": step})
            continue
        began = time.monotonic()
        with contextlib.nullcontext(tempfile.mkdtemp()) if options else tempfile.TemporaryDirectory() as directory:
            torch.save(state, os.path.join(directory, "state.pt"))
            saved = time.monotonic()
            checkpoint = holdfast.train.Checkpoint.from_directory(directory) if config["upload"] != "none" else None
            holdfast.train.report({"step": step}, checkpoint=checkpoint, **options)
            reported = time.monotonic()
        times = {"save": saved - began, "report": reported - saved, "block": time.monotonic() - saved}
        with open(os.path.join(config["log"], f"{step}.json"), "w") as file:
            json.dump(times, file)
        time.sleep(config["pause_s"])  # stands for training: what is left to do for the checkpoint is done behind it


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2),
        run_config=holdfast.train.RunConfig(
            name="big_checkpoint",
            storage_path=arguments["storage"],
            checkpoint_config=holdfast.train.CheckpointConfig(num_to_keep=1),
        ),
    ).fit()
