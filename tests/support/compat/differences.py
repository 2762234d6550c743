"""The deliberate differences from Ray that ``docs/moving-from-ray.md`` explains, each with the test that keeps it.

The keys are the first cells of that page's table. A test is named by its file below ``tests/`` and its function; a row
that says several things may have several tests.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "moving-from-ray.md"
KEPT_BY: dict[str, str | tuple[str, ...]] = {
    "`report()`": "system/training/test_training.py::test_a_report_does_not_wait_for_other_ranks",
    "default upload mode": "system/compat/test_public_names.py::test_names_and_signatures",
    "metrics without a checkpoint": "system/training/test_training.py::test_a_run_of_metrics_alone",
    "a checkpoint in a temporary directory": "unit/train/test_train_functions.py::"
    "test_a_temporary_directory_may_be_moved",
    "a checkpoint directory without a file": "unit/train/test_train_functions.py::test_an_empty_directory_adds_nothing",
    "`NO_UPLOAD` of a place without files": "unit/train/test_train_functions.py::"
    "test_no_upload_of_no_file_reports_the_metrics",
    "a run's checkpoints": "unit/store/test_store_layout.py::test_the_places_of_a_run_are_stable",
    "`checkpoint_upload_fn` without a mode": "system/training/test_upload_functions.py::"
    "test_an_upload_runs_behind_the_loop_and_reports_stay_in_order",
    "`NO_UPLOAD` on disk": "system/training/test_upload_functions.py::test_no_upload_takes_over_what_lies_in_the_run",
    "a worker whose function returned": "system/training/test_worker_ends.py::"
    "test_threads_and_exit_functions_come_to_their_end",
    "numpy and torch scalars, NaN, int keys in metrics": "unit/store/test_store_values.py::"
    "test_scalars_of_numpy_and_torch_become_plain",
    "`restore`, `can_restore`, `resume_from_checkpoint`": "system/faults/test_driver_faults.py::"
    "test_restore_and_can_restore",
    "options that Train V2 removed: `fail_fast`, `verbose`, `trainer_resources` and others": "unit/train/"
    "test_train_configs.py::test_older_options_are_accepted_and_only_the_useless_ones_warn_once",
    "failures used up": "system/faults/test_driver_faults.py::"
    "test_driver_deaths_cost_no_retries_and_retries_used_stay_used",
    "a worker that dies in rendezvous or at import": "system/faults/test_worker_faults.py::"
    "test_a_worker_that_dies_in_rendezvous",
    "a hung worker": "system/elastic/test_hangs.py::test_a_rank_that_hangs_is_told_from_those_that_wait_for_it",
    "more workers, `num_workers=(min, max)`": "system/elastic/test_nodes_grow.py::"
    "test_a_script_that_saves_seldom_and_never_asks_loses_no_step_either",
    "a node that joins": "system/elastic/test_nodes_grow.py::test_two_nodes_that_join_one_after_the_other",
    "a drain notice": "system/elastic/test_nodes_drain.py::test_a_drain_with_a_deadline",
    "a handover before a node is preempted": "unit/runs/test_ledger.py::"
    "test_a_handover_before_a_preemption_is_not_a_failure",
    "local mode under torchrun": "system/training/test_launched.py::test_the_processes_of_torchrun_are_one_world",
    "`broadcast_from_rank_zero()`": "unit/train/test_train_functions.py::test_a_large_broadcast_works_and_warns",
    "`ray_remote_kwargs` of a `ValidationConfig`": (
        "system/compat/test_train_cases.py::test_a_validation_is_retried_as_ray_remote_kwargs_say",
        "system/compat/test_train_cases.py::test_options_of_a_task_that_have_no_effect_are_warned_about",
    ),
    "hooks of a `Backend`": "system/training/test_backends.py::"
    "test_the_hooks_of_a_backend_run_around_the_train_function",
    "a node that keeps failing": "unit/core/run/test_run_nodes.py::"
    "test_a_node_that_fails_again_and_again_rests_and_comes_back",
    "retries": "unit/core/run/test_run_budgets.py::"
    "test_a_second_failure_without_progress_waits_and_each_one_after_it_waits_longer",
    "damaged or half-written checkpoints": "system/faults/test_storage_faults.py::"
    "test_a_checkpoint_damaged_between_two_attempts",
    "two drivers on one run": "system/faults/test_driver_faults.py::test_a_second_driver_is_refused",
    "default `storage_path`": "unit/train/test_train_configs.py::test_run_config_defaults_come_from_the_settings",
    "Tune: a killed driver": "system/tune/test_kills.py::test_an_experiment_survives_its_drivers",
    "`Tuner.restore`": "system/tune/test_same_name.py::test_a_restore_may_change_the_search",
    "Tune: NaN and infinite scores": "system/tune/test_ray_scripts.py::"
    "test_a_score_that_is_no_number_is_never_the_best",
    "Tune: `HyperBandScheduler`": "unit/tune/schedulers/test_scheduler_hyperband.py::test_the_brackets_of_the_paper",
    "Tune: trials that wait": "unit/tune/test_ray_differences.py::test_trials_are_created_when_there_is_capacity",
    '`tune.choice("abc")`': "unit/tune/test_ray_differences.py::test_a_string_is_no_list_of_choices",
    "Tune: a scheduler of your own": "unit/tune/schedulers/test_scheduler_base.py::"
    "test_a_users_scheduler_overrides_only_what_it_needs",
    "Tune: a trial's checkpoints": "system/tune/test_ray_scripts.py::"
    "test_a_tuner_writes_nothing_before_fit_and_checkpoints_have_a_directory",
    "Tune: the last checkpoint of a class": "system/tune/test_class_decided_on.py::"
    "test_the_end_that_a_scheduler_decides_on_is_saved_too",
    'Tune: a callback that sets `result["should_checkpoint"]`': "system/tune/test_class_decided_on.py::"
    "test_a_callback_asks_for_a_checkpoint",
    "Tune: `can_restore`": "system/tune/test_ray_scripts.py::"
    "test_a_tuner_writes_nothing_before_fit_and_checkpoints_have_a_directory",
    "Tune: a trial that never reports": "system/tune/test_ray_scripts.py::"
    "test_errors_are_the_users_and_results_can_be_pickled",
    "Tune: `params.pkl`": "unit/tune/test_ray_cases_output.py::test_json",
    "Tune: what Ray refuses or evaluates": (
        "unit/tune/test_ray_cases_search.py::test_configurations_of_a_space",
        "unit/tune/test_ray_cases_output.py::test_columns_of_a_reporter",
        "system/compat/test_tune_cases_run.py::test_how_many_trials_run_in_parallel",
        "system/compat/test_tune_cases_restore.py::test_options_that_a_trainer_as_a_trainable_does_not_use",
        "system/tune/test_ray_scripts.py::test_stop_criteria",
    ),
    "Tune: `reuse_actors`": "system/compat/test_tune_cases_resume.py::test_trainables_are_not_used_again",
    "Tune: `run_experiments`": "system/compat/test_tune_cases_resume.py::test_experiments_run_one_after_the_other",
    "Tune: `ray.train` in trials and searches": "system/compat/test_tune_cases_resume.py::"
    "test_names_of_train_are_those_of_tune",
    "`convert_search_space`": "unit/tune/test_ray_differences.py::test_one_searcher_converts_spaces",
    "Objects in metrics": "system/tune/test_ray_scripts.py::test_metrics_of_any_type",
    "Tune: `errors[0]`": "system/tune/test_ray_scripts.py::test_errors_are_the_users_and_results_can_be_pickled",
    "Tune: searcher and scheduler after `fit()`": "system/tune/test_ray_scripts.py::"
    "test_a_searcher_of_ones_own_can_be_looked_at_and_used_again",
    "Tune: the same `name` again": "system/tune/test_same_name.py::test_another_search_of_that_name_is_refused",
    "Tune: a trial's working directory": "system/tune/test_own_trial.py::test_two_trials_never_share_a_directory",
    "`TuneBOHB`": "unit/tune/search/test_library_searchers.py::test_bohb_orders_trials_by_their_budgets",
    "`tune.run(restore=checkpoint)`": "system/tune/test_tune_run.py::"
    "test_experiments_export_and_start_from_a_checkpoint",
    "`save(path)` of searchers and schedulers": "unit/tune/schedulers/test_scheduler_saved.py::"
    "test_a_restored_scheduler_decides_as_the_saved_one",
    "`BayesOptSearch`: a configuration that is suggested again": "system/searchers/test_searchers.py::"
    "test_bayesopt_draws_at_random_what_comes_up_again",
    "`path` of results and checkpoints in an object store": "system/object_stores/urls/test_url_results.py::"
    "test_the_file_system_of_a_result_is_pyarrows",
    "Wrong arguments of schedulers and searchers": "system/compat/test_error_types.py::"
    "test_the_type_is_another_on_purpose",
    "Other error types": "system/compat/test_error_types.py::test_the_type_is_rays",
    "schedulers and searchers after a restore": "system/tune/test_kills.py::test_an_experiment_survives_its_drivers",
}


def rows() -> list[list[str]]:
    """The cells of the page's table of differences."""
    table = PAGE.read_text().partition("| Ray Train V2, Ray Tune | Holdfast |")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    path = TESTS / file
    if not path.exists():
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.parse(path.read_text()).body)


def tests_of(row: str) -> tuple[str, ...]:
    kept_by = KEPT_BY[row]
    return (kept_by,) if isinstance(kept_by, str) else kept_by
