"""The displays of runs, on a terminal and elsewhere. The driver tells them the events."""
