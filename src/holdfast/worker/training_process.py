"""A training process, from start to exit. The train function runs in the main thread."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import cloudpickle

from holdfast.errors import message_of
from holdfast.printable import encodable
from holdfast.wire.channel import Channel, Unpacker
from holdfast.wire.worker_messages import TO_WORKER, Assignment, Raised, Returned

from . import imported_frameworks, stack_dump, worker_exit
from . import session as sessions
from .openmp import use_own_threads
from .temporary import mark_temporary_files

Unpacker(TO_WORKER)  # once, before any fork: msgspec keeps what it learns about the messages
_MOST_TRACE = 200_000  # characters
_TELLING_S = 30.0  # how long a failed worker may take to report its failure
_MOST_BODY = 16 << 20  # bytes; a larger pickled exception is replaced by its text
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def run(channel_fd: int, payload_fd: int, stacks_fd: int) -> int:
    """Take the assignment, run the payload, and report how it ended. Returns the process's exit code."""
    stack_dump.arm(stacks_fd)
    channel: Channel[Any] = Channel(socket.socket(fileno=channel_fd), TO_WORKER)
    os.register_at_fork(after_in_child=channel.socket.close)  # processes of a data loader must not hold it open
    assignment = next(channel.receive(), None)
    if not isinstance(assignment, Assignment):
        return 1
    _adopt(assignment)
    load = lambda: cloudpickle.loads(_read_all(payload_fd))  # noqa: E731
    return perform(assignment, channel, load, _end_process, is_own_process=True)


def perform(
    assignment: Assignment,
    channel: Channel[Any],
    load: Callable[[], Callable[[], Any]],
    on_lost: Callable[[], None],
    is_own_process: bool = False,
) -> int:
    """Run the payload in a session. In local mode the train function runs in the script's own process, which continues
    afterwards."""
    failing = threading.Lock()  # the thread that reports a failure takes it and never releases it
    is_told = threading.Event()

    def upload_failed(error: BaseException) -> None:
        if is_own_process and failing.acquire(blocking=False):
            try:
                _tell_raised(error, channel, session)
            finally:
                is_told.set()

    session = sessions.Session(assignment, channel, on_lost, upload_failed)
    before = sessions.install(session)
    try:
        value = load()()
        session.await_uploads()
        body = _sendable(value if session.rank == 0 else None)
        with worker_exit.limited(lambda: channel.send(Returned(body))) if is_own_process else contextlib.nullcontext():
            if is_own_process:
                worker_exit.join_threads()
            session.leave()
            if is_own_process:
                worker_exit.run_exit_functions()
    except BaseException as error:
        if failing.acquire(blocking=False):
            session.end(returned=False)
            _tell_raised(error, channel, session)
        else:  # another thread reports a failure: the process must not exit before that
            is_told.wait(_TELLING_S)
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise
        return 1
    finally:
        sessions.install(before)
        _flush()
    session.end(returned=True)
    channel.send(Returned(body))
    return 0


def _tell_raised(error: BaseException, channel: Channel[Any], session: sessions.Session) -> None:
    error.__traceback__ = _of_the_user(error.__traceback__)
    with contextlib.suppress(Exception):  # the function may have closed its streams
        traceback.print_exception(error)
    _flush()
    channel.send(_raised(error, session))


def _sendable(value: Any) -> bytes:
    """The return value for the driver. If it cannot be sent, the training still counts as finished."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        with contextlib.suppress(Exception):  # the function may have closed its streams
            told = f"holdfast: Result.return_value is None, because the return value cannot be sent: {error}"
            print(told, file=sys.stderr)
        _flush()
        return bytes(cloudpickle.dumps(None))


def leave(code: int) -> None:
    """Exit the process. If the train function has returned, its threads have ended by now. After a failure, nothing
    waits for them."""
    try:
        worker_exit.run_exit_functions()
        _flush()
    finally:
        os._exit(code)


def _adopt(assignment: Assignment) -> None:
    """Make this fork like a fresh process in the script's environment: variables, paths and random numbers."""
    _set_environment(assignment.env)
    if assignment.place.sees:
        os.environ["CUDA_VISIBLE_DEVICES"] = assignment.place.sees
    with contextlib.suppress(OSError):  # it may have been removed
        os.chdir(assignment.cwd)
    if "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, int(assignment.place.cpus))
        os.environ["OMP_NUM_THREADS"] = str(threads)
        for framework, module in imported_frameworks.imported():
            if framework.set_threads is not None:
                framework.set_threads(module, threads)
    use_own_threads()
    sys.path[:] = [os.fsdecode(path) for path in assignment.sys_path]
    sys.argv[:] = [os.fsdecode(argument) for argument in assignment.argv]
    mark_temporary_files(os.getpid(), assignment.mark)
    random.seed()
    for framework, module in imported_frameworks.imported():
        framework.reset_random(module)
    standby = assignment.standby
    threading.current_thread().name = f"standby-{standby}" if standby else f"rank-{assignment.place.rank}"


def _set_environment(env: dict[bytes, bytes]) -> None:
    """Change only the variables that differ: the zygote has most of them already."""
    for name in [name for name in os.environb if name not in env]:
        del os.environb[name]
    for name, value in env.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def _end_process() -> None:
    """The agent has exited, so nothing that this process still does can count."""
    os._exit(1)


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts, at = [], 0
    while at < size:
        parts.append(os.pread(fd, min(1 << 26, size - at), at))
        at += len(parts[-1])
    return b"".join(parts)


def _raised(error: BaseException, session: sessions.Session) -> Raised:
    kind = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        kind = f"{type(error).__module__}.{kind}"
    return Raised(
        time.monotonic(),
        encodable(kind),
        message_of(error),
        _trace(error),
        _pickled(error),
        session.started,
        out_of_memory=_is_out_of_memory(error, session),
    )


def _is_out_of_memory(error: BaseException, session: sessions.Session) -> bool:
    """The exceptions of NumPy and others are subclasses of Python's; each framework knows its own."""
    try:
        known = isinstance(error, MemoryError) or imported_frameworks.says_out_of_memory(error)
        return known or bool(session.is_out_of_memory(error))
    except Exception:  # a framework's check may fail on an exception that cannot be shown
        return False


def _trace(error: BaseException) -> str:
    """The traceback; if it is too long (an endless recursion, a huge message), the middle is left out."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # perhaps that of another exception, which is its cause
        text = "".join([*traceback.format_tb(error.__traceback__), type(error).__qualname__])
    if len(text) > _MOST_TRACE:
        half = _MOST_TRACE // 2
        text = f"{text[:half]}\n… ({len(text) - 2 * half:,} more characters)\n{text[-half:]}"
    return encodable(text)


def _of_the_user(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames above the train function."""
    at = trace
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        at = at.tb_next
    return at or trace


def _pickled(error: BaseException) -> bytes:
    """The exception itself if it survives pickling, otherwise a plain one with the same text."""
    try:
        body = cloudpickle.dumps(error)
        if len(body) <= _MOST_BODY and isinstance(cloudpickle.loads(body), Exception):
            return bytes(body)
    except (Exception, SystemExit):
        pass
    return bytes(cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {message_of(error)}")))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the function may have replaced the streams
            stream.flush()
