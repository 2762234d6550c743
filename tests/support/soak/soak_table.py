"""The table of a soak: by kind of fault, how often, how long until the next new step, and what it cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from support.soak.soak_verdict import Cost


def table(costs: Iterable[Cost], repeated: int, orphans: int) -> str:
    """Samples and orphans are of all runs together: they have no fault of their own."""
    by_kind: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        by_kind[cost.kind].append(cost)
    rows = ["| fault | count | p50 s | p99 s | steps lost | most at once |", "|---|---|---|---|---|---|"]
    for kind in sorted(by_kind):
        found = by_kind[kind]
        times = sorted(cost.next_step_s for cost in found if cost.next_step_s is not None)
        p50, p99 = (f"{at(times, part):.2f}" if times else "" for part in (0.5, 0.99))
        lost = [cost.lost for cost in found]
        rows.append(f"| {kind} | {len(found)} | {p50} | {p99} | {sum(lost)} | {max(lost)} |")
    every = [cost for found in by_kind.values() for cost in found]
    rows.append(f"| all | {len(every)} | | | {sum(cost.lost for cost in every)} | |")
    return "\n".join([*rows, "", f"samples repeated: {repeated}; processes left behind: {orphans}"])


def at(values: list[float], part: float) -> float:
    """The smallest value that no less than that part of them is at or below."""
    return values[min(len(values) - 1, max(0, -(-len(values) * round(part * 100) // 100) - 1))]
