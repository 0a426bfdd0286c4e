"""The local backend: objects as files, put-if-absent as a hard link, and nothing lost at a power cut."""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from storage.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    DamagedObjectError,
    ObjectNotFoundError,
    StorageError,
    StoreNotWritableError,
)
from storage.keys import TEMPORARY_FOLDER, validate_key, validate_prefix
from storage.ranges import short_range, validate_range
from storage.store import ObjectInfo
from storage.temporary import sweep_temporary, temporary_name

_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CHUNK_BYTES: Final = 1 << 30  # Linux moves at most 2 GiB in one call
# A file's change time comes from a clock that ticks every few milliseconds and so runs behind.
_CLOCK_TICK_NS: Final = 20_000_000
_CONFIRMED_MAX: Final = 4_096


class LocalStore:
    """An ObjectStore in a folder, for processes of one machine.

    A put that returned survives a power cut: the bytes are on the disk before the name appears, the name
    before the call returns. What a read returns survives one too, even when its writer was stopped between
    the two: the reader syncs the folder first when the file is newer than the folder's last sync. So
    nothing that was written on the ground of an object outlives that object. Which file is newer the wall clock
    says, and that it was set is noticed; set back and right again between two reads of a process, it is not.

    The folder is made when it is missing (`create`), its parent is not: a mistyped path is an error, not a
    new store. Temporary files live in `.tmp` below it, made at the first write; reading needs no permission
    to write. Hard links and fsync must work: local disks do, most network drives do not.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._root = os.path.abspath(os.fspath(path))
        self._temporary = f"{self._root}/{TEMPORARY_FOLDER}"
        self._create = create
        self._folders: set[str] = set()
        self._synced: dict[str, tuple[int, int]] = {}  # folder to when (wall clock) and what the clock was at
        self._confirmed: dict[
            str, int
        ] = {}  # key to inode of young objects whose name is known to be on disk
        self._open_root()
        sweep_temporary(self._temporary)

    @property
    def url(self) -> str:
        """`file:///absolute/path`."""
        return Path(self._root).as_uri()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write a temporary file, sync it, link it to its name, sync the folder.

        An error after the link says so, and the object may then be there: settle reads it back.
        """
        final = self._path(key)
        temporary, inode = self._write_temporary(key, data)
        try:
            linked = self._link(temporary, final, key)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if linked:
            self._confirm(key, inode)
        return linked

    def put(self, key: str, data: bytes) -> None:
        """Write a temporary file, sync it, rename it over the name, sync the folder."""
        final = self._path(key)
        folder = final.rpartition("/")[0]
        temporary, inode = self._write_temporary(key, data)
        try:
            self._ensure_folder(folder, key)
            try:
                os.replace(temporary, final)
            except FileNotFoundError:
                self._folders.clear()
                self._ensure_folder(folder, key)
                os.replace(temporary, final)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._refuse_write(error, key)
        self._confirm(key, inode)

    def get(self, key: str) -> bytes:
        """Return the whole object."""
        descriptor, size = self._open(key)
        try:
            data = os.read(descriptor, min(size, _CHUNK_BYTES))
            if len(data) == size:
                return data
            return self._read_rest(descriptor, data, size, key)
        except OSError as error:
            self._refuse_read(error, key)
        finally:
            os.close(descriptor)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on."""
        validate_range(start, length)
        descriptor, size = self._open(key)
        try:
            if start + length > size:
                raise short_range(self.uri(key), start, length, size)
            os.lseek(descriptor, start, os.SEEK_SET)
            return self._read_rest(descriptor, b"", length, key)
        except OSError as error:
            self._refuse_read(error, key)
        finally:
            os.close(descriptor)

    def map(self, key: str) -> memoryview:
        """Return the object as the page cache holds it.

        It does not change: an overwrite puts another file under the name. Truncating the file by other
        means while it is mapped kills the reader (SIGBUS), as with any mapped file.
        """
        descriptor, size = self._open(key)
        try:
            if size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED))
        except (OSError, ValueError) as error:
            self._refuse_read(error, key)
        finally:
            os.close(descriptor)

    def head(self, key: str) -> ObjectInfo:
        """Return size and time of the object."""
        validate_key(key)
        return self._stat(key)

    def _stat(self, key: str) -> ObjectInfo:
        try:
            found = os.stat(f"{self._root}/{key}")
        except OSError as error:
            self._refuse_read(error, key)
        if not stat.S_ISREG(found.st_mode):
            raise self._not_found(key)
        return ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield what is below `prefix` by ascending key, one folder in memory at a time."""
        folder = validate_prefix(prefix)
        if start_after is not None:
            validate_key(start_after)
        return self._walk(folder, start_after or "")

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix` that hold an object, sorted."""
        folder = validate_prefix(prefix)
        names = [name[:-1] for name in self._names(folder) if name.endswith("/")]
        return [name for name in names if next(self._walk(f"{folder}{name}/", ""), None) is not None]

    def delete(self, key: str) -> None:
        """Unlink the file; folders stay."""
        try:
            os.unlink(self._path(key))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        except OSError as error:
            self._refuse_write(error, key)

    def uri(self, key: str) -> str:
        """The absolute path."""
        return f"{self._root}/{key}"

    def close(self) -> None:
        """Forget the cached folders."""
        self._folders.clear()
        self._synced.clear()
        self._confirmed.clear()

    def __repr__(self) -> str:
        return f"LocalStore({self._root})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self._root, self._create))

    # -- opening

    def _open_root(self) -> None:
        try:
            found = os.stat(self._root)
        except FileNotFoundError:
            if not self._create:
                raise BucketNotFoundError(
                    "there is no such folder",
                    actor="local store",
                    place=self._root,
                    action="create the store or mend the path",
                ) from None
            self._make_root()
            return
        except OSError as error:
            self._refuse_root(error)
        if not stat.S_ISDIR(found.st_mode):
            raise StoreNotWritableError(
                "this is a file",
                actor="local store",
                place=self._root,
                expected="a folder",
                action="choose another path",
            )

    def _make_root(self) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._root)
            _fsync_folder(os.path.dirname(self._root))
        except OSError as error:
            self._refuse_root(error)

    def _refuse_root(self, error: OSError) -> NoReturn:
        raise StoreNotWritableError(
            _words(error),
            actor="local store",
            place=self._root,
            expected="a folder, or an existing and writable parent folder to make it in",
            action="create the parent folder, fix its permissions or choose another path",
        ) from error

    # -- writing

    def _write_temporary(self, key: str, data: bytes) -> tuple[str, int]:
        """Put the bytes on the disk under a name of no meaning; return that name and the inode."""
        path = f"{self._temporary}/{temporary_name()}"
        try:
            descriptor = self._create_temporary(path)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest[:_CHUNK_BYTES]) :]
                _sync_file(descriptor)
                inode = os.fstat(descriptor).st_ino
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            self._refuse_write(error, key)
        return path, inode

    def _create_temporary(self, path: str) -> int:
        try:
            return os.open(path, _CREATE_FLAGS, 0o666)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._temporary)
            return os.open(path, _CREATE_FLAGS, 0o666)

    def _link(self, temporary: str, final: str, key: str) -> bool:
        """Give the file its name; False when the name is taken. An error means that it was not linked."""
        folder = final.rpartition("/")[0]
        try:
            self._ensure_folder(folder, key)
            try:
                os.link(temporary, final)
            except FileNotFoundError:
                self._folders.clear()  # somebody removed the folder behind the cache's back
                self._ensure_folder(folder, key)
                os.link(temporary, final)
        except FileExistsError:
            if os.path.isdir(final):
                self._refuse_write(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)), key)
            return False
        except OSError as error:
            self._refuse_write(error, key)
        return True

    def _ensure_folder(self, folder: str, key: str) -> None:
        """Make the folder and those above it, each one's name synced.

        Once for each folder and process, even when it is there already: whoever made it may not have synced
        it yet.
        """
        if folder in self._folders or folder == self._root:
            return
        parent = folder.rpartition("/")[0]
        self._ensure_folder(parent, key)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        _fsync_folder(parent)
        self._folders.add(folder)

    def _confirm(self, key: str, inode: int) -> None:
        """Put the object's name on the disk, and remember that it, and all older ones beside it, are there."""
        folder = self.uri(key).rpartition("/")[0]
        setting_ns = _clock_setting_ns()
        started_ns = time.time_ns()
        try:
            _fsync_folder(folder)
        except OSError as error:
            raise StorageError(
                f"the object has its name, but the disk did not confirm it: {_words(error)}",
                actor="local store",
                place=self.uri(key),
                action="read the object back; look at the disk",
            ) from error
        # No lock, which a fork could leave held: a time lost to another thread costs one more sync.
        self._synced[folder] = (started_ns, setting_ns)
        if len(self._confirmed) >= _CONFIRMED_MAX:
            self._confirmed.clear()
        self._confirmed[key] = inode

    # -- reading

    def _open(self, key: str) -> tuple[int, int]:
        """Open the object, durably named, and return its descriptor and size."""
        path = self._path(key)
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except OSError as error:
            self._refuse_read(error, key)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise self._not_found(key)
            if self._may_be_unsynced(path, found.st_ctime_ns) and self._confirmed.get(key) != found.st_ino:
                self._confirm(key, found.st_ino)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found.st_size

    def _may_be_unsynced(self, path: str, changed_ns: int) -> bool:
        """Whether the file is newer than its folder's last sync, or the clock was set since: then no times compare."""
        synced_ns, setting_ns = self._synced.get(path.rpartition("/")[0], (0, 0))
        was_set = abs(_clock_setting_ns() - setting_ns) > _CLOCK_TICK_NS
        return was_set or changed_ns + 2 * _CLOCK_TICK_NS > synced_ns

    def _read_rest(self, descriptor: int, head: bytes, size: int, key: str) -> bytes:
        parts, missing = [head], size - len(head)
        while missing > 0:
            part = os.read(descriptor, min(missing, _CHUNK_BYTES))
            if not part:
                raise DamagedObjectError(
                    f"the file ends {missing} bytes early",
                    actor="local store",
                    place=self.uri(key),
                    expected=f"{size} bytes",
                    action="find out who changes files of the store in place",
                )
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _walk(self, folder: str, start_after: str) -> Iterator[ObjectInfo]:
        for name in self._names(folder):
            key = folder + name
            if name.endswith("/"):
                # Every key below is at most start_after, unless start_after leads into the folder.
                if key > start_after or start_after.startswith(key):
                    yield from self._walk(key, start_after)
            elif key > start_after:
                with contextlib.suppress(ObjectNotFoundError):
                    yield self._stat(key)  # a foreign file is listed too, whatever its name

    def _names(self, folder: str) -> builtins.list[str]:
        """The names in a folder in the order of their keys: folders sort with the slash they end with."""
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:
                names = [entry.name + "/" if entry.is_dir() else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.isdir(self._root):
                raise BucketNotFoundError(
                    "the folder of the store is gone",
                    actor="local store",
                    place=self._root,
                    action="restore it",
                ) from None
            return []
        except OSError as error:
            self._refuse_read(error, folder)
        if not folder:
            names = [name for name in names if name != f"{TEMPORARY_FOLDER}/"]
        names.sort()
        return names

    # -- paths and errors

    def _path(self, key: str) -> str:
        validate_key(key)
        return f"{self._root}/{key}"

    def _not_found(self, key: str) -> ObjectNotFoundError:
        return ObjectNotFoundError("there is no such object", actor="local store", place=self.uri(key))

    def _refuse_read(self, error: Exception, key: str) -> NoReturn:
        if isinstance(error, FileNotFoundError) and not os.path.isdir(self._root):
            raise BucketNotFoundError(
                "the folder of the store is gone", actor="local store", place=self._root, action="restore it"
            ) from error
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            raise self._not_found(key) from None
        if isinstance(error, PermissionError):
            raise AccessDeniedError(
                _words(error), actor="local store", place=self.uri(key), action="fix the permissions"
            ) from error
        raise StorageError(
            f"reading failed: {error}", actor="local store", place=self.uri(key), action="look at the disk"
        ) from error

    def _refuse_write(self, error: OSError, key: str) -> NoReturn:
        raise StoreNotWritableError(
            _words(error),
            actor="local store",
            place=self.uri(key),
            expected="a folder on a local disk, with room, permission to write and hard links",
            action="fix that, then try again",
        ) from error


def _reopen(path: str, create: bool) -> LocalStore:
    return LocalStore(path, create=create)


def _clock_setting_ns() -> int:
    """What the wall clock is ahead of one that nobody sets: the same for as long as nobody sets the wall clock."""
    return time.time_ns() - time.monotonic_ns()


def _sync_file(descriptor: int) -> None:
    """Put the bytes on the disk itself: on macOS fsync stops at the disk's cache, and another call goes
    through.
    """
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is None:
        os.fdatasync(descriptor)
    else:
        fcntl.fcntl(descriptor, full_sync)


def _fsync_folder(path: str) -> None:
    descriptor = os.open(path, _READ_FLAGS | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _words(error: Exception) -> str:
    return (os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)).lower()
