"""A search of every reachable state of the producer's machine, with a small model of the shell and of its
surroundings."""
