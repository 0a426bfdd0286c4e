"""What an operator does when Airflow tells its task to end: on "mark failed", on "clear", on a worker's shut-down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TaskKilledError(BaseException):
    """Airflow told the task to end. It is no `Exception`, so that no call of a store that is under way catches it and
    tries again. Airflow takes it for a failure, with the tries that the task has left.
    """


class Killable:
    """An operator that leaves nothing open when it is told to end.

    Airflow sends SIGTERM, calls `on_kill` in the task's own thread, between any two steps of it, and kills the process
    some seconds later. Without this class, what is open then waits for its time-out, and holds up readers.
    """

    def on_kill(self) -> None:
        """Raise in the work that is under way: its transaction is aborted, and its uploads end."""
        if _work:
            raise TaskKilledError("told to end: what is not committed is aborted")


_work: list[str] = []
"""What is under way in this process: Airflow calls `on_kill` also of a task that has come to its end."""


@contextmanager
def ended_by_a_kill(what: str) -> Iterator[None]:
    """Let `on_kill` end this block."""
    _work.append(what)
    try:
        yield
    finally:
        _work.remove(what)
