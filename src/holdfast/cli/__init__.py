"""The command line. What looks at runs does so from outside: no lease is taken, and nothing of a run is changed."""
