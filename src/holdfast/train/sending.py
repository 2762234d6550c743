"""What a script sends to its workers: pickled in memory, never stored."""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle

from holdfast.train.ray_datasets import pickled_for_workers


def sent_to_workers(what: str, payload: Any, **parts: Any) -> bytes:
    """Return the pickled payload. An error names the part that cannot be sent."""
    if "__mp_main__" in sys.modules:  # the script's own module in a child of multiprocessing: no worker can import it
        cloudpickle.register_pickle_by_value(sys.modules["__mp_main__"])
    try:
        return pickled_for_workers(payload)
    except Exception as error:
        blamed = next((name for name, part in parts.items() if not _can_be_sent(part)), what)
        raise TypeError(
            f"{blamed} cannot be sent to workers: {error}. It must not hold locks, open files, sockets, generators or "
            "running threads: make those inside the train function."
        ) from error


def _can_be_sent(part: Any) -> bool:
    try:
        pickled_for_workers(part)
    except Exception:
        return False
    return True
