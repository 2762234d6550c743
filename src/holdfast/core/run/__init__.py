"""The decisions of a run."""
