"""This machine as an engine: one node, or several that come and go, or none but the script's own process."""
