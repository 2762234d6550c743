"""``holdfast ui``: runs and experiments in a browser, read from storage. All it writes is a request to stop one."""
