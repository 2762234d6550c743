"""The source of the processes of all runs on a node: launchers, and the zygotes that workers are forked from. A run
launches its processes here and hears of their fork, stop and exit. Modules that a run wants to preload are imported
after the first report, in a successor of the zygote, which then forks all workers. If every worker needs them before
its first report, they are imported as soon as the first workers have entered the train function. Processes launched
after that wait for these imports, because they would import the same modules.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from holdfast.node import zygote
from holdfast.node.launch import Launcher, LauncherLostError, SpawnLauncher, ZygoteLauncher
from holdfast.node.node_lease import NodeLease
from holdfast.node.watched_process import WatchedProcess
from holdfast.platform import open_files, process_control
from holdfast.platform.cgroups import OomWatch
from holdfast.wire import messages as wire
from holdfast.wire.zygote_messages import Exited, Forked, NotForked, ProcessPaused, Warm

_WARM_AFTER_S = 15.0
_NOT_STARTED = os.EX_OSERR << 8  # as from os.waitpid
_MOST_UNBORN = 32  # forks requested from a zygote at a time: its socket has little space


class Owner(Protocol):
    """Who launched a process."""

    def on_forked(self, process: WatchedProcess) -> None: ...
    def on_paused(self, process: WatchedProcess, stopped: bool) -> None: ...
    def on_ended(self, process: WatchedProcess, status: int) -> None: ...


class ProcessPool:
    def __init__(
        self,
        session: wire.Configure,
        launcher: Launcher | None,
        selector: selectors.BaseSelector,
        lease: NodeLease | None = None,
    ) -> None:
        self._selector = selector
        self._lease = lease
        if launcher is None:
            forking = session.start_method == "fork" and process_control.LINUX
            launcher = ZygoteLauncher.start(session.essential, lease, session.imported) if forking else SpawnLauncher()
        self._launcher = launcher  # the one that starts processes now
        self._launchers: list[Launcher] = []  # launchers whose processes may live; each is the child of the one before
        self._watch(launcher)
        self.oom = OomWatch()
        self._tokens = 0
        self._waiting: deque[tuple[Owner, WatchedProcess, int]] = deque()
        self._unborn: dict[int, tuple[Owner, WatchedProcess]] = {}  # by token
        self._living: dict[int, tuple[Owner, WatchedProcess]] = {}  # by pid
        self._known = {*session.essential}  # modules that are imported or will be imported
        self._to_preload: list[str] = []
        self._warming: list[str] = []  # modules that a successor is importing now
        self._warm_at: float | None = None
        self._holds = False  # processes wait for the current imports

    def leave_lease_to_zygote(self) -> None:
        """The place on this machine is for the zygote to keep, if there is one."""
        if self._lease is not None and isinstance(self._launcher, ZygoteLauncher):
            self._lease.leave_to_zygote()

    def want(self, modules: Sequence[str]) -> None:
        """Modules that a run's workers import, and that take long."""
        self._to_preload += [name for name in modules if name not in self._known]
        self._known.update(modules)
        self.warm_later()  # even if no worker starts here: the node may be a spare node

    def share(self) -> None:
        """There is more than one run from now on."""
        for launcher in self._launchers:
            launcher.shared = True

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def launch(self, owner: Owner, process: WatchedProcess, payload: int) -> None:
        self._waiting.append((owner, process, os.dup(payload)))
        self._launch_waiting()

    def _launch_waiting(self) -> None:
        refused: list[int] = []
        while self._waiting and not self._holds and len(self._unborn) < _MOST_UNBORN:
            owner, process, payload = self._waiting.popleft()
            self._unborn[process.token] = owner, process
            fds = (process.their_channel.fileno(), process.their_output, payload, process.stacks)
            try:
                self._launcher.launch(process.token, fds, bool(process.task))
            except OSError as error:
                if not open_files.is_at_limit(error):  # including processes that are being started
                    raise
                zygote.tell_not_started(process.their_output, error)
                refused.append(process.token)
            process.handed_over()
            os.close(payload)
        for token in refused:
            owner, process = self._unborn.pop(token)
            owner.on_ended(process, _NOT_STARTED)

    def warm_later(self) -> None:
        """Workers are starting: do not import now, because it would slow down their first steps."""
        if self._to_preload and self._warm_at is None:
            self._warm_at = time.monotonic() + _WARM_AFTER_S

    def warm_soon(self) -> None:
        if self._warm_at is not None:
            self._warm_at = 0.0

    def warm_now(self) -> None:
        """Processes that are launched from now on need it immediately."""
        if self._warm_at is not None:
            self._warm_at, self._holds = 0.0, True

    def due(self) -> float | None:
        return None if self._warming else self._warm_at

    def on_time(self, now: float) -> None:
        if self._warm_at is None or self._warm_at > now or self._warming:
            return
        successor = self._launcher.warmed(self._to_preload)
        if successor is not None:
            self._warming = self._to_preload
            self._watch(successor)
        else:
            self._release()
        self._to_preload, self._warm_at = [], None

    def _release(self) -> None:
        self._holds = False
        self._launch_waiting()

    def close(self) -> None:
        """The agent ends, and with the zygotes all that they forked."""
        for _, process, payload in self._waiting:
            process.handed_over()
            os.close(payload)
        for launcher in self._launchers:
            launcher.close()

    def _watch(self, launcher: Launcher) -> None:
        self._launchers.append(launcher)
        self._selector.register(launcher.socket, selectors.EVENT_READ, lambda _mask: self._hear(launcher))

    def _hear(self, launcher: Launcher) -> None:
        try:
            for event in launcher.events():
                self._heed(launcher, event)
        except LauncherLostError:
            if launcher is self._launcher or launcher is not self._launchers[-1]:
                raise
            # It died while importing. Nothing depends on it yet, so continue without it.
            print(f"holdfast: preloading {', '.join(self._warming)} failed", file=sys.stderr, flush=True)
            self._warming = []
            self._selector.unregister(launcher.socket)
            self._launchers.remove(launcher)
            launcher.close()
            self._release()

    def _heed(self, launcher: Launcher, event: Forked | NotForked | Exited | ProcessPaused | Warm) -> None:
        match event:
            case Warm():
                if launcher is not self._launchers[0]:
                    self._launcher, self._warming = launcher, []
                    self._release()
            case Forked(token, pid):
                owner, process = self._living[pid] = self._unborn.pop(token)
                process.pid, process.forked = pid, True
                owner.on_forked(process)
                self._launch_waiting()
            case NotForked(token):
                owner, process = self._unborn.pop(token)
                owner.on_ended(process, _NOT_STARTED)
                self._launch_waiting()
            case ProcessPaused(pid, stopped) if pid in self._living:
                owner, process = self._living[pid]
                owner.on_paused(process, stopped)
            case Exited(pid, status) if pid in self._living:
                owner, process = self._living.pop(pid)
                owner.on_ended(process, status)
