"""Many runs of the soak, some at a time: each with the undisturbed run that it must come out like."""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.soak.soak_plan import Plan
from support.soak.soak_run import Ended, SoakRun
from support.soak.soak_switch import Port, switch
from support.soak.soak_table import table
from support.soak.soak_verdict import Cost, costs, judge, sample_counts

PORTS = 10


@dataclass
class Sum:
    runs: int = 0
    seconds: list[float] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    too_late: int = 0  # faults that their run did not wait for
    repeated: int = 0
    orphans: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        late = f" ({self.too_late} more came too late)" if self.too_late else ""
        counts = f"{self.runs} runs, {len(self.wrong)} of them wrong, with {len(self.costs)} faults{late}"
        return f"{counts}\n\n{table(self.costs, self.repeated, self.orphans)}"


class Arena:
    """``slots``: how many runs at a time. Runs whose seed is drawn with a network need namespaces of this machine."""

    def __init__(self, home: Path, number: int, slots: int) -> None:
        self._home, self._number, self._slots = home, number, slots
        self._lock, self._reference_lock = threading.Lock(), threading.Lock()
        self._references: dict[Any, dict[str, Any]] = {}
        self._ports: queue.SimpleQueue[list[Port]] = queue.SimpleQueue()
        self.can_cut = True
        self.sum = Sum()

    @contextmanager
    def opened(self) -> Iterator[Arena]:
        with ExitStack() as stack:
            try:
                for slot in range(self._slots):
                    made = stack.enter_context(switch((self._number * 8 + slot) % (64 * 256), PORTS))
                    self._ports.put(made.ports)
            except (OSError, subprocess.CalledProcessError) as error:
                self.can_cut = False
                print(f"no network namespaces here, so no link is cut: {error}")
                for _ in range(self._slots):
                    self._ports.put([])
            yield self

    def run_all(self, plans: Iterable[Plan], until: float) -> Sum:
        """Those that can begin until then."""
        with ThreadPoolExecutor(self._slots) as pool:
            list(pool.map(lambda plan: self._one(plan) if time.monotonic() < until else None, plans))
        return self.sum

    def _one(self, plan: Plan) -> None:
        ports = self._ports.get()
        home = self._home / str(plan.seed)
        try:
            ended = SoakRun(plan, home, ports).go()
            wrong = judge(ended, home, self._reference(plan))
        except Exception as error:
            with self._lock:
                self.sum.wrong.append(f"seed {plan.seed}: {error!r}")
            raise
        finally:
            for port in ports:
                port.fix()
            self._ports.put(ports)
        self._add(ended, wrong)
        if not wrong:
            shutil.rmtree(home)

    def _add(self, ended: Ended, wrong: list[str]) -> None:
        seed, found = ended.plan.seed, costs(ended)
        struck = ", ".join(f"{s.fault.kind} ({c.lost})" for s, c in zip(ended.struck, found, strict=True))
        with self._lock:
            print(f"seed {seed}: {ended.seconds:.1f} s, {'WRONG' if wrong else 'ok'}: {struck}", flush=True)
            self.sum.runs += 1
            self.sum.seconds.append(ended.seconds)
            self.sum.costs += found
            self.sum.too_late += len(ended.plan.faults) - len(ended.struck)
            self.sum.repeated += sample_counts(ended)[1]
            self.sum.orphans += ended.orphans
            if wrong:
                how = f"make soak RUNS=1 KILLS=0 SEED={seed}"
                text = "\n  ".join(wrong)
                self.sum.wrong.append(f"seed {seed} (again: {how}; its files: {self._home / str(seed)}):\n  {text}")

    def _reference(self, plan: Plan) -> dict[str, Any] | None:
        """How the run ends when nothing is done to it. With torch, sums depend on how many workers there are."""
        if plan.torch and not plan.is_fixed:
            return None
        undisturbed = plan.undisturbed
        key = (plan.torch, undisturbed.workers, plan.samples, plan.batch)
        with self._reference_lock:
            if key not in self._references:
                home = self._home / f"undisturbed-{len(self._references)}"
                ended = SoakRun(undisturbed, home, []).go()
                assert not (wrong := judge(ended, home, None)), wrong
                self._references[key] = ended.outcome
            return self._references[key]
