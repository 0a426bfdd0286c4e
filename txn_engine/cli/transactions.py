"""`txn-engine transactions`: what kafka-transactions.sh shows and does."""

from __future__ import annotations

import click

from txn_engine.cli.command import SETTINGS, Group, Place, check_partition_has_topic, common_options
from txn_engine.cli.damage import as_fields, fail_for
from txn_engine.cli.output import Output, columns

LIST = columns("TransactionalId", "Coordinator>", "ProducerId>", "TransactionState")
DESCRIBE = columns(
    "CoordinatorId>",
    "TransactionalId",
    "ProducerId>",
    "ProducerEpoch>",
    "TransactionState",
    "TransactionTimeoutMs>",
    "CurrentTransactionStartTimeMs>",
    "TransactionDurationMs>",
    "TopicPartitions",
)
PRODUCERS = columns(
    "ProducerId>",
    "ProducerEpoch>",
    "LatestCoordinatorEpoch>",
    "LastSequence>",
    "LastTimestamp>",
    "CurrentTransactionStartOffset>",
)
HANGING = columns(
    "Topic",
    "Partition>",
    "ProducerId>",
    "ProducerEpoch>",
    "CoordinatorEpoch>",
    "StartOffset>",
    "LastTimestamp>",
    "Duration(min)>",
)
_MINUTE_MS = 60_000


@click.group(cls=Group, short_help="Look at transactions; find, abort and fence them.")
def transactions() -> None:
    """Look at transactions, and end those that nobody else will.

    A transaction whose producer died is aborted by `coordinator sweep` once its timeout is over. `fence` ends one
    before that; `find-hanging` and `abort` are for one that no coordinator row explains.
    """


@transactions.command(
    "list",
    context_settings=SETTINGS,
    examples=(
        "txn-engine transactions list --state Ongoing",
        "txn-engine transactions list --state Ongoing --duration-filter 60000 --transactional-id-pattern 'load-.*'",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help=(
        "Only these: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort. Repeatable."
    ),
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=int,
    multiple=True,
    metavar="ID",
    help="Only of these producer ids. Repeatable.",
)
@click.option(
    "--duration-filter",
    "duration_ms",
    type=int,
    metavar="MS",
    help=(
        "Only those begun more than so many milliseconds ago. As in Kafka, ids that never had a transaction "
        "count as well: add --state Ongoing."
    ),
)
@click.option(
    "--transactional-id-pattern",
    "pattern",
    metavar="REGEX",
    help="Only ids that match the whole regular expression.",
)
@common_options
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_ms: int | None,
    pattern: str | None,
    place: Place,
    out: Output,
) -> None:
    """List transactional ids and the state each is in.

    Coordinator is the partition of __transaction_state that keeps the id.
    """
    with place.open() as engine:
        listed = engine.admin.list_transactions(states or None, producer_ids or None, duration_ms, pattern)
        rows = [
            {
                "transactional_id": found.transactional_id,
                "coordinator": engine.admin.coordinator_partition(found.transactional_id),
                "producer_id": found.producer_id,
                "transaction_state": found.state,
            }
            for found in listed
        ]
    out.table("transactions", LIST, rows, **as_fields(listed.unreadable))
    fail_for(listed.unreadable, out)


@transactions.command(context_settings=SETTINGS, examples=("txn-engine transactions describe load-payments",))
@click.argument("id", required=False)
@click.option("--transactional-id", metavar="ID", help="The id, as kafka-transactions.sh takes it.")
@common_options
def describe(id: str | None, transactional_id: str | None, place: Place, out: Output) -> None:  # noqa: A002
    """Show all about one transactional ID.

    Start and duration are in milliseconds, by the log's time, as time-outs are judged; None where no transaction is
    open or waits for its markers.
    """
    name = one_name(id, transactional_id, "ID")
    with place.open() as engine:
        found = engine.admin.describe_transaction(name)
        coordinator = engine.admin.coordinator_partition(name)
    row = {
        "coordinator_id": coordinator,
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transaction_state": found.state,
        "transaction_timeout_ms": found.transaction_timeout_ms,
        "current_transaction_start_time_ms": found.began_ms if found.began_ms >= 0 else None,
        "transaction_duration_ms": found.age_ms if found.age_ms >= 0 else None,
        "topic_partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in found.partitions],
    }
    if out.as_json:
        out.document(row)
    else:
        out.table("transactions", DESCRIBE, [row])


@transactions.command(
    "describe-producers",
    context_settings=SETTINGS,
    examples=("txn-engine transactions describe-producers --topic payments --partition 0",),
)
@click.option("--topic", required=True, metavar="TOPIC", help="The topic.")
@click.option("--partition", type=int, required=True, metavar="N", help="The partition.")
@common_options
def describe_producers(topic: str, partition: int, place: Place, out: Output) -> None:
    """Show what a partition remembers of each producer.

    CurrentTransactionStartOffset is where its open transaction begins, None where none is open. LastTimestamp in
    milliseconds since the epoch.
    """
    with place.open() as engine:
        found = engine.admin.describe_producers(topic, partition)
    rows = [
        {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "latest_coordinator_epoch": state.coordinator_epoch,
            "last_sequence": state.last_sequence,
            "last_timestamp": state.last_timestamp_ms,
            "current_transaction_start_offset": None
            if state.current_transaction_start_offset < 0
            else state.current_transaction_start_offset,
        }
        for state in found
    ]
    out.table("producers", PRODUCERS, rows)


@transactions.command(
    "find-hanging",
    context_settings=SETTINGS,
    short_help="Find open transactions that nobody will end.",
    examples=(
        "txn-engine transactions find-hanging",
        "txn-engine transactions find-hanging --topic payments --max-transaction-timeout 5",
    ),
)
@click.option("--topic", metavar="TOPIC", help="Only this topic; all of them when none is named.")
@click.option("--partition", type=int, metavar="N", help="Only this partition of the topic.")
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(min=0),
    default=15,
    metavar="MINUTES",
    help="How long a transaction may be open before it can count as hanging.",
)
@common_options
def find_hanging(topic: str | None, partition: int | None, minutes: int, place: Place, out: Output) -> None:
    """Find transactions that are open on a partition, and that no coordinator row explains.

    They hold back read_committed readers for ever: `transactions abort` ends them.
    """
    check_partition_has_topic(topic, partition)
    with place.open() as engine:
        found = engine.admin.find_hanging_transactions(
            topic, partition, max_transaction_timeout_ms=minutes * _MINUTE_MS
        )
    rows = [
        {
            "topic": hanging.topic,
            "partition": hanging.partition,
            "producer_id": hanging.producer_id,
            "producer_epoch": hanging.producer_epoch,
            "coordinator_epoch": hanging.coordinator_epoch,
            "start_offset": hanging.start_offset,
            "last_timestamp": hanging.last_timestamp_ms,
            "duration_min": hanging.duration_ms // _MINUTE_MS,
        }
        for hanging in found
    ]
    out.table("hanging_transactions", HANGING, rows, **as_fields(found.unreadable))
    fail_for(found.unreadable, out)


@transactions.command(
    context_settings=SETTINGS,
    examples=(
        "txn-engine transactions abort --topic payments --partition 0 --start-offset 4711 --dry-run",
        "txn-engine transactions abort --topic payments --partition 0 --start-offset 4711",
    ),
)
@click.option("--topic", required=True, metavar="TOPIC", help="The topic.")
@click.option("--partition", type=int, required=True, metavar="N", help="The partition.")
@click.option(
    "--start-offset", type=int, required=True, metavar="OFFSET", help="Where the transaction begins."
)
@click.option("--dry-run", is_flag=True, help="Check that it could be aborted, and write nothing.")
@common_options
def abort(topic: str, partition: int, start_offset: int, dry_run: bool, place: Place, out: Output) -> None:
    """End a hanging transaction with an abort marker, at once, as kafka-transactions.sh does.

    Refused while a coordinator still has the transaction: let that end, fence its id, or sweep.
    """
    with place.open() as engine:
        engine.admin.abort_transaction(topic, partition, start_offset, dry_run=dry_run)
    if not dry_run:
        out.done()
    verb = "would abort" if dry_run else "aborted"
    out.line(
        f"{verb} the transaction from offset {start_offset} of {topic}-{partition}",
        topic=topic,
        partition=partition,
        start_offset=start_offset,
        aborted=not dry_run,
        dry_run=dry_run,
    )


@transactions.command(
    context_settings=SETTINGS,
    short_help="Shut out a producer and abort what it has open.",
    examples=("txn-engine transactions fence load-payments load-refunds",),
)
@click.argument("ids", nargs=-1, required=True)
@common_options
def fence(ids: tuple[str, ...], place: Place, out: Output) -> None:
    """Shut out whoever writes under these transactional IDS, and abort what they have open."""
    with place.open() as engine:
        for name in ids:  # an id that was never used would be made by fencing it
            engine.admin.describe_transaction(name)
        fenced = engine.admin.fence_producers(ids)
    out.done()
    rows = [
        {"transactional_id": name, "producer_id": held.producer_id, "producer_epoch": held.producer_epoch}
        for name, held in fenced.items()
    ]
    out.table("fenced", columns("TransactionalId", "ProducerId>", "ProducerEpoch>"), rows)


def one_name(argument: str | None, option: str | None, metavar: str) -> str:
    """The name that was given as argument or, as Kafka's tools have it, as option."""
    names = {name for name in (argument, option) if name is not None}
    if len(names) != 1:
        raise click.UsageError(f"missing {metavar}" if not names else f"two different {metavar}s")
    return names.pop()
