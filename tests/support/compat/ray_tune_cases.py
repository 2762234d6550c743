"""Cases of Ray's own tests for Tune, and the test here that stands for each; ``support.compat.ray_case`` says how."""

from __future__ import annotations

from support.compat.ray_case import HOLDS, WORDS, Case

_RUN = "system/compat/test_tune_cases_run.py"
_RESULTS = "system/compat/test_tune_cases_results.py"
_RESTORE = "system/compat/test_tune_cases_restore.py"
_SEARCH = "unit/tune/test_ray_cases_search.py"
_SCHEDULERS = "unit/tune/schedulers/test_ray_cases_schedulers.py"
_OUTPUT = "unit/tune/test_ray_cases_output.py"


def _results(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_RESULTS}::test_{name}", outcome, count)


def _run(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_RUN}::test_{name}", outcome, count)


def _restore(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_RESTORE}::test_{name}", outcome, count)


def _resume(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"system/compat/test_tune_cases_resume.py::test_{name}", outcome, count)


def _populations(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"system/compat/test_tune_cases_populations.py::test_{name}", outcome, count)


def _search(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_SEARCH}::test_{name}", outcome, count)


def _schedulers(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_SCHEDULERS}::test_{name}", outcome, count)


def _output(name: str, outcome: str = HOLDS, count: int = 1) -> Case:
    return Case(f"{_OUTPUT}::test_{name}", outcome, count)


_OBJECTS = "Objects in metrics"
_OWN_SCHEDULER = "Tune: a scheduler of your own"
_WAITING = "Tune: trials that wait"
_PLACE = "Tune: a trial's checkpoints"
_ACCEPTED = "Tune: what Ray refuses or evaluates"
_NOTHING = "Tune: a trial that never reports"
_SAVED = "`save(path)` of searchers and schedulers"
_PICKLED_FILES = "Tune: `params.pkl`"
_PASSED = "`Tuner.restore`"
_REUSED = "Tune: `reuse_actors`"
_FROM_CHECKPOINT = "`tune.run(restore=checkpoint)`"
_PATHS = "unit/tune/test_ray_paths.py"
_PBT = "unit/tune/schedulers/test_scheduler_pbt.py"
_PB2 = "unit/tune/schedulers/test_scheduler_pb2.py"
_LIBRARIES = "system/searchers/test_searchers.py"
CASES: dict[str, dict[str, Case]] = {
    "test_result_grid": {
        "test_result_grid_api": _results("a_grid_of_results"),
        "test_result_grid_no_checkpoint": _results("trials_that_report_nothing"),
        "test_best_result_no_report": _results("trials_that_report_nothing", WORDS),
        "test_result_repr": _results("a_grid_of_results"),
        "test_result_grid_repr": _results("a_grid_of_results", WORDS),
        "test_no_metric_mode_one_trial": _results("the_only_trial_is_the_best"),
        "test_result_grid_df": _results("a_grid_of_results"),
        "test_num_errors_terminated": _results("trials_that_report_nothing"),
    },
    "test_experiment_analysis": {
        "test_fetch_trial_dataframes": _results("all_trials_of_an_analysis", count=2),
        "test_get_all_configs": _results("all_trials_of_an_analysis"),
        "test_default_properties": _results("the_best_of_an_analysis"),
        "test_get_best_config": _results("the_best_of_an_analysis"),
        "test_get_best_trial": _results("the_best_of_an_analysis"),
        "test_get_best_checkpoint": _results("checkpoints_of_an_analysis"),
        "test_get_last_checkpoint": _results("checkpoints_of_an_analysis"),
        "test_pickle": _results("checkpoints_of_an_analysis"),
        "testDataframe": _results("the_best_of_an_analysis"),
        "testLoadJsonAndCSV": _results("all_trials_of_an_analysis"),
        "testTrialDataframe": _results("all_trials_of_an_analysis"),
        "testBestConfig": _results("the_best_of_an_analysis"),
        "testBestConfigNan": _results("trials_that_report_nothing"),
        "testGetBestCheckpoint": _results("checkpoints_of_an_analysis"),
        "testGetBestCheckpointNan": _results("checkpoints_of_an_analysis"),
        "testAllDataframes": _results("all_trials_of_an_analysis"),
        "testBestProperties": _results("the_best_of_an_analysis"),
        "testDataframeBestResult": _results("the_best_of_an_analysis"),
    },
    "test_function_api": {
        "testCheckpointError": _results("a_function_saves_by_itself"),
        "testWithParameters": _results("parameters_that_all_trials_share"),
        "testWithParameters2": _results("parameters_that_all_trials_share"),
        "testNewResources": _results("a_function_allocates_resources", _OBJECTS),
        "testWithParametersTwoRuns1": _results("two_searches_of_one_script_with_parameters"),
        "testWithParametersTwoRuns2": _results("two_searches_of_one_script_with_parameters"),
        "testReturnAnonymous": _results("a_function_returns_or_yields"),
        "testReturnSpecific": _results("a_function_returns_or_yields"),
        "testYieldAnonymous": _results("a_function_returns_or_yields"),
        "testYieldSpecific": _results("a_function_returns_or_yields"),
    },
    "test_tuner": {
        "test_tuner_api_kwargs (progress_reporter)": _output("a_reporter_of_ones_own"),
        "test_tuner_api_kwargs (log_to_file)": _run("output_in_files"),
        "test_tuner_api_kwargs (max_concurrent_trials)": _run("how_many_trials_run_in_parallel"),
        "test_tuner_api_kwargs (time_budget_s)": _run("budgets_of_time"),
        "test_tuner_fn_trainable_invalid_checkpoint_config": _results("a_function_saves_by_itself"),
        "test_tuner_trainer_checkpoint_config": _restore(
            "options_that_a_trainer_as_a_trainable_does_not_use", _ACCEPTED
        ),
        "test_tuner_fn_trainable_checkpoint_at_end_false": _restore("checkpoints_of_a_function_need_no_settings"),
        "test_tuner_fn_trainable_checkpoint_at_end_none": _restore("checkpoints_of_a_function_need_no_settings"),
        "test_nonserializable_trainable": _restore("what_cannot_be_sent_is_refused", WORDS),
        "test_tuner_no_chdir_to_trial_dir_deprecated": _restore("the_working_directory"),
        "test_tuner_no_chdir_to_trial_dir": _restore("the_working_directory", count=2),
        "test_tuner_relative_pathing_with_env_vars": _restore(
            "the_working_directory", "Tune: a trial's working directory", count=2
        ),
        "test_tuner_with_torch_trainer": _restore("a_trainer_with_a_grid_in_all_its_parts"),
        "test_tuner_run_config_override": _restore("a_trainer_brings_its_run_config"),
    },
    "test_tuner_restore": {
        "test_tuner_restore_num_trials": _restore("a_finished_search_is_read_again"),
        "test_tuner_restore_resume_errored": _restore("failed_trials_continue_or_begin_again", _PASSED),
        "test_tuner_restore_restart_errored": _restore("failed_trials_continue_or_begin_again", _PASSED),
        "test_tuner_resume_unfinished": _restore(
            "a_callback_that_raises_ends_the_driver_and_the_rest_resumes", _WAITING
        ),
        "test_tuner_resume_errored_only": _restore(
            "a_callback_that_raises_ends_the_driver_and_the_rest_resumes", _WAITING
        ),
        "test_tuner_restore_from_cloud_manual_path": Case(
            "system/tune/test_remote_experiments.py::test_a_killed_experiment_on_s3_goes_on"
        ),
        "test_restore_overwrite_trainable": _restore("the_trainable_of_a_restore"),
        "test_restore_with_parameters": _restore("parameters_are_passed_again", count=2),
        "test_tuner_restore_from_moved_experiment_path": _restore(
            "an_experiment_that_was_moved_and_renamed", _PLACE, count=2
        ),
        "test_custom_searcher_and_scheduler_restore": _restore(
            "a_searcher_and_a_scheduler_of_ones_own_are_passed_again", _PASSED
        ),
        "test_checkpoints_saved_after_resume": _restore("checkpoints_after_a_restore", _PLACE, count=3),
        "test_tuner_can_restore": _restore("where_there_is_an_experiment", "Tune: `can_restore`"),
        "testParamSpaceOverwriteValidation": _restore("the_space_of_a_restore"),
        "testParamSpaceOverwrite": _restore("objects_of_the_space_are_passed_again"),
    },
    "test_api": {
        "testRegisterEnv": _run("what_is_registered"),
        "testRegisterEnvOverwrite": _run("what_is_registered"),
        "testRegisterTrainable": _run("what_is_registered"),
        "testRegisterTrainableThrice": _run("what_is_registered"),
        "testTrainableCallable": _run("what_is_registered"),
        "testBuiltInTrainableResources": Case(
            "system/tune/test_mistakes.py::test_trials_that_ask_for_more_than_there_is_fail_and_the_experiment_ends",
            WORDS,
        ),
        "testRewriteEnv": _run("several_experiments"),
        "testConfigPurity": _run("several_experiments"),
        "testLogdir": _run("directories_of_experiments_and_trials"),
        "testLongFilename": _run("directories_of_experiments_and_trials"),
        "testBadParams": _run("mistakes_in_experiments"),
        "testBadParams2": _run("mistakes_in_experiments"),
        "testBadParams3": _run("mistakes_in_experiments"),
        "testBadParams4": _run("mistakes_in_experiments"),
        "testBadParams6": _run("mistakes_in_experiments"),
        "testNestedStoppingReturn": _run("what_stops_a_trial"),
        "testStoppingFunction": _run("what_stops_a_trial"),
        "testStoppingMemberFunction": _run("what_stops_a_trial"),
        "testStopper": _run("an_experiment_that_is_stopped", _WAITING),
        "testEarlyStopping": _run("a_plateau_of_the_experiment"),
        "testBadStoppingFunction": _run("a_function_that_cannot_stop"),
        "testMaximumIterationStopper": _run("what_stops_a_trial"),
        "testTrialPlateauStopper": _run("a_plateau_of_a_trial"),
        "testCustomTrialDir": _run("directories_of_experiments_and_trials"),
        "testTrialDirRegression": _run("directories_of_experiments_and_trials"),
        "testEarlyReturn": _run("a_result_may_say_that_it_is_the_last"),
        "testReporterNoUsage": _results("trials_that_report_nothing", _NOTHING),
        "testRerun": _run("failed_trials_are_run_again"),
        "testTrialInfoAccess": _run("a_trial_knows_itself_and_cleans_up", _OBJECTS),
        "testTrialInfoAccessFunction": _run("a_trial_knows_itself_and_cleans_up", _OBJECTS),
        "testLotsOfStops": _run("a_trial_knows_itself_and_cleans_up"),
        "testReportTimeStep": _run("functions_and_classes_report_the_same"),
        "testAllValuesReceived": _run("functions_and_classes_report_the_same"),
        "testNoDoneReceived": _run("functions_and_classes_report_the_same"),
        "testCheckpointDict": Case("unit/tune/trainable/test_trainable_alone.py::test_save_and_restore"),
        "testMultipleCheckpoints": Case("unit/tune/trainable/test_trainable_alone.py::test_save_and_restore"),
        "testLogToFile": _run("output_in_files"),
        "testTimeout": _run("budgets_of_time"),
        "testInfiniteTrials": _run("budgets_of_time"),
        "testMetricCheckingEndToEnd": _run("metrics_that_results_must_have"),
        "testTrialDirCreation": _run("directories_of_experiments_and_trials"),
        "testWithParameters": _results("parameters_that_all_trials_share"),
        "testWithParameters2": _results("parameters_that_all_trials_share"),
        "testWithParameters3": Case(
            "unit/tune/trainable/test_with_parameters.py::test_references_are_taken_as_they_are"
        ),
        "testNotRaisesNonserializable": _run("what_cannot_be_sent_to_a_trial", WORDS),
        "testCreateScheduler": _run("by_name"),
        "testCreateLazyImportScheduler": _run("by_name"),
        "testCreateSearcher": _run("by_name"),
        "testExtraParams": _run("by_name"),
        "testNestedResults": _run("who_hears_of_nested_results"),
        "testIterationCounter": _run("functions_and_classes_report_the_same"),
        "testErrorReturn": _run("errors_of_trials"),
        "testSuccess": _run("several_experiments"),
        "testNoRaiseFlag": _run("errors_of_trials"),
        "testReportInfinity": _run("functions_and_classes_report_the_same"),
        "testSearcherSchedulerStr": _run("by_name"),
        "testMaxConcurrentTrials": _run("how_many_trials_run_in_parallel", _ACCEPTED),
    },
    "test_run_experiment": {
        "testDict": _run("several_experiments"),
        "testExperiment": _run("several_experiments"),
        "testExperimentList": _run("several_experiments"),
        "testAutoregisterTrainable": _run("several_experiments"),
        "testCheckpointAtEnd": Case(
            "system/tune/test_tune_run.py::test_experiments_export_and_start_from_a_checkpoint"
        ),
        "testExportFormats": Case("system/tune/test_tune_run.py::test_experiments_export_and_start_from_a_checkpoint"),
        "testCustomResources": Case("system/tune/test_ray_scripts.py::test_init_says_what_trials_share"),
        "testCustomLoggerNoAutoLogging": _run("loggers_of_ones_own_and_automatic_ones"),
        "testCustomLoggerWithAutoLogging": _run("loggers_of_ones_own_and_automatic_ones"),
        "testCustomTrialString": _run("directories_of_experiments_and_trials"),
    },
    "test_experiment": {
        "testConvertExperimentIncorrect": _run("mistakes_in_experiments"),
        "testDiagnoseSerialization": Case("unit/tune/test_ray_paths.py::test_what_cannot_be_sent_to_a_trial"),
    },
    "test_var": {
        "testParseToTrials": _search("configurations_of_a_space"),
        "testEval": _search("configurations_of_a_space", _ACCEPTED),
        "testGridSearch": _search("configurations_of_a_space"),
        "testGridSearchAndEval": _search("configurations_of_a_space"),
        "testConditionResolution": _search("configurations_of_a_space"),
        "testDependentLambda": _search("configurations_of_a_space"),
        "testDependentGridSearch": _search("configurations_of_a_space"),
        "testDependentGridSearchCallable": _search("configurations_of_a_space"),
        "testNestedValues": _search("configurations_of_a_space"),
        "testLogUniform": _search("orders_of_magnitude"),
        "test_resolve_dict": _search("nested_dicts_by_path"),
        "testRecursiveDep": _search("a_cycle", WORDS),
    },
    "test_sample": {
        "testSampleBoundsRandom": _search("bounds_of_random_values"),
        "testReproducibility": _search("the_same_seed_gives_the_same"),
        "testReproducibilityBasicVariantGenerator": _search("the_same_seed_gives_the_same"),
        "testBoundedFloat": _search("domains_in_steps"),
        "testUnboundedFloat": _search("domains_in_steps"),
        "testBoundedInt": _search("domains_in_steps"),
        "testCategorical": _search("domains_in_steps"),
        "testFunction": _search("domains_in_steps"),
        "testFunctionSignature": _search("functions_that_draw"),
        "testQuantized": _search("domains_in_steps"),
        "testCategoricalDtype": _search("domains_in_steps"),
        "testCategoricalSeedInTrainingLoop": Case(
            "system/tune/test_own_trial.py::test_a_seed_before_fit_seeds_the_search"
        ),
        "testConvertOptuna": _search("spaces_for_optuna"),
        "testSampleBoundsOptuna": Case(
            "unit/tune/search/test_search_optuna.py::test_every_domain_is_sampled_within_its_bounds_and_constants_stay"
        ),
        "testPointsToEvaluateOptuna": Case(
            "unit/tune/search/test_search_optuna.py::test_points_come_first_and_the_rest_of_them_is_sampled"
        ),
        "testPointsToEvaluateBasicVariant": _search("points_replace_samples_and_grids"),
        "testPointsToEvaluateBasicVariantAdvanced": _search("points_replace_samples_and_grids"),
        "testPointsToEvaluateBasicVariantFixedParam": _search("points_replace_samples_and_grids", WORDS),
        "testGridSearchGenerator": _search("configurations_of_a_space"),
        "testConstantGridSearchBasicVariant": _search("random_values_stay_within_a_grid_on_request"),
        "testSetSearchPropertiesBackwardsCompatibility": Case(
            "system/tune/test_ray_scripts.py::test_a_searcher_of_ones_own_can_be_looked_at_and_used_again"
        ),
    },
    "test_searchers": {
        "InvalidValuesTest.testOptuna": Case(
            "unit/tune/search/test_search_optuna.py::test_a_trial_that_never_had_the_metric_is_no_error"
        ),
        "testOptunaReportTooOften": _search("optuna_hears_more_than_it_asked_for"),
        "AddEvaluatedPointTest.testOptuna": _search("optuna_learns_from_points"),
        "SaveRestoreCheckpointTest.testOptuna": _search("optuna_is_saved_and_restored", _SAVED),
        "MultiObjectiveTest.testOptuna": Case("unit/tune/search/test_search_optuna.py::test_several_objectives"),
    },
    "test_searcher_utils": {
        "test_repeat_1": _search("repetitions"),
        "test_repeat_4": _search("repetitions"),
        "test_odd_repeat": _search("repetitions"),
        "test_set_get_repeater": _search("the_state_of_a_repeater"),
        "test_set_get_limiter": _search("the_state_of_a_limiter"),
        "test_basic_variant_limiter": _search("limits"),
        "test_batch_limiter": _search("limits"),
        "test_batch_limiter_infinite_loop": _search("limits"),
        "test_set_max_concurrency": _search("limits"),
    },
    "test_trial_scheduler": {
        "testMedianStoppingConstantPerf": _schedulers("the_median_of_others"),
        "testMedianStoppingOnCompleteOnly": _schedulers("the_median_of_others"),
        "testMedianStoppingGracePeriod": _schedulers("the_median_waits_for_time_and_for_samples"),
        "testMedianStoppingMinSamples": _schedulers("the_median_waits_for_time_and_for_samples"),
        "testMedianStoppingUsesMedian": _schedulers("the_median_stops_or_pauses"),
        "testMedianStoppingSoftStop": _schedulers("the_median_stops_or_pauses"),
        "EarlyStoppingSuite.testAlternateMetrics": _schedulers("other_metrics"),
        "EarlyStoppingSuite.testAlternateMetricsMin": _schedulers("other_metrics"),
        "HyperbandSuite": Case(
            "unit/tune/schedulers/test_scheduler_hyperband.py::test_the_brackets_of_the_paper",
            "Tune: `HyperBandScheduler`",
            20,
        ),
        "testSearchError": Case("unit/tune/schedulers/test_scheduler_pbt.py::test_mistakes"),
        "testMetricError": _schedulers("results_without_what_a_population_needs", _OWN_SCHEDULER),
        "testMetricLog": _schedulers("results_without_what_a_population_needs", WORDS),
        "testPerturbsLowPerformingTrials": _schedulers("a_bad_trial_copies_a_good_one_and_explores", _OWN_SCHEDULER),
        "testPerturbWithoutResample": _schedulers("a_bad_trial_copies_a_good_one_and_explores"),
        "testPerturbWithResample": _schedulers("resampled_values"),
        "testTuneSamplePrimitives": _schedulers("resampled_values"),
        "testTuneSampleFromError": _schedulers("mutations_that_are_none"),
        "testPerturbationValues": _schedulers("steps_of_exploration"),
        "testDictPerturbation": _schedulers("resampled_values"),
        "testPostprocessingHook": _schedulers("what_a_user_makes_of_an_explored_config"),
        "testReplay": Case(
            "system/tune/test_populations.py::"
            "test_a_population_that_waits_for_each_other_leaves_a_schedule_that_can_be_replayed"
        ),
        "E2EPopulationBasedTestingSuite": Case(
            "system/tune/test_example_calls.py::test_population_based_training_of_a_class", count=2
        ),
        "testAsyncHBOnComplete": _schedulers("asha_ends_at_its_limit"),
        "testAsyncHBAllCompletes": _schedulers("asha_ends_at_its_limit"),
        "testAsyncHBGracePeriod": _schedulers("asha_waits_and_takes_the_best_part"),
        "testAsyncHBUsesPercentile": _schedulers("asha_waits_and_takes_the_best_part"),
        "testAsyncHBSaveRestore": _schedulers("asha_saved_and_restored", _SAVED),
        "testAsyncHBNonStopTrials": _schedulers("asha_may_let_the_last_ones_run"),
        "testMedianStoppingNanInf": _schedulers("scores_that_are_no_numbers"),
        "testHyperbandNanInf": _schedulers("scores_that_are_no_numbers"),
        "testPBTNanInf": _schedulers("scores_that_are_no_numbers"),
        "AsyncHyperBandSuite.testAlternateMetrics": _schedulers("other_metrics"),
        "AsyncHyperBandSuite.testAlternateMetricsMin": _schedulers("other_metrics"),
    },
    "test_trial_scheduler_resource_changing": {
        "TestUniformResourceAllocation": _schedulers("even_shares_as_trials_end", count=2),
        "TestUniformResourceAllocation (rest)": _schedulers("a_limit_of_units_and_what_is_given_back", count=2),
        "TestUniformResourceAllocationAddBundles": _schedulers("even_shares_in_units", count=2),
        "TestTopJobResourceAllocation": _schedulers("all_for_the_best_trial"),
    },
    "test_stopper": {
        "test_timeout_stopper_timeout": _output("a_pickled_time_limit_continues_with_what_was_left"),
        "test_timeout_stopper_recover_before_timeout": _output("a_pickled_time_limit_continues_with_what_was_left"),
        "test_timeout_stopper_recover_after_timeout": _output("a_pickled_time_limit_continues_with_what_was_left"),
    },
    "test_logger": {
        "testCSV": _output("csv"),
        "testCSVEmptyHeader": _output("a_trial_that_starts_twice_has_a_header"),
        "testJSON": _output("json", _PICKLED_FILES),
        "testTBX": _output("tensorboard"),
        "testBadTBX": _output("tensorboard"),
    },
    "test_progress_reporter": {
        "testAddMetricColumn": _output("columns_of_a_reporter", _ACCEPTED),
        "testInfer": _output("columns_of_a_reporter"),
        "testProgressStr": _output("a_table_of_trials", WORDS),
        "testBestTrialStr": _output("a_table_of_trials", WORDS),
        "testBestTrialZero": _output("a_table_of_trials"),
        "testCurrentBestTrial": _output("a_table_of_trials", WORDS),
        "testTimeElapsed": _output("how_long_it_has_run", WORDS),
        "testSortByMetric": _output("rows_sorted_by_a_metric"),
        "testMaxLen": _output("long_names_in_a_table"),
        "testProgressReporterAPI": _output("a_reporter_of_ones_own"),
    },
    "test_train_v2_integration": {
        "test_e2e": Case("unit/tune/trainable/test_trial_trainer.py::test_a_trainer_inside_of_a_trial", count=4),
    },
    "test_actor_reuse": {
        "test_trial_reuse_disabled": _resume("trainables_are_not_used_again"),
        "test_trial_reuse_disabled_per_default": _resume("trainables_are_not_used_again"),
        "test_trial_reuse_enabled": _resume("trainables_are_not_used_again", _REUSED),
        "test_trial_reuse_with_failing": _resume("trainables_are_not_used_again", _REUSED),
        "test_reuse_enabled_error": _resume("trainables_are_not_used_again", _REUSED),
        "test_trial_reuse_log_to_file": _resume("trainables_are_not_used_again", _REUSED),
        "test_multi_trial_reuse": _resume("trainables_are_not_used_again", _REUSED),
        "test_multi_trial_reuse_with_failing": _resume("trainables_are_not_used_again", _REUSED),
        "test_multi_trial_reuse_one_by_one": _resume("trainables_are_not_used_again", _REUSED),
        "test_multi_trial_reuse_heterogeneous": _resume("trainables_are_not_used_again", _REUSED),
    },
    "test_api_checkpoint_integration": {
        "test_checkpoint_freq_dir_name": _resume("each_third_result_has_a_checkpoint", _PLACE, 6),
    },
    "test_callbacks": {
        "test_callback_list_with_stateful_callback": Case(
            "system/tune/test_callbacks.py::test_a_retry_is_told_and_the_state_comes_back_after_a_restore"
        ),
    },
    "test_trainable": {
        "test_save_load_checkpoint_path_class (object, root)": _resume("a_trainable_restores_what_it_saved", count=2),
        "test_save_load_checkpoint_path_fn (directory)": Case(
            "unit/tune/trainable/test_function_trainable.py::test_a_checkpoint_is_found_again"
        ),
    },
    "test_trainable_util": {
        "UnflattenDictTest": Case(f"{_PATHS}::test_nested_dicts", count=3),
        "GPUTest": Case(f"{_PATHS}::test_a_gpu_is_waited_for", count=5),
    },
    "test_trial": {
        "test_should_stop": _run("what_stops_a_trial"),
        "test_trial_logdir_length": _run("directories_of_experiments_and_trials"),
    },
    "test_trial_scheduler_pbt": {
        "testFileFree": _populations("a_population_continues_from_checkpoints_that_are_kept"),
        "testAsynchFail": _populations("those_that_do_not_wait_may_end_before_the_best"),
        "testSynchPass": _populations("those_that_wait_for_each_other_all_become_the_best"),
        "testSynchPassLast": _populations("those_that_wait_for_each_other_all_become_the_best"),
        "testExploitWhileSavingTrial": _populations("a_trial_takes_over_from_another_while_it_saves"),
        "testNoConfig": _populations("a_population_draws_what_the_space_does_not_have"),
        "testPermutationContinuation": _populations("a_population_continues_from_checkpoints_that_are_kept"),
        "testPermutationContinuationFunc": _populations("those_that_wait_for_each_other_all_become_the_best"),
        "testBurnInPeriod": Case(f"{_PBT}::test_the_burn_in_period"),
        "testSummarizeHyperparamChanges": Case(f"{_PBT}::test_nested_exploration_and_its_summary", WORDS),
        "test_pb2_perturbation": Case(f"{_PB2}::test_the_model_points_to_where_most_was_gained"),
        "test_pb2_nested_hyperparams": Case(f"{_PB2}::test_whole_numbers_stay_whole_and_nested_ones_nested"),
        "test_pb2_missing_hyperparam_init": Case(f"{_PB2}::test_a_first_configuration_is_drawn_within_the_bounds"),
        "test_pb2_hyperparam_bounds_validation": Case(f"{_PB2}::test_mistakes"),
        "test_pb2_custom_explore_fn": Case(f"{_PB2}::test_a_function_of_the_user_has_the_last_word"),
    },
    "test_tune_restore": {
        "testTuneRestore": _resume("the_checkpoint_that_a_search_starts_from_stays", _FROM_CHECKPOINT),
        "testPostRestoreCheckpointExistence": _resume("the_checkpoint_that_a_search_starts_from_stays"),
        "testExperimentInterrupted": Case(
            "system/tune/test_real_experiments.py::test_ctrl_c_says_what_is_done_and_how_to_go_on"
        ),
        "testInterruptDisabledInWorkerThread": _resume("a_search_in_a_thread"),
        "testFailResumeGridSearch": _restore("a_callback_that_raises_ends_the_driver_and_the_rest_resumes", _WAITING),
        "testResourceUpdateInResume": _resume("a_search_that_resumes_may_need_other_resources"),
        "testFailResumeWithPreset": _resume("a_search_with_points_resumes_where_its_driver_failed"),
        "testFailResumeAfterPreset": _resume("a_search_with_points_resumes_where_its_driver_failed"),
        "testMultiExperimentFail": Case(
            "system/tune/test_same_name.py::test_a_finished_one_is_not_run_again_and_says_so",
            "Tune: the same `name` again",
        ),
        "testHyperbandExample": Case(f"{_PATHS}::test_a_class_that_restores_and_one_that_does_not"),
        "testAsyncHyperbandExample": Case(f"{_PATHS}::test_a_class_that_restores_and_one_that_does_not"),
        "testSaveRestoreDir": _resume("a_searcher_is_saved_in_a_directory"),
        "testWorkingDir": _restore("the_working_directory"),
        "TrainableCrashWithFailFast": _resume("an_error_of_a_trial_is_raised_with_fail_fast"),
    },
    "test_tune_restore_warm_start": {
        "OptunaWarmStartTest": _search("optuna_is_saved_and_restored", _SAVED, 2),
        "Hyperopt, BayesOpt, Nevergrad, ZOOpt, Ax, BOHB": Case(
            f"{_LIBRARIES}::test_a_searcher_is_saved_and_restored", _SAVED, 12
        ),
        "testBootStrapAnalysis": Case(f"{_LIBRARIES}::test_bayesopt_learns_from_an_analysis"),
    },
    "test_tune_save_restore": {
        "testAbsolutePath": _resume("the_checkpoint_that_a_search_starts_from_stays", _FROM_CHECKPOINT, 2),
        "testTempfile": _resume("the_checkpoint_that_a_search_starts_from_stays", _FROM_CHECKPOINT, 2),
    },
}
