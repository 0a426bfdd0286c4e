"""What the demo says while it runs: headings, short lines, and how far the load has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from txn_engine.clock import monotonic_ms
from txn_engine.names import printable

_LOUD = r"\b(SIG[A-Z]+|[A-Z]+_[A-Z_]+|Complete[A-Z][a-z]+|duplicate)\b"
Advance = Callable[[int], None]


class Screen:
    """Lines for a person, and the seconds that each step took. On anything but a terminal they are plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_ms = monotonic_ms()
        self._headings = 0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, title: str, name: str) -> Iterator[None]:
        """A step of the story under its heading; its time is kept under its name."""
        self.heading(title)
        started_ms = monotonic_ms()
        self.seconds[name] = 0.0
        yield
        self.seconds[name] = (monotonic_ms() - started_ms) / 1_000

    def say(self, line: str, *, style: str = "") -> None:
        """One line and when it was said; a terminal too narrow for it wraps it with an indent."""
        when = Text(f"{(monotonic_ms() - self._started_ms) / 1_000:6.1f}  ", style="dim")
        text = Text(printable(line), style=style)
        text.highlight_regex(_LOUD, "bold yellow")
        if self._console.is_terminal:
            wrapped = Table.grid()
            wrapped.add_row(when, text)
            self._console.print(wrapped)
        else:
            self._console.print(when + text, soft_wrap=True)

    def note(self, line: str, *, style: str = "") -> None:
        """One line as it is, never wrapped: what somebody may copy."""
        self._console.print(Text(printable(line), style=style), soft_wrap=True)

    def heading(self, title: str) -> None:
        """The heading of the next part."""
        self._headings += 1
        self._console.print()
        self._console.print(Text(f"{self._headings}  {title}", style="bold"), soft_wrap=True)

    def columns(self, titles: Iterable[str], rows: Sequence[Sequence[object]]) -> None:
        """Aligned columns, numbers to the right, never cut."""
        cells = [list(titles), *([_text(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        left = [not rows or isinstance(cell, str) for cell in (rows[0] if rows else cells[0])]
        for number, line in enumerate(cells):
            aligned = (
                text.ljust(width) if is_left else text.rjust(width)
                for text, width, is_left in zip(line, widths, left, strict=True)
            )
            self.note(f"        {'  '.join(aligned)}".rstrip(), style="" if number else "dim")

    def show(self, table: RenderableType) -> None:
        """A table of the console's own."""
        self._console.print(table)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """A sign of life on a terminal while something takes its time."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(f"  {what}"):
            yield

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Advance]:
        """A bar while something is under way, gone afterwards; none where there is no terminal."""
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.update(task, advance=count)


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
