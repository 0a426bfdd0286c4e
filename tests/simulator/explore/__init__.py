"""A search of small configurations of the shipping code, over every interleaving of their store
operations."""
