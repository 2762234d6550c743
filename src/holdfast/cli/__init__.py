"""The command line. Commands that inspect runs read them from outside: they take no lease and change nothing."""
