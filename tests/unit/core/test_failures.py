"""What kind of failure it was, and the sentence that a person reads."""

from __future__ import annotations

import pytest

from holdfast.core.failures import Evidence, FailureKind, classify, describe


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        (Evidence(exception="ValueError"), FailureKind.USER_ERROR),
        (Evidence(exit_code=1), FailureKind.CRASH),
        (Evidence(signal=9), FailureKind.CRASH),
        (Evidence(signal=9, oom_killed=True), FailureKind.OUT_OF_MEMORY),
        (Evidence(exception="MemoryError"), FailureKind.OUT_OF_MEMORY),
        (Evidence(exception="torch.OutOfMemoryError"), FailureKind.OUT_OF_MEMORY),
        (Evidence(exception="torch.cuda.OutOfMemoryError"), FailureKind.OUT_OF_MEMORY),
        (
            Evidence(exception="tensorflow.python.framework.errors_impl.ResourceExhaustedError"),
            FailureKind.OUT_OF_MEMORY,
        ),
        (
            Evidence(exception="jax.errors.JaxRuntimeError", message="RESOURCE_EXHAUSTED: Out of memory"),
            FailureKind.OUT_OF_MEMORY,
        ),
        (Evidence(exception="jax.errors.JaxRuntimeError", message="INTERNAL: bad"), FailureKind.USER_ERROR),
        (Evidence(exception="ImportError", started=False), FailureKind.START_UP),
        (Evidence(signal=11, started=False), FailureKind.START_UP),
        (Evidence(stalled_s=3.0), FailureKind.HANG),
        (Evidence(stalled_s=3.0, started=False), FailureKind.START_UP),
        (Evidence(node_lost=True, signal=9), FailureKind.NODE_LOST),
        (Evidence(storage=True, message="no space"), FailureKind.STORAGE),
    ],
)
def test_the_evidence_tells_the_kind(evidence: Evidence, kind: FailureKind) -> None:
    assert classify(evidence) is kind


def test_memory_that_ran_out_before_the_train_function_is_named_as_such() -> None:
    assert classify(Evidence(signal=9, oom_killed=True, started=False)) is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        (Evidence(exception="ValueError", message="bad\nsecond line"), "rank 3 raised ValueError: bad"),
        (Evidence(exception="KeyError"), "rank 3 raised KeyError"),
        (
            Evidence(exception="ImportError", message="no such module", started=False),
            "rank 3 raised ImportError: no such module before its train function was entered",
        ),
        (Evidence(signal=11), "rank 3 was killed by SIGSEGV (signal 11)"),
        (Evidence(signal=250), "rank 3 was killed by signal 250"),
        (
            Evidence(signal=9, oom_killed=True),
            "rank 3 was killed by SIGKILL (signal 9), by the kernel because memory ran out",
        ),
        (Evidence(exit_code=7), "rank 3 exited with code 7 without returning"),
        (Evidence(stalled_s=2.04), "rank 3 made no progress for 2.0 s (no report)"),
        (Evidence(stalled_s=1.0, message="stopped"), "rank 3 made no progress for 1.0 s (stopped)"),
        (Evidence(node_lost=True), "rank 3 was lost with its node"),
        (Evidence(storage=True, message="no space"), "rank 3: a checkpoint could not be stored: no space"),
    ],
)
def test_a_failure_is_told_in_one_sentence(evidence: Evidence, text: str) -> None:
    assert describe(3, evidence) == text


def test_a_failure_of_no_rank_is_the_runs() -> None:
    assert describe(-1, Evidence(storage=True, message="no space")).startswith("the run: ")
