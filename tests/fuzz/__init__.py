"""Objects changed on purpose, their checksums right again: nothing in a store is believed (FORMAT.md, "Limits")."""
