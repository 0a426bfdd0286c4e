"""Objects are changed on purpose and get right checksums again, because nothing in a store is believed
(FORMAT.md, "Limits")."""
