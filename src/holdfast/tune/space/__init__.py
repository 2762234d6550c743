"""Search spaces: domains, how one configuration is drawn, and the order in which variants come."""
