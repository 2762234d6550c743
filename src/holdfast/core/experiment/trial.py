"""A trial as the experiment knows it, and as schedulers and tables see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import msgpack

from holdfast.core.experiment.scheduler_requests import Exploit

PENDING, RUNNING, PAUSED, TERMINATED, ERROR = "PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"
_PLAIN = frozenset({str, bool, float, type(None), bytes})
_INT_LIMIT = 1 << 63


class Trial:
    """Only ``step`` writes to it. A trial that has ended is kept packed: there may be 100,000."""

    __slots__ = (
        "_config",
        "_last_result",
        "_packed",
        "_params",
        "awaits",
        "changed",
        "checkpoint_number",
        "directory",
        "donor",
        "error",
        "exploits",
        "heard",
        "last_time",
        "life",
        "name",
        "reason",
        "resized",
        "resources",
        "restored_at",
        "results",
        "status",
        "sums",
        "time_total_s",
        "trial_id",
    )

    def __init__(
        self,
        trial_id: str,
        config: dict[str, Any],
        params: dict[str, Any],
        name: str,
        directory: str,
        resources: Sequence[Mapping[str, float]],
    ) -> None:
        self.trial_id, self.name, self.directory = trial_id, name, directory
        self._config: dict[str, Any] | None = config
        self._params: dict[str, Any] | None = params
        self._last_result: dict[str, Any] | None = {}
        self._packed = b""
        self.resources = resources
        self.resized = False  # its scheduler has given it other resources than it asked for
        self.status = PENDING
        self.checkpoint_number: int | None = None
        self.error: str | None = None
        self.reason = ""
        self.exploits = 0
        self.results = 0
        self.time_total_s = 0.0
        self.sums: dict[str, dict[int, float]] = {}  # metrics at its checkpoint and at its last iterations
        self.last_time = 0.0  # of its last report or start, while it runs
        self.changed = 0.0  # the time of its last event
        self.heard = 0  # the number of its last report in the journal that its last attempt builds on
        self.restored_at: tuple[int, float] = (0, 0.0)  # the iteration and the total time at its last start
        self.awaits = ""  # what happens when its processes have exited: "STOP", "PAUSE", "EXPLOIT", "ERROR"
        self.donor: Exploit | None = None  # the exploit that waits for its next start
        self.life = 0  # how often it started over

    @property
    def config(self) -> dict[str, Any]:
        return self._config if self._config is not None else self._unpacked()[0]

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        self._config = config

    @property
    def evaluated_params(self) -> dict[str, Any]:
        return self._params if self._params is not None else self._unpacked()[1]

    @evaluated_params.setter
    def evaluated_params(self, params: dict[str, Any]) -> None:
        self._params = params

    @property
    def last_result(self) -> dict[str, Any]:
        return self._last_result if self._last_result is not None else self._unpacked()[2]

    @last_result.setter
    def last_result(self, result: dict[str, Any]) -> None:
        self._last_result = result

    @property
    def has_ended(self) -> bool:
        return self.status in (TERMINATED, ERROR)

    @property
    def checkpoint(self) -> int | None:
        """For schedulers, the number of its newest committed checkpoint."""
        return self.checkpoint_number

    def pack(self) -> None:
        """The trial has ended: pack its content into few bytes, if possible."""
        result = dict(self.last_result)
        has_config = result.pop("config", None) is not None
        what = [self.config, self.evaluated_params, result, has_config]
        try:
            if not _is_plain(what):
                return
            packed = msgpack.encode(what)
        except (RecursionError, UnicodeEncodeError):
            return
        self._packed, self._config, self._params, self._last_result = packed, None, None, None

    def unpack(self) -> None:
        """The trial will run again."""
        if self._config is None:
            self._config, self._params, self._last_result = self._unpacked()
            self._packed = b""

    def _unpacked(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        config, params, result, has_config = msgpack.decode(self._packed, strict=False)
        return config, params, {**result, "config": config} if has_config else result

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Trial({self.trial_id!r}, {self.status})"


def _is_plain(value: Any) -> bool:
    """Whether the value comes back as it was: msgspec also takes tuples, enums, sets and other objects."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int:
        return bool(-_INT_LIMIT <= value < _INT_LIMIT)
    if kind is dict:
        for key, item in value.items():  # and not ``all``: this is done for every trial
            if type(key) is not str or (type(item) not in _PLAIN and not _is_plain(item)):
                return False
        return True
    return kind is list and all(map(_is_plain, value))
