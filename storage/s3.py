"""The S3 backend: obstore for objects, with every answer turned into one of ours."""

from __future__ import annotations

import builtins
import mmap
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, BinaryIO, Final, TypeVar

from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    DamagedObjectError,
    InvalidKeyError,
    NotConnectedError,
    ObjectNotFoundError,
    PutIfAbsentUnsupportedError,
    StorageError,
    StoreUnreachableError,
)
from storage.keys import validate_key, validate_prefix
from storage.ranges import check_size, short_range, validate_range
from storage.runtime import Obstore, obstore_of_this_process
from storage.s3_config import S3Config
from storage.store import ObjectInfo

_T = TypeVar("_T")

# An unreachable store is to be answered within 20 seconds: a put (one try) and the read-back after it.
_CONNECT_TIMEOUT: Final = "4s"
_READ_TIMEOUT: Final = "5s"  # silence, not the length of a transfer
_TRANSFER_TIMEOUT: Final = "300s"
_SMALL_PUT_TIMEOUT: Final = "6s"
_SMALL_PUT_BYTES_MAX: Final = 1 << 20
_HELD_BYTES_MAX: Final = 64 << 20
_CHUNK_BYTES: Final = 4 << 20
_READ_RETRIES_MAX: Final = 4
_READ_RETRY_TIMEOUT: Final = timedelta(seconds=8)

_CODE = re.compile(r"<Code>\s*([A-Za-z0-9]+)\s*</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_UNREACHABLE = re.compile(
    r"error sending request|kind: (?:Connect|Timeout|Interrupted)|operation timed out|dns error|"
    r"error decoding response|connection (?:reset|closed)|request or response body error"
)
_UNLISTABLE = re.compile(r'object with invalid path: Error parsing Path "(.*)": ', re.DOTALL)
_NOT_CONNECTED = re.compile(r"kind: Connect\b")
_DENIED_CODES: Final = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccountProblem",
     "TokenRefreshRequired", "RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "AllAccessDisabled"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Clients:
    """The clients of one process: three, because a client's retries and timeouts are fixed at its making."""

    pid: int
    obstore: Obstore
    reads: Any
    puts: Any
    large_puts: Any


_clients_alive: Final[weakref.WeakSet[_Clients]] = weakref.WeakSet()
_clients_of_the_parent: Final[list[_Clients]] = []
# To drop a client takes the lock of its connections. A thread of the parent may have held it at the fork, for ever.
os.register_at_fork(after_in_child=lambda: _clients_of_the_parent.extend(_clients_alive))


class S3Store:
    """An ObjectStore in a bucket, over HTTP.

    A put is one request, never resent by the client library: a resent create would be told "already there"
    of its own first try. Reads are retried for 8 seconds, so that an unreachable store is reported within
    20 seconds of a call. Clients are made at the first call, and anew in a forked child. Pickled as its
    configuration: a key pair given as keywords goes along, one from the environment is read from the
    environment of the process that unpickles.
    """

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._clients: _Clients | None = None

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`, without endpoint and credentials."""
        return self._config.url

    @property
    def config(self) -> S3Config:
        """What the store was opened with."""
        return self._config

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Send one `PUT` with `If-None-Match: *` and report the answer."""
        validate_key(key)
        clients = self._of_this_process()
        try:
            clients.obstore.put(
                self._put_client(clients, data), key, data, mode="create", use_multipart=False
            )
        except (clients.obstore.AlreadyExistsError, clients.obstore.PreconditionError):
            return False
        except Exception as error:
            raise self._answer(error, key, "put-if-absent") from error
        return True

    def put(self, key: str, data: bytes) -> None:
        """Send one plain `PUT`."""
        validate_key(key)
        clients = self._of_this_process()
        try:
            clients.obstore.put(
                self._put_client(clients, data), key, data, mode="overwrite", use_multipart=False
            )
        except Exception as error:
            raise self._answer(error, key, "put") from error

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object; ObjectNotFoundError only when S3 itself says NoSuchKey."""
        validate_key(key)

        def read(clients: _Clients) -> bytes:
            answer = clients.obstore.get(clients.reads, key)
            if max_bytes is not None:
                check_size(
                    self.uri(key), int(answer.meta["size"]), max_bytes
                )  # the body is read by bytes() alone
            return bytes(answer.bytes())

        return self._call(read, key, "get")

    def spool(self, key: str, *, max_bytes: int) -> memoryview:
        """Return the whole object; one of more than 64 MiB comes into a temporary file, if there can be one."""
        validate_key(key)

        def read(clients: _Clients) -> memoryview:
            answer = clients.obstore.get(clients.reads, key)
            size = int(answer.meta["size"])
            check_size(self.uri(key), size, max_bytes)
            file = _temporary_file(size) if size > _HELD_BYTES_MAX else None
            if file is None:
                return memoryview(bytes(answer.bytes()))
            with file:
                for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                    file.write(chunk)
                file.flush()
                come = file.tell()
                if come != size:
                    raise short_range(self.uri(key), 0, size, come)
                return memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))

        return self._call(read, key, "get")

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on."""
        validate_key(key)
        validate_range(start, length)
        if length == 0:
            if self.head(key).size < start:
                raise short_range(self.uri(key), start, length, None)
            return b""

        def read(clients: _Clients) -> bytes:
            return bytes(clients.obstore.get_range(clients.reads, key, start=start, length=length))

        data = self._call(read, key, "get range", range_asked=(start, length))
        if len(data) < length:
            raise short_range(self.uri(key), start, length, start + len(data))
        return data

    def head(self, key: str) -> ObjectInfo:
        """Return size and time; an absent object costs a second request, because a `HEAD` has no error
        code.
        """
        validate_key(key)
        try:
            return self._call(lambda c: _info(c.obstore.head(c.reads, key)), key, "head")
        except (ObjectNotFoundError, AccessDeniedError, _AmbiguousNotFoundError):
            return self._call(lambda c: _info(c.obstore.get(c.reads, key).meta), key, "get")

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield what is below `prefix`, page by page, in S3's order."""
        folder = validate_prefix(prefix)
        if start_after is not None:
            validate_key(start_after)

        def begin(clients: _Clients) -> Iterator[Any]:
            return iter(
                clients.obstore.list(clients.reads, folder or None, offset=start_after, chunk_size=1_000)
            )

        return self._listed(self._call(begin, folder, "list"), folder, start_after)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix`, sorted."""
        folder = validate_prefix(prefix)
        try:
            found = self._call(
                lambda c: c.obstore.list_with_delimiter(c.reads, folder or None)["common_prefixes"],
                folder,
                "list folders",
            )
        except _UnlistableNameError:
            from storage.any_names import list_folders

            return sorted(list_folders(self._config, folder))
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def delete(self, key: str) -> None:
        """Remove the object; S3 answers alike when there was none."""
        validate_key(key)
        try:
            self._call(lambda c: c.obstore.delete(c.reads, key), key, "delete")
        except ObjectNotFoundError:
            return

    def uri(self, key: str) -> str:
        """`s3://bucket/prefix/key`."""
        return f"{self.url}/{key}"

    def close(self) -> None:
        """Drop the connections; the next call makes new ones."""
        with self._lock:
            self._clients = None

    def __repr__(self) -> str:
        return f"S3Store({self._config.place})"

    def __getstate__(self) -> S3Config:
        return self._config

    def __setstate__(self, config: S3Config) -> None:
        self.__init__(config)  # type: ignore[misc]

    def _listed(self, pages: Iterator[Any], folder: str, last: str | None) -> Iterator[ObjectInfo]:
        while True:
            try:
                page = next(pages, None)
            except Exception as error:
                answer = self._answer(error, folder, "list")
                if not isinstance(answer, _UnlistableNameError):
                    raise answer from error
                break
            if page is None:
                return
            for meta in page:
                info = self._named_in_full(_info(meta))
                last = info.key
                if info.key != "/":  # the marker of the store's own folder
                    yield info
        from storage.any_names import list_objects

        yield from list_objects(self._config, folder, start_after=last)

    def _named_in_full(self, info: ObjectInfo) -> ObjectInfo:
        """obstore gives the marker of a folder (an empty object whose name ends with a slash) without its slash: under
        a name that another object may have.
        """
        if info.size:
            return info
        try:
            is_itself = self.head(info.key).size == 0
        except (ObjectNotFoundError, InvalidKeyError):
            is_itself = False
        return info if is_itself else replace(info, key=f"{info.key}/")

    def _call(
        self,
        operation: Callable[[_Clients], _T],
        key: str,
        name: str,
        *,
        range_asked: tuple[int, int] | None = None,
    ) -> _T:
        clients = self._of_this_process()
        try:
            return operation(clients)
        except Exception as error:
            if range_asked is not None and _code(str(error)) == "InvalidRange":
                raise short_range(self.uri(key), *range_asked, None) from error
            raise self._answer(error, key, name) from error

    def _put_client(self, clients: _Clients, data: bytes) -> Any:
        return clients.puts if len(data) <= _SMALL_PUT_BYTES_MAX else clients.large_puts

    def _of_this_process(self) -> _Clients:
        clients = self._clients
        if clients is not None and clients.pid == os.getpid():
            return clients
        if clients is not None:
            self._lock = threading.Lock()  # the parent's may have been held by one of its threads at the fork
        with self._lock:
            if self._clients is None or self._clients.pid != os.getpid():
                self._clients = self._connect()
            return self._clients

    def _connect(self) -> _Clients:
        obstore = obstore_of_this_process()
        try:
            clients = _Clients(
                os.getpid(),
                obstore,
                reads=self._client(
                    obstore, _TRANSFER_TIMEOUT, retries_max=_READ_RETRIES_MAX, read_timeout=_READ_TIMEOUT
                ),
                puts=self._client(obstore, _SMALL_PUT_TIMEOUT, retries_max=0),
                large_puts=self._client(obstore, _TRANSFER_TIMEOUT, retries_max=0),
            )
            _clients_alive.add(clients)
        except Exception as error:
            raise self._answer(error, "", "open") from error
        return clients

    def _client(
        self, obstore: Obstore, timeout: str, *, retries_max: int, read_timeout: str | None = None
    ) -> Any:
        config = self._config
        options: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT, "timeout": timeout}
        if read_timeout is not None:
            options["read_timeout"] = read_timeout
        arguments: dict[str, Any] = {"region": config.region, "conditional_put": "etag"}
        if config.endpoint is not None:
            options["allow_http"] = config.endpoint.startswith("http://")
            arguments |= {"endpoint": config.endpoint, "virtual_hosted_style_request": False}
        credentials = config.credentials()
        if credentials is not None:
            key, secret, token = credentials
            # A provider, because obstore would add the environment's session token to a key pair of ours.
            arguments["credential_provider"] = lambda: {
                "access_key_id": key,
                "secret_access_key": secret,
                "token": token,
                "expires_at": None,
            }
        return obstore.S3Store(
            config.bucket,
            prefix=config.prefix or None,
            client_options=options,
            retry_config={"max_retries": retries_max, "retry_timeout": _READ_RETRY_TIMEOUT},
            **arguments,
        )

    def _answer(self, error: Exception, key: str, operation: str) -> StorageError:
        if isinstance(error, StorageError):
            return error
        return _classify(error, operation, self._config, self.uri(key) if key else self.url)


class _UnlistableNameError(DamagedObjectError):
    """A page of a listing that obstore does not give, for the name of one object in it."""


class _AmbiguousNotFoundError(ObjectNotFoundError):
    """A 404 without S3's word for it: from a HEAD, or from something that is not the store."""


def _temporary_file(size: int) -> BinaryIO | None:
    """A file without a name, with room for so many bytes; None where the machine has none to give."""
    try:
        file: BinaryIO = tempfile.TemporaryFile(prefix="txn-engine-")  # noqa: SIM115 -- the caller's
    except OSError:
        return None
    try:
        if hasattr(os, "posix_fallocate"):  # macOS has none, and says so at the write
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        return None
    return file


def _info(meta: Any) -> ObjectInfo:
    modified_ms = round(meta["last_modified"].timestamp() * 1_000)
    return ObjectInfo(str(meta["path"]), int(meta["size"]), modified_ms, meta.get("e_tag") or "")


def _code(text: str) -> str:
    found = _CODE.search(text)
    return found.group(1) if found else ""


def _classify(error: Exception, operation: str, config: S3Config, place: str) -> StorageError:
    """Say in our words what obstore reported. Only S3's own NoSuchKey means that an object is absent."""
    text = str(error)
    code = _code(text)
    found = _STATUS.search(text)
    status = int(found.group(1)) if found else 0
    where = f"{place} ({config.endpoint})" if config.endpoint else place
    said = f"{operation} failed: " + (f"{status} {code}".strip() if status or code else type(error).__name__)
    if (unlistable := _UNLISTABLE.search(text)) is not None:
        return _UnlistableNameError(
            f"an object whose name no listing here can give: {unlistable[1]!a}",
            actor="s3 store",
            place=where,
            expected="names without control characters, '//', and segments '.' or '..'",
            action="find out who put it there, and move it away with the store's own tools",
        )
    if code == "NoSuchBucket":
        return BucketNotFoundError(
            f"there is no bucket {config.bucket!r}",
            actor="s3 store",
            place=where,
            action="create it or mend the URL",
        )
    if code == "NoSuchKey":
        return ObjectNotFoundError("there is no such object", actor="s3 store", place=where)
    if status == 404 or isinstance(error, FileNotFoundError):
        unclear = _AmbiguousNotFoundError if operation == "head" else StoreUnreachableError
        return unclear(
            f"{operation} failed: a 404 that does not say NoSuchKey",
            actor="s3 store",
            place=where,
            expected="the answer of an S3 store",
            action="check the endpoint and what stands between (a proxy?)",
        )
    if "169.254.169.254" in text or "169.254.170.2" in text:
        return AccessDeniedError(
            "no credentials: none were given, none are in the environment, and the machine has no role",
            actor="s3 store",
            place=where,
            action="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if status in (401, 403) or code in _DENIED_CODES:
        return AccessDeniedError(said, actor="s3 store", place=where, action=_denied_action(code))
    if status == 501 and operation == "put-if-absent":
        return PutIfAbsentUnsupportedError(
            said,
            actor="s3 store",
            place=where,
            expected="If-None-Match: * honoured",
            action="use another store",
        )
    if status in (301, 307, 308) or "redirect" in text:
        return StorageError(
            said, actor="s3 store", place=where, action=f"check the region ({config.region}) and the endpoint"
        )
    if status == 429 or status >= 500:
        return StoreUnreachableError(
            said, actor="s3 store", place=where, action="try again; if it stays, look at the store's own log"
        )
    if status:
        return StorageError(
            said, actor="s3 store", place=where, action="try again; if it stays, look at the store's own log"
        )
    if _UNREACHABLE.search(text):
        kind = NotConnectedError if _NOT_CONNECTED.search(text) else StoreUnreachableError
        return kind(
            f"{operation} failed: {_transport(text)}",
            actor="s3 store",
            place=where,
            expected="an answer",
            action="check the endpoint and the network, then try again",
        )
    return StorageError(
        f"{operation} failed: {text.partition('Debug source')[0]}", actor="s3 store", place=where
    )


def _denied_action(code: str) -> str:
    if code == "RequestTimeTooSkewed":
        return "set this machine's clock"
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed"):
        return "check access key, secret key and region"
    if code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
        return "get a fresh session token"
    return "check the credentials and what they may do in this bucket"


def _transport(text: str) -> str:
    for sign, words in (
        ("ConnectionRefused", "connection refused"),
        ("dns error", "the host name does not resolve"),
        ("ConnectionReset", "the connection was reset"),
        ("TimedOut", "no answer in time"),
        ("Timeout", "no answer in time"),
        ("certificate", "the TLS certificate was not accepted"),
    ):
        if sign in text:
            return words
    return "the connection broke"
