"""Cases of Ray's own tests for Train, and the test here that stands for each; ``support.compat.ray_case`` says how.

``support.compat.ray_cases`` has others, which were typed in and run once outside this repository.
"""

from __future__ import annotations

from support.compat.ray_case import HOLDS, WORDS, Case

_HERE = "system/compat/test_train_cases.py"
_TRAINING = "system/training/test_training.py"


def _here(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_HERE}::test_{name}", outcome, count)


def _training(name: str) -> Case:
    return Case(f"{_TRAINING}::test_{name}")


CASES: dict[str, dict[str, Case]] = {
    "test_async_checkpointing_validation": {
        "test_report_checkpoint_upload_error": _here("an_upload_that_raises_fails_the_run"),
        "test_report_checkpoint_delete_storage_path": _here("a_checkpoint_that_the_run_is_stored_in", WORDS, 2),
        "test_report_validation_without_validation_fn": _here("what_a_report_refuses", WORDS),
        "test_report_validation_without_checkpoint": _here("what_a_report_refuses", WORDS),
        "test_report_validation_fn_overrides_default_kwargs": _here("arguments_of_one_report_come_before_the_defaults"),
        "test_report_validation_fn_success_after_retry": _here("a_validation_is_retried_as_ray_remote_kwargs_say"),
        "test_report_validation_fn_resumption_on_train_fn_error": _here(
            "what_failed_before_its_validations_ended_knows_them_later", count=2
        ),
        "test_report_validation_fn_resumption_checkpoint_status": _here(
            "what_failed_before_its_validations_ended_knows_them_later"
        ),
    },
    "test_validation_manager": {
        "test_before_controller_shutdown": _training("a_finished_train_function_waits_for_its_validations"),
        "test_checkpoint_validation_management_reordering": _training(
            "a_finished_train_function_waits_for_its_validations"
        ),
        "test_checkpoint_validation_management_failure": _here("what_a_validation_returns_must_be_metrics"),
        "test_checkpoint_validation_management_success_after_retry": _here(
            "a_validation_is_retried_as_ray_remote_kwargs_say"
        ),
        "test_checkpoint_validation_management_slow_validation_fn": _training("the_default_time_limit_of_validations"),
        "test_timeout_overrides_config_default": _training("validation_beside_training"),
    },
    "test_checkpoint_manager": {
        "test_pending_checkpoint_management": _training("a_finished_train_function_waits_for_its_validations"),
    },
    "test_env_callbacks": {"all": _here("callbacks_of_a_variable", WORDS, 10)},
    "test_v2_api": {"test_scaling_config_total_resources": _here("resources_of_a_scaling_config")},
}
