"""`txn-engine bench --kafka`: a transaction of ours beside one of Kafka's, on the same machine, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from storage import open_store
from txn_engine.bench.blocks import Side, blocks_in_turn
from txn_engine.bench.kafka_wire import KafkaWatch
from txn_engine.bench.measure import ratio_of
from txn_engine.bench.payments import SCHEMA
from txn_engine.bench.progress import Progress
from txn_engine.bench.transactions import PARTITIONS, ROWS, Ours, Seconds, batches
from txn_engine.bench.watched import watching
from txn_engine.engine import Engine
from txn_engine.errors import InvalidRequestError, StoreUnavailableError

if TYPE_CHECKING:
    from confluent_kafka import Producer as ConfluentProducer
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
ANSWER_S = 30.0
_AIM = 1.1
_PEER = "confluent-kafka"


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure in ms of ours and of Kafka's; `ratio` is the median of the rounds' own, `aim` its limit."""

    name: str
    ours_p50: float
    ours_p99: float
    kafka_p50: float
    kafka_p99: float
    ratio: float
    rounds: int
    note: str
    aim: float | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: transactions in turn, behind so many to warm up; blocks of transactions without a pause."""

    warm_up: int
    rounds: int
    blocks: int
    block: int


QUICK, USUAL = Size(20, 40, 3, 20), Size(20, 300, 10, 50)


def kafka_report(
    url: str,
    bootstrap: str,
    name: str,
    *,
    size: Size,
    progress: Progress,
    answer_s: float = ANSWER_S,
) -> dict[str, Any]:
    """Run transactions of the same values on both, in turn, in a topic and under an id of that name. Returns the
    document that `--json` prints.

    answer_s: how long to wait for the broker's first answer. Raises `InvalidRequestError` if confluent-kafka is missing
    or the cluster has more than one broker, and `StoreUnavailableError` if no broker answers.
    """
    parts = batches()
    theirs = _Kafka(bootstrap, name, parts, answer_s)
    try:
        store = watching(open_store(url))
        with Engine(store) as engine, engine.producer(transactional_id=name) as producer:
            engine.admin.create_topic(name, partitions=PARTITIONS, schema=SCHEMA, key="account_id")
            producer.init_transactions()
            ours = Ours(store, producer, name, parts)
            rows = _in_turn(ours, theirs, size, progress) + _back_to_back(ours, theirs, size, progress)
            engine.admin.delete_topic(name)
    finally:
        theirs.close()
    return {
        "bench": "kafka",
        "store": engine.url,
        "broker": bootstrap,
        "peer": f"{_PEER} {theirs.version}",
        "objects": ours.objects(),
        "rows": [asdict(row) for row in rows],
    }


def _in_turn(ours: Ours, theirs: _Kafka, size: Size, progress: Progress) -> list[Beside]:
    """Each transaction from a coordinator at rest."""
    for number in range(size.warm_up + size.rounds):
        progress("transactions, in turn", number, size.warm_up + size.rounds)
        pair: list[Callable[[], None]] = [ours.timed, theirs.timed]
        for transact in pair if number % 2 else reversed(pair):
            transact()
    mine, his = ours.seconds()[size.warm_up :], theirs.done[size.warm_up :]
    return [
        _beside("to the commit's return", mine, his, lambda s: s.returned,
                "theirs returns before readers see anything"),
        _beside("to visible", mine, his, lambda s: s.visible,
                "a read_committed reader that looks then sees it", _AIM),
        _beside("to complete", mine, his, lambda s: s.complete,
                "the coordinator's Complete row is written: the id's next transaction need not wait"),
    ]  # fmt: skip


def _beside(
    name: str,
    mine: Sequence[T],
    his: Sequence[T],
    of: Callable[[T], float],
    note: str,
    aim: float | None = None,
) -> Beside:
    a, b = [of(each) for each in mine], [of(each) for each in his]
    return Beside(name, _p50(a), _p99(a), _p50(b), _p99(b), ratio_of(a, b), len(a), note, aim)


def _back_to_back(ours: Ours, theirs: _Kafka, size: Size, progress: Progress) -> list[Beside]:
    mine, his = blocks_in_turn(
        Side(ours.transact, ours.rest),
        Side(theirs.transact, theirs.rest),
        blocks=size.blocks,
        size=size.block,
        progress=partial(progress, "transactions, back to back"),
    )
    note = f"blocks of {size.block} without a pause"
    return [
        _beside("back to back, each", mine, his, lambda b: b.seconds, note),
        _beside("processor time, each", mine, his, lambda b: b.processor, f"{note}; of this process alone"),
    ]


def _p50(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1e3


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[max(0, -(-99 * len(seconds) // 100) - 1)] * 1e3


# --- Kafka's side -----------------------------------------------------------------------------------------------------


class _Kafka:
    """A transactional producer of Kafka's; what it did is in `done`."""

    def __init__(self, bootstrap: str, name: str, parts: Sequence[pa.Table], answer_s: float) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient

        self.version = confluent_kafka.version()
        self.done: list[Seconds] = []
        self._name = name
        self._records = [_records(part) for part in parts]
        self._ends = 0
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(settings)
        host, port = _only_broker(self._admin, bootstrap, answer_s)
        _make_topic(self._admin, name)
        self._producer: ConfluentProducer = confluent_kafka.Producer(
            {**settings, "transactional.id": name, "linger.ms": 0}
        )
        self._producer.init_transactions(ANSWER_S)
        self._watch = KafkaWatch(host, port)

    def transact(self) -> None:
        """One transaction, a record a row, none awaited."""
        self._producer.begin_transaction()
        produce = self._producer.produce
        for number, records in enumerate(self._records):
            for key, value in records:
                produce(self._name, value, key, number)
        self._producer.commit_transaction(ANSWER_S)
        self._ends += ROWS + 1

    def rest(self) -> None:
        """Wait until the last one is complete."""
        self._first_moment(self._is_complete)

    def timed(self) -> None:
        """One transaction, noted."""
        began = time.perf_counter()
        self.transact()
        returned = time.perf_counter()
        visible = self._first_moment(self._is_visible)
        complete = self._first_moment(self._is_complete)
        self.done.append(
            Seconds(returned - began, max(visible, returned) - began, max(complete, returned) - began)
        )

    def _first_moment(self, question: Callable[[], bool]) -> float:
        """When the question was asked that was answered with yes: known to within one request, and rather early."""
        deadline = time.perf_counter() + ANSWER_S
        while True:
            asked = time.perf_counter()
            if question():
                return asked
            if asked > deadline:
                raise StoreUnavailableError(
                    "a transaction of Kafka's that is not complete", actor="bench", place=self._name
                )

    def _is_visible(self) -> bool:
        return min(self._watch.last_stable_offsets(self._name, PARTITIONS)) >= self._ends

    def _is_complete(self) -> bool:
        return self._watch.transaction_state(self._name) == "CompleteCommit"

    def close(self) -> None:
        """Remove the topic, and let go."""
        for done in self._admin.delete_topics([self._name]).values():
            done.result(ANSWER_S)
        self._watch.close()


def _records(part: pa.Table) -> list[tuple[bytes, bytes]]:
    """Key and value of each row, as text: encoded before the clock runs."""
    rows = part.to_pylist()
    return [(str(row["account_id"]).encode(), ",".join(map(str, row.values())).encode()) for row in rows]


def _only_broker(admin: AdminClient, bootstrap: str, answer_s: float) -> tuple[str, int]:
    """Where the broker is."""
    from confluent_kafka import KafkaException

    try:
        brokers = list(admin.list_topics(timeout=answer_s).brokers.values())
    except KafkaException as error:
        raise StoreUnavailableError(
            f"no Kafka broker answers ({error.args[0].str()})", actor="bench", place=bootstrap
        ) from error
    if len(brokers) != 1:
        raise InvalidRequestError(
            f"a cluster of {len(brokers)} brokers", actor="bench", place=bootstrap, expected="a single broker"
        )
    return str(brokers[0].host), brokers[0].port


def _make_topic(admin: AdminClient, name: str) -> None:
    from confluent_kafka.cimpl import NewTopic

    topic = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
    for done in admin.create_topics([topic]).values():
        done.result(ANSWER_S)
