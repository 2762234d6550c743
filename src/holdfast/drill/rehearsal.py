"""The whole drill: the script undisturbed, the plan of faults, the script under each of them, and the verdict."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.drill import drill_verdict, on_ray, outcome, run_comparison, running
from holdfast.drill.drill_verdict import ADVICE, PROBLEM, Finding, Seen
from holdfast.drill.fault_plan import plan
from holdfast.drill.faults import KINDS, Address, Fault
from holdfast.drill.outcome import RunOutcome
from holdfast.drill.own_cluster import OwnCluster
from holdfast.drill.run_comparison import Differences
from holdfast.drill.running import Take
from holdfast.drill.script_findings import of_the_script
from holdfast.drill.stage import Stage

LEAST_LIMIT_S = 120.0
_TIMES_AS_LONG = 5.0  # times the undisturbed run, plus the time for a recovery
_LAST_LINES = 3
_RAISED = re.compile(r"[\w.]+(Error|Exception): .")  # the last line of a traceback, which has the error

Tell = Callable[[str], None]


class DrillFailedError(ValueError):
    """The drill itself could not be done: the script does not even end well undisturbed."""


@dataclass
class FaultResult:
    """The result of one fault."""

    fault: Fault
    recovered: bool
    times: int  # how often the script was run
    seconds: float
    next_step_s: float | None
    lost: int
    differences: Differences
    findings: list[Finding]
    struck_at: int | None = None  # the step
    runs: list[RunOutcome] = field(default_factory=list)

    @property
    def state_from(self) -> str:
        return ", ".join(dict.fromkeys(run.state_from for run in self.runs if run.state_from))

    @property
    def steps_again(self) -> int:
        return sum(run.steps_again for run in self.runs)

    @property
    def passed(self) -> bool:
        return self.recovered and not any(finding.severity == PROBLEM for finding in self.findings)


@dataclass
class DrillReport:
    script: str
    args: list[str]
    seed: int
    undisturbed: list[RunOutcome]
    undisturbed_s: float
    results: list[FaultResult]
    skipped: list[tuple[str, str]]
    findings: list[Finding]  # of the script as a whole, undisturbed
    left_out: list[str]  # metrics, and values of checkpoints, that differ by themselves and were not compared

    @property
    def passed(self) -> bool:
        problems = [finding for finding in self.findings if finding.severity == PROBLEM]
        return not problems and all(result.passed for result in self.results)

    def check(self) -> None:
        """AssertionError with all that a person wants to know, unless the drill passed."""
        if not self.passed:
            from holdfast.drill.table import text

            raise AssertionError(f"the drill of {self.script} failed\n{text(self)}")

    @property
    def verdicts(self) -> list[tuple[Finding, list[Fault]]]:
        """Each finding once, with the faults that showed it."""
        found: dict[Finding, list[Fault]] = {finding: [] for finding in self.findings}
        codes: dict[str, Finding] = {}
        for result in self.results:
            for finding in result.findings:
                found.setdefault(codes.setdefault(finding.code, finding), []).append(result.fault)
        return sorted(found.items(), key=lambda item: item[0].severity == ADVICE)


class Rehearsal:
    def __init__(
        self,
        script: str,
        args: Sequence[str] = (),
        *,
        seed: int = 0,
        addresses: Sequence[Address] = (),
        timeout_s: float | None = None,
        keep: Path | None = None,
        tell: Tell = lambda _: None,
    ) -> None:
        """``addresses``: the faults; all of them if empty. ``keep``: a directory where the runs are kept for
        inspection."""
        if not Path(script).is_file():
            raise ValueError(f"script {script} does not exist")
        self._script, self._args, self._seed = str(Path(script).resolve()), list(args), seed
        on_ray.refuse(address.name for address in addresses)
        self._addresses = list(addresses) or [Address(name) for name in KINDS]
        self._timeout_s, self._keep, self._tell = timeout_s, keep, tell
        self._noise: Differences | None = None  # what the user must know
        self._again: Differences | None = None  # between two undisturbed runs

    def run(self) -> DrillReport:
        with self._directory() as directory, OwnCluster(directory) as self._cluster:
            self._top = directory
            stage = Stage.build(directory / "undisturbed", None)
            self._tell("undisturbed")
            take = running.perform(stage, self._script, self._args, self._timeout_s or 3600.0, self._cluster)
            self._undisturbed = outcome.read(stage) if take.is_good else []
            self._limit_s = self._timeout_s or LEAST_LIMIT_S + _TIMES_AS_LONG * take.seconds
            self._check_undisturbed(take, stage)
            faults, skipped = plan(self._addresses, self._undisturbed, self._seed)
            results = [self._under(number, fault) for number, fault in enumerate(faults, start=1)]
            return DrillReport(
                script=self._script,
                args=self._args,
                seed=self._seed,
                undisturbed=self._undisturbed,
                undisturbed_s=take.seconds,
                results=results,
                skipped=skipped,
                findings=of_the_script(
                    self._undisturbed, self._noise or Differences(), all(result.passed for result in results)
                ),
                left_out=self._left_out(),
            )

    @contextlib.contextmanager
    def _directory(self) -> Iterator[Path]:
        """The path is short, because sockets may be created in it."""
        if self._keep is not None:
            if self._keep.exists() and any(self._keep.iterdir()):
                raise ValueError(f"--keep {self._keep}: the directory is not empty. Choose an empty one.")
            self._keep.mkdir(parents=True, exist_ok=True)
            yield self._keep.resolve()
            return
        directory = Path(tempfile.mkdtemp(prefix="hf-drill-"))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _check_undisturbed(self, take: Take, stage: Stage) -> None:
        words = last_words(stage)
        if take.code is None:
            raise DrillFailedError(
                f"{self._script} did not finish within {take.seconds:.0f} s without a fault: {words}"
            )
        if not take.is_good:
            raise DrillFailedError(f"{self._script} failed without a fault, with exit code {take.code}: {words}")
        if not any(run.rows for run in self._undisturbed):
            raise DrillFailedError(
                f"{self._script} made no report. It must call fit() of a holdfast trainer, and its train function must "
                "call holdfast.train.report(). To rehearse a script for holdfast run, use: "
                "holdfast drill $(which holdfast) run --name NAME script.py"
            )

    def _under(self, number: int, fault: Fault) -> FaultResult:
        self._tell(str(fault))
        stage = Stage.build(self._top / f"{number:02d}", fault)
        take = running.perform(stage, self._script, self._args, self._limit_s, self._cluster)
        runs, struck = outcome.read(stage), stage.struck()
        differences = run_comparison.compare_all(self._undisturbed, runs)
        if not differences.is_none and take.is_good:
            differences = differences.without(self._noise_in(runs, differences))
        seen = Seen(fault, take, struck, self._undisturbed, runs, differences, self._limit_s, last_words(stage))
        recovered = take.is_good and bool(runs) and runs[-1].finished
        nexts = [run.next_report(struck) for run in runs] if struck is not None and recovered else []
        result = FaultResult(
            fault=fault,
            recovered=recovered,
            times=take.times,
            seconds=take.seconds,
            next_step_s=min((found for found in nexts if found is not None), default=None),
            lost=sum(run.lost for run in runs) + _abandoned(self._undisturbed, runs),
            differences=differences,
            findings=drill_verdict.judge(seen),
            struck_at=None if struck is None else struck["step"],
            runs=runs,
        )
        if self._keep is None:
            shutil.rmtree(stage.directory, ignore_errors=True)
        return result

    def _noise_in(self, runs: list[RunOutcome], differences: Differences) -> Differences:
        """What differs without a fault: seen before the fault or, if that is not enough, in another undisturbed run."""
        if self._again is None and len(runs) == len(self._undisturbed) == 1:
            noise = run_comparison.noise_before(self._undisturbed[0], runs[0])
            if noise is not None and not differences.without(noise).is_in_metrics_only:
                self._noise = self._noise or noise
                return noise
        if self._again is None:
            self._tell("undisturbed again, to see what differs without a fault")
            stage = Stage.build(self._top / "undisturbed-2", None)
            take = running.perform(stage, self._script, self._args, self._limit_s, self._cluster)
            again = outcome.read(stage) if take.is_good else []
            self._again = self._noise = run_comparison.compare_all(self._undisturbed, again)
        return self._again

    def _left_out(self) -> list[str]:
        noise = self._noise or Differences()
        return sorted({point.name for point in noise.metrics} | {one.where for one in noise.weights})


def _abandoned(expected: list[RunOutcome], found: list[RunOutcome]) -> int:
    """The reports of runs that were not found again."""
    kept = {id(run) for run in run_comparison.counterparts(expected, found)}
    return sum(len(run.rows) for run in found if id(run) not in kept)


def last_words(stage: Stage) -> str:
    try:
        lines = stage.output_file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    if lines and _RAISED.match(lines[-1]):
        return lines[-1]
    return " | ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip())
