"""The decisions of an experiment: which trials there are, which of them run, and when it ends."""
