"""A partition's log on the store: entries, data files, snapshots, and the one way to append."""
