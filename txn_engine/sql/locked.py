"""A DuckDB in this process that reads the files of one query, and can reach nothing else."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, runtime_checkable

import duckdb
import pyarrow.parquet as pq

from storage.errors import StorageError
from storage.scratch import ScratchFolder
from storage.store import ObjectStore
from txn_engine.held import no_records
from txn_engine.schemas.layout import Layout, Schemas
from txn_engine.sql.file_parts import FilePart
from txn_engine.sql.interruptible import interruptibly
from txn_engine.sql.permitted import ANSWERED
from txn_engine.sql.relations import NOTHING_BEYOND, Beyond, identifier, literal, select_from
from txn_engine.sql.store_files import PROTOCOL, StoreFiles

_DESCRIPTORS_MAX: Final = 4_096


@runtime_checkable
class OpensFiles(Protocol):
    """A store of files that DuckDB can read without it."""

    def opened(self, key: str) -> int:
        """A descriptor of the object, for the caller to close."""


class LockedDuckDB:
    """Queries read the data files `parts` and the files in `folder` and `readable`. They reach no other file, no
    network, no extension, no setting that a query could change, and no variable of the program around it. The names in
    `ANSWERED` are columns, or unknown.

    Files of a local store are opened here, when DuckDB is, and it reads them by their descriptors: by a path it would
    follow a link that somebody has put there. Files of any other store, and all files where there are too many or one
    cannot be opened, are read through `files` by the store's own client, so DuckDB never has a key or a token; more of
    them can be offered later. What does not fit into `memory` (a number of bytes, or a share such as `50%`) goes to a
    folder below `spill`, which `close` removes. Threads may share one, each with a cursor.
    """

    def __init__(
        self,
        store: ObjectStore,
        parts: Iterable[FilePart] = (),
        *,
        memory: str,
        threads: int = 0,
        spill: Path | None = None,
        readable: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.files = StoreFiles(store)
        self._held = ExitStack()
        self._lock = threading.Lock()
        self._empty: dict[Layout, str] = {}
        self._parts = tuple(parts)
        self._paths = self._opened_paths()
        self.reads_paths = bool(self._paths)
        self._readable = readable
        self._scratch = ScratchFolder("sql", parent=spill)
        self.folder = self._scratch.path
        try:
            self.connection = interruptibly(lambda: self._connected(memory, threads, settings or {}))
        except BaseException:
            self._held.close()
            self._scratch.close()
            raise

    def _opened_paths(self) -> dict[str, str]:
        """By key, what DuckDB opens each file by; none where the store has to read them."""
        store, limit = self.store, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if not isinstance(store, OpensFiles) or len(self._parts) > min(limit // 4, _DESCRIPTORS_MAX):
            return {}
        with ExitStack() as opened:
            paths = {}
            for part in self._parts:
                try:
                    descriptor = store.opened(part.key)
                except StorageError:
                    return {}  # the store says what is wrong with it when it is read
                opened.callback(os.close, descriptor)
                paths[part.key] = f"/dev/fd/{descriptor}"
            self._held.push(opened.pop_all())
            return paths

    def _connected(self, memory: str, threads: int, settings: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
        config: dict[str, Any] = {
            "memory_limit": memory,
            "temp_directory": str(self.folder / "spill"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            **settings,
        }
        if threads:
            config["threads"] = threads
        connection = duckdb.connect(config=config)
        folders = [f"{folder}/" for folder in (self.folder, self._readable) if folder is not None]
        if self.reads_paths:
            paths = ", ".join(literal(self.place(part)) for part in self._parts)
            connection.execute(f"SET allowed_paths = [{paths}]")
        else:
            connection.register_filesystem(self.files)  # DuckDB asks it at every file, also of the local disk
            self._held.enter_context(self.offered(self._parts))
            folders.append(f"{PROTOCOL}://")
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        connection.execute(f"SET allowed_directories = [{', '.join(map(literal, folders))}]")
        for (
            name
        ) in ANSWERED:  # calls without an argument do not fit, so only a column of this name is an answer
            connection.execute(f"CREATE MACRO {identifier(name)}(column_of_a_topic) AS column_of_a_topic")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything, the folder too."""
        if not self.reads_paths:
            self.connection.unregister_filesystem(PROTOCOL)
        self.connection.close()
        self._held.close()
        self._scratch.close()

    def select_from(
        self,
        parts: Sequence[FilePart],
        schemas: Schemas,
        own: Sequence[str],
        *,
        topic: str,
        beyond: Beyond = NOTHING_BEYOND,
    ) -> str:
        """A query for the records of these parts: the topic's columns, and those of `own`."""
        if parts:
            return select_from(parts, schemas, own, topic=topic, place=self.place, beyond=beyond)
        layout = schemas.layout
        nothing = FilePart(
            self._empty_file(layout), 0, 0, 0, 0, 0, is_whole=True, schema_version=layout.version
        )
        return select_from([nothing], schemas, own, topic=topic, place=lambda part: part.key)

    def place(self, part: FilePart) -> str:
        """What DuckDB opens the file by."""
        return self._paths.get(part.key, f"{PROTOCOL}://{part.key}")

    def _empty_file(self, layout: Layout) -> str:
        """A data file of such a topic without records: what has no file has the types of what has."""
        with self._lock:
            path = self._empty.get(layout)
            if path is None:
                path = self._empty[layout] = str(self.folder / f"empty-{len(self._empty)}.parquet")
                pq.write_table(no_records(layout.physical), path, store_schema=False)
            return path

    def offered(self, parts: Iterable[FilePart]) -> AbstractContextManager[None]:
        """Let queries read these files too for the length of the block; of a store that is not local."""
        return self.files.offered({part.key: part.size for part in parts})
