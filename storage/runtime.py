"""An obstore that works in this process, forked or not."""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import obstore
import obstore.exceptions
import obstore.store

from storage.errors import StorageError


@dataclass(frozen=True, slots=True)
class Obstore:
    """What the stores in the network use of obstore; `kinds` has its clients: S3Store and the like."""

    pid: int
    put: Any
    get: Any
    get_range: Any
    head: Any
    list: Any
    list_with_delimiter: Any
    delete: Any
    kinds: Any
    AlreadyExistsError: type[Exception]
    PreconditionError: type[Exception]


_IMPORTED_IN_PID = os.getpid()
_current: Obstore | None = None
_lock = threading.Lock()


class _Fork:
    """Keeps the parent's garbage out of a forked child's collections.

    Freeing an answer whose body was not read to its end takes a lock of obstore's runtime. If another thread of the
    parent holds this lock at the fork, nobody in the child ever releases it, and the first collection there waits for
    ever. So the child never collects what the parent had, and nothing is collected between the fork and `gc.freeze`.
    """

    def __init__(self) -> None:
        self._one_at_a_time = threading.RLock()  # a signal handler may fork while this thread forks
        self._collects: list[bool] = []

    def before(self) -> None:
        self._one_at_a_time.acquire()
        self._collects.append(gc.isenabled())
        gc.disable()

    def after(self) -> None:
        """In the parent, and at the end in the child, whose only thread has the lock."""
        if self._collects.pop():
            gc.enable()
        self._one_at_a_time.release()

    def after_in_child(self) -> None:
        global _lock  # noqa: PLW0603 -- a thread of the parent may hold it
        _lock = threading.Lock()
        gc.freeze()
        self.after()


_fork = _Fork()
os.register_at_fork(before=_fork.before, after_in_parent=_fork.after, after_in_child=_fork.after_in_child)


def obstore_of_this_process() -> Obstore:
    """Return obstore as this process can use it.

    obstore runs its requests on threads that one library-wide runtime owns. A fork copies the runtime
    without its threads, and every later call in the child waits for ever. A forked child (Airflow,
    multiprocessing) therefore gets a second copy of the library with a runtime of its own, loaded once, in
    about 20 ms.
    """
    global _current  # noqa: PLW0603 -- one library for each process, so one name for it
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = _original() if os.getpid() == _IMPORTED_IN_PID else _copy()
        return _current


def _original() -> Obstore:
    return _functions(obstore, obstore.store, obstore.exceptions)


def _copy() -> Obstore:
    name = "obstore._obstore"
    try:
        path = str(sys.modules[name].__file__)
        with tempfile.NamedTemporaryFile(suffix=".so") as copy:
            with open(path, "rb") as original:
                shutil.copyfileobj(original, copy, 1 << 20)
            copy.flush()
            # The loader tells libraries apart by file, so it must be a real copy, not a link.
            loader = importlib.machinery.ExtensionFileLoader(name, copy.name)
            spec = importlib.util.spec_from_file_location(name, copy.name, loader=loader)
            assert spec is not None  # noqa: S101 -- for the type checker: a loader was given
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        return _functions(module, module._store, module.exceptions)
    except (OSError, ImportError, AttributeError, KeyError) as error:
        raise StorageError(
            f"the store's client does not survive a fork, and a second one could not be loaded: {error}",
            actor="obstore",
            place=f"process {os.getpid()}",
            action="start child processes with the spawn method",
        ) from error


def _functions(module: ModuleType, kinds: Any, exceptions: ModuleType) -> Obstore:
    return Obstore(
        pid=os.getpid(),
        put=module.put,
        get=module.get,
        get_range=module.get_range,
        head=module.head,
        list=module.list,
        list_with_delimiter=module.list_with_delimiter,
        delete=module.delete,
        kinds=kinds,
        AlreadyExistsError=exceptions.AlreadyExistsError,
        PreconditionError=exceptions.PreconditionError,
    )
