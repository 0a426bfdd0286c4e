"""What commands print: tables for people, plain columns for pipes, one JSON document for programs.

stdout holds only what was asked for; notes and progress go to stderr. Colours and bars only on a terminal.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txn_engine.cli.failures import CommandFailed, ReportNotWritten
from txn_engine.names import json_printable, printable

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, object]
PREVIEWED = "nothing was changed: add --execute to do it"
"""What a command says that only showed what it would do."""
Advance = Callable[..., None]
"""Called with `completed=`, `total=` and `description=`, each optional."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the title as Kafka's tool prints it, and the field of the row, which is also its name in JSON."""

    title: str
    right: bool = False
    field: str = field(default="")

    @property
    def name(self) -> str:
        """The field: the title in snake_case unless another one is given."""
        return self.field or snake_case(self.title)


def number_of(count: int, noun: str) -> str:
    """How many there are: "1 record", "2,000 records"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def columns(*titles: str) -> tuple[Column, ...]:
    """Columns by title; one that ends with '>' holds numbers and is aligned to the right."""
    return tuple(Column(title.rstrip(">"), right=title.endswith(">")) for title in titles)


def snake_case(title: str) -> str:
    """ProducerId -> producer_id, CURRENT-OFFSET -> current_offset, Duration(min) -> duration_min."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", title)
    return "_".join(part.lower() for part in parts)


class Output:
    """Where one command writes to."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._is_done = False

    def done(self) -> None:
        """What was asked for is done: from here on a report that stdout does not take is no failure of it."""
        self._is_done = True

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Write to stdout, and know that it took it."""
        try:
            yield
            sys.stdout.flush()
        except OSError as error:
            reason = error.strerror or str(error)
            if self._is_done:
                raise ReportNotWritten(reason, as_json=self.as_json) from error
            if isinstance(error, BrokenPipeError):
                raise
            raise CommandFailed("IO_ERROR", f"stdout: {reason} [IO_ERROR]", as_json=self.as_json) from error

    def table(self, name: str, table: Sequence[Column], rows: Sequence[Row], **more: object) -> None:
        """A table; as JSON {name: [row, ...], **more}, each row with the columns' fields (and any others it has)."""
        if self.as_json:
            self.document({name: list(rows), **more})
            return
        cells = [[as_text(row.get(column.name)) for column in table] for row in rows]
        with self._writing():
            if sys.stdout.isatty():
                _print_on_terminal(table, cells)
            else:
                _print_plain(table, cells)

    def document(self, value: object) -> None:
        """One JSON document."""
        with self._writing():
            sys.stdout.write(as_json_text(value, indent=2) + "\n")

    def line(self, text: str, **fields: object) -> None:
        """A sentence about what was done; as JSON the fields."""
        if self.as_json:
            self.document(fields)
            return
        with self._writing():
            sys.stdout.write(printable(text) + "\n")

    def blank(self) -> None:
        """An empty line between two tables."""
        if not self.as_json:
            with self._writing():
                sys.stdout.write("\n")

    def note(self, text: str) -> None:
        """Something to know beside the answer: on stderr, if that takes it, and not with --json."""
        if self.as_json:
            return
        with self._writing():
            pass  # what stdout still holds comes first
        with contextlib.suppress(OSError):
            sys.stderr.write(printable(text) + "\n")

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None = None, *, unit: str = "") -> Iterator[Advance]:
        """A bar on stderr while the block runs, on a terminal only and not with --json. `unit="bytes"` shows sizes and
        speed; `unit="steps"` no numbers, for work whose steps only have names.
        """
        if self.as_json or not sys.stderr.isatty():
            yield _silent
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TransferSpeedColumn,
        )

        counts = {"bytes": (DownloadColumn(), TransferSpeedColumn()), "steps": ()}.get(
            unit, (MofNCompleteColumn(),)
        )
        shown = (TextColumn("{task.description}"), BarColumn(), *counts, TimeElapsedColumn())
        with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(_on_a_bar(what), total=total)

            def advance(**state: Any) -> None:
                if "description" in state:
                    state["description"] = _on_a_bar(state["description"])
                progress.update(task, **state)

            yield advance

    def console(self) -> Console:
        """A rich console for those who lay out a screen of their own: stdout, or stderr when stdout is to hold JSON."""
        from rich.console import Console

        return Console(stderr=self.as_json)


def as_text(value: object) -> str:
    """A cell: None as Kafka's tools print it, lists with commas."""
    if isinstance(value, (list, tuple)):
        return ",".join(as_text(item) for item in value)
    if isinstance(value, Mapping) and set(value) == {"topic", "partition"}:
        return f"{value['topic']}-{value['partition']}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def as_json_text(value: object, *, indent: int | None = None) -> str:
    """The value as JSON with its letters as they are and nothing that a terminal would act on."""
    return json_printable(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def _on_a_bar(text: str) -> str:
    """A description as a bar shows it: names in square brackets are no markup."""
    from rich.markup import escape

    return escape(printable(text))


def _silent(**_state: object) -> None:
    """Tell nobody."""


def _widths(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(len(line) for line in (*title.split("\n"), *(row[index] for row in cells)))
        for index, title in enumerate(titles)
    ]


def _print_plain(table: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    """Aligned columns, never wrapped or cut: for `| grep` and `| awk`."""
    titles = [column.title for column in table]
    widths = _widths(titles, cells)
    for row in (titles, *cells):
        aligned = (
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(row, widths, table, strict=True)
        )
        sys.stdout.write("  ".join(aligned).rstrip() + "\n")


def _print_on_terminal(table: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    """A table where it fits; with its titles folded where that helps; else each row as a block of its own."""
    from rich.console import Console

    console = Console(highlight=False)
    plain, folded = [c.title for c in table], [_folded(c.title) for c in table]
    for titles in (plain,) if len(cells) == 1 else (plain, folded):
        if sum(_widths(titles, cells)) + 2 * len(table) <= console.width:
            _print_table(console, table, titles, cells)
            return
    _print_blocks(console, table, cells)


def _print_table(
    console: Console, table: Sequence[Column], titles: Sequence[str], cells: Sequence[Sequence[str]]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for column, title in zip(table, titles, strict=True):
        drawn.add_column(title, justify="right" if column.right else "left", no_wrap=True, vertical="top")
    for row in cells:
        drawn.add_row(*(Text(text) for text in row))
    console.print(drawn)


def _print_blocks(console: Console, table: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    for number, row in enumerate(cells):
        if number:
            console.print()
        block = Table.grid(padding=(0, 2))
        block.add_column(style="bold", no_wrap=True)
        block.add_column(overflow="fold")
        for column, text in zip(table, row, strict=True):
            block.add_row(column.title, Text(text))
        console.print(block)
    if not cells:
        console.print("  ".join(column.title for column in table), style="bold")


def _folded(title: str) -> str:
    """The title on several lines, broken where a word begins."""
    return "\n".join(re.findall(r"[A-Z]+-?(?![a-z])|[A-Z]?[a-z0-9]+(?:\(\w+\))?", title)) or title
