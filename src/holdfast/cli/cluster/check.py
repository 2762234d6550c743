"""Compare the workers that a run requests with the capacity of the Ray cluster, now and after it has grown."""

from __future__ import annotations

import argparse
import math
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, paths
from holdfast.cli.cluster.cluster_verdict import ClusterVerdict, judge, worst
from holdfast.cli.run import workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.demand import Demand
    from holdfast.engine.ray.ray_capacity import RayCapacity

HELP = "check whether a cluster has the resources for a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_path", metavar="RUN", nargs="?", help=f"{paths.RUN_HELP}; or describe its workers with the options below"
    )
    parser.add_argument("--workers", metavar="N|MIN:MAX", type=workers, help="as ScalingConfig(num_workers=...)")
    parser.add_argument("--cpus", metavar="N", type=float, help="per worker (default: 1, with --gpus 0)")
    parser.add_argument("--gpus", metavar="N", type=float, default=0.0, help="of each worker")
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="the cluster's configuration: a RayCluster, or a file for ray up, which says how far the cluster may grow "
        "(default, on a head created by ray up: its own file)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="address of the cluster (default: RAY_ADDRESS, or the one on this machine)",
    )


def run(arguments: argparse.Namespace) -> int:
    from holdfast.engine.ray.ray_capacity import parts

    demand = _demand(arguments)
    address = arguments.address or os.environ.get("RAY_ADDRESS") or "auto"
    demands = parts(demand)
    found = _found(demands, address, arguments.config)
    verdict = worst(map(judge, demands, found))
    if arguments.json:
        output.print_json(_as_json(demand, found[0], verdict))
    else:
        _print(demand, found[0])
        output.say(verdict.text)
    return 0 if verdict.can_start else 1


def _found(demands: Sequence[Demand], address: str, config: Path | None) -> list[RayCapacity]:
    """Ray reports lost nodes on standard output, which is reserved for the answer here."""
    from holdfast.engine.ray.connection import connect, disconnect
    from holdfast.engine.ray.growth import read_config
    from holdfast.engine.ray.ray_address import why_unreachable
    from holdfast.engine.ray.ray_capacity import capacity

    with redirect_stdout(sys.stderr):
        growth = read_config(config) if config is not None else None
        why = "" if address == "auto" else why_unreachable(address)
        try:
            if not why:
                connect(address, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            why = str(error)
        if why:
            raise ValueError(f"no Ray cluster answers at {address!r}: {why}. Start one: ray start --head")
        try:
            return [capacity(demand, growth) for demand in demands]
        finally:
            disconnect()


def _demand(arguments: argparse.Namespace) -> Demand:
    """Imported here: the other commands start without what trains."""
    from holdfast.train.config import RunConfig
    from holdfast.train.scaling_config import ScalingConfig
    from holdfast.train.worker_demand import demand_of

    if arguments.run_path is not None:
        return demand_of(ScalingConfig(**paths.open_run(arguments.run_path).identity()["scaling"]), RunConfig())
    if arguments.workers is None:
        raise ValueError("pass a RUN, --workers N or --workers MIN:MAX")
    resources = {name: n for name, n in (("CPU", arguments.cpus), ("GPU", arguments.gpus)) if n}
    scaling = ScalingConfig(
        num_workers=arguments.workers, use_gpu=arguments.gpus > 0, resources_per_worker=resources or None
    )
    return demand_of(scaling, RunConfig())


def _print(demand: Demand, found: RayCapacity) -> None:
    each = ", ".join(f"{amount:g} {name}" for name, amount in demand.resources.items())
    output.say(f"A worker needs {each}.")
    rows = [
        (node.name, str(free), str(room), "draining" if node.drain_by is not None else "")
        for node, free, room in found.nodes
    ]
    output.print_table(("NODE", "FREE WORKERS", "WORKERS", ""), rows)
    if found.types:
        output.say()
        kinds = [
            (
                kind.name,
                "not known" if kind.seats is None else str(kind.seats),
                str(kind.least),
                "no limit" if kind.most is None else str(kind.most),
            )
            for kind in found.types
        ]
        output.print_table(("NODE TYPE", "WORKERS EACH", "MIN NODES", "MAX NODES"), kinds)
        if found.limit is not None:
            output.say(f"All node types together have at most {found.limit} nodes, plus the head.")
    else:
        output.say("The cluster may have an autoscaler." if found.in_the_dark else "The cluster has no autoscaler.")


def _as_json(demand: Demand, found: RayCapacity, verdict: ClusterVerdict) -> dict[str, Any]:
    in_time = found.in_time if math.isfinite(found.in_time) else None
    return {
        "asked": {"min": demand.least, "max": demand.most, "resources": dict(demand.resources)},
        "room": {"free": found.free, "now": found.now, "in_time": in_time, "in_time_is_known": found.is_known},
        "nodes": [
            {"name": node.name, "free": free, "room": room, "draining": node.drain_by is not None}
            for node, free, room in found.nodes
        ],
        "node_types": [vars(kind) for kind in found.types],
        "max_nodes": found.limit,
        "verdict": verdict.text,
        "can_start": verdict.can_start,
    }
