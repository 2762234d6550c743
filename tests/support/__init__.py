"""What tests share: jobs, servers, judges and stand-ins. Importable by tests and by the scripts that they start."""
