"""What the workers of these runs do."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from holdfast.worker import session


def return_name() -> str:
    session.current().ready()
    print("hello from", session.current().run_name)
    session.current().report({"a": 1}, None)
    return session.current().run_name


def wait_for_ever() -> None:
    session.current().ready()
    while True:
        time.sleep(60)


def wait_with_leftovers() -> None:
    """A temporary file; a child, and one in a session of its own whose parent has ended."""
    handle, _ = tempfile.mkstemp()
    os.close(handle)
    sleeper = "import time; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", sleeper])
    twice = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True)"
    subprocess.run([sys.executable, "-c", twice], check=True)
    wait_for_ever()


def leave_a_daemon() -> int:
    """Its pid."""
    session.current().ready()
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid


def leave_a_file() -> str:
    session.current().ready()
    handle, path = tempfile.mkstemp()
    os.close(handle)
    return path


def share_between_processes() -> None:
    """A directory of multiprocessing's own, and a child that has one too."""
    multiprocessing.util.get_temp_dir()
    child = multiprocessing.get_context("spawn").Process(target=_say_directory)
    child.start()
    child.join()
    wait_for_ever()


def _say_directory() -> None:
    print(multiprocessing.util.get_temp_dir())


def fail() -> None:
    session.current().ready()
    raise ValueError("this trial is wrong")


def die() -> None:
    session.current().ready()
    os.kill(os.getpid(), 9)


def stage() -> None:
    session.current().ready()
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "state"), "w") as file:
            file.write(session.current().run_name)
        session.current().report({}, session.Files(directory))


def report_thrice() -> str:
    session.current().ready()
    for number in range(3):
        session.current().report({"number": number}, None)
    return "done"


def report_durably() -> str:
    session.current().ready()
    with tempfile.TemporaryDirectory() as directory:
        session.current().report({}, session.Files(directory), wait=True)
    return "done"


def clean_up_on_a_signal() -> None:
    def leave(*_: object) -> None:
        raise SystemExit("told to stop")

    signal.signal(signal.SIGTERM, leave)
    session.current().ready()
    try:
        session.current().report({}, None)
    finally:
        print("cleaned up")


def report_in_threads() -> str:
    """The reports of two threads at once: each continues with its own."""
    session.current().ready()
    threads = [threading.Thread(target=session.current().report, args=({}, None)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "done"
