"""`txn-engine backup` and `restore`: copies of a store as of cuts, a store of such a copy, and away with old ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import (
    SETTINGS,
    Command,
    Group,
    Place,
    StoreOption,
    common_options,
    execute_options,
    local_folder,
    output_options,
)
from txn_engine.cli.output import PREVIEWED, Output, columns
from txn_engine.value_text import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage import ObjectStore
    from txn_engine.backup import Manifest

_DAY_MS = 86_400_000
_DAYS_MAX = 1_000_000
_NAMED_MAX = 20
_LIST = columns("BACKUP>", "CREATED", "CUT>", "TOPICS>", "FILES>", "BYTES>", "NEW-FILES>", "NEW-BYTES>")


class _BackupGroup(Group):
    """A command that has commands of its own, and examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, as they would be typed."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in (
                "txn-engine backup --url s3://ledger --to s3://ledger-backups",
                "txn-engine backup --url file:///srv/ledger --to file:///mnt/backups/ledger --json",
                "txn-engine backup list s3://ledger-backups",
                "txn-engine backup prune s3://ledger-backups --keep 30",
            ):
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


backups_endpoint = click.option(
    "--backup-endpoint",
    cls=StoreOption,
    told=lambda backend: f"{backend.backup_endpoint_variable} for {backend.name}",
    metavar="URL",
    help="Where the server of the backups is, when it is another one than the store's.  [env var: {}]",
)


@click.group(
    cls=_BackupGroup,
    invoke_without_command=True,
    context_settings=SETTINGS,
    short_help="Copy all topics and groups, as of a cut, to another place.",
)
@click.option(
    "--to",
    "to_url",
    metavar="URL",
    help="Where the backups of this store are: a folder's URL or a bucket's.",
)
@click.option(
    "--cut",
    type=int,
    metavar="N",
    help="As of this cut, of all topics; without this as of a fresh one, which goes when the next backup is done.",
)
@backups_endpoint
@common_options
@click.pass_context
def backup(
    ctx: click.Context,
    to_url: str | None,
    cut: int | None,
    backup_endpoint: str | None,
    place: Place,
    out: Output,
) -> None:
    """Back up the store: all committed records below a cut, groups' positions as of it, and which runs had committed.

    Producers go on. Only data files that no earlier backup has are copied; one that was cut off goes on where it was.
    Each is checked as it is read, and seen at its place, before the backup counts. `restore` makes a store of it.
    """
    if ctx.invoked_subcommand is not None:
        return
    if to_url is None:
        raise click.UsageError("name the place of the backups: --to URL")
    from txn_engine.backup import check_place

    with place.open() as engine, out.progress("backing up", unit="bytes") as advance:
        check_place(engine.place, to_url)
        made = engine.backup(
            open_backups(to_url, backup_endpoint, place, create=True),
            cut=cut,
            progress=lambda what, done, total: advance(description=what, completed=done, total=total),
        )
    out.done()
    counts = made.counts
    out.line(
        f"made backup {made.number} at cut {made.cut}: {counts.new_files:,} new data files of {counts.files:,}, "
        f"{counts.new_bytes:,} bytes of {counts.file_bytes:,}",
        **_fields(made),
    )


@backup.command(
    "list",
    context_settings=SETTINGS,
    short_help="List the backups of a place.",
    examples=("txn-engine backup list s3://ledger-backups",),
)
@click.argument("backups_url", metavar="URL")
@backups_endpoint
@output_options
def list_backups(backups_url: str, backup_endpoint: str | None, out: Output) -> None:
    """List the backups at URL, the oldest first. One that was cut off is none."""
    from txn_engine.backup import backups

    found, damaged = backups(open_backups(backups_url, backup_endpoint, None, create=False))
    rows = [_fields(each) if out.as_json else _listed(each) for each in found]
    out.table("backups", _LIST, rows, damaged=list(map(str, damaged)))
    if damaged:
        for error in damaged[1:]:
            out.note(str(error))
        raise damaged[0]


@backup.command(
    context_settings=SETTINGS,
    short_help="Read every object of a backup, and name what is damaged.",
    examples=("txn-engine backup verify s3://ledger-backups --number 12",),
)
@click.argument("backups_url", metavar="URL")
@click.option(
    "--number", type=int, metavar="N", help="The backup's number. [default: the one of the newest cut]"
)
@backups_endpoint
@output_options
def verify(backups_url: str, number: int | None, backup_endpoint: str | None, out: Output) -> None:
    """Read every object that a backup at URL needs. Exit code 1 where one is damaged or gone; each is named."""
    from txn_engine.backup import check_backup

    store = open_backups(backups_url, backup_endpoint, None, create=False)
    with out.progress("reading", unit="bytes") as advance:
        found = check_backup(
            store,
            number,
            lambda what, done, total: advance(description=what, completed=done, total=max(done, total)),
        )
    for error in found.damaged:
        out.note(str(error))
    count = len(found.damaged)
    told = f"{count} of {found.objects:,} objects {'is' if count == 1 else 'are'} damaged"
    out.line(
        f"{told if count else f'all {found.objects:,} objects are whole'}, {found.bytes:,} bytes, "
        f"of backup {found.backup.number}",
        **_fields(found.backup),
        objects=found.objects,
        bytes=found.bytes,
        damaged=list(map(str, found.damaged)),
    )
    if found.damaged:
        raise click.exceptions.Exit(1)


@backup.command(
    context_settings=SETTINGS,
    short_help="Show which old backups would go; with --execute, remove them.",
    examples=(
        "txn-engine backup prune s3://ledger-backups --keep 30",
        "txn-engine backup prune s3://ledger-backups --older-than 90 --keep 7 --execute",
    ),
)
@click.argument("backups_url", metavar="URL")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Keep the N backups of the newest cuts.")
@click.option(
    "--older-than",
    type=click.IntRange(0, _DAYS_MAX),
    metavar="DAYS",
    help="Keep backups that were put within this many days before the last one, by the store's clock. With --keep, "
    "a backup stays if either keeps it.",
)
@execute_options
@backups_endpoint
@output_options
def prune(
    backups_url: str,
    keep: int | None,
    older_than: int | None,
    execute: bool,
    backup_endpoint: str | None,
    out: Output,
) -> None:
    """Show which backups at URL are neither among the newest nor young; with --execute, remove them, and the files that
    no other backup there needs.

    The newest always stays. Those that stay are looked at first: every object of theirs has to be there. A backup that
    is being made meanwhile copies again what it had copied. What was cut off, here or while a backup was made, goes the
    next time.
    """
    from txn_engine import backup as backups

    if keep is None and older_than is None:
        raise click.UsageError("say which backups stay: --keep N, --older-than DAYS, or both")
    store = open_backups(backups_url, backup_endpoint, None, create=False)
    with out.progress("looking") as advance:
        pruned = backups.prune(
            store,
            keep=keep,
            older_than_ms=None if older_than is None else older_than * _DAY_MS,
            execute=execute,
            progress=lambda what, done, total: advance(
                description=what, completed=done, total=max(done, total)
            ),
        )
    if execute:
        out.done()
    kept = [each.number for each in pruned.kept]
    out.line(
        f"{'removed' if execute else 'would remove'} {_numbers(pruned.removed)} and {pruned.objects:,} objects, "
        f"{pruned.bytes:,} bytes; {_numbers(kept)} {'stays' if len(kept) == 1 else 'stay'}",
        executed=pruned.executed,
        removed=list(pruned.removed),
        kept=kept,
        objects=pruned.objects,
        bytes=pruned.bytes,
    )
    if not execute:
        out.note(PREVIEWED)


def _numbers(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no backup"
    shown = ", ".join(map(str, numbers[:_NAMED_MAX]))
    more = f" and {len(numbers) - _NAMED_MAX} more" if len(numbers) > _NAMED_MAX else ""
    return f"backup{'s' if len(numbers) > 1 else ''} {shown}{more}"


@click.command(
    cls=Command,
    context_settings=SETTINGS,
    short_help="Make a store of a backup, in an empty place.",
    examples=(
        "txn-engine restore --from s3://ledger-backups --url s3://ledger-2",
        "txn-engine restore --from file:///mnt/backups/ledger --number 12 --url file:///srv/ledger-2",
    ),
)
@click.option(
    "--from",
    "from_url",
    required=True,
    metavar="URL",
    help="Where the backups are, as `backup --to` was told.",
)
@click.option(
    "--number", type=int, metavar="N", help="The backup's number. [default: the one of the newest cut]"
)
@backups_endpoint
@common_options
def restore(
    from_url: str, number: int | None, backup_endpoint: str | None, place: Place, out: Output
) -> None:
    """Restore a backup into the empty place that --url names, as a store of its own.

    Records keep their offsets and groups their positions; a load asks by its run id whether it is inside. Transactional
    ids have expired: producers begin anew. A restore that was cut off is no store; the same command goes on with it.
    """
    from txn_engine import backup as backups

    source = open_backups(from_url, backup_endpoint, place, create=False)
    backups.check_target(source, place.required())
    with _made_folder(place.required()), out.progress("restoring", unit="bytes") as advance:
        target = place.open_store(set_up=True)
        restored = backups.restore(
            source,
            target,
            number=number,
            progress=lambda what, done, total: advance(description=what, completed=done, total=total),
        )
    out.done()
    out.line(
        f"restored backup {restored.backup.number} as store {restored.store_id} at {restored.url}",
        url=restored.url,
        store_id=restored.store_id,
        **{name: value for name, value in _fields(restored.backup).items() if name != "store_id"},
    )


@contextmanager
def _made_folder(url: str) -> Iterator[None]:
    """A local folder that is made in this block goes again where the block fails and has left nothing in it."""
    folder = local_folder(url)
    was_there = folder is None or folder.exists()
    try:
        yield
    except BaseException:
        if folder is not None and not was_there:
            with suppress(OSError):  # it is not empty: the restore goes on there
                folder.rmdir()
        raise


def open_backups(url: str, endpoint: str | None, place: Place | None, *, create: bool) -> ObjectStore:
    """The place of backups: at the endpoint that was said for it, else at the store's where it is of the same kind."""
    from storage import backend_of, open_store
    from txn_engine.log.objects import store_errors

    if endpoint is None and (backend := backend_of(url)) is not None:
        endpoint = os.environ.get(backend.backup_endpoint_variable)
        if not endpoint and place is not None:
            endpoint = place.endpoint_of(url)
    with store_errors():
        return open_store(url, endpoint=endpoint, create=create)


def _fields(made: Manifest) -> dict[str, Any]:
    return {
        "backup": made.number,
        "store_id": made.store_id,
        "created_ms": made.created_ms,
        "cut": made.cut,
        "cut_ms": made.cut_ms,
        "topics": made.topics,
        "offsets": [
            {"topic": at.topic, "partition": at.partition, "offset": offset}
            for at, offset in made.offsets.items()
        ],
        "files": made.counts.files,
        "file_bytes": made.counts.file_bytes,
        "new_files": made.counts.new_files,
        "new_bytes": made.counts.new_bytes,
    }


def _listed(made: Manifest) -> dict[str, Any]:
    counts = made.counts
    return {
        "backup": made.number,
        "created": time_text(made.created_ms),
        "cut": made.cut,
        "topics": len(made.topics),
        "files": counts.files,
        "bytes": counts.file_bytes,
        "new_files": counts.new_files,
        "new_bytes": counts.new_bytes,
    }
