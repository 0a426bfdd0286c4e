"""The S3 backend. obstore does all with objects, minio-py asks about the bucket and lists any name."""

from storage.s3.config import S3Config, s3_config
from storage.s3.store import S3, S3Store

__all__ = ["S3", "S3Config", "S3Store", "s3_config"]
