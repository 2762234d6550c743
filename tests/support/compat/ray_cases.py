"""Cases of Ray's own tests for Train, and what came of them here: ``python -m support.compat.ray_cases`` counts them.

The files are from ``python/ray/train/v2/tests`` of Ray's public repository, in the copies of various commits that were
within reach; none of them was of 2.60. Each case was typed in again outside this repository with Holdfast's imports
and the names of 2.60, and run once on the local engine; where a case used an actor to wait, a file took its place.
A case with several parameters counts once for each. Nothing of Ray's is in this file but the names.
"""

from __future__ import annotations

from collections import Counter

PASS = "passes"
WORDS = "passes but for the words of an error"
# By file: by case, how often it counts, and what came of it. All others name the line of the moving guide
RUN: dict[str, dict[str, tuple[int, str]]] = {
    "test_async_checkpointing_validation": {
        "test_checkpoint_upload_fn_returns_checkpoint": (1, WORDS),
        "test_get_all_reported_checkpoints_all_consistency_modes": (1, PASS),
        "test_get_all_reported_checkpoints_empty_reports": (1, PASS),
        "test_report_checkpoint_upload_fn": (1, PASS),
        "test_report_delete_local_checkpoint_after_upload": (6, PASS),
        "test_report_get_all_reported_checkpoints": (1, PASS),
        "test_report_mixed_checkpoint_upload_modes": (1, "`NO_UPLOAD` on disk"),
        "test_report_validate_fn_error": (1, PASS),
        "test_report_validate_fn_keeps_correct_checkpoints": (1, PASS),
    },
    "test_collective": {"test_barrier": (1, PASS), "test_broadcast_from_rank_zero": (1, PASS)},
    "test_config": {
        "test_scaling_config_default_workers": (1, PASS),
        "test_scaling_config_validation": (1, WORDS),
        "test_storage_filesystem_repr": (1, PASS),
    },
    "test_data_parallel_trainer": {
        "test_backend_setup": (1, PASS),
        "test_error": (1, PASS),
        "test_no_optional_arguments": (1, PASS),
        "test_report_checkpoint_multirank": (1, PASS),
        "test_report_checkpoint_rank0": (1, PASS),
        "test_report_get_all_reported_checkpoints": (1, PASS),
        "test_result_output": (1, PASS),
        "test_train_loop_config": (1, PASS),
        "test_user_callback": (1, PASS),
    },
    "test_local_mode": {"test_data_parallel_trainer_local_mode": (1, PASS)},
    "test_persistence": {"test_trainer (nfs, custom_fs)": (4, "a run's checkpoints")},
    "test_result": {
        "test_get_best_checkpoint": (1, PASS),
        "test_result_from_path_validation (local)": (2, WORDS),
        "test_result_repr": (1, PASS),
        # with a barrier before the error they pass
        "test_result_restore (local)": (8, "`report()`"),
    },
    "test_serialization": {"test_exceptions_are_picklable": (2, PASS)},
    "test_torch_trainer": {"test_minimal": (1, PASS)},
    "test_v2_api": {
        "test_api_configs (defaults)": (3, PASS),
        "test_api_configs (removed)": (
            3,
            "options that Train V2 removed: `fail_fast`, `verbose`, `trainer_resources` and others",
        ),
        "test_train_v2_import (V2)": (1, PASS),
        "test_trainer_restore": (1, "`restore`, `can_restore`, `resume_from_checkpoint`"),
    },
}
# Cases of these files that were not run, and why
NOT_RUN = {
    "test_async_checkpointing_validation": "test_report_checkpoint_upload_error replaces a method inside Ray",
    "test_collective": "test_broadcast_from_rank_zero_data_too_big sets a constant inside Ray",
    "test_config": "accelerator_type reads a private attribute; two are about TPUs",
    "test_data_parallel_trainer": "test_sigint_abort and test_setup_working_directory need Ray's actors and session",
    "test_local_mode": "all others need frameworks or TPUs",
    "test_persistence": "cloud storage was not started",
    "test_result": "cloud storage was not started",
    "test_serialization": "the others use callbacks inside Ray",
    "test_torch_trainer": "test_torch_linear is run by `make examples`",
    "test_v2_api": "Train V1, and frameworks",
}


def counts() -> Counter[str]:
    """How many cases pass, differ in words, and differ on purpose."""
    found: Counter[str] = Counter()
    for cases in RUN.values():
        for count, outcome in cases.values():
            found[outcome if outcome in (PASS, WORDS) else "differs on purpose"] += count
    return found


def differing() -> set[str]:
    """The lines of the moving guide that explain a case."""
    return {outcome for cases in RUN.values() for _, outcome in cases.values()} - {PASS, WORDS}


if __name__ == "__main__":
    print(counts())
