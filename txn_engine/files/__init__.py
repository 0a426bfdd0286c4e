"""Files of records (csv, jsonl, parquet) to Arrow batches in a schema, exactly; an error names file, line and column.

What does not fit is refused, or handed to whoever takes bad rows: never rounded, trimmed or guessed.
"""

from txn_engine.files.conversion import DecimalMark, ThousandsMark
from txn_engine.files.inferring import Cause, Inferred, infer, infer_schema, schema_of_parquet
from txn_engine.files.layout import READ_COLUMNS, BadRow, Missing, Progress, Rejected, Sizes, Unknown
from txn_engine.files.named import files_named
from txn_engine.files.records import read_records
from txn_engine.files.source import COMPRESSIONS, FORMATS, Compression, FileFormat, format_of
from txn_engine.files.typed import fit_records, is_convertible
from txn_engine.value_text import BinaryText

__all__ = [
    "read_records",
    "fit_records",
    "is_convertible",
    "files_named",
    "infer_schema",
    "schema_of_parquet",
    "infer",
    "Inferred",
    "Cause",
    "BadRow",
    "Rejected",
    "Sizes",
    "FORMATS",
    "COMPRESSIONS",
    "READ_COLUMNS",
    "format_of",
    "FileFormat",
    "Compression",
    "BinaryText",
    "DecimalMark",
    "ThousandsMark",
    "Missing",
    "Unknown",
    "Progress",
]
