"""Jobs that read datasets."""
