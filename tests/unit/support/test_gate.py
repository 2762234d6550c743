"""The suite's own configuration: a test process that dies is a failed test, the run ends, and signals are heeded."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT

LIMIT_S = 200.0
pytestmark = pytest.mark.timeout(2 * LIMIT_S)

DEADLY = """
import os, signal, time
import pytest

def test_before(): ...
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_between(): ...
@pytest.mark.timeout(1)
def test_too_slow(): time.sleep(600)
def test_after(): ...
"""
HARMLESS = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_harmless(n): ...
"""
DIES_LAST = """
import os

class Dies:
    def pytest_sessionfinish(self): os._exit(0)

def test_passes(request): request.config.pluginmanager.register(Dies())
"""
INTERRUPTED = """
import signal, subprocess, sys
import pytest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

@pytest.mark.parametrize("number", SIGNALS)
def test_a_child_heeds(number):
    child = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with child:
        child.stdout.readline()
        child.send_signal(number)
        try:
            assert child.wait(timeout=20) == -number
        finally:
            child.kill()

def test_ctrl_c_is_heard():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

def test_children_can_be_waited_for():
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
"""
IGNORING = """
import os, signal, sys
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""


def plugins_of_the_suite() -> str:
    """The line of the suite's conftest; the rest of it imports torch in each process, and matters to no test here."""
    lines = (ROOT / "tests" / "conftest.py").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("pytest_plugins"))
    return line


def run_suite(project: Path, prefix: tuple[str, ...] = (), **files: str) -> tuple[int, str]:
    """Run pytest as the Makefile does, with the repository's own configuration."""
    tests = project / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", project)
    (tests / "support").mkdir()
    for name in ("__init__.py", "gate.py"):
        shutil.copy(ROOT / "tests" / "support" / name, tests / "support")
    (tests / "conftest.py").write_text(plugins_of_the_suite())
    for name, text in files.items():
        (tests / f"test_{name}.py").write_text(text)
    command = [*prefix, sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-v", "-p", "no:cacheprovider"]
    suite = subprocess.Popen(
        command, cwd=project, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    with suite:
        try:
            output, _ = suite.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(suite.pid, signal.SIGKILL)
            output, _ = suite.communicate()
            pytest.fail(f"the run did not end:\n{output}")
    return suite.returncode, output


def test_a_process_that_dies_is_a_failed_test(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, first=DEADLY, second=DEADLY, third=HARMLESS, fourth=HARMLESS)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    failed = [f"test_{file}.py::test_{test}" for file in ("first", "second") for test in ("killed", "too_slow")]
    assert sorted(re.findall(r"^FAILED tests/(\S+)", output, re.MULTILINE)) == sorted(failed), output
    assert "4 failed, 12 passed" in output


def test_a_process_that_dies_after_its_tests_fails_the_run(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, first=DIES_LAST, second=HARMLESS)
    assert code == pytest.ExitCode.TESTS_FAILED, output


def test_signals_that_were_ignored_are_heeded(tmp_path: Path) -> None:
    ignoring = (sys.executable, "-c", IGNORING, "SIGINT,SIGQUIT,SIGTERM,SIGHUP,SIGCHLD")
    code, output = run_suite(tmp_path, ignoring, first=INTERRUPTED, second=HARMLESS)
    assert code == pytest.ExitCode.OK, output
    assert "9 passed" in output


def test_a_shells_background_job_heeds_its_signals(tmp_path: Path) -> None:
    background = ("/bin/sh", "-c", '"$@" & wait $!', "sh")
    code, output = run_suite(tmp_path, background, first=INTERRUPTED, second=HARMLESS)
    assert code == pytest.ExitCode.OK, output
    assert "9 passed" in output
