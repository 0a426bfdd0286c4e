"""SQL over committed files, by DuckDB in this process: topics are tables, at a cut (docs/ARCHITECTURE.md, "SQL").

Nothing is copied: DuckDB's own Parquet reader gets the list of files. Importing this package loads no DuckDB.
"""
