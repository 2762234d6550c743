"""Stop a run, on whichever machine its driver is, and wait until it has stopped.

This is the same as SIGTERM: workers get FailureConfig(preemption_grace_s) for a last checkpoint, and pending
checkpoints are saved. Run the same script again to resume. A run that has no driver is not changed.
"""

from __future__ import annotations

import argparse
import time

from holdfast.cli import output, paths
from holdfast.driver import stop_requests
from holdfast.driver.stop_requests import StopRequest
from holdfast.errors import HoldfastError, StorageError, StorageUnavailableError
from holdfast.runs.discovery import READ_PATIENCE_S
from holdfast.runs.stored_run import StoredRun
from holdfast.store.interfaces import LivingDriver
from holdfast.store.objects.base import ObjectStore

_POLL_S = 0.1
_REMOTE_POLL_S = 2.0
_SAYS_WHO_IT_IS_WITHIN_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument("--now", action="store_true", help="end the workers immediately, without a last checkpoint")
    parser.add_argument(
        "--timeout", type=_seconds, default=120.0, metavar="S", help="how many seconds to wait (default: 120)"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait until the run has stopped")


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    driver = _driver(stored)
    if driver is None:
        state = stored.read(with_manifests=False).state
        return _tell(
            arguments, stored, False, state, f"nothing to stop: {stored.location} has no driver (state: {state})"
        )
    who = f"process {driver.pid} on {driver.host}"
    if driver.pid is None or driver.host is None or driver.since is None:
        raise HoldfastError(
            f"{stored.location} has a driver, but its lease does not say which process. Stop it on its machine."
        )
    objects = stored.location.open(READ_PATIENCE_S)
    try:
        stop_requests.leave(objects, StopRequest(driver.host, driver.pid, driver.since, arguments.now))
    except StorageUnavailableError:
        raise
    except StorageError as error:
        raise HoldfastError(
            f"the stop request cannot be written to {stored.location}: {error}. Stop {who} directly."
        ) from None
    if arguments.no_wait:
        return _tell(arguments, stored, True, "running", f"asked {who} to stop")
    if not arguments.json:
        output.note(f"asked {who} to stop; waiting for it")
    if not _await_end(stored, driver, arguments.timeout):
        return _give_up(arguments, stored, objects, who)
    state = stored.read(with_manifests=False).state
    return _tell(arguments, stored, True, state, f"{stored.location} is {state}")


def _driver(stored: StoredRun) -> LivingDriver | None:
    """One that has just taken the lease says within a moment who it is."""
    deadline = time.monotonic() + _SAYS_WHO_IT_IS_WITHIN_S
    driver = stored.driver()
    while driver is not None and driver.since is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        driver = stored.driver()
    return driver


def _await_end(stored: StoredRun, driver: LivingDriver, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    poll_s = stored.location.pause_s(_POLL_S, _REMOTE_POLL_S)
    while time.monotonic() < deadline:
        found = stored.driver()
        if found is None or found.since not in (None, driver.since):  # another driver has started since
            return True
        time.sleep(poll_s)
    return False


def _give_up(arguments: argparse.Namespace, stored: StoredRun, objects: ObjectStore, who: str) -> int:
    """A request that no driver has seen must not stop the run at some later time."""
    unheard = stop_requests.is_waiting(objects)
    if unheard:
        stop_requests.withdraw(objects)
        why = "did not respond, so the request was withdrawn. The driver may hang, or be of an older version"
    else:
        why = "is still stopping. To end its workers immediately, use --now"
    return _tell(arguments, stored, not unheard, "running", f"after {arguments.timeout:g} s {who} {why}", code=1)


def _tell(arguments: argparse.Namespace, stored: StoredRun, asked: bool, state: str, text: str, code: int = 0) -> int:
    if arguments.json:
        output.print_json({"path": str(stored.location), "asked": asked, "state": state, "text": text})
    else:
        (output.note if code else output.say)(text)
    return code


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number of seconds")
    return seconds
