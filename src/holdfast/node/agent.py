"""The agent: one process a machine, light, that starts, watches and ends training processes for the driver.

One thread runs the loop; a small pool hashes files and forces them to disk. The agent decides nothing: it does what
the driver says and tells what it sees. It ends when the driver is gone, and everything below it ends first.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast.errors import CheckpointDamagedError
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack
from holdfast.worker.temporary import remove_temporary_files

from . import posix
from .depot import Depot
from .launch import Launcher, LauncherLostError, SpawnLauncher, ZygoteLauncher
from .process import Process

_BACKLOG = 16 << 20  # unsent bytes to the driver above which workers are not listened to
_PEER_GRACE_S = 1.0  # how long an exception waits for the exit of a peer that was on its way out before it
_WARM_AFTER_S = 15.0
_SAVE_LOGS_EVERY_S = 10.0
_ENDED_WITHIN_S = 2.0  # how long killed processes are waited for when the agent ends


class Agent:
    def __init__(self, driver: socket.socket, launcher: Launcher | None = None, *, alone: bool = False) -> None:
        self._driver = driver
        self._alone = alone  # the process is the agent's own, and ends with it
        self._launcher = launcher  # the one that starts processes now
        self._launchers: list[Launcher] = []  # all whose processes may live; each is the child of the one before
        self._orders: Unpacker[Any] = Unpacker(wire.TO_AGENT)
        self._unsent = bytearray()
        self._selector = selectors.DefaultSelector()
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="holdfast-files")
        self._transfers = ThreadPoolExecutor(max_workers=3, thread_name_prefix="holdfast-storage")
        self._depot: Depot | None = None  # with remote storage
        self._pressure = False
        self._results: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._payload: int | None = None  # an open file: what the session's workers run
        self._processes: dict[int, Process] = {}  # by token
        self._by_pid: dict[int, Process] = {}
        self._raised: list[Process] = []  # exceptions not yet passed on
        self._unswept: set[int] = set()  # processes whose temporary files may still be there
        self._closing = False
        self._run_over = False
        self._listening = True
        self._tokens = 0
        self._oom_kills = 0
        self._warm_at: float | None = None
        self._save_logs_at: float | None = None

    def run(self) -> None:
        """Serve until the driver is gone or says so."""
        self._driver.setblocking(False)
        self._selector.register(self._driver, selectors.EVENT_READ, self._hear_driver)
        self._selector.register(self._wake, selectors.EVENT_READ, self._hear_pool)
        try:
            while not self._closing:
                for key, mask in self._selector.select(self._timeout()):
                    now = self._selector.get_map().get(key.fd)
                    if now is not None and now.fileobj is key.fileobj:  # else an event before it let go of it
                        key.data(mask)
                self._on_time()
        except LauncherLostError:
            pass  # the driver sees this agent end, and starts another
        finally:
            self._end()

    def _end(self) -> None:
        for process in self._processes.values():
            if process.pid:
                posix.kill_group(process.pid)
        if self._launcher is not None and not self._launchers:
            self._launcher.close()
        for launcher in self._launchers:
            launcher.close()
        if self._depot is not None:
            if self._run_over:
                self._depot.save_logs()
            self._depot.close(self._run_over)
        for pool in (self._pool, self._transfers):
            pool.shutdown(wait=not self._alone, cancel_futures=True)  # hashing a large file takes its time
        deadline = time.monotonic() + _ENDED_WITHIN_S
        for pid in list(self._unswept):
            while pid and not posix.is_ending(pid) and time.monotonic() < deadline:
                time.sleep(0.002)
            self._sweep(pid)
        self._selector.close()
        for process in self._processes.values():
            process.close()
        for fd in (self._wake, self._waker, self._payload):
            if fd is not None:
                os.close(fd)
        self._driver.close()

    def close_soon(self) -> None:
        """End the loop; may be called from a signal handler."""
        self._closing = True
        self._nudge()

    # What the driver says

    def _hear_driver(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        try:
            data = self._driver.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._closing = True
            return
        for order in self._orders.feed(data):
            self._obey(order)

    def _obey(self, order: Any) -> None:
        match order:
            case wire.Configure():
                self._configure(order)
            case wire.StartWorkers():
                self._start_group(order)
            case wire.StopWorkers():
                self._stop_group(order)
            case wire.Seal():
                self._in_pool(self._pool, lambda: self._seal(order))
            case wire.Gather() | wire.Upload() | wire.Fetch() | wire.Forget() | wire.Sweep():
                self._serve_storage(order)
            case wire.RunTask():
                self._run_task(order)
            case wire.Reply():
                self._send_to(order, lambda p: p.generation == order.generation and p.rank == order.rank)
            case wire.Durable(generation, id):
                if self._depot is not None:
                    self._depot.is_durable(id)
                told = wire.Durable(generation, id, self._offer(id))
                self._send_to(told, lambda p: not p.task and p.generation == generation)
            case wire.Pressure(on):
                self._pressure = on
                self._send_to(order, lambda p: not p.task)
            case wire.Shutdown():
                self._closing = self._run_over = True

    def _serve_storage(self, order: Any) -> None:
        depot = self._depot
        assert depot is not None
        match order:
            case wire.Gather(id, generation, index, manifest, parts):
                try:
                    depot.gather(id, generation, index, manifest, parts)
                except OSError as error:
                    self._say(wire.StagedLost(id, f"its files could not be put together: {error}"))
            case wire.Upload():
                self._in_pool(self._transfers, lambda: _upload(depot, order))
            case wire.Fetch():
                self._in_pool(self._transfers, lambda: _fetch(depot, order))
            case wire.Forget(generation, index, id):
                self._pool.submit(depot.forget, generation, index, id)
            case wire.Sweep():
                depot.sweep()

    def _configure(self, order: wire.Configure) -> None:
        self._session = order
        home = Path(order.run_dir)
        if order.storage:
            home = home / order.node_id
            self._depot = Depot(home, lambda: cloudpickle.loads(order.storage).open(order.patience_s))
            self._save_logs_at = time.monotonic() + _SAVE_LOGS_EVERY_S
        self._layout = RunLayout(home)
        self._store = CheckpointStore(self._layout)
        self._payload = posix.anonymous_file(order.payload)
        self._to_preload = list(order.preload)
        if self._launcher is None:
            forking = order.start_method == "fork" and posix.LINUX
            self._launcher = ZygoteLauncher.start(order.essential) if forking else SpawnLauncher()
        self._watch_launcher(self._launcher)
        unsaved = [] if self._depot is None else self._depot.unsaved()
        self._say(wire.NodeReady(order.node_id, os.getpid(), os.cpu_count() or 1, unsaved))

    def _watch_launcher(self, launcher: Launcher) -> None:
        self._launchers.append(launcher)
        self._selector.register(launcher.socket, selectors.EVENT_READ, lambda _mask: self._hear_launcher(launcher))

    def _start_group(self, order: wire.StartWorkers) -> None:
        self._oom_kills = posix.oom_kills()
        if self._to_preload and self._warm_at is None:
            self._warm_at = time.monotonic() + _WARM_AFTER_S
        assert self._payload is not None
        if self._depot is not None:
            self._depot.resume_from(order.checkpoint)
        offer = None if order.checkpoint is None else self._offer(order.checkpoint)
        for place in order.places:
            log = self._layout.log_file(order.generation, place.rank)
            process = self._launch(order.generation, place.rank, log, self._payload)
            process.send(self._assignment(order.generation, order.world_size, place, order.base, offer))
            if self._pressure:
                process.send(wire.Pressure(True))

    def _run_task(self, order: wire.RunTask) -> None:
        payload = posix.anonymous_file(order.payload)
        process = self._launch(0, -1, self._layout.logs_dir / f"{order.task}.log", payload, order.task)
        os.close(payload)
        if order.timeout_s is not None:
            process.kill_at = time.monotonic() + order.timeout_s
        process.send(self._assignment(0, 1, wire.Place(0, 0, 1, 0), 0, None))

    def _offer(self, id: str) -> wire.Offer:
        here = self._depot is None or self._depot.has(id)
        return wire.Offer(id, str(self._layout.checkpoint_dir(id)) if here else "")

    def _assignment(
        self, generation: int, world: int, place: wire.Place, base: int, offer: wire.Offer | None
    ) -> wire.Assignment:
        s = self._session
        common = (s.node_id, s.run_name, str(self._layout.root), s.storage, s.storage_url, offer)
        process = (s.env, s.sys_path, s.argv, s.cwd)
        return wire.Assignment(generation, world, base, place, *common, *process, s.metadata, s.validates)

    def _launch(self, generation: int, rank: int, log: Path, payload: int, task: str = "") -> Process:
        assert self._launcher is not None
        self._tokens += 1
        process = Process(generation, rank, self._tokens, log, task)
        self._processes[process.token] = process
        self._watch(process)
        self._selector.register(process.output, selectors.EVENT_READ, lambda _mask: self._hear_output(process))
        self._launcher.launch(process.token, process.their_channel.fileno(), process.their_output, payload, bool(task))
        process.handed_over()
        return process

    def _stop_group(self, order: wire.StopWorkers) -> None:
        group = [p for p in self._processes.values() if p.generation == order.generation and not p.task]
        for process in group:
            process.stopping = True
            if not order.graceful:
                process.kill_at = 0.0
            else:
                process.kill_at = time.monotonic() + self._session.stop_grace_s
                if process.pid and not process.returned:
                    _signal(process.pid, signal.SIGTERM)
        if not group:
            self._say(wire.WorkersGone(order.generation))

    def _send_to(self, message: wire.Message, which: Callable[[Process], bool]) -> None:
        for process in self._processes.values():
            if which(process):
                process.send(message)
                self._watch(process)

    def _watch(self, process: Process) -> None:
        """Wait for just what can happen on the worker's channel now."""
        if process.ended:
            return
        wanted = selectors.EVENT_WRITE if process.has_unsent else 0
        if self._listening and not process.silent:
            wanted |= selectors.EVENT_READ
        key = self._selector.get_map().get(process.channel)
        if key is None and wanted:
            self._selector.register(process.channel, wanted, lambda mask: self._serve_channel(process, mask))
        elif key is not None and not wanted:
            self._selector.unregister(process.channel)
        elif key is not None and key.events != wanted:
            self._selector.modify(process.channel, wanted, key.data)

    def _serve_channel(self, process: Process, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            process.flush()
        if mask & selectors.EVENT_READ:
            self._hear_worker(process)
        self._watch(process)

    # What the files' threads say

    def _in_pool(self, pool: ThreadPoolExecutor, work: Callable[[], wire.Message]) -> None:
        def job() -> None:
            self._results.put(work())
            self._nudge()

        pool.submit(job)

    def _seal(self, order: wire.Seal) -> wire.Message:
        where = (order.generation, order.index, order.rank)
        try:
            sealed = self._depot.seal(*where) if self._depot else self._store.seal(self._layout.shard_dir(*where))
        except Exception as error:
            return wire.Sealed(order.generation, order.rank, order.index, [], str(error) or repr(error))
        files = [(f.path, f.size, f.digest, f.at) for f in sealed]
        return wire.Sealed(order.generation, order.rank, order.index, files)

    def _nudge(self) -> None:
        try:
            os.write(self._waker, b"x")
        except OSError:
            pass  # full: the loop is awake anyway

    def _hear_pool(self, _mask: int) -> None:
        os.read(self._wake, 4096)
        while not self._results.empty():
            self._say(self._results.get())

    # What the processes say

    def _hear_launcher(self, launcher: Launcher) -> None:
        try:
            self._hear_events(launcher)
        except LauncherLostError:
            if launcher is self._launcher or launcher is not self._launchers[-1]:
                raise
            # It died of what it was to import, and nothing depends on it yet: go on without.
            print(f"holdfast: preloading {', '.join(self._session.preload)} failed", file=sys.stderr, flush=True)
            self._selector.unregister(launcher.socket)
            self._launchers.remove(launcher)
            launcher.close()

    def _hear_events(self, launcher: Launcher) -> None:
        for event in launcher.events():
            if isinstance(event, wire.Warm):
                self._launcher = launcher
                continue
            if isinstance(event, wire.Forked):
                process = self._processes[event.token]
                process.pid = event.pid
                self._unswept.add(event.pid)
                self._by_pid[event.pid] = process
                self._say(wire.WorkerStarted(process.generation, process.rank, event.pid))
                continue
            known = self._by_pid.get(event.pid)
            if known is None:
                continue
            if isinstance(event, wire.Paused):
                self._say(wire.WorkerIsStopped(known.generation, known.rank, event.stopped))
            else:
                self._ended(known, event.status)

    def _hear_worker(self, process: Process) -> None:
        reports: list[wire.Report] = []
        for message in process.messages():
            if isinstance(message, wire.Report):
                reports.append(message)
                continue
            reports = self._pass_on(process, reports)
            self._hear(process, message)
        self._pass_on(process, reports)

    def _pass_on(self, process: Process, reports: list[wire.Report]) -> list[wire.Report]:
        if reports and not process.task:
            self._say(wire.Reports(process.generation, process.rank, reports))
            if self._warm_at is not None and self._to_preload:
                self._warm_at = 0.0
        return []

    def _hear(self, process: Process, message: Any) -> None:
        generation, rank = process.generation, process.rank
        match message:
            case wire.Ready():
                process.started = True
                if not process.task:
                    self._say(wire.WorkerIsReady(generation, rank))
            case wire.Returned():
                process.returned = True
                self._unswept.discard(process.pid)
                if process.task:
                    self._say(wire.TaskDone(process.task, message.body))
                else:
                    self._say(wire.WorkerHasReturned(generation, rank, message.body))
            case wire.Raised():
                process.raised = message
                self._raised.append(process)
            case wire.Request() if process.task:
                error = f"a validation function runs beside the workers: it cannot ask the run for {message.kind!r}"
                self._send_to(wire.Reply(generation, rank, message.request, b"", error), lambda p: p is process)
            case wire.Request():
                self._say(wire.Asked(generation, rank, message))

    def _hear_output(self, process: Process) -> None:
        lines = process.lines()
        if lines and self._listening:  # a driver that takes nothing in must not make us grow; the log has them
            self._say(wire.Output(process.rank, lines))
        if process.mute and process.output in self._selector.get_map():
            self._selector.unregister(process.output)

    def _ended(self, process: Process, status: int) -> None:
        """The process is gone: hear the rest of what it said, then tell of its end."""
        process.ended, process.status = True, status
        self._hear_worker(process)
        self._hear_output(process)
        for source in (process.channel.fileno(), process.output):
            if source in self._selector.get_map():
                self._selector.unregister(source)
        if not (process.returned or process.raised or process.failed or process.stopping):
            self._tell_failure(process)
        process.close()
        del self._processes[process.token], self._by_pid[process.pid]
        if process.pid in self._unswept:
            self._pool.submit(self._sweep, process.pid)
        self._pass_exceptions_on()
        if not process.task and not any(p.generation == process.generation for p in self._processes.values()):
            self._say(wire.WorkersGone(process.generation))

    def _sweep(self, pid: int) -> None:
        if pid:
            remove_temporary_files(pid, self._session.env)
        self._unswept.discard(pid)

    def _tell_failure(self, process: Process) -> None:
        process.failed = True
        killed = os.WIFSIGNALED(process.status) if process.ended else False
        code = os.WEXITSTATUS(process.status) if process.ended and not killed else None
        number = os.WTERMSIG(process.status) if killed else None
        if process.task:
            how = process.raised.traceback if process.raised else f"it ended with code {code}, signal {number}"
            self._say(wire.TaskDone(process.task, b"", how, timed_out=process.timed_out))
            return
        oom = number == signal.SIGKILL and posix.oom_kills() > self._oom_kills
        where = (process.generation, process.rank, process.raised, code, number)
        self._say(wire.WorkerHasFailed(*where, process.started, oom, list(process.last_lines)))

    def _pass_exceptions_on(self) -> None:
        """In the order in which they were raised, and behind the exit of any peer that had died before.

        A peer's death makes the others raise, and a person wants to read of the cause first.
        """
        for other in list(self._processes.values()) if self._raised else ():
            self._hear_worker(other)
        for process in sorted(self._raised, key=lambda p: p.raised.at if p.raised else 0.0):
            assert process.raised is not None
            peers = [p for p in self._processes.values() if p.generation == process.generation and p is not process]
            dying = any(not p.raised and not p.returned and p.pid and posix.is_ending(p.pid) for p in peers)
            if dying and time.monotonic() < process.raised.at + _PEER_GRACE_S:
                return
            self._raised.remove(process)
            self._hear_output_if_open(process)
            self._tell_failure(process)

    def _hear_output_if_open(self, process: Process) -> None:
        if not process.ended:
            self._hear_output(process)

    # Time

    def _timeout(self) -> float | None:
        if self._raised:
            return 0.002
        deadlines = [p.kill_at for p in self._processes.values() if p.kill_at is not None and p.pid]
        if self._warm_at is not None and self._to_preload:
            deadlines.append(self._warm_at)
        if self._save_logs_at is not None:
            deadlines.append(self._save_logs_at)
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _on_time(self) -> None:
        self._pass_exceptions_on()
        now = time.monotonic()
        for process in self._processes.values():
            if process.kill_at is not None and process.kill_at <= now and process.pid:
                posix.kill_group(process.pid)
                process.kill_at, process.timed_out = None, True
        if self._depot is not None and self._save_logs_at is not None and self._save_logs_at <= now:
            self._save_logs_at = now + _SAVE_LOGS_EVERY_S
            self._pool.submit(self._depot.save_logs)
        if self._warm_at is not None and self._to_preload and self._warm_at <= now and self._launcher is not None:
            successor = self._launcher.warmed(self._to_preload)
            if successor is not None:
                self._watch_launcher(successor)
            self._to_preload = []

    # To the driver

    def _say(self, message: wire.Message) -> None:
        self._unsent += pack(message)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._driver.send(memoryview(self._unsent)[: 1 << 20])]
        except BlockingIOError:
            pass
        except OSError:
            self._closing = True
        if self._listening != (len(self._unsent) < _BACKLOG):
            self._listening = not self._listening
            for process in self._processes.values():
                self._watch(process)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        key = self._selector.get_map().get(self._driver)
        if key is not None and key.events != wanted:
            self._selector.modify(self._driver, wanted, key.data)


def _upload(depot: Depot, order: wire.Upload) -> wire.Message:
    where = (order.generation, order.index, order.ranks)
    try:
        depot.upload(order.id)
    except Exception as error:
        return wire.Uploaded(*where, str(error) or repr(error))
    return wire.Uploaded(*where)


def _fetch(depot: Depot, order: wire.Fetch) -> wire.Message:
    try:
        depot.fetch(order.id, order.manifest)
    except CheckpointDamagedError as error:
        return wire.Fetched(order.id, str(error), damaged=True)
    except Exception as error:
        return wire.Fetched(order.id, str(error) or repr(error))
    return wire.Fetched(order.id)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main(arguments: Sequence[str]) -> None:
    """``python -m holdfast.node.agent DRIVER_FD PARENT [ZYGOTE_FD]``"""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    posix.set_name("hf-agent")
    driver = socket.socket(fileno=int(arguments[0]))
    launcher = ZygoteLauncher(socket.socket(fileno=int(arguments[2]))) if len(arguments) > 2 else None
    agent = Agent(driver, launcher, alone=True)
    signal.signal(signal.SIGTERM, lambda *_: agent.close_soon())
    posix.die_with_parent(int(arguments[1]), signal.SIGTERM)
    try:
        agent.run()
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)  # without waiting for threads that still hash


if __name__ == "__main__":
    main(sys.argv[1:])
