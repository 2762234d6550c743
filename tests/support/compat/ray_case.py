"""A case of Ray's own tests, and what came of it here; ``support.compat.ray_ledger`` lists the files they are from.

The files are from ``python/ray/tune/tests`` and ``python/ray/train/v2/tests`` of Ray's public repository, in copies
that were within reach; none of them was of 2.60. A case was read for what it expects of the public interface, and its
calls were written again as a test of ours. A case with several parameters counts once for each. Nothing of Ray's is in
these tables but the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

HOLDS = "holds"
WORDS = "holds but for the words of an error or of output"
DIFFERS = "differs on purpose"


class Case(NamedTuple):
    """``outcome``: that it holds, or the line of the moving guide that explains why not."""

    test: str
    outcome: str = HOLDS
    count: int = 1


Table = Mapping[str, Mapping[str, Case]]  # by file, by case


def counts(table: Table) -> Counter[str]:
    """How many cases hold, differ in words, and differ on purpose."""
    found: Counter[str] = Counter()
    for cases in table.values():
        for case in cases.values():
            found[case.outcome if case.outcome in (HOLDS, WORDS) else DIFFERS] += case.count
    return found
