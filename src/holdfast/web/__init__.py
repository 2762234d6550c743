"""``holdfast ui``: runs and searches in a browser, read from storage. All it ever writes is a request to stop a run."""
