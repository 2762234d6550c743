"""Two ranks of a process group, as a program: it imports torch once, forks the ranks, and prints what each of them said
as JSON, for each scenario. A rank's session is a stand-in whose broadcast goes through a pipe from rank 0 to rank 1."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist

from holdfast.train.torch import TorchConfig, prepare_model
from holdfast.wire.worker_messages import Place
from holdfast.worker import session as sessions
from holdfast.worker.worker_place import WorkerPlace


def train(rank: int) -> dict[str, Any]:
    torch.manual_seed(rank)
    model = prepare_model(torch.nn.Linear(2, 1))
    model(torch.full((4, 2), float(rank))).sum().backward()
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    return {
        "total": total.item(),
        "gradient": next(model.parameters()).grad.tolist(),
        "kind": type(model).__name__,
        "backend": dist.get_backend(),
        "env": {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")},
    }


def fail(rank: int) -> None:
    """Rank 0 raises while rank 1 waits in a collective that can never complete."""
    dist.barrier()
    if rank == 0:
        raise ValueError("rank 0 gives up")
    dist.all_reduce(torch.ones(1))


def return_at_once(rank: int) -> int:
    """Rank 0 is done, and its store with it, while rank 1 may still be forming its side of the group."""
    return rank


def be_rank(rank: int, scenario: Callable[[int], Any], broadcast: tuple[int, int]) -> dict[str, Any]:
    def request(kind: str, body: Any, timeout_s: float) -> Any:
        assert (kind, timeout_s) == ("broadcast", 30)
        if rank == 0:
            os.write(broadcast[1], json.dumps(body).encode())
            return body
        return json.loads(os.read(broadcast[0], 4096))

    place = {"rank": rank, "world_size": 2, "local_rank": rank, "local_world_size": 2, "node_rank": 0}
    tie = {
        "attempt_number": 4,
        "joins": 0,
        "devices": [],
        "address": "127.0.0.1",
        "request": request,
        "at_end": lambda call: call(),
    }
    tie["is_launched"] = False
    known = WorkerPlace(Place(rank, rank, 2, 0), lambda: None)
    sessions.install(SimpleNamespace(place=known, **place, **tie))  # type: ignore[arg-type]
    try:
        said = TorchConfig(timeout_s=30).wrap(scenario)(rank)
    except Exception:
        return {"error": traceback.format_exc()}
    return {"said": said, "left": not dist.is_initialized()}


def run(scenario: Callable[[int], Any]) -> list[Any]:
    broadcast = os.pipe()
    answers = [os.pipe() for _ in range(2)]
    for rank in range(2):
        if os.fork() == 0:
            os.write(answers[rank][1], json.dumps(be_rank(rank, scenario, broadcast)).encode())
            os._exit(0)
    for _ in range(2):
        os.wait()
    return [json.loads(os.read(read, 1 << 16)) for read, _ in answers]


short = [run(return_at_once) for _ in range(60)]
json.dump({"train": run(train), "fail": run(fail), "short": short}, sys.stdout)
