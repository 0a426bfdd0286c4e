"""A topic's schema as it changes: what may become of it, and which columns the files of each version have. Pure."""
