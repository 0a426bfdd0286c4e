"""DAGs to learn from; each is run by the tests."""
