"""`python -m txn_engine`, the same as `txn-engine`."""

from txn_engine.cli.main import main

raise SystemExit(main())
