"""Show a run: its state and configuration, what happened and when, failures with causes, checkpoints, damage."""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec

from holdfast.cli import experiment_views, output, paths
from holdfast.cli.checkpoints import listing as checkpoints
from holdfast.printable import printable
from holdfast.runs import timeline
from holdfast.runs.ledger import Ledger
from holdfast.runs.reading import Reading
from holdfast.runs.stored_experiment import StoredExperiment
from holdfast.store.sealed import Damage
from holdfast.ui.display_picture import ago, headline

_SHOWN_CHECKPOINTS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    if isinstance(stored, StoredExperiment):
        return experiment_views.show(stored, arguments.json)
    found = stored.read()
    told = timeline.moments(found.records)
    ledger = found.quick_ledger()
    damage = [*stored.run_file_damage(), *stored.journal_damage(), *stored.manifest_damage()]
    if arguments.json:
        output.print_json(_as_json(found, told, ledger, damage))
    else:
        _print_summary(found, ledger)
        _print_history(told)
        _print_checkpoints(found)
        _print_damage(damage)
    return 1 if damage else 0


def _as_json(found: Reading, told: list[timeline.Moment], ledger: Ledger, damage: list[Damage]) -> dict[str, Any]:
    reports, row = found.last_report
    driver = found.driver
    events = [{**moment._asdict(), "time": output.iso_time(moment.time)} for moment in told]
    return {
        "name": found.run.location.name,
        "path": str(found.run.location),
        "state": found.state,
        "driver": driver and {"pid": driver.pid, "host": driver.host, "since": output.iso_time(driver.since)},
        "reports": reports,
        "metrics": row and row["metrics"],
        "last_change": output.iso_time(found.last_change),
        "failures_counted": found.past.state.spent,
        "configuration": found.run.known_identity(),
        "ledger": _ledger_json(ledger),
        "timeline": events,
        "failures": [event for event in events if event["kind"] == "failure"],
        "checkpoints": checkpoints.as_json(checkpoints.kept_checkpoints(found)),
        "quarantined": [{"id": id, "why": why} for id, why in found.run.quarantined()],
        "damage": output.damage_json(damage),
    }


def _ledger_json(ledger: Ledger) -> dict[str, Any]:
    failures = [{**msgspec.to_builtins(f), "time": output.iso_time(f.time)} for f in ledger.failures]
    return {**msgspec.to_builtins(ledger), "goodput": ledger.goodput, "failures": failures}


def _print_summary(found: Reading, ledger: Ledger) -> None:
    reports, row = found.last_report
    changed = found.last_change
    since = "" if changed is None else f", last change {output.local_time(changed)} ({ago(time.time() - changed)})"
    lines = [
        ("run", printable(found.run.location.name)),
        ("path", printable(str(found.run.location))),
        ("state", f"{found.state}{_driver_text(found)}"),
        ("reports", f"{reports:,}{since}"),
        ("metrics", output.metrics_text(row and row["metrics"])),
        ("time", ledger.summary()),
        *_configuration(found.run.known_identity()),
    ]
    for name, text in lines:
        output.say(f"{name:<12}{headline(text, 400)}")


def _driver_text(found: Reading) -> str:
    driver = found.driver
    if driver is None:
        return ""
    who = f"process {driver.pid}" if driver.pid else "a process"
    host = f" on {driver.host}" if driver.host else ""
    return f": {who}{host}{f' since {output.local_time(driver.since)}' if driver.since else ''}"


def _configuration(identity: dict[str, Any]) -> list[tuple[str, str]]:
    if not identity:
        return [("trainer", "not known")]
    scaling, failure, checkpoint = (identity.get(part) or {} for part in ("scaling", "failure", "checkpoint"))
    workers = scaling.get("num_workers")
    gpu = " with a GPU each" if scaling.get("use_gpu") else ""
    keep, score = checkpoint.get("num_to_keep"), checkpoint.get("checkpoint_score_attribute")
    by = f" by {checkpoint.get('checkpoint_score_order')} {score}" if score else ""
    lines = [
        ("trainer", f"{identity.get('trainer')}, num_workers={workers}{gpu}"),
        ("retries", f"max_failures={failure.get('max_failures')}"),
        ("keeps", f"{'all checkpoints' if keep is None else f'{keep} checkpoints'}{by}"),
        ("config", output.metrics_text(identity.get("train_loop_config"))),
    ]
    return [*lines, ("datasets", ", ".join(identity["datasets"]))] if identity.get("datasets") else lines


def _print_history(told: list[timeline.Moment]) -> None:
    output.say()
    output.say("history")
    for number, moment in enumerate(told):
        elapsed = "" if number == 0 else output.elapsed_text(moment.time - told[0].time)
        done = f" [{moment.cause}]; {moment.action}" if moment.cause else ""
        output.say(f"  {output.local_time(moment.time)}  {elapsed:>9}  {headline(moment.text)}{done}")


def _print_checkpoints(found: Reading) -> None:
    kept = checkpoints.kept_checkpoints(found)
    output.say()
    output.say(f"checkpoints{'' if kept else ': none'}")
    if len(kept) > _SHOWN_CHECKPOINTS:
        output.say(f"  the newest {_SHOWN_CHECKPOINTS} of {len(kept)}; holdfast checkpoints lists all")
    if kept:
        output.print_table(checkpoints.HEADER, map(checkpoints.cells, kept[-_SHOWN_CHECKPOINTS:]), indent="  ")
    for id, why in found.run.quarantined():
        output.say(f"  quarantined: {id}: {headline(why)}")


def _print_damage(damage: list[Damage]) -> None:
    if not damage:
        return
    output.say()
    output.say("damage")
    for one in damage:
        output.say(f"  {output.damage_text(one)}")
    output.say("  The checkpoints' own files were not read: holdfast verify does that.")
