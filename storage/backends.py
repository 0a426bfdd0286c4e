"""The kinds of stores in the network: one line each. A name without a scheme is of the first."""

from __future__ import annotations

from typing import Final

from storage.azure import AZURE
from storage.backend import Backend
from storage.gcs import GCS
from storage.s3 import S3

BACKENDS: Final[tuple[Backend, ...]] = (S3, AZURE, GCS)


def backend_of(url: str) -> Backend | None:
    """The kind that a URL names; None for a folder, for memory, and for what names no store."""
    scheme, separator, _ = url.partition("://")
    return next((each for each in BACKENDS if separator and scheme in each.schemes), None)


def is_remote(url: str) -> bool:
    """Whether the store of a URL is in the network."""
    return backend_of(url) is not None
