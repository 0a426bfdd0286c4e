"""`txn-engine topics`: what there is, and making, growing and deleting it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txn_engine.cli.command import SETTINGS, Group, Place, common_options, execute_options
from txn_engine.cli.damage import DAMAGED, as_fields, fail_for
from txn_engine.cli.infer import infer
from txn_engine.cli.output import PREVIEWED, Output, columns, number_of
from txn_engine.cli.schema_text import TYPES, parse_schema, read_schema, type_text
from txn_engine.configs import TOPIC

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_engine.types import TopicDescription

_CONFIGS = {
    "cleanup.policy": "cleanup_policy",
    "retention.ms": "retention_ms",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
    "retention.bytes": "retention_bytes",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "message_timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "message_timestamp_after_max_ms",
    "tables.publish": "tables_publish",
}
"""Names of what a topic is made with, Kafka's where Kafka has it, and ours in Python."""
PARTITIONS = columns(
    "Partition>",
    "LogStartOffset>",
    "LastStableOffset>",
    "HighWatermark>",
    "HeldBack>",
    "HeldBy",
    "HeldForMs>",
    "Records>",
    "Files>",
    "Bytes>",
)


@click.group(cls=Group)
def topics() -> None:
    """List, create, describe, grow and delete topics."""


@topics.command(
    context_settings=SETTINGS,
    examples=(
        "txn-engine topics create payments --partitions 4 --key account_id \\",
        "    --schema 'account_id:int64,date:date32,amount:decimal(18,2),note:string?' --url file:///srv/ledger",
        "txn-engine topics create payments --schema-file payments.parquet",
        "txn-engine topics create payments-dead --dead-letters",
        "txn-engine topics create payments --if-not-exists --schema 'account_id:int64,amount:decimal(18,2)'",
        "txn-engine topics create events      # Kafka's columns: key, value, headers",
        "txn-engine topics create payments --schema 'id:int64' --config tables.publish=delta",
        "txn-engine topics create first --store-config transaction.state.log.num.partitions=8",
        "txn-engine topics create accounts --config cleanup.policy=compact --config delete.retention.ms=604800000",
    ),
)
@click.argument("topic")
@click.option("--partitions", type=int, default=1, metavar="N", help="How many partitions, 1 to 10000.")
@click.option(
    "--schema",
    "schema_text",
    metavar="NAME:TYPE,...",
    help=(
        f"The columns, as NAME:TYPE or 'NAME TYPE'. Types: {TYPES}; a '?' after a type lets the column hold nulls. "
        "A timestamp counts milliseconds, UTC."
    ),
)
@click.option(
    "--schema-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the columns from a Parquet or Arrow file instead.",
)
@click.option(
    "--dead-letters",
    "is_for_dead_letters",
    is_flag=True,
    help="Take the columns of a dead-letter topic: where `produce --dead-letter-topic` puts rows it cannot use.",
)
@click.option(
    "--manifest",
    "is_manifest",
    is_flag=True,
    help="Take the columns of a manifest: where `produce --manifest` keeps which files were loaded.",
)
@click.option(
    "--key",
    metavar="COLUMN",
    help=(
        "The column that decides the partition (int32, int64, string or binary). Without one, "
        "batches take turns."
    ),
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"What the topic is made with (repeatable): {', '.join(_CONFIGS)}. docs/CONFIGS.md says what each does.",
)
@click.option(
    "--store-config",
    "store_configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="With what the first topic's store begins (repeatable); `configs describe` lists the names.",
)
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Succeed if a topic of this name exists, and say whether it is the one that was asked for.",
)
@common_options
def create(
    topic: str,
    partitions: int,
    schema_text: str | None,
    schema_file: Path | None,
    is_for_dead_letters: bool,
    is_manifest: bool,
    key: str | None,
    configs: Sequence[str],
    store_configs: Sequence[str],
    if_not_exists: bool,
    place: Place,
    out: Output,
) -> None:
    """Create TOPIC; the first one in a store sets the store up.

    `topics alter` changes columns later, `configs alter` the configuration. With cleanup.policy=compact of each key the
    latest record is kept, and one without a key is refused; a record whose value is null (with columns of your own: all
    but the key) is a tombstone. Names that begin with an underscore are reserved. Without --schema the topic has
    Kafka's columns: key and value (binary) and headers.
    """
    schema = _schema(schema_text, schema_file, key, is_for_dead_letters, is_manifest)
    chosen = _parsed(configs)
    if wrong := next((each for each in store_configs if "=" not in each), None):
        raise click.UsageError(f"--store-config {wrong}: expected NAME=VALUE")
    begun = dict(each.split("=", 1) for each in store_configs)
    from txn_engine.errors import TopicExistsError

    begins_store = not place.has_ledger()
    with place.open(set_up=True, configs=begun) as engine:
        if begins_store:
            out.note(f"began a new store at {engine.url}")
        try:
            made = engine.admin.create_topic(topic, partitions=partitions, schema=schema, key=key, **chosen)
            told, is_new = f"created topic {made.topic}, {number_of(made.partitions, 'partition')}", True
        except TopicExistsError as error:
            if not if_not_exists:
                raise
            made = engine.admin.describe_topic(topic)
            told, is_new = f"nothing was created: {error.seen}", False
    out.done()
    out.line(
        told,
        topic=made.topic,
        partition_count=made.partitions,
        key=made.key,
        incarnation=made.incarnation,
        created=is_new,
    )


def _schema(
    text: str | None, file: Path | None, key: str | None, is_for_dead_letters: bool, is_manifest: bool
) -> pa.Schema | None:
    """The columns that are asked for; None for Kafka's."""
    if (text is not None) + (file is not None) + is_for_dead_letters + is_manifest > 1:
        raise click.UsageError("--schema, --schema-file, --dead-letters and --manifest: give one of them")
    if (is_for_dead_letters or is_manifest) and key is not None:
        raise click.UsageError("--dead-letters and --manifest take no --key")
    if is_for_dead_letters or is_manifest:
        from txn_engine.loading import DEAD_LETTERS, LOADED_FILES

        return DEAD_LETTERS if is_for_dead_letters else LOADED_FILES
    if text is not None:
        return parse_schema(text)
    return None if file is None else read_schema(file)


def _parsed(configs: Sequence[str]) -> dict[str, Any]:
    """The arguments of `create_topic` that the --config options stand for."""
    chosen: dict[str, Any] = {}
    for config in configs:
        name, _, value = config.partition("=")
        if name not in _CONFIGS:
            raise click.UsageError(
                f"--config {config}: expected NAME=VALUE with one of {', '.join(_CONFIGS)}"
            )
        chosen[_CONFIGS[name]] = value if isinstance(TOPIC[name].default, str) else _number(name, value)
    return chosen


def _number(name: str, text: str) -> Any:
    try:
        return TOPIC[name].value(text)
    except ValueError as error:
        raise click.UsageError(f"--config {name}={text}: expected {error}") from None


def _settings(found: TopicDescription) -> dict[str, Any]:
    """The topic's settings, by Kafka's names."""
    return {name: getattr(found, field) for name, field in _CONFIGS.items()}


@topics.command(
    "list",
    context_settings=SETTINGS,
    examples=("txn-engine topics list --url s3://ledger/prod", "txn-engine topics list --json"),
)
@common_options
def list_topics(place: Place, out: Output) -> None:
    """List the topics, without the internal ones."""
    with place.open() as engine:
        survey = engine.logs.topics.survey()
        unreadable = [*survey.unreadable, *engine.lost_topics()]
    rows: list[dict[str, object]] = [
        {"topic": found.name, "partition_count": found.partitions, "key": found.key}
        for found in survey.topics
    ]
    rows += [{"topic": each.topic, "state": DAMAGED} for each in unreadable]
    titles = ("Topic", "PartitionCount>", "Key", *(("State",) if unreadable else ()))
    rows.sort(key=lambda row: str(row["topic"]))
    out.table("topics", columns(*titles), rows, **as_fields(unreadable))
    fail_for(unreadable, out)


@topics.command(context_settings=SETTINGS, examples=("txn-engine topics describe payments",))
@click.argument("topic")
@common_options
def describe(topic: str, place: Place, out: Output) -> None:
    """Show TOPIC's columns, and of each partition its offsets, and what holds its readers back.

    LastStableOffset is how far read_committed readers see; Records are those that they get. It stays behind
    HighWatermark, by HeldBack offsets, while a transaction is open: HeldBy is its transactional id, or its producer
    where no coordinator knows it, and HeldForMs how long it has been open (None where a clock is wrong). A partition
    that cannot be read, or that lacks a data file, is named at the end, and the command fails.
    """
    with place.open() as engine:
        found = engine.admin.describe_topic(topic)
        partitions = engine.admin.measure_partitions(topic)
        missing = engine.admin.find_missing_files(topic)
        now_ms = engine.clock()
    damaged = [*partitions.unreadable, *missing]
    schema: Any = found.schema
    fields = [{"column": field.name, "type": type_text(field)} for field in schema]
    rows: list[dict[str, Any]] = [
        {
            "partition": at.partition,
            "log_start_offset": at.log_start_offset,
            "last_stable_offset": at.last_stable_offset,
            "high_watermark": at.high_watermark,
            "held_back": at.held_back_offsets,
            "held_by": at.holder.name if at.holder else None,
            "held_for_ms": _known(at.holder.held_for_ms(now_ms)) if at.holder else None,
            "records": at.readable.records,
            "files": at.readable.files,
            "bytes": at.readable.bytes,
        }
        for at in partitions
    ]
    rows += [
        {"partition": each.partition, "held_by": DAMAGED}
        for each in partitions.unreadable
        if each.topic == topic
    ]
    rows.sort(key=lambda row: row["partition"])
    if out.as_json:
        out.document(
            {
                "topic": found.topic,
                "partition_count": found.partitions,
                "key": found.key,
                "incarnation": found.incarnation,
                "created_ms": found.created_ms,
                "configs": _settings(found),
                "schema": fields,
                "partitions": rows,
                **as_fields(damaged),
            }
        )
        fail_for(damaged, out)
        return
    out.line(f"Topic: {found.topic}  PartitionCount: {found.partitions}  Key: {found.key}")
    out.line(f"Configs: {'  '.join(f'{name}={value}' for name, value in _settings(found).items())}")
    out.blank()
    out.table("schema", columns("Column", "Type"), fields)
    out.blank()
    out.table(
        "partitions",
        PARTITIONS,
        rows,
    )
    fail_for(damaged, out)


def _known(value: int) -> int | None:
    return None if value < 0 else value


@topics.command(
    context_settings=SETTINGS,
    examples=(
        "txn-engine topics alter payments --partitions 8",
        "txn-engine topics alter payments --add 'note string' --rename amount=value      # shows what it would do",
        "txn-engine topics alter payments --add 'note string' --rename amount=value --execute",
        "txn-engine topics alter payments --drop note --widen count=int64 --nullable value --execute",
    ),
)
@click.argument("topic")
@click.option("--partitions", type=int, metavar="N", help="How many partitions, all told: more than now.")
@click.option(
    "--add",
    multiple=True,
    metavar="'NAME:TYPE [DEFAULT]'",
    help="Add a column (repeatable), as NAME:TYPE or 'NAME TYPE', with the types of `topics create --schema`. It may "
    "hold nulls, unless 'not null' and a default follow the type.",
)
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a column (repeatable).")
@click.option("--drop", multiple=True, metavar="NAME", help="Drop a column, for good (repeatable).")
@click.option("--widen", multiple=True, metavar="NAME=TYPE", help="Give a column a wider type (repeatable).")
@click.option("--nullable", multiple=True, metavar="NAME", help="Let a column hold nulls (repeatable).")
@click.option("--order", metavar="NAME,...", help="All columns, in the order that reads are to give.")
@execute_options
@common_options
def alter(
    topic: str,
    partitions: int | None,
    add: Sequence[str],
    rename: Sequence[str],
    drop: Sequence[str],
    widen: Sequence[str],
    nullable: Sequence[str],
    order: str | None,
    execute: bool,
    place: Place,
    out: Output,
) -> None:
    """Add partitions to TOPIC, or show what a change of its columns would do; with --execute, do it.

    Partitions are added at once, unless --dry-run is there, and there is no way back: records with a key go by the new
    number from then on, so that a key's later records may stand in another partition than its earlier ones. Columns
    change all at once or not at all: what is dropped comes first, then what is widened, let hold nulls, renamed and
    added, the order last. No file is written anew. Producers and consumers that are running notice within five seconds.
    """
    from txn_engine.cli.alter_text import parse_changes

    changes = parse_changes(add=add, rename=rename, drop=drop, widen=widen, nullable=nullable, order=order)
    if bool(changes) == (partitions is not None):
        raise click.UsageError("give --partitions, or changes of the columns: one of the two")
    if partitions is not None:
        _grow(topic, partitions, place, out, dry_run=click.get_current_context().params["dry_run"])
        return
    with place.open() as engine:
        found = engine.admin.alter_topic(topic, changes, dry_run=not execute)
    if execute:
        out.done()
    fields = [{"column": field.name, "type": type_text(field)} for field in found.after]
    if out.as_json:
        out.document(
            {
                "topic": found.topic,
                "version": found.version,
                "changes": found.changes,
                "schema": fields,
                "effects": [{"reader": each.reader, "what": each.what} for each in found.effects],
                "executed": execute,
            }
        )
        return
    out.line(f"Topic: {found.topic}  Version: {found.version}  Changes: {'; '.join(found.changes)}")
    out.blank()
    out.table("schema", columns("Column", "Type"), fields)
    out.blank()
    out.table(
        "effects",
        columns("Reader", "What"),
        [{"reader": each.reader, "what": each.what} for each in found.effects],
    )
    if not execute:
        out.note(PREVIEWED)


def _grow(topic: str, partitions: int, place: Place, out: Output, *, dry_run: bool) -> None:
    with place.open() as engine:
        grown = engine.admin.add_partitions_to_topic(topic, partitions, dry_run=dry_run)
    if not dry_run:
        out.done()
    out.line(
        f"topic {grown.topic} {'would have' if dry_run else 'has'} {number_of(grown.partitions, 'partition')}",
        topic=grown.topic,
        partition_count=grown.partitions,
        **({"executed": False} if dry_run else {}),
    )


@topics.command(
    context_settings=SETTINGS,
    examples=(
        "txn-engine topics create payments2 --schema 'account_id:int64,cents:int64?' --key account_id",
        "txn-engine topics copy payments payments2 --column cents=amount",
    ),
)
@click.argument("source")
@click.argument("target")
@click.option(
    "--column",
    "pairs",
    multiple=True,
    metavar="NEW=OLD",
    help="What a column of TARGET is made of (repeatable); all others are of the same name.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Of the copy, and the group that says how far it is. Default: one of SOURCE and of TARGET as it is now.",
)
@click.option("--slice", "slice_records", type=click.IntRange(1), metavar="N", help="Records a transaction.")
@common_options
def copy(
    source: str,
    target: str,
    pairs: Sequence[str],
    transactional_id: str | None,
    slice_records: int | None,
    place: Place,
    out: Output,
) -> None:
    """Copy the committed records of SOURCE into TARGET, each exactly once.

    For changes of the columns that `topics alter` refuses: make TARGET as you want it, copy, and let readers and
    writers move over. One transaction a slice holds its records and how far the copy is: where it is cut off, the same
    command goes on. It copies what is there when it begins; run it again for what came since. Values are copied
    exactly, or the copy stops at the first that TARGET's type does not have.
    """
    from txn_engine.cli.alter_text import parse_pair
    from txn_engine.cli.copying import SLICE_RECORDS, Copy, copy_records

    columns_of = dict(parse_pair("--column", pair) for pair in pairs)
    if len(columns_of) < len(pairs):
        raise click.UsageError("--column names a column of TARGET twice")
    with place.open() as engine:
        topics_of = engine.logs.topics
        chosen = Copy(topics_of.look_up(source), topics_of.look_up(target), columns_of)
        name = transactional_id or f"topic-copies/{source}/{target}/{chosen.target.incarnation}"
        with out.progress("copying", unit="records") as advance:
            total: list[int] = []

            def tell(left: int) -> None:
                total.append(left)
                advance(completed=total[0] - left, total=total[0])

            copied = copy_records(
                engine, chosen, name, slice_records=slice_records or SLICE_RECORDS, progress=tell
            )
    out.done()
    out.line(
        f"copied {number_of(copied, 'record')} of {source} to {target}",
        source=source,
        target=target,
        records=copied,
        transactional_id=name,
    )


@topics.command(
    context_settings=SETTINGS,
    short_help="Show what a topic holds; with --execute, delete it.",
    examples=("txn-engine topics delete payments", "txn-engine topics delete payments --execute"),
)
@click.argument("topic")
@execute_options
@common_options
def delete(topic: str, execute: bool, place: Place, out: Output) -> None:
    """Show what TOPIC holds; with --execute, delete it.

    Its name is free at once, and a topic that is created under this name again is a new, empty one. Its objects are
    deleted by `maintain clean`, 24 hours later.
    """
    with place.open() as engine:
        if execute:
            engine.admin.delete_topic(topic)
            out.done()
            out.line(f"deleted topic {topic}", topic=topic, deleted=True, executed=True)
            return
        if topic in {each.topic for each in engine.lost_topics()}:
            seen = f"would record that topic {topic}, which was lost, is gone"
            out.line(seen, topic=topic, deleted=False, executed=False, partition_count=0, records=0)
            out.note(PREVIEWED)
            return
        found = engine.admin.measure_partitions(topic)
    records = sum(at.readable.records for at in found)
    partitions = len(found) + len(found.unreadable)
    out.line(
        f"would delete topic {topic}: {number_of(partitions, 'partition')}, {number_of(records, 'record')}",
        topic=topic,
        deleted=False,
        executed=False,
        partition_count=partitions,
        records=records,
        **as_fields(found.unreadable),
    )
    out.note(PREVIEWED)
    fail_for(found.unreadable, out)


topics.add_command(infer)
