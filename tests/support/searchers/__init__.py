"""What the tests of searchers on other libraries share."""
