"""The command line. It looks at runs from outside: no lease is taken, and nothing of a run is changed."""
