"""The object-store primitive, its backends, keys and self-checking objects. Knows nothing of what is
stored.
"""

from storage.backend import Backend, Finding, Hadoop, Setting
from storage.backends import BACKENDS, backend_of, is_remote
from storage.bucket_store import BucketStore
from storage.envelope import (
    FORMAT,
    JSON_BYTES_MAX,
    LARGE,
    LATER_FORMAT,
    SMALL,
    UNREADABLE,
    OpenedParquet,
    ParquetProfile,
    ParquetStream,
    checksum_of,
    decode_json,
    decode_parquet,
    encode_json,
    encode_parquet,
    encode_parquet_parts,
    open_parquet,
    parquet_tail_bytes,
    read_parquet_tail,
    stored_checksum,
    verify_checksum,
)
from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    DamagedObjectError,
    InTheWayError,
    InvalidKeyError,
    InvalidStoreUrlError,
    NotAFolderError,
    NotConnectedError,
    ObjectNotFoundError,
    ObjectTooLargeError,
    OversizedObjectError,
    PutIfAbsentUnsupportedError,
    PutOutcomeUnknownError,
    StorageError,
    StoreNotWritableError,
    StoreUnreachableError,
    UnknownFormatError,
)
from storage.footers import stored_columns
from storage.keys import LogKeys, validate_key, validate_name
from storage.known_parquet import KnownParquet
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.opening import open_store, overlap, would_overlap
from storage.parquet_footer import UNCOMPRESSED
from storage.parquet_limits import DATA_LIMITS, LimitError, ParquetLimits
from storage.proof import PutIfAbsentProof, prove_put_if_absent
from storage.row_groups import ROW_BYTES_MAX, ROW_NULLS_MAX, row_too_large
from storage.settle import PutOutcome, settle_put_if_absent
from storage.store import FolderStore, MappableStore, ObjectInfo, ObjectStore, SpoolingStore

__all__ = [
    "BACKENDS",
    "Backend",
    "BucketStore",
    "Finding",
    "Hadoop",
    "Setting",
    "backend_of",
    "is_remote",
    "DATA_LIMITS",
    "FORMAT",
    "LATER_FORMAT",
    "JSON_BYTES_MAX",
    "KnownParquet",
    "LARGE",
    "ROW_BYTES_MAX",
    "ROW_NULLS_MAX",
    "SMALL",
    "UNCOMPRESSED",
    "UNREADABLE",
    "AccessDeniedError",
    "BucketNotFoundError",
    "DamagedObjectError",
    "InTheWayError",
    "FolderStore",
    "InvalidKeyError",
    "InvalidStoreUrlError",
    "LimitError",
    "LocalStore",
    "LogKeys",
    "MappableStore",
    "MemoryStore",
    "NotConnectedError",
    "ObjectInfo",
    "NotAFolderError",
    "ObjectNotFoundError",
    "ObjectStore",
    "ObjectTooLargeError",
    "OpenedParquet",
    "OversizedObjectError",
    "ParquetLimits",
    "ParquetProfile",
    "ParquetStream",
    "PutIfAbsentProof",
    "PutIfAbsentUnsupportedError",
    "PutOutcome",
    "PutOutcomeUnknownError",
    "SpoolingStore",
    "StorageError",
    "StoreNotWritableError",
    "StoreUnreachableError",
    "UnknownFormatError",
    "checksum_of",
    "decode_json",
    "decode_parquet",
    "encode_json",
    "encode_parquet",
    "encode_parquet_parts",
    "open_parquet",
    "parquet_tail_bytes",
    "read_parquet_tail",
    "open_store",
    "overlap",
    "prove_put_if_absent",
    "row_too_large",
    "settle_put_if_absent",
    "stored_checksum",
    "stored_columns",
    "validate_key",
    "validate_name",
    "verify_checksum",
    "would_overlap",
]
