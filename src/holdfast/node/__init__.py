"""One machine: the agent that starts, watches and ends its training processes, and handles the files that they
staged."""
