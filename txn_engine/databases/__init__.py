"""What every database shares: rows out of topics with their positions beside them, rows into topics once a run.

What differs, from the driver to the types, is the dialect's: `txn_engine.postgres`, `txn_engine.sqlite`.
"""
