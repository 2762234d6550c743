"""The checkpoints of a run: list them (also without saying list), verify, export and delete them."""

from __future__ import annotations

from holdfast.cli.checkpoints import deleting, exporting, listing, verifying

ACTIONS = {"list": listing, "verify": verifying, "export": exporting, "delete": deleting}
DEFAULT_ACTION = "list"
