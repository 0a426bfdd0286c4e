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
    InTheWayError,
    NotAFolderError,
    ObjectNotFoundError,
    StorageError,
    StoreNotWritableError,
)
from storage.keys import TEMPORARY_FOLDER, validate_key, validate_prefix
from storage.ranges import check_size, short_range, validate_range
from storage.reasons import StoreReason
from storage.store import ObjectInfo
from storage.temporary import Swept, sweep_strangers, sweep_temporary, temporary_name

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# No link is followed, and a FIFO has no say in when the call returns.
_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NO_FILE: Final = (
    errno.ELOOP,
    errno.ENXIO,
)  # opening a symbolic link, a socket or a device that nobody drives
_NOT_PERMITTED: Final = frozenset({errno.EACCES, errno.EPERM})
_NOT_SUPPORTED: Final = frozenset(
    {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EMLINK, errno.EXDEV}
)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOO_MANY_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_OWNER_FILE: Final = 0o600
_OWNER_FOLDER: Final = 0o700
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_CHUNK_BYTES: Final = 1 << 30  # Linux moves at most 2 GiB in one call
# A file's change time comes from a clock that ticks every few milliseconds and so runs behind.
_CLOCK_TICK_NS: Final = 20_000_000
_CONFIRMED_MAX: Final = 4_096
_TRIES: Final = 3
_UNSURE: Final[set[str]] = set()
"""Folders with a sync that failed in this process. The system reports that once and may then drop what it could not
write: a later sync that succeeds proves nothing of what came before it.
"""


class _SweptError(Exception):
    """A temporary file is gone that had no name yet."""


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

    Files and folders are their owner's alone (0600, 0700), unless the root's set-group-id bit names a group
    that shares them: then they get the root's own permissions, less what the umask takes. Nothing is ever
    writable for others. Below the root only plain files and folders are used: a symbolic link is not followed,
    a FIFO or a device is no object, and both are named by a `DamagedObjectError`. The root itself may be a link;
    `.tmp` may not, or nothing is written.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._root = os.path.abspath(os.fspath(path))
        self._temporary = f"{self._root}/{TEMPORARY_FOLDER}"
        self._create = create
        self._folders: set[str] = set()
        self._plain: set[str] = set()  # folders that were seen to be no links
        self._file_mode, self._folder_mode = _OWNER_FILE, _OWNER_FOLDER
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
        """Write a temporary file, sync it, link it to its name, sync the folder; nothing where the name is taken.

        An error after the link says so, and the object may then be there: settle reads it back.
        """
        final = self._path(key)
        if _is_file(final):
            return False  # without a file written and synced for nothing
        for _ in range(_TRIES):
            temporary, inode = self._write_temporary(key, data)
            try:
                linked = self._link(temporary, final, key)
            except _SweptError:
                continue
            finally:
                _unlink(temporary)
            if linked:
                self._confirm(key, inode)
            return linked
        raise self._swept_each_time(key)

    def put(self, key: str, data: bytes) -> None:
        """Write a temporary file, sync it, rename it over the name, sync the folder."""
        final = self._path(key)
        folder = final.rpartition("/")[0]
        for _ in range(_TRIES):
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
                if _was_swept(temporary, error):
                    continue
                _unlink(temporary)
                self._refuse_write(error, key)
            self._confirm(key, inode)
            return
        raise self._swept_each_time(key)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Return the whole object."""
        descriptor, size = self._open(key)
        try:
            check_size(self.uri(key), size, max_bytes)
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

    def opened(self, key: str) -> int:
        """Return a descriptor of the object, which the caller closes. It stays the object's, whatever stands under the
        name later, and wherever a link leads that is put there.
        """
        return self._open(key)[0]

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
        """Return size and time of the object, durably named: who hears that it is there may go on from that."""
        path = self._path(key)
        self._refuse_links(path.rpartition("/")[0])
        found = self._stat(key)
        if not stat.S_ISREG(found.st_mode):
            raise self._no_file(key)
        self._confirm_if_young(path, key, found)
        return _info(key, found)

    def _stat(self, key: str) -> os.stat_result:
        try:
            found = os.lstat(f"{self._root}/{key}")
        except OSError as error:
            self._refuse_read(error, key)
        if stat.S_ISDIR(found.st_mode):
            raise self._not_found(key)
        return found

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield what is below `prefix` by ascending key, the folders on the way to it in memory; links and FIFOs too,
        which no call reads, and a folder further down that is too deep to be opened. A file where the folder should be
        is damage, not an empty folder.
        """
        folder = validate_prefix(prefix)
        if start_after is not None:
            validate_key(start_after)
        return self._listed(key for key in self._walk(folder, start_after or "") if not key.endswith("/"))

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders right below `prefix` that hold an object, or may not be read, sorted.

        With those of links, FIFOs and devices: one may stand where a folder was, and asking for what is in it says so.
        """
        folder = validate_prefix(prefix)
        return sorted(name.rstrip("/") for name in self._names(folder) if self._is_folder(folder + name))

    def _is_folder(self, key: str) -> bool:
        """Whether the key is that of a folder which may hold an object, or of what is neither folder nor file."""
        try:
            if key.endswith("/"):
                return self._holds_file(key) or any(not below.endswith("/") for below in self._walk(key, ""))
            return not stat.S_ISREG(self._stat(key).st_mode)
        except ObjectNotFoundError:
            return False
        except (AccessDeniedError, DamagedObjectError):
            return True  # whoever needs it is told; it hides no folder beside it

    def _holds_file(self, folder: str) -> bool:
        """Whether a file is seen in the folder, at any depth, before all of it is listed."""
        path = f"{self._root}/{folder}".rstrip("/")
        self._refuse_links(path)
        inside = [path]
        try:
            while inside:
                with os.scandir(inside.pop()) as entries:
                    for entry in entries:
                        if not entry.is_dir(follow_symlinks=False):
                            return True
                        inside.append(entry.path)
        except OSError:
            pass  # the walk says why
        return False

    def time_ms(self) -> int:
        """The time that the disk gives to what is changed now: its root is touched, which takes no room."""
        try:
            os.utime(self._root)
            return os.stat(self._root).st_mtime_ns // 1_000_000
        except OSError as error:
            self._refuse_write(error, "")

    def all_folders(self) -> Iterator[str]:
        """Yield the folders below the root that may be read, empty ones too, each with its slash, by ascending key."""
        keys = self._walk("", "", closed=(AccessDeniedError, DamagedObjectError), files=False)
        return (key for key in keys if key.endswith("/"))

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that `list` gives, from the folders alone."""
        return (key for key in self._walk(validate_prefix(prefix), "") if not key.endswith("/"))

    def delete(self, key: str) -> None:
        """Unlink the file; folders stay."""
        path = self._path(key)
        self._refuse_links(path.rpartition("/")[0])
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        except OSError as error:
            self._refuse_write(error, key)

    def uri(self, key: str) -> str:
        """The absolute path."""
        return f"{self._root}/{key}"

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Remove what writers have left in `.tmp`: those that are dead, and those that cannot be judged from here (in
        another namespace of process ids, or of before a restart) where they wrote nothing more for a minute.
        """
        return sweep_strangers(self._temporary, dry_run=dry_run)

    def below(self, folder: str) -> LocalStore:
        """The store in this folder, which is made if it is not there and this one may be made."""
        path = self.uri(validate_key(folder))
        if self._create and not os.path.isdir(path):
            self._ensure_folder(path, folder)
        return LocalStore(path, create=False)

    def close(self) -> None:
        """Forget the cached folders."""
        self._folders.clear()
        self._plain.clear()
        self._synced.clear()
        self._confirmed.clear()

    def __repr__(self) -> str:
        return f"LocalStore({self._root})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self._root, self._create))

    # -- opening

    def _open_root(self) -> None:
        try:
            found = self._find_root()
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
        if found.st_mode & stat.S_ISGID:
            shared = stat.S_IMODE(found.st_mode) & ~stat.S_IWOTH
            self._file_mode, self._folder_mode = shared & 0o666 | _OWNER_FILE, shared & 0o777 | _OWNER_FOLDER

    def _find_root(self) -> os.stat_result:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._root)
        if not self._create:
            raise BucketNotFoundError(
                "the folder does not exist",
                actor="local store",
                place=self._root,
                action="check the path. If the store was lost, restore it from a backup. `topics create` makes a new"
                " store",
            )
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._root, _OWNER_FOLDER)
        self._sync_root()
        return os.stat(self._root)

    def _sync_root(self) -> None:
        """Once for each process, as with the folders below: who made the root may not have synced it yet.

        A parent folder that may be passed and not read cannot be synced from here.
        """
        with contextlib.suppress(PermissionError):
            _fsync_folder(os.path.dirname(self._root))
        self._folders.add(self._root)

    def _refuse_root(self, error: OSError) -> NoReturn:
        if error.errno in _NO_ROOM | _TOO_MANY_FILES or error.errno == errno.EROFS:
            self._refuse_write(error, "")
        if isinstance(error, FileNotFoundError):
            raise BucketNotFoundError(
                "there is no folder to make it in",
                actor="local store",
                place=self._root,
                expected=f"a folder {os.path.dirname(self._root)}",
                action="create that folder, or correct the path",
            ) from error
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
            _refuse_unsure(self.uri(key).rpartition("/")[0])
            descriptor = self._create_temporary(path)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest[:_CHUNK_BYTES]) :]
                _sync_file(descriptor)
                inode = os.fstat(descriptor).st_ino
            except BaseException:
                _unlink(path)
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            self._refuse_write(error, key)
        return path, inode

    def _create_temporary(self, path: str) -> int:
        try:
            if not stat.S_ISDIR(os.lstat(self._temporary).st_mode):
                raise StoreNotWritableError(
                    "this is no folder",
                    actor="local store",
                    place=self._temporary,
                    expected="a plain folder, or nothing: no link is followed",
                    action="find out who put it there, and remove it",
                    reason=StoreReason.NOT_A_FOLDER,
                )
            return os.open(path, _CREATE_FLAGS, self._file_mode)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._temporary, self._folder_mode)
            return os.open(path, _CREATE_FLAGS, self._file_mode)

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
            if os.path.isdir(final) and not os.path.islink(final):
                self._refuse_write(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)), key)
            return False
        except OSError as error:
            if _was_swept(temporary, error):
                raise _SweptError from error
            self._refuse_write(error, key)
        return True

    def _swept_each_time(self, key: str) -> StorageError:
        return StorageError(
            f"what was written was removed {_TRIES} times before it got its name",
            actor="local store",
            place=self.uri(key),
            expected="temporary files that nobody removes but the store itself",
            action=f"find out who removes files from {self._temporary}, then try again",
            reason=StoreReason.REMOVED_EACH_TIME,
        )

    def _ensure_folder(self, folder: str, key: str) -> None:
        """Make the folder and those above it, each one's name synced.

        Once for each folder and process, even when it is there already: whoever made it may not have synced
        it yet.
        """
        if folder in self._folders:
            return
        if folder == self._root:
            self._sync_root()
            return
        parent = folder.rpartition("/")[0]
        self._ensure_folder(parent, key)
        try:
            os.mkdir(folder, self._folder_mode)
        except FileExistsError:
            self._refuse_links(folder)
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
                reason=_reason_of(error) or StoreReason.NOT_CONFIRMED,
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
        self._refuse_links(path.rpartition("/")[0])
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except OSError as error:
            self._refuse_read(error, key)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise self._not_found(key) if stat.S_ISDIR(found.st_mode) else self._no_file(key)
            self._confirm_if_young(path, key, found)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, found.st_size

    def _confirm_if_young(self, path: str, key: str, found: os.stat_result) -> None:
        """Put the name on the disk of an object whose writer may have died before it did."""
        if self._may_be_unsynced(path, found.st_ctime_ns) and self._confirmed.get(key) != found.st_ino:
            self._confirm(key, found.st_ino)

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

    def _walk(
        self,
        folder: str,
        start_after: str,
        *,
        closed: tuple[type[StorageError], ...] = (DamagedObjectError,),
        files: bool = True,
    ) -> Iterator[str]:
        """The keys below a folder by ascending order, a folder's with its slash and before those in it.

        A folder further down that cannot be opened for one of the errors `closed` (it is too deep, or was replaced
        just now) is given without its slash: one object that cannot be read. No folder is too deep to be walked.
        files: False: folders alone.
        """
        ways = [self._keys(folder, files=files)]
        while ways:
            key = next(ways[-1], None)
            if key is None:
                ways.pop()
            elif not key.endswith("/"):
                if key > start_after:
                    yield key
            # Every key below is at most start_after, unless start_after leads into the folder.
            elif key > start_after or start_after.startswith(key):
                try:
                    ways.append(self._keys(key, files=files))
                except closed:
                    yield key.removesuffix("/")
                else:
                    yield key

    def _keys(self, folder: str, *, files: bool) -> Iterator[str]:
        names = self._names(folder, files=files)
        return (folder + name for name in names)

    def _listed(self, keys: Iterator[str]) -> Iterator[ObjectInfo]:
        """What a listing says of files, whatever their names; nothing of one that has gone since."""
        for key in keys:
            try:
                found = self._stat(key)
            except ObjectNotFoundError:
                continue
            except DamagedObjectError:  # too deep
                yield ObjectInfo(key, 0, 0)
            else:
                yield _info(key, found)

    def _names(self, folder: str, *, files: bool = True) -> builtins.list[str]:
        """The names in a folder in the order of their keys: folders sort with the slash they end with."""
        path = f"{self._root}/{folder}".rstrip("/")
        self._refuse_links(path)
        try:
            with os.scandir(path) as entries:
                if files:
                    names = [f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name for e in entries]
                else:
                    names = [f"{e.name}/" for e in entries if e.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError) as error:
            if not os.path.isdir(self._root):
                raise BucketNotFoundError(
                    "the folder of the store is gone",
                    actor="local store",
                    place=self._root,
                    action="restore it",
                ) from None
            if isinstance(error, NotADirectoryError):
                raise self._no_folder(folder) from error
            return []
        except OSError as error:
            self._refuse_read(error, folder)
        if not folder:
            names = [name for name in names if name != f"{TEMPORARY_FOLDER}/"]
        names.sort()
        return names

    # -- paths and errors

    def _refuse_links(self, folder: str) -> None:
        """Raise where the folder, or one between it and the root, is a symbolic link: what is behind it is
        not ours.

        Each folder is looked at once: who may replace one later may write to the store anyway.
        """
        unseen = []
        while folder != self._root and folder not in self._plain:
            unseen.append(folder)
            folder = folder.rpartition("/")[0]
        for folder in reversed(unseen):
            try:
                mode = os.lstat(folder).st_mode
            except OSError:
                return  # the call itself says what is the matter with it
            if stat.S_ISLNK(mode):
                raise self._no_file(folder.removeprefix(f"{self._root}/"))
            if stat.S_ISDIR(mode):
                self._plain.add(folder)

    def _no_folder(self, folder: str) -> DamagedObjectError:
        """For a listing: a file stands where the folder, or one on the way to it, should be."""
        path = self._root
        for part in folder.rstrip("/").split("/"):
            path = f"{path}/{part}"
            if not os.path.isdir(path):
                break
        return DamagedObjectError(
            "a file stands there",
            actor="local store",
            place=path,
            expected="a folder of the store",
            action="find out who put it there, and put the folder back from a copy",
        )

    def _no_file(self, key: str) -> DamagedObjectError:
        return DamagedObjectError(
            "a symbolic link, a FIFO or a device stands there",
            actor="local store",
            place=self.uri(key),
            expected="a plain file, or a plain folder",
            action="find out who put it there, and put back the file or folder that belongs there",
            reason=StoreReason.NOT_A_FILE,
        )

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
        if isinstance(error, NotADirectoryError) and os.path.isdir(self._root):
            raise NotAFolderError(
                "a file stands where a folder of this key should be",
                actor="local store",
                place=self.uri(key),
                action="find out who put it there, and put the folder back from a copy",
            ) from error
        if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            raise self._not_found(key) from None
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise DamagedObjectError(
                "the path is longer than this system can open",
                actor="local store",
                place=self.uri(key),
                expected="a folder of the store, none of which is so deep",
                action="find out who made it, and move it away",
            ) from error
        if isinstance(error, OSError) and error.errno in _NO_FILE:
            raise self._no_file(key) from error
        if isinstance(error, PermissionError):
            raise AccessDeniedError(
                _words(error), actor="local store", place=self.uri(key), action="fix the permissions"
            ) from error
        reason, seen, action = _fault_of(error)
        raise StorageError(
            f"reading failed: {seen}",
            actor="local store",
            place=self.uri(key),
            action=action,
            reason=reason,
        ) from error

    def _refuse_write(self, error: OSError, key: str) -> NoReturn:
        if isinstance(error, IsADirectoryError):
            raise InTheWayError(
                "a folder stands where this object is to be",
                actor="local store",
                place=self.uri(key),
                expected="nothing there",
                action="remove the folder if it is empty, else find out who put it there",
                reason=StoreReason.FOLDER_IN_THE_WAY,
            ) from error
        if isinstance(error, NotADirectoryError) and os.path.isdir(self._root):
            raise InTheWayError(
                "a file stands where a folder of this key should be",
                actor="local store",
                place=self.uri(key),
                action="find out who put it there, and put the folder back from a copy",
                reason=StoreReason.FILE_IN_THE_WAY,
            ) from error
        if error.errno in _NOT_PERMITTED:
            expected, reason, seen, action = "permission to write", None, _words(error), "fix the permissions"
        elif error.errno in _NOT_SUPPORTED:
            expected, reason, seen = "a file system with hard links and fsync", None, _words(error)
            action = "keep the store on a local disk, not on a network drive"
        else:
            expected, (reason, seen, action) = "", _fault_of(error)
        raise StoreNotWritableError(
            seen, actor="local store", place=self.uri(key), expected=expected, action=action, reason=reason
        ) from error


def _reopen(path: str, create: bool) -> LocalStore:
    return LocalStore(path, create=create)


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    tag = f"{found.st_ino:x}-{found.st_ctime_ns:x}"
    return ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000, tag)


def _clock_setting_ns() -> int:
    """What the wall clock is ahead of one that nobody sets: the same for as long as nobody sets the wall clock."""
    return time.time_ns() - time.monotonic_ns()


def _sync_file(descriptor: int) -> None:
    """Put the bytes on the disk itself: on macOS fsync stops at the disk's cache, and another call goes
    through.
    """
    if _FULL_SYNC is None:
        os.fdatasync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def _unlink(path: str) -> None:
    """Remove a temporary file; one that stays is litter, which the next store that is opened here sweeps."""
    try:
        os.unlink(path)
    except OSError:
        return


def _was_swept(temporary: str, error: OSError) -> bool:
    """Whether it failed since the temporary file is gone: somebody took it for a leftover."""
    return isinstance(error, FileNotFoundError) and not os.path.lexists(temporary)


def _is_file(path: str) -> bool:
    """Whether a file stands there; False where that cannot be seen, which the write then tells."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _fsync_folder(path: str) -> None:
    """Put the names in the folder on the disk; never again once that failed in this process."""
    _refuse_unsure(path)
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        os.fsync(descriptor)
    except OSError:
        _UNSURE.add(path)
        raise
    finally:
        os.close(descriptor)


class _UnsureError(OSError):
    """A sync of the folder has failed before in this process."""


def _refuse_unsure(folder: str) -> None:
    if folder in _UNSURE:
        raise _UnsureError(
            "a sync of this folder has failed before: look at the disk, then start the process anew"
        )


def _reason_of(error: Exception) -> StoreReason | None:
    return StoreReason.SYNC_FAILED_BEFORE if isinstance(error, _UnsureError) else None


def _fault_of(error: Exception) -> tuple[StoreReason, str, str]:
    """What is the matter with the disk or the machine, in words, and what to do about it."""
    number = error.errno if isinstance(error, OSError) else None
    if number in _NO_ROOM:
        return StoreReason.NO_ROOM, _words(error), "make room on the disk, then try again"
    if number == errno.EROFS:
        return StoreReason.READ_ONLY, _words(error), "have it mounted with the right to write, then try again"
    if number in _TOO_MANY_FILES:
        whose = "process" if number == errno.EMFILE else "machine"
        action = f"raise the {whose}'s limit of open files (`ulimit -n`), or close some, then try again"
        return StoreReason.TOO_MANY_OPEN_FILES, _words(error), action
    reason = _reason_of(error) or StoreReason.DISK_FAILED
    return reason, _words(error), "look at the disk and at the system's log, then try again"


def _words(error: Exception) -> str:
    return (os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)).lower()
