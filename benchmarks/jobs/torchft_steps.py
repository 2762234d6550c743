"""Job: ``steps`` with torchft: two replica groups of one process each, which are started again when they are killed.

Run without ``RANK_OF_JOB`` it is the supervisor: it serves the lighthouse and starts the two processes.
"""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta


def train(config, rank):
    import torch
    from torch.distributed import TCPStore
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    plain = torch.optim.SGD(model.parameters(), lr=0.01)

    def load(state):
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"steps_{rank}",
    )
    name = f"{rank}-{time.monotonic_ns()}-{os.getpid()}"
    log = os.open(os.path.join(config["log"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    ddp, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, plain)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    while True:
        until = time.monotonic() + config["step_s"]
        optimizer.zero_grad()  # the quorum
        loss = torch.nn.functional.cross_entropy(ddp(inputs), labels)
        loss.backward()
        optimizer.step()  # the vote
        busy = time.monotonic() - until + config["step_s"]
        time.sleep(max(0.0, until - time.monotonic()))
        if manager.num_participants() == 2:  # steps with all ranks
            os.write(log, f"{time.monotonic()} {manager.current_step()} {busy}\n".encode())


def supervise(config):
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=config["join_timeout_ms"],
        heartbeat_timeout_ms=config["heartbeat_timeout_ms"],
    )
    address = lighthouse.address()
    port = address.rpartition(":")[2]
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    processes = {}
    while True:
        for rank in range(2):
            if rank not in processes or processes[rank].poll() is not None:
                own = {**environment, "RANK_OF_JOB": str(rank), "REPLICA_GROUP_ID": str(rank)}
                processes[rank] = subprocess.Popen([sys.executable, *sys.argv], env=own)
        time.sleep(0.005)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    if "RANK_OF_JOB" in os.environ:
        train(arguments, int(os.environ["RANK_OF_JOB"]))
    else:
        supervise(arguments)
