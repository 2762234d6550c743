"""How a run spent its time: one bar, and a row for each part with its meaning."""

from __future__ import annotations

from holdfast.printable import duration
from holdfast.runs.ledger import Ledger

MEANINGS = {
    "productive": "training that was kept",
    "repeated": "training that was lost and repeated",
    "stalled": "training waited for storage",
    "starting": "from the start of a driver or attempt to its first report",
    "recovering": "from a failure to the start of the next attempt",
    "waiting": "back-off before a retry",
    "capacity": "waiting for nodes",
    "down": "no driver was running",
    "finishing": "from the last report to the end of the run",
}


def ledger_bar(ledger: Ledger) -> str:
    whole = ledger.wall_clock_s
    if not whole:
        return '<p class="soft">No time has been recorded yet.</p>'
    parts = [(name, seconds) for name, seconds in ledger.parts.items() if seconds > 0]
    bar = "".join(
        f'<span class="part {name}" style="width:{seconds / whole * 100:.3f}%" '
        f'title="{name}: {spelled(seconds)}"></span>'
        for name, seconds in parts
    )
    rows = "".join(
        f'<tr><td><i class="part {name}"></i>{name}</td><td class="num">{spelled(seconds)}</td>'
        f'<td class="num">{seconds / whole * 100:.1f} %</td><td class="soft">{MEANINGS[name]}</td></tr>'
        for name, seconds in sorted(parts, key=lambda part: -part[1])
    )
    label = f"{ledger.goodput * 100:.0f} % of {spelled(whole)} was productive"
    return (
        f'<div class="ledger" role="img" aria-label="{label}">{bar}</div>'
        f'<table class="ledger-rows"><tbody>{rows}</tbody></table>'
    )


def spelled(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else duration(seconds)
