"""How far a bench has come, on stderr, where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many of it are, and of how many."""


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """A line that is gone at the end."""
    columns = (
        TextColumn("[progress.description]{task.description}"),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
    )
    errors = Console(stderr=True)
    with Bar(*columns, console=errors, disable=not errors.is_terminal, transient=True) as bar:
        task = bar.add_task("bench", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
