"""The Ray cluster that runs would be on."""

from __future__ import annotations

from holdfast.cli.cluster import check

HELP = "look at the Ray cluster that runs would be on"
ACTIONS = {"check": check}
