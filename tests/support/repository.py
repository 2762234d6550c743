"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
EXAMPLES = ROOT / "examples"
GOLDEN_RUN = ROOT / "tests" / "system" / "compat" / "golden" / "run-0.1"
