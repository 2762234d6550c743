"""All cases of ``beside_ray``, and what Ray Data answered."""

from __future__ import annotations

from support.data import calls_beside_ray, results_beside_ray, sources_beside_ray
from support.data.beside_ray import CASES, DELIBERATE, outcome
from support.repository import SUPPORT

ANSWERS = SUPPORT / "data" / "answers_of_ray.json"
PARTS = (sources_beside_ray, calls_beside_ray, results_beside_ray)  # each adds its own to CASES

__all__ = ["ANSWERS", "CASES", "DELIBERATE", "PARTS", "outcome"]
