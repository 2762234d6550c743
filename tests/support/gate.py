"""The suite's own processes: one that dies is a failed test, and all heed their signals; the run ends in any case.

With xdist's own scheduling by file the run waits forever: the test that killed a process is run again in the next one,
and a file is given to a process that has not collected its tests yet, or as the only test of one that waits for two.
"""

from __future__ import annotations

import signal

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_HAS_LOST_ONE = pytest.StashKey[bool]()
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGUSR1)


def heed_signals() -> None:
    """As in the foreground of a shell. A signal that is ignored or blocked stays so in every child: the tests of a
    background job would wait for processes that they have interrupted. xdist's processes inherit what is set here."""
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


heed_signals()


class FileScheduling(LoadFileScheduling):
    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that the process was running when it died; the tests after it run in another process."""
        workload = self.assigned_work.pop(node)
        pending = ((unit, test) for unit in workload.values() for test, completed in unit.items() if not completed)
        unit, culprit = next(pending, ({}, None))
        if culprit is not None:
            unit[culprit] = True
        self.workqueue.update({file: unit for file, unit in workload.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return culprit

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # a new process, which asks for work when it has collected its tests
        super()._reschedule(node)
        while self._pending_of(self.assigned_work[node]) < 2 and not node.shutting_down:
            super()._reschedule(node)  # a process does not run its last test before it knows what follows


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object | None) -> None:
    if error is not None:
        node.config.stash[_HAS_LOST_ONE] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that dies between two tests, or after the last one, has no test to blame: fail the run."""
    if session.config.stash.get(_HAS_LOST_ONE, False) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
