"""Every reachable state of the producer's machine, with a small model of the shell and of what is around it."""
