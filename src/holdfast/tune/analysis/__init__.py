"""What came of an experiment, in the terms of ``tune.run``."""

from .experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
