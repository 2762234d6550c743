"""Cases of Ray's own tests for Train, and the test here that stands for each; ``support.compat.ray_case`` says how.

``support.compat.ray_ledger`` says of each file what is not in this table, and why.
"""

from __future__ import annotations

from support.compat.ray_case import HOLDS, WORDS, Case

_HERE = "system/compat/test_train_cases.py"
_REPORTS = "system/compat/test_train_cases_reports.py"
_TRAINING = "system/training/test_training.py"


def _here(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_HERE}::test_{name}", outcome, count)


def _reports(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_REPORTS}::test_{name}", outcome, count)


def _training(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_TRAINING}::test_{name}", outcome, count)


_NOT_COPIED = "`NO_UPLOAD` on disk"
_PLACE = "a run's checkpoints"
_REMOVED = "options that Train V2 removed: `fail_fast`, `verbose`, `trainer_resources` and others"
_FROM_PATH = "system/object_stores/urls/test_url_results.py::test_where_there_is_no_run"


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
        "test_checkpoint_upload_fn_returns_checkpoint": _here("what_a_report_refuses", WORDS),
        "test_get_all_reported_checkpoints_all_consistency_modes": _reports(
            "checkpoints_before_and_after_their_validation"
        ),
        "test_get_all_reported_checkpoints_empty_reports": _reports("checkpoints_that_were_reported_so_far"),
        "test_report_checkpoint_upload_fn": _reports("an_upload_function_copies_to_the_storage_of_the_run"),
        "test_report_delete_local_checkpoint_after_upload": _reports(
            "what_becomes_of_the_directory_of_a_checkpoint", count=6
        ),
        "test_report_get_all_reported_checkpoints": _reports("checkpoints_that_were_reported_so_far"),
        "test_report_mixed_checkpoint_upload_modes": _reports("every_pair_of_upload_modes", _NOT_COPIED),
        "test_report_validate_fn_error": _reports("a_validation_that_fails_fails_no_run"),
        "test_report_validate_fn_keeps_correct_checkpoints": _reports("validations_decide_which_checkpoints_are_kept"),
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
    "test_collective": {
        "test_barrier": _reports("all_ranks_have_reached_a_barrier"),
        "test_broadcast_from_rank_zero": _training("collectives"),
        "test_broadcast_from_rank_zero_data_too_big": Case(
            "unit/train/test_train_functions.py::test_a_large_broadcast_works_and_warns", "`broadcast_from_rank_zero()`"
        ),
    },
    "test_config": {
        "test_scaling_config_default_workers": _reports("configurations_need_no_argument"),
        "test_scaling_config_validation": _here("scaling_configs_that_cannot_be", WORDS),
        "test_scaling_config_accelerator_type": _reports("an_accelerator_type_is_a_resource"),
        "test_storage_filesystem_repr": _here("a_config_with_a_file_system_can_be_shown"),
    },
    "test_data_parallel_trainer": {
        "test_backend_setup": Case(
            "system/training/test_backends.py::test_the_hooks_of_a_backend_run_around_the_train_function"
        ),
        "test_error": _reports("an_error_of_one_rank_and_a_callback_that_sees_it"),
        "test_no_optional_arguments": _reports("a_trainer_needs_no_more_than_a_function"),
        "test_report_checkpoint_multirank": _reports("only_some_ranks_have_a_checkpoint"),
        "test_report_checkpoint_rank0": _reports("only_some_ranks_have_a_checkpoint"),
        "test_report_get_all_reported_checkpoints": _reports("checkpoints_that_were_reported_so_far"),
        "test_result_output": _reports("what_a_run_returns"),
        "test_setup_working_directory": _reports(
            "a_script_stays_in_its_directory_whatever_the_variable", "Tune: a trial's working directory", 2
        ),
        "test_sigint_abort": Case(
            "system/faults/test_driver_faults.py::test_a_signal_stops_gracefully_and_the_same_command_goes_on"
        ),
        "test_train_loop_config": _reports("what_a_run_returns"),
        "test_user_callback": _reports("an_error_of_one_rank_and_a_callback_that_sees_it"),
    },
    "test_local_mode": {
        "test_data_parallel_trainer_local_mode": _training("in_the_script_s_own_process"),
    },
    "test_persistence": {
        "test_trainer (nfs)": _training("names_of_checkpoints", _PLACE, 2),
        "test_trainer (cloud)": Case(
            "system/object_stores/test_remote_runs.py::test_a_killed_worker_is_replaced_without_a_download", _PLACE, 2
        ),
        "test_trainer (custom_fs)": Case(
            "system/object_stores/test_given_filesystems.py::test_a_run_is_trained_with_a_killed_worker_and_restored",
            _PLACE,
            2,
        ),
    },
    "test_preemption_fault_tolerance": {
        "test_preemption_clean_finish": Case(
            "system/elastic/test_nodes_drain.py::test_a_script_that_ends_before_the_deadline_has_finished"
        ),
        "test_preemption_deadline_restart_and_resume": Case(
            "system/elastic/test_nodes_drain.py::test_a_script_that_does_not_save_in_time"
        ),
    },
    "test_report_fault_tolerance": {
        "test_report_with_worker_failure_before_put_on_worker_queue": _reports(
            "a_rank_that_fails_at_its_report_is_started_again"
        ),
        "test_report_with_worker_failure_before_sync": _reports("a_rank_that_fails_at_its_report_is_started_again"),
    },
    "test_elastic_e2e": {
        "test_elastic_training": Case("system/elastic/test_elastic_training.py::test_nodes_that_go_and_come"),
    },
    "test_storage": {
        "test_storage_path_inputs": _here("ways_to_write_a_storage_path"),
        "test_custom_fs_validation": Case(
            "system/object_stores/test_given_filesystems.py::test_a_run_is_trained_with_a_killed_worker_and_restored"
        ),
    },
    "test_result": {
        "test_get_best_checkpoint": Case("unit/train/test_train_result.py::test_best_checkpoint"),
        "test_result_from_path_validation (local)": _training("a_path_without_a_run_is_a_runtime_error", WORDS, 2),
        "test_result_from_path_validation (remote)": Case(_FROM_PATH, WORDS),
        "test_result_repr": _reports("a_result_is_shown_with_its_checkpoint"),
        "test_result_restore (local)": _reports("a_failed_run_is_read_from_its_path", "`report()`", 8),
        "test_result_restore (remote)": Case(
            "system/object_stores/urls/test_url_results.py::test_a_remote_run_has_the_result_of_the_same_run_on_disk",
            count=4,
        ),
    },
    "test_serialization": {
        "test_exceptions_are_picklable": Case(
            "unit/train/test_train_values.py::test_every_error_has_the_one_base_and_survives_pickling", count=2
        ),
    },
    "test_torch_backend": {
        "test_torch_start_shutdown": _reports("torch_is_set_up_on_two_workers", count=2),
    },
    "test_torch_trainer": {"test_minimal": _reports("torch_is_set_up_on_two_workers")},
    "test_v2_api": {
        "test_api_configs (defaults)": _reports("configurations_need_no_argument", count=3),
        "test_api_configs (removed)": Case(
            "unit/train/test_train_configs.py::test_older_options_are_accepted_and_only_the_useless_ones_warn_once",
            _REMOVED,
            3,
        ),
        "test_scaling_config_total_resources": _here("resources_of_a_scaling_config"),
        "test_train_v2_import (V2)": _reports("the_names_of_train_are_those_of_its_modules"),
        "test_trainer_restore": Case(
            "system/faults/test_driver_faults.py::test_restore_and_can_restore",
            "`restore`, `can_restore`, `resume_from_checkpoint`",
        ),
    },
}
