"""An experiment as the commands show it: its trials by status, the best of them, and why others failed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.cli import output
from holdfast.core.metric_names import metric_number
from holdfast.printable import printable
from holdfast.runs.experiments import ENDED, ExperimentRecord, TrialRecord
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.runs.stored_run import StoredRun
from holdfast.store.interfaces import LivingDriver
from holdfast.store.sealed import Damage
from holdfast.ui.display_picture import ago, headline, value_text

LIST_HEADER = ("EXPERIMENT", "STATE", "TRIALS", "RESULTS", "LAST CHANGE", "BEST")
_WORDS = {"RUNNING": "running", "PAUSED": "paused", "PENDING": "waiting", "ERROR": "failed", "TERMINATED": "done"}
_SHOWN_TRIALS = 200
_SHOWN_FAILURES = 20


def refuse(stored: StoredRun, command: str) -> None:
    """For commands that look at one run: an experiment has many."""
    if isinstance(stored, StoredExperiment):
        raise ValueError(
            f"{stored.location} is an experiment. Pass one of its trials: holdfast {command} "
            f"{stored.location}/<trial>; holdfast show {stored.location} lists them"
        )


def state_of(found: ExperimentRecord, driver: LivingDriver | None) -> str:
    return "running" if driver is not None else "finished" if found.is_over else "interrupted"


def row(stored: StoredExperiment) -> dict[str, Any]:
    """For ``ls``."""
    found, driver = stored.look()
    best = found.best
    return {
        "kind": "experiment",
        "state": state_of(found, driver),
        "reports": sum(trial.results for trial in found.trials.values()),
        "last_change": found.changed,
        "trials": dict(found.counts),
        "best": best and _best_json(found),
    }


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    best = row["best"]
    return (
        row["name"],
        row["state"],
        counts_text(row["trials"]),
        f"{row['reports']:,}",
        output.local_time(row["last_change"]),
        "-" if best is None else f"{best['value_text']} by {best['name']}: {output.metrics_text(best['params'])}",
    )


def counts_text(counts: Mapping[str, int], wanted: int | None = None) -> str:
    """``wanted``: how many there will be."""
    parts = ", ".join(f"{counts[status]:,} {word}" for status, word in _WORDS.items() if counts.get(status))
    known = sum(counts.values())
    of_total = f" of {wanted:,}" if wanted is not None and wanted > known else ""
    return f"{known:,}{of_total}{f': {parts}' if parts else ''}"


def show(stored: StoredExperiment, as_json: bool) -> int:
    damage = stored.run_file_damage() + stored.journal_damage()
    found, driver = stored.look()
    identity = found.identity
    if as_json:
        output.print_json(_as_json(found, driver, identity, damage))
        return 1 if damage else 0
    for name, text in _summary(found, driver, identity):
        output.say(f"{name:<12}{headline(text, 400)}")
    _print_trials(found, identity)
    _print_failures(found)
    for one in damage:
        output.say(f"damaged: {output.damage_text(one)}")
    return 1 if damage else 0


def _summary(
    found: ExperimentRecord, driver: LivingDriver | None, identity: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    changed, best, metric = found.changed, found.best, identity.get("metric")
    since = "" if changed is None else f", last change {output.local_time(changed)} ({ago(time.time() - changed)})"
    yield "experiment", printable(found.location.name)
    yield "path", printable(str(found.location))
    who = f": process {driver.pid} on {driver.host}" if driver is not None and driver.pid else ""
    yield "state", f"{state_of(found, driver)}{who}"
    yield "trials", counts_text(found.counts, found.wanted)
    yield "results", f"{sum(trial.results for trial in found.trials.values()):,}{since}"
    if best is not None and (told := _best_json(found)) is not None:
        yield "best", f"{told['value_text']} by {best.name}: {output.metrics_text(best.params)}"
    yield (
        "trainable",
        f"{identity.get('trainable')}, to {identity.get('mode')}imize {metric}"
        if metric
        else str(identity.get("trainable")),
    )


def _print_trials(found: ExperimentRecord, identity: Mapping[str, Any]) -> None:
    metric = identity.get("metric")
    trials = list(found.trials.values())
    shown = trials[-_SHOWN_TRIALS:]
    output.say()
    output.say(f"trials{'' if trials else ': none'}")
    if len(shown) < len(trials):
        output.say(f"  the last {len(shown)} of {len(trials):,}; --json has all")
    if shown:
        header = ("TRIAL", "STATUS", "ITER", *([metric.upper()] if metric else []), "PARAMETERS")
        output.print_table(header, (_cells(trial, metric) for trial in shown), indent="  ")
        output.say(f"  holdfast show {found.location}/<trial> shows one")


def _cells(trial: TrialRecord, metric: str | None) -> tuple[str, ...]:
    value = [_value_text(trial, metric)] if metric else []
    return (trial.name, _WORDS[trial.status], str(trial.iteration), *value, output.metrics_text(trial.params))


def _value_text(trial: TrialRecord, metric: str) -> str:
    value = metric_number(trial.metrics, metric)
    return value_text(trial.metrics[metric]) if metric in trial.metrics else "-" if value is None else value_text(value)


def _print_failures(found: ExperimentRecord) -> None:
    failed = [trial for trial in found.trials.values() if trial.status == "ERROR"]
    if failed:
        output.say()
        output.say("failed")
    for trial in failed[:_SHOWN_FAILURES]:
        output.say(f"  {trial.name}: {headline(trial.error)}")
    if len(failed) > _SHOWN_FAILURES:
        output.say(f"  and {len(failed) - _SHOWN_FAILURES:,} more")


def _trial_json(trial: TrialRecord, identity: Mapping[str, Any]) -> dict[str, Any]:
    metric = identity.get("metric")
    value = metric_number(trial.metrics, metric) if metric else None
    return {
        "id": trial.id,
        "name": trial.name,
        "directory": trial.directory,
        "status": trial.status,
        "iteration": trial.iteration,
        "value": value,
        "value_text": f"{metric}={_value_text(trial, metric)}" if metric else "",
        "params": dict(trial.params),
        "error": trial.error or None,
        "reason": trial.reason or None,
    }


def _best_json(found: ExperimentRecord) -> dict[str, Any] | None:
    """The best trial with its best result, as the display and the pages show it."""
    best, result = found.best, found.best_result
    if best is None or result is None:
        return None
    text = f"{found.identity.get('metric')}={value_text(result.value)}"
    return {
        **_trial_json(best, found.identity),
        "iteration": result.iteration,
        "value": result.value,
        "value_text": text,
    }


def _as_json(
    found: ExperimentRecord, driver: LivingDriver | None, identity: Mapping[str, Any], damage: list[Damage]
) -> dict[str, Any]:
    trials = [
        {key: value for key, value in _trial_json(trial, identity).items() if key != "value_text"}
        | {"config": dict(trial.config), "metrics": trial.metrics, "last_change": output.iso_time(trial.changed)}
        for trial in found.trials.values()
    ]
    best = found.best
    return {
        "kind": "experiment",
        "name": found.location.name,
        "path": str(found.location),
        "state": state_of(found, driver),
        "driver": driver and {"pid": driver.pid, "host": driver.host, "since": output.iso_time(driver.since)},
        "last_change": output.iso_time(found.changed),
        "counts": dict(found.counts),
        "unfinished": sum(trial.status not in ENDED for trial in found.trials.values()),
        "best": best and best.id,
        "configuration": dict(identity),
        "trials": trials,
        "damage": output.damage_json(damage),
    }
