"""Notifies a person of the end of a run: ``HOLDFAST_NOTIFY`` is a shell command, or a URL that accepts a POST.

A notification never changes the outcome of a run. If it fails or takes too long, the run logs a warning.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.printable import printable
from holdfast.store.location import Location

logger = logging.getLogger(__name__)
TIMEOUT_S = 10.0
_TEXT = 2_000  # characters of an error message


@contextmanager
def notifying(target: str, kind: str, location: Location) -> Iterator[Callable[[str, str], None]]:
    """``kind``: run or experiment. Set outcome and reason on the yielded object. An exception means that it failed."""
    ended: list[tuple[str, str]] = []
    try:
        yield lambda outcome, reason: ended.append((outcome, reason))
    except Exception as error:
        ended.append(("failed", f"{type(error).__name__}: {error}"))
        raise
    finally:
        if target and ended:
            _notify(target, kind, location, *ended[-1])


def _notify(target: str, kind: str, location: Location, outcome: str, reason: str) -> None:
    text = f"Holdfast {kind} {location.name!r} {outcome}{f': {reason}' if reason else ''}"[:_TEXT]
    message = {"text": text, "content": text, "kind": kind, "name": location.name, "path": str(location)}
    message |= {"outcome": outcome, "reason": reason[:_TEXT]}
    try:
        if target.startswith(("http://", "https://")):
            _post(target, json.dumps(message).encode())
        else:
            _run(target, message)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # The URL, or the command, may hold a secret.
        logger.warning("HOLDFAST_NOTIFY failed (%s), so this was not sent: %s", type(error).__name__, printable(text))


def _post(url: str, body: bytes) -> None:
    import urllib.request  # it loads forty modules, for which every start of a script would wait

    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        pass


def _run(command: str, message: dict[str, str]) -> None:
    names = {f"HOLDFAST_NOTIFY_{name.upper()}": value.replace("\0", "") for name, value in message.items()}
    subprocess.run(
        command,
        shell=True,
        input=json.dumps(message).encode(),
        env={**os.environ, **names},
        timeout=TIMEOUT_S,
        check=True,
        stdout=subprocess.DEVNULL,
    )
