"""The command line: `txn-engine COMMAND ... [options]`."""
