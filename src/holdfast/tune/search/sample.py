"""The domains of a search space, under the path that scripts and searchers from Ray import them from.

``domain.get_sampler()`` says how a value is drawn, in Ray's terms, for searchers that translate spaces by it.
"""

from __future__ import annotations

from holdfast.tune.search_space import (
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from holdfast.tune.space.domains import Categorical, Domain, Float, Function, Integer
from holdfast.tune.space.samplers import BaseSampler, Grid, LogUniform, Quantized, Sampler, Uniform
from holdfast.tune.space.samplers import NormalSampler as Normal

__all__ = [
    "BaseSampler",
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "LogUniform",
    "Normal",
    "Quantized",
    "Sampler",
    "Uniform",
    "choice",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]
