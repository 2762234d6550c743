"""The only reader of Holdfast's environment variables: each is its field's name in capitals after ``HOLDFAST_``."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    engine: str = "local"
    storage_path: str = "~/holdfast_results"
    prefork: bool = True  # keep a snapshot of the freshly imported script to fork workers from
    start_method: str = "fork"  # how workers start: "fork" from a warm zygote, or "spawn"
    display: str = "auto"  # "auto", "live", "plain" or "off"
    start_timeout_s: float = 300.0  # an attempt that is not training by then failed to start
    regroup_timeout_s: float = 10.0  # for the survivors of a lost rank to meet its replacement; 0: all start again
    stopped_grace_s: float = 2.0  # how long a worker may stay stopped (SIGSTOP) before it counts as hung
    missing_report_warning_s: float = 30.0  # a report that some ranks have made and others not: warn after this
    storage_patience_s: float = 600.0  # how long remote storage may not answer before the run ends for it
    scratch_dir: str = ""  # the nodes' files of runs on object stores, in holdfast-<uid>; empty: temporary directory
    staging_limit_gb: float = 0.0  # of what waits for storage, above which reports wait too; 0: half of the free space
    bad_node_failures: int = 3  # a node on which so many attempts failed is left alone for a time; 0: never
    bad_node_rest_s: float = 600.0
    preemption_grace_s: float = 30.0  # from a SIGTERM to a node's agent until it ends
    node_timeout_s: float = 10.0  # a node that has not answered for so long is lost
    idle_node_s: float = 60.0  # on Ray: a node that no trial has used for so long is left, and may be scaled down
    standby_nodes: int = 0  # on Ray: nodes in reserve on which an agent is kept ready
    stop_grace_s: float = 5.0  # between SIGTERM and SIGKILL when a run is stopped on request
    exit_timeout_s: float = 300.0  # how long a worker may take to end after its train function has returned
    metrics_port: int = 0  # of an endpoint for Prometheus in the driver; 0: none
    metrics_host: str = "127.0.0.1"  # where it listens
    event_log: bool = False  # write what happens as JSON lines into the run's directory
    notify: str = ""  # a shell command, or a URL that takes a POST: gets the outcome of each run and experiment
    wrapper: str = ""  # a hook around runs, as module:argument; set by holdfast drill


def load() -> Settings:
    """Read the settings from the environment; a value that does not parse is an error that names the variable."""
    values: dict[str, object] = {}
    for field in fields(Settings):
        name = f"HOLDFAST_{field.name.upper()}"
        text = os.environ.get(name)
        if text is None:
            continue
        try:
            values[field.name] = _parse(text, type(field.default))
        except ValueError:
            raise ValueError(f"{name}={text!r}: use {_WANTED[type(field.default)]}") from None
    return Settings(**values)  # type: ignore[arg-type]


_WANTED = {bool: "1, true, yes, on or 0, false, no, off", float: "a number", int: "a whole number", str: "a text"}


def _parse(text: str, kind: type) -> object:
    if kind is bool:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise ValueError(text)
    return kind(text)
