"""Files of records (csv, jsonl, parquet) to Arrow batches in a schema, exactly; an error names file, line and column.

What does not fit is refused, never rounded, trimmed or guessed.
"""

from txn_engine.files.conversion import BinaryText
from txn_engine.files.layout import READ_COLUMNS, Progress
from txn_engine.files.records import FORMATS, FileFormat, read_records

__all__ = ["read_records", "FORMATS", "READ_COLUMNS", "FileFormat", "BinaryText", "Progress"]
