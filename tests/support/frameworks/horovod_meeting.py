"""``HorovodTrainer`` with a stand-in for Horovod: ``python horovod_meeting.py STORAGE``. Three workers on two nodes
meet, one of them is killed, and they meet again; what each found in its environment is printed as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import horovod.torch as hvd

import holdfast
from holdfast import train
from holdfast.train.horovod import HorovodConfig, HorovodTrainer

NAMES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME", "CONTROLLER")


def train_fn(config: dict[str, Any]) -> None:
    hvd.init()
    assert hvd.rank() == train.get_context().get_world_rank()
    if train.get_checkpoint() is None:
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text("1")
            saved = train.Checkpoint.from_directory(directory) if hvd.rank() == 0 else None
            train.report({"step": 1}, saved, checkpoint_upload_mode=train.CheckpointUploadMode.SYNC)
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.barrier()
        raise AssertionError("a barrier without rank 1")
    train.report({"step": 2})
    found = [os.environ[f"HOROVOD_{name}"] for name in NAMES]
    Path(config["home"], f"rank-{hvd.rank()}").write_text(json.dumps(found))


def main() -> None:
    home = sys.argv[1]
    with holdfast.LocalCluster() as cluster:
        cluster.add_node(cpus=2, node_id="large")
        cluster.add_node(cpus=1, node_id="small")
        result = HorovodTrainer(
            train_fn,
            train_loop_config={"home": home},
            horovod_config=HorovodConfig(nics={"lo"}, timeout_s=60),
            scaling_config=train.ScalingConfig(num_workers=3),
            run_config=train.RunConfig(
                name="meeting",
                storage_path=home,
                engine=cluster,
                failure_config=train.FailureConfig(max_failures=1),
                verbose=0,
            ),
        ).fit()
    again = HorovodTrainer.restore(Path(home, "meeting"), train_fn, run_config=train.RunConfig())
    found = [json.loads(Path(home, f"rank-{rank}").read_text()) for rank in range(3)]
    assert "HOROVOD_RANK" not in os.environ
    config = again.backend_config
    assert isinstance(config, HorovodConfig)
    print(json.dumps([found, result.metrics_dataframe["step"].tolist(), config.nics, config.timeout_s]))


if __name__ == "__main__":
    main()
