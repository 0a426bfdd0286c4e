"""The object-store primitive, its backends, keys and self-checking objects. Knows nothing of what is
stored.
"""

from storage.envelope import (
    LARGE,
    SMALL,
    ParquetProfile,
    checksum_of,
    decode_json,
    decode_parquet,
    encode_json,
    encode_parquet,
    encode_parquet_parts,
    stored_checksum,
    verify_checksum,
)
from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    DamagedObjectError,
    InvalidKeyError,
    InvalidStoreUrlError,
    NotConnectedError,
    ObjectNotFoundError,
    PutIfAbsentUnsupportedError,
    PutOutcomeUnknownError,
    StorageError,
    StoreNotWritableError,
    StoreUnreachableError,
    UnknownFormatError,
)
from storage.keys import LogKeys, validate_key, validate_name
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.opening import open_store
from storage.proof import PutIfAbsentProof, prove_put_if_absent
from storage.settle import PutOutcome, settle_put_if_absent
from storage.store import MappableStore, ObjectInfo, ObjectStore

__all__ = [
    "LARGE",
    "SMALL",
    "AccessDeniedError",
    "BucketNotFoundError",
    "DamagedObjectError",
    "InvalidKeyError",
    "InvalidStoreUrlError",
    "LocalStore",
    "LogKeys",
    "MappableStore",
    "MemoryStore",
    "NotConnectedError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectStore",
    "ParquetProfile",
    "PutIfAbsentProof",
    "PutIfAbsentUnsupportedError",
    "PutOutcome",
    "PutOutcomeUnknownError",
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
    "open_store",
    "prove_put_if_absent",
    "settle_put_if_absent",
    "stored_checksum",
    "validate_key",
    "validate_name",
    "verify_checksum",
]
