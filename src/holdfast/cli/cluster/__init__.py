"""The Ray cluster that runs would be on."""

from __future__ import annotations

from holdfast.cli.cluster import check

ACTIONS = {"check": check}
