"""The validations that run beside the workers. One whose process crashed is retried as often as the run allows."""

from __future__ import annotations

from holdfast.runs.past import Past

from .outbox import Outbox
from .plan import Plan


class ValidationTasks:
    def __init__(self, plan: Plan, past: Past, outbox: Outbox) -> None:
        self._plan, self._past, self._outbox = plan, past, outbox
        self._crashes: dict[str, int] = {}  # by checkpoint, since this driver started

    def start(self, id: str) -> bool:
        """False if there is no validation function."""
        return self._run(id, 0)

    def retry(self, id: str) -> bool:
        """After a crash; False if it was the last try."""
        self._crashes[id] = self._crashes.get(id, 0) + 1
        return self._run(id, self._crashes[id])

    def _run(self, id: str, crashes: int) -> bool:
        if self._plan.validation is None:
            return False
        payload, timeout_s, retries = self._plan.validation(id, self._past.validations.get(id) or {})
        if 0 <= retries < crashes:
            return False
        self._outbox.run_task(id, payload, timeout_s)
        return True
