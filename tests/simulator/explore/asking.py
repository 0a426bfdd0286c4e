"""The store of a process in a search: it says what it wants, and waits until it gets an answer."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping

from greenlet import GreenletExit

from storage import ObjectInfo, ObjectNotFoundError, StoreUnreachableError
from storage.ranges import check_size
from tests.simulator.explore.operations import Answer, Failure, Operation
from tests.simulator.kernel import START_MS, Task, current_task
from tests.simulator.process import Process
from tests.simulator.store import URL

_MOVING = ("/log/", "/data/", "producer_ids/")


def is_settled_from_the_start(operation: Operation, base: Mapping[str, bytes]) -> bool:
    """Whether the answer is the same at every moment of every run. In these configurations nobody creates or
    deletes a topic, writes a snapshot or seals an entry: existing objects stay as they are, and only logs,
    data and id blocks grow."""
    if operation.kind != "list" and operation.key in base:
        return True
    return not any(part in f"{operation.key}/" for part in _MOVING)


class AskingStore:
    """A process's handle. Requests that are not settled from the start wait in `asked`."""

    def __init__(self, process: Process, base: Mapping[str, bytes]) -> None:
        self.url = URL
        self.asked: dict[Task, Operation] = {}
        self._answers: dict[Task, Answer] = {}
        self._process = process
        self._base = base

    def answer(self, task: Task, answer: Answer) -> None:
        """Let the task go on, once the kernel runs."""
        del self.asked[task]
        self._answers[task] = answer
        task.wake()

    def _ask(self, operation: Operation) -> Answer:
        task = current_task()
        if task is None or self._process.dead:
            raise GreenletExit
        if is_settled_from_the_start(operation, self._base):
            return answer_from(operation, self._base)
        self.asked[task] = operation
        task.wait("the store")
        answer = self._answers.pop(task)
        if isinstance(answer, Failure):
            raise StoreUnreachableError(
                f"{operation.kind}: {answer}", actor="searched store", place=self.uri(operation.key)
            )
        return answer

    # --- what the engine calls ------------------------------------------------------------------------------

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        found = self._ask(Operation("get", key))
        if not isinstance(found, bytes):
            raise ObjectNotFoundError("there is no such object", actor="searched store", place=self.uri(key))
        check_size(self.uri(key), len(found), max_bytes)
        return found

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.get(key)), START_MS)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return bool(self._ask(Operation("put", key, bytes(data))))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = self._ask(Operation("list", prefix, after=start_after))
        assert isinstance(found, tuple)
        return iter([ObjectInfo(key, size, START_MS) for key, size in found])

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def uri(self, key: str) -> str:
        return f"{URL}/{key}"

    def put(self, key: str, data: bytes) -> None:
        raise AssertionError(f"put {key}: these configurations overwrite nothing")

    def delete(self, key: str) -> None:
        raise AssertionError(f"delete {key}: these configurations delete nothing")

    def list_folders(self, prefix: str) -> builtins.list[str]:
        raise AssertionError(f"list_folders {prefix}: nobody here asks for it")

    def close(self) -> None:
        """Close nothing."""


def answer_from(operation: Operation, objects: Mapping[str, bytes]) -> Answer:
    """What a truthful store with these objects answers. A put is only judged, not done."""
    if operation.kind == "get":
        return objects.get(operation.key)
    if operation.kind == "put":
        return operation.key not in objects
    folder = operation.key.rstrip("/") + "/"
    return tuple(
        (key, len(objects[key]))
        for key in sorted(objects)
        if key.startswith(folder) and (operation.after is None or key > operation.after)
    )
