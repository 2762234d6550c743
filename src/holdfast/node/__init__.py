"""One machine: the agent that starts, watches and ends its training processes, and looks after what they staged."""
