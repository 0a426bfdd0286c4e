"""The objects of a bucket, over HTTP by obstore: all that is the same for every service."""

from __future__ import annotations

import builtins
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Self, TypeVar

from storage.backend import Backend, Finding
from storage.bodies import Body, temporary_file
from storage.bucket_errors import (
    AmbiguousNotFoundError,
    UnlistableNameError,
    Words,
    classified,
    is_beyond_the_end,
)
from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    InvalidKeyError,
    ObjectNotFoundError,
    StorageError,
)
from storage.keys import validate_key, validate_prefix
from storage.patience import JOB_PATIENCE, Waits
from storage.ranges import check_size, short_range, validate_range
from storage.store import ObjectInfo

if TYPE_CHECKING:
    from storage.runtime import Obstore

_T = TypeVar("_T")

# An unreachable store is to be answered within 20 seconds: a put (one try) and the read-back after it.
_CONNECT_TIMEOUT: Final = "4s"
_READ_TIMEOUT: Final = "5s"  # silence, not the length of a transfer
_TRANSFER_TIMEOUT: Final = "300s"
_SMALL_PUT_TIMEOUT: Final = "6s"
_SMALL_PUT_BYTES_MAX: Final = 1 << 20
_HELD_BYTES_MAX: Final = 64 << 20
_CHUNK_BYTES: Final = 4 << 20
_NO_RETRIES: Final[dict[str, Any]] = {"max_retries": 0, "retry_timeout": timedelta(0)}
"""obstore's own are not used: it gives a busy store up after a second or two, and knows nothing of half an answer."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Clients:
    """The clients of one process: three, because a client's timeouts are fixed at its making."""

    pid: int
    obstore: Obstore
    reads: Any
    puts: Any
    large_puts: Any
    signed_by: int  # what tells the credentials that they were made with from others


_clients_alive: Final[weakref.WeakSet[_Clients]] = weakref.WeakSet()
_clients_of_the_parent: Final[list[_Clients]] = []
# To drop a client takes the lock of its connections. A thread of the parent may have held it at the fork, for ever.
os.register_at_fork(after_in_child=lambda: _clients_of_the_parent.extend(_clients_alive))


class BucketStore(ABC):
    """An ObjectStore in a bucket, over HTTP.

    A put is one request, never resent by the client library: a resent create would be told "already there"
    of its own first try. Whatever is safe to ask again (reads, listings, deletes) is asked again, by one policy:
    `patience` (storage/patience.py). A busy store is waited for, an answer that was cut short is read again, and an
    unreachable store is reported within 20 seconds of a call. Clients are made at the first call, and anew in a
    forked child. Pickled as its configuration and patience: credentials given as keywords go along, those from the
    environment are read from the environment of the process that unpickles.

    The configuration is a frozen dataclass that shows no secret in its `repr`: `bucket`, `prefix`, `url`, and each
    setting of the backend by its keyword, `endpoint` among them.
    """

    backend: ClassVar[Backend]
    words: ClassVar[Words]

    def __init__(self, config: Any) -> None:
        self.patience = JOB_PATIENCE
        self._config = config
        self._lock = threading.Lock()
        self._clients: _Clients | None = None

    # --- what a service says of itself ----------------------------------------------------------------------

    @abstractmethod
    def client(self, obstore: Obstore, options: dict[str, Any], retries: dict[str, Any]) -> Any:
        """An obstore client of this bucket, with these options of HTTP and these retries."""

    @abstractmethod
    def described(self) -> str:
        """Kind, place and what else tells one from another, in one line without a secret."""

    def credential(self) -> tuple[str, str] | None:
        """What signs requests now, by the keyword of its setting; None leaves it to obstore, which looks for an
        identity itself.
        """
        return self.backend.credential(self._config)

    def signature(self) -> Hashable:
        """What tells the credentials of now from others."""
        return self.credential()

    def credentials_found(self) -> Finding:
        """Where the credentials come from; no secret in it."""
        return self.backend.credentials_found(self._config)

    @abstractmethod
    def inspected(self) -> Iterator[Finding]:
        """Whether it answers, whether the bucket is there, and whether its own rules spare our objects, up to the first
        thing without which the rest cannot be asked. Raises `StorageError` where nothing can be asked.
        """

    def listed_findings(self, rest: Iterable[Finding]) -> Iterator[Finding]:
        """Whether it answers and the bucket is there, by a listing as the engine makes them; and the rest, if so."""
        try:
            next(self.list("topics"), None)
        except BucketNotFoundError as error:
            yield Finding("reachable", "ok", "the store answers")
            yield Finding("bucket", "failed", error.seen, "create it, or mend the URL")
            return
        yield Finding("reachable", "ok", "the store answers")
        yield Finding("bucket", "ok", self._config.bucket)
        yield from rest

    def with_credentials_of_now(self) -> Self:
        """The store with what its environment has now, to be pickled for another machine."""
        return self

    def with_credentials_from(self, provider: Callable[[], Sequence[str | None]]) -> Self:
        """The store with credentials that are asked for whenever they are needed, by this process alone."""
        del provider
        raise self.backend.invalid("credentials by a callable are for another kind of store", self.url)

    def hadoop_options(self) -> dict[str, str]:
        """What Spark's connector is told of this bucket, secrets among it; empty where there is no connector."""
        return {}

    def hadoop_session_settings(self) -> dict[str, str]:
        """What a whole session of Spark is told, for every bucket of this kind: where the server is, and no secret.
        Empty where there is no connector.
        """
        return {}

    def duckdb_secret(self) -> tuple[str, dict[str, str]]:
        """DuckDB's extension for it, and what its `CREATE SECRET` is told."""
        raise self._unknown_to("DuckDB")

    def storage_options(self) -> dict[str, str]:
        """What deltalake and Polars are told of it, secrets among it."""
        raise self._unknown_to("deltalake and Polars")

    def iceberg_properties(self) -> dict[str, str]:
        """What pyiceberg is told of it, secrets among it."""
        raise self._unknown_to("pyiceberg")

    def arrow_files(self) -> Any:
        """PyArrow's own file system over the store: its paths are keys."""
        raise self._unknown_to("PyArrow")

    def _unknown_to(self, engine: str) -> StorageError:
        return StorageError(
            f"how {engine} reads {self.backend.schemes[0]}:// is not known here",
            actor=self.backend.actor,
            place=self.url,
            action="read by the engine's own client: scan, sql, spark.read.format('txn_engine')",
        )

    # --- the store ------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Bucket and prefix, without endpoint and credentials."""
        return str(self._config.url)

    @property
    def place(self) -> str:
        """The URL and, where there is one, the endpoint: for messages."""
        return self._with_endpoint(self.url)

    @property
    def server(self) -> str | None:
        """Which server's bucket it is; None for the provider's own."""
        endpoint: str | None = self._config.endpoint
        return endpoint

    @property
    def config(self) -> Any:
        """What the store was opened with."""
        return self._config

    def access(self) -> dict[str, str | None]:
        """What `open_store` is given beside the URL to open this store elsewhere, secrets among it."""
        return {each.keyword: getattr(self._config, each.keyword) for each in self.backend.settings}

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Send one `PUT` with `If-None-Match: *` and report the answer."""
        validate_key(key)

        def create(clients: _Clients) -> bool:
            try:
                self._put(clients, key, data, "create")
            except (clients.obstore.AlreadyExistsError, clients.obstore.PreconditionError):
                return False
            return True

        return self._call(create, key, "put-if-absent", may_repeat=False)

    def put(self, key: str, data: bytes) -> None:
        """Send one plain `PUT`."""
        validate_key(key)
        self._call(lambda clients: self._put(clients, key, data, "overwrite"), key, "put", may_repeat=False)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object; ObjectNotFoundError only when the service itself says so."""
        validate_key(key)
        return bytes(self._body(key, max_bytes, lambda _: None))

    def spool(self, key: str, *, max_bytes: int) -> memoryview:
        """Return the whole object; one of more than 64 MiB comes into a temporary file, if there can be one."""
        validate_key(key)
        return memoryview(self._body(key, max_bytes, _file_of_a_large_object))

    def _body(
        self, key: str, max_bytes: int | None, file_for: Callable[[int], BinaryIO | None]
    ) -> bytes | memoryview:
        """The whole object, held or in a file: what has come of a large one is not asked for again."""
        waits = Waits(self.patience)
        body: Body | None = None
        while True:
            clients = self._of_this_process()
            try:
                if body is None:
                    answer = clients.obstore.get(clients.reads, key)
                    size = int(answer.meta["size"])
                    check_size(self._at(key), size, max_bytes)  # what follows is read below alone
                    if size <= _CHUNK_BYTES:
                        return bytes(answer.bytes())
                    body = Body(size, answer.meta.get("e_tag"), file_for(size))
                else:
                    answer = clients.obstore.get(clients.reads, key, options=body.rest())
                body.take(answer.stream(min_chunk_size=_CHUNK_BYTES), waits.came_further)
                return body.whole(self._at(key))
            except Exception as error:
                if body is not None and not body.can_go_on(error, clients.obstore.PreconditionError):
                    body.close()
                    body = None
                answer_of_store = self._answer(error, key, "get")
                if not self._was_rotated(clients, answer_of_store, waits) and not waits.again(
                    answer_of_store
                ):
                    if body is not None:
                        body.close()
                    raise answer_of_store from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on."""
        validate_key(key)
        validate_range(start, length)
        if length == 0:
            if self.head(key).size < start:
                raise short_range(self._at(key), start, length, None)
            return b""

        def read(clients: _Clients) -> bytes:
            return bytes(clients.obstore.get_range(clients.reads, key, start=start, length=length))

        data = self._call(read, key, "get range", range_asked=(start, length))
        if len(data) < length:
            raise short_range(self._at(key), start, length, start + len(data))
        return data

    def head(self, key: str) -> ObjectInfo:
        """Return size and time; an absent object costs a second request, because a `HEAD` has no error
        code.
        """
        validate_key(key)
        try:
            return self._call(lambda c: _info(c.obstore.head(c.reads, key)), key, "head")
        except (ObjectNotFoundError, AccessDeniedError, AmbiguousNotFoundError):
            return self._call(lambda c: _info(c.obstore.get(c.reads, key).meta), key, "get")

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield what is below `prefix`, page by page, in the service's order."""
        folder = validate_prefix(prefix)
        if start_after is not None:
            validate_key(start_after)

        return self._listed(folder, start_after)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix`, sorted."""
        folder = validate_prefix(prefix)
        try:
            found = self._call(
                lambda c: c.obstore.list_with_delimiter(c.reads, folder or None)["common_prefixes"],
                folder,
                "list folders",
            )
        except UnlistableNameError as error:
            return sorted(self.list_folders_of_any_name(folder, error))
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def delete(self, key: str) -> None:
        """Remove the object; one that was not there is fine."""
        validate_key(key)
        try:
            self._call(lambda c: c.obstore.delete(c.reads, key), key, "delete")
        except ObjectNotFoundError:
            return

    def uri(self, key: str) -> str:
        """What other engines open it by."""
        return f"{self.url}/{key}"

    def close(self) -> None:
        """Drop the connections; the next call makes new ones."""
        with self._lock:
            self._clients = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place})"

    def __getstate__(self) -> Any:
        return self._config, self.patience

    def __setstate__(self, state: Any) -> None:
        config, patience = state
        self.__init__(config)  # type: ignore[misc]
        self.patience = patience

    def _listed(self, folder: str, start_after: str | None) -> Iterator[ObjectInfo]:
        last = begun_after = start_after
        is_in_order = True
        waits = Waits(self.patience)
        pages: Iterator[Any] | None = None
        clients = self._of_this_process()
        while True:
            try:
                if pages is None:
                    clients = self._of_this_process()
                    pages = self._pages(clients, folder, last)
                page = next(pages, None)
            except Exception as error:
                answer = self._answer(error, folder, "list")
                if isinstance(answer, UnlistableNameError):
                    yield from self.list_any_names(folder, last, answer)
                    return
                # A listing out of order has no place from which it could go on.
                if not is_in_order or not (self._was_rotated(clients, answer, waits) or waits.again(answer)):
                    raise answer from error
                pages, begun_after = None, last
                continue
            if page is None:
                return
            waits.came_further()
            for meta in page:
                info = self._named_in_full(_info(meta))
                if begun_after is not None and info.key <= begun_after:
                    continue  # a server that knows no place to start from begins at the folder's first
                if last is not None and info.key <= last:
                    is_in_order = False
                last = info.key
                if info.key != "/":  # the marker of the store's own folder
                    yield info

    def _pages(self, clients: _Clients, folder: str, start_after: str | None) -> Iterator[Any]:
        return iter(clients.obstore.list(clients.reads, folder or None, offset=start_after, chunk_size=1_000))

    def list_any_names(
        self, folder: str, start_after: str | None, error: StorageError
    ) -> Iterator[ObjectInfo]:
        """The rest of a listing that has a name in it for which obstore has no path; raises where that is all."""
        del folder, start_after
        raise error

    def list_folders_of_any_name(self, folder: str, error: StorageError) -> Iterator[str]:
        """Likewise of folders."""
        del folder
        raise error

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
        may_repeat: bool = True,
    ) -> _T:
        """The operation's answer. may_repeat: it may be sent again even if the last one took effect."""
        waits = Waits(self.patience)
        while True:
            clients = self._of_this_process()
            try:
                return operation(clients)
            except Exception as error:
                if range_asked is not None and is_beyond_the_end(str(error), self.words):
                    raise short_range(self._at(key), *range_asked, None) from error
                answer = self._answer(error, key, name)
                if not self._was_rotated(clients, answer, waits) and not (may_repeat and waits.again(answer)):
                    raise answer from error

    def _was_rotated(self, clients: _Clients, answer: StorageError, waits: Waits) -> bool:
        """Whether others stand in the place of the credentials that were refused. Then the next clients are made with
        those. A refused request had no effect, so it may be sent again, a put too.
        """
        if not isinstance(answer, AccessDeniedError) or not waits.may_try_other_keys():
            return False
        if hash(self.signature()) == clients.signed_by:
            return False
        with self._lock:
            if self._clients is clients:
                self._clients = None
        return True

    def _put(self, clients: _Clients, key: str, data: bytes, mode: str) -> None:
        client = clients.puts if len(data) <= _SMALL_PUT_BYTES_MAX else clients.large_puts
        clients.obstore.put(client, key, data, mode=mode, use_multipart=False)

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
        from storage.runtime import obstore_of_this_process  # 50 ms, which a local store need not wait for

        obstore = obstore_of_this_process()
        signed_by = hash(self.signature())
        try:
            clients = _Clients(
                os.getpid(),
                obstore,
                signed_by=signed_by,
                reads=self._client(obstore, _TRANSFER_TIMEOUT, read_timeout=_READ_TIMEOUT),
                puts=self._client(obstore, _SMALL_PUT_TIMEOUT),
                large_puts=self._client(obstore, _TRANSFER_TIMEOUT),
            )
            _clients_alive.add(clients)
        except Exception as error:
            raise self._answer(error, "", "open") from error
        return clients

    def _client(self, obstore: Obstore, timeout: str, *, read_timeout: str | None = None) -> Any:
        options: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT, "timeout": timeout}
        if read_timeout is not None:
            options["read_timeout"] = read_timeout
        if self.server is not None:
            options["allow_http"] = self.server.startswith("http://")
        return self.client(obstore, options, _NO_RETRIES)

    def _answer(self, error: Exception, key: str, operation: str) -> StorageError:
        if isinstance(error, StorageError):
            return error
        return classified(
            error,
            operation,
            self.words,
            bucket=self._config.bucket,
            place=self._with_endpoint(self._at(key) if key else self.url),
            redirect_action=self.redirect_action(),
        )

    def redirect_action(self) -> str:
        """What to do about an answer that sends one elsewhere."""
        return "check the endpoint"

    def _at(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _with_endpoint(self, place: str) -> str:
        return f"{place} ({self.server})" if self.server else place


def _file_of_a_large_object(size: int) -> BinaryIO | None:
    return temporary_file(size) if size > _HELD_BYTES_MAX else None


def _info(meta: Any) -> ObjectInfo:
    modified_ms = round(meta["last_modified"].timestamp() * 1_000)
    return ObjectInfo(str(meta["path"]), int(meta["size"]), modified_ms, meta.get("e_tag") or "")
