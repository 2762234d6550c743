"""``holdfast ui``: runs and experiments in a browser, read from storage. It writes only requests to stop a run."""
