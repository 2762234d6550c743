"""The outcome of an experiment, as ``tune.run`` returns it."""

from .experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
