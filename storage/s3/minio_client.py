"""A client of minio-py, and its errors in our words."""

from __future__ import annotations

import base64
import ssl
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from xml.etree import ElementTree

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider
from minio.error import MinioException, S3Error, ServerError

from storage.bucket_errors import broken_answer
from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    InvalidStoreUrlError,
    StorageError,
    StoreUnreachableError,
)
from storage.reasons import StoreReason
from storage.s3.codes import DENIED, denied_action
from storage.s3.config import S3Config

TIMEOUT: Final = urllib3.Timeout(connect=4, read=8)
# A starting MinIO answers "Retry-After: 60", which urllib3 would sleep through.
RETRIES: Final = urllib3.Retry(
    total=1, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504], respect_retry_after_header=False
)
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ResourceNotFound"})


class _KeysOfNow(Provider):
    """The keys of the configuration, as they are whenever a request is signed."""

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self._machine = IamAwsProvider()

    def retrieve(self) -> Credentials:
        """As the base class says."""
        given = self._config.credentials()
        return self._machine.retrieve() if given is None else Credentials(*given)


class BucketClient(Minio):
    """minio-py's client, with what is asked of a bucket itself."""

    def __init__(self, endpoint: str, *, keys: _KeysOfNow, **options: Any) -> None:
        super().__init__(endpoint, credentials=keys, **options)
        self._keys = keys

    def _execute(self, *arguments: Any, **options: Any) -> Any:
        """As the base class says. Keys that are refused while others stand in their place were exchanged meanwhile."""
        signed_by = self._keys.retrieve()
        try:
            return super()._execute(*arguments, **options)
        except S3Error as error:
            if error.code not in DENIED or self._keys.retrieve() == signed_by:
                raise
        return super()._execute(*arguments, **options)

    def versioning(self, config: S3Config) -> str | None:
        """Its status: "Enabled", "Suspended" or "Off"; None where the server knows no versions. Raises
        `StorageError`, for credentials that may not ask too.
        """
        try:
            return str(self.get_bucket_versioning(config.bucket).status or "Off")
        except S3Error as error:
            if error.code == "NotImplemented":
                return None
            raise minio_error(error, config) from error
        except Exception as error:
            raise minio_error(error, config) from error

    def lifecycle(self, config: S3Config) -> bytes | None:
        """The XML as the server wrote it; one without rules where there is no configuration; None where the
        credentials may not ask. Raises `StorageError`.
        """
        try:
            answer = self._execute("GET", config.bucket, query_params={"lifecycle": ""})
        except S3Error as error:
            if error.code == "NoSuchLifecycleConfiguration":
                return b"<LifecycleConfiguration/>"
            if error.code in DENIED or error.code == "NotImplemented":
                return None
            raise minio_error(error, config) from error
        except Exception as error:
            raise minio_error(error, config) from error
        return bytes(answer.data)


def minio_client(config: S3Config) -> BucketClient:
    """A client that answers within 20 seconds, or says that the store does not."""
    endpoint = urlsplit(config.endpoint or "https://s3.amazonaws.com")
    if endpoint.path:
        raise InvalidStoreUrlError(
            "minio-py, which is asked here, takes no endpoint with a path", actor="bucket", place=config.place
        )
    try:
        return BucketClient(
            endpoint.netloc,
            secure=endpoint.scheme == "https",
            region=config.region,
            keys=_KeysOfNow(config),
            http_client=_pool(endpoint.scheme, endpoint.netloc, config.trusted()),
        )
    except ValueError as error:
        raise InvalidStoreUrlError(
            str(error), actor="bucket", place=config.place, action="fix the URL"
        ) from error


def _pool(scheme: str, netloc: str, trusted: str | None) -> urllib3.PoolManager:
    """Connections, through the environment's proxy where the engine's own client uses one, too. `trusted`: certificates
    beside the system's.
    """
    options: dict[str, Any] = {"timeout": TIMEOUT, "retries": RETRIES}
    if trusted is not None:
        options["ssl_context"] = ssl.create_default_context()
        options["ssl_context"].load_verify_locations(cadata=trusted)
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy and not proxy_bypass(netloc):
        return urllib3.ProxyManager(proxy, proxy_headers=_proxy_headers(proxy), **options)
    return urllib3.PoolManager(**options)


def _proxy_headers(proxy: str) -> dict[str, str] | None:
    """What the proxy's own user and password are sent in, which urllib3 leaves to its callers."""
    user = urlsplit(proxy).username
    if user is None:
        return None
    password = urlsplit(proxy).password or ""
    held = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode())
    return {"proxy-authorization": f"Basic {held.decode()}"}


def minio_error(error: Exception, config: S3Config) -> StorageError:
    """Say in our words what minio-py reported."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, S3Error):
        if error.code in _NO_BUCKET:
            return BucketNotFoundError(
                f"there is no bucket {config.bucket!r}",
                actor="bucket",
                place=config.place,
                action="create it",
            )
        kind = AccessDeniedError if error.code in DENIED else StorageError
        return kind(
            f"{error.code}: {error.message}",
            actor="bucket",
            place=config.place,
            action=denied_action(error.code or ""),
        )
    if isinstance(error, (urllib3.exceptions.HTTPError, ServerError, OSError)):
        return StoreUnreachableError(
            f"no usable answer ({type(error).__name__})",
            actor="bucket",
            place=config.place,
            expected="an S3 store",
            action="check the endpoint and the network, then try again",
            reason=_reason_of(error),
        )
    if isinstance(error, ElementTree.ParseError):
        return broken_answer("bucket", config.place)
    if isinstance(error, ValueError):  # what minio-py refuses before it asks
        return InvalidStoreUrlError(str(error), actor="bucket", place=config.place, action="fix the URL")
    if isinstance(error, MinioException):
        return StorageError(
            str(error), actor="bucket", place=config.place, action="check endpoint and credentials"
        )
    return StorageError(f"{type(error).__name__}: {error}", actor="bucket", place=config.place)


def right_missing(error: AccessDeniedError, right: str) -> AccessDeniedError:
    """The refusal, with the right on the bucket that it is for."""
    error.action = f"have {right} allowed on the bucket"
    return error


def _reason_of(error: Exception) -> StoreReason | None:
    reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
    if isinstance(reason, (urllib3.exceptions.ResponseError, ServerError)):
        return StoreReason.BUSY
    if isinstance(reason, urllib3.exceptions.ProtocolError):
        return StoreReason.BROKEN_ANSWER
    return None
