"""A driver in a process of its own, to be stopped and killed: prints the pids of its agent and worker, then each event.

python other_driver.py RUN_DIR OPTIONS, with OPTIONS in JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from holdfast.engine.local.agent_process import Network
from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.testing.engine_runs import Watcher, configure
from holdfast.wire import messages as wire
from support.engine import dummies


def main() -> None:
    options = json.loads(sys.argv[2])
    network = None
    if "command" in options:
        network = Network(tuple(options["command"]), options["driver"], options["node"])
    with LocalCluster() as cluster:
        cluster.add_node(network=network)
        changes = {"node_timeout_s": options["timeout_s"], "preemption_grace_s": 600.0}
        run = Watcher(cluster, configure(Path(sys.argv[1]), dummies.wait_for_ever, **changes))
        agent = run.take(wire.NodeReady)
        (worker,) = run.start(agent.node_id)
        print(agent.pid, worker, flush=True)
        for line in sys.stdin:
            if line.strip() == "end":
                break
            run.session.send(agent.node_id, wire.DumpStacks(1))
            run.take(wire.Stacks)
            print(len(run.taken(wire.NodeLost)), flush=True)
        run.session.close()


if __name__ == "__main__":
    main()
