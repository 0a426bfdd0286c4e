"""`store.json`: what everybody who opens the store must agree on, written once (PROTOCOL.md, section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from storage import (
    FORMAT,
    JSON_BYTES_MAX,
    LATER_FORMAT,
    ObjectStore,
    objects_around,
    objects_below,
    prove_put_if_absent,
    store_below,
)
from txn_engine.clock import Clock
from txn_engine.errors import (
    ConcurrentTransactionsError,
    CorruptObjectError,
    InvalidConfigError,
    InvalidRequestError,
    UnsupportedFormatError,
)
from txn_engine.ids import IdSource
from txn_engine.log.objects import (
    Objects,
    check_fields,
    checked_number,
    checked_text,
    decode_json,
    encode_json,
    store_errors,
)
from txn_engine.log.store_identity import STORE_KEY, STORE_KIND
from txn_engine.protocol.log_time import bounded_time
from txn_engine.reasons import Reason

RESTORED_KEY = "restored.json"
_ROOTS: Final = "restored"
_OPTIONAL: Final = ("restored", "root", "former_ids")
TRANSACTION_STATE_TOPIC = "__transaction_state"
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
MAX_PARTITIONS = 10_000
"""Of any topic."""
_INTERNAL_TOPICS = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
_PARTITIONS_MAX = 10_000
LIMITS: Final = {
    "transaction.max.timeout.ms": "max_transaction_timeout_ms",
    "transactional.id.expiration.ms": "transactional_id_expiration_ms",
    "producer.id.expiration.ms": "producer_id_expiration_ms",
    "offsets.retention.minutes": "offsets_retention_minutes",
}
"""The settings that may change, by Kafka's names: the fields of `StoreLimits`."""
COUNTS: Final = {
    "transaction.state.log.num.partitions": TRANSACTION_STATE_TOPIC,
    "offsets.topic.num.partitions": CONSUMER_OFFSETS_TOPIC,
}
"""Those that stay: the internal topics whose partitions they count."""
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits that hold for every client of the store (Kafka's broker settings of those names), in ms.

    `store.json` has those with which the store began; what counts is what `StoreSettings` says.
    """

    max_transaction_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    offsets_retention_minutes: int = -1

    @property
    def offsets_retention_ms(self) -> int | None:
        """How long a group's offset is kept without a commit; None: for ever."""
        return None if self.offsets_retention_minutes < 0 else self.offsets_retention_minutes * 60_000


@dataclass(frozen=True, slots=True)
class Restoring:
    """What a store was restored from: which backup of which place, of which store at which of its cuts, and when.

    first_block: of its producer ids. No life of the store it is of, nor one restored before, has given any so high.
    """

    backup_id: str
    number: int
    store_id: str
    cut: int
    restored_ms: int
    first_block: int


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The store's format, limits, internal partition counts, and the proof that it can keep the protocol.

    former_ids: those that a copy had before it got an id of its own, the last one last; what its cuts and tables say.
    restored: None for a store that was not. root: the folder of the place that the store is in; "": the place itself.
    """

    store_id: str
    created_ms: int
    put_if_absent_proof: Mapping[str, Any]
    limits: StoreLimits = StoreLimits()
    internal_partitions: Mapping[str, int] = field(
        default_factory=lambda: {TRANSACTION_STATE_TOPIC: 50, CONSUMER_OFFSETS_TOPIC: 50}
    )
    restored: Restoring | None = None
    root: str = ""
    former_ids: tuple[str, ...] = ()

    @property
    def ids(self) -> frozenset[str]:
        """Those that objects of the store may name."""
        return frozenset((self.store_id, *self.former_ids))

    @property
    def first_id(self) -> str:
        """The id that the store had when its tables were first published, perhaps as the store that it is a copy of."""
        return (*self.former_ids, self.store_id)[0]

    @property
    def first_block(self) -> int:
        """The block of producer ids with which the store begins."""
        return 0 if self.restored is None else self.restored.first_block


def read_store_config(objects: Objects) -> StoreConfig | None:
    """The store's configuration, or None for a store that was never used."""
    data = objects.find(STORE_KEY, max_bytes=JSON_BYTES_MAX)
    return None if data is None else _decode(data)


def open_store_config(
    objects: Objects, clock: Clock, new_id: IdSource, settings: Mapping[str, int] | None = None
) -> StoreConfig:
    """The store's configuration; a fresh store is proven and set up first, with these settings by Kafka's names.

    Raises `StoreAccessError` for a store that does not keep put-if-absent: nothing is set up there;
    `InvalidRequestError` for one that a restore has not finished; `InvalidConfigError` for one that was set up with
    other numbers of partitions than `settings` say.
    """
    config = read_store_config(objects)
    if config is None and (objects.folders("topics") or objects.folders(_ROOTS)):
        config = _set_up_meanwhile(objects)
    if config is None:
        refuse_inside(objects)
        proof = prove(objects.store)
        begun = StoreConfig(new_id(), clock(), proof)
        config = create_store_config(objects, _with_settings(begun, settings or {}))
    _check_fixed(config, settings or {})
    if config.restored is not None and not is_restored(objects, config):
        raise InvalidRequestError(
            f"backup {config.restored.number} is being restored here, or that was cut off",
            place=objects.store.url,
            expected="a restore that has come to its end",
            action="run the `txn-engine restore` again: it goes on; or empty the place",
            reason=Reason.RESTORE_UNFINISHED,
        )
    return config


def _with_settings(config: StoreConfig, settings: Mapping[str, int]) -> StoreConfig:
    limits = {LIMITS[name]: value for name, value in settings.items() if name in LIMITS}
    counts = {COUNTS[name]: value for name, value in settings.items() if name in COUNTS}
    return replace(
        config,
        limits=replace(config.limits, **limits),
        internal_partitions={**config.internal_partitions, **counts},
    )


def _check_fixed(config: StoreConfig, settings: Mapping[str, int]) -> None:
    for name, topic in COUNTS.items():
        if settings.get(name, config.internal_partitions[topic]) != config.internal_partitions[topic]:
            raise InvalidConfigError(
                f"{name} {settings[name]} for a store that was set up with {config.internal_partitions[topic]}",
                actor="store",
                expected="that number, or none: it cannot change any more",
                reason=Reason.FIXED_SETTING,
            )


def create_store_config(objects: Objects, config: StoreConfig) -> StoreConfig:
    """Let this be the store's configuration, put if there is none; the one that there is."""
    return _decode(objects.create(STORE_KEY, _encoded(config), max_bytes=JSON_BYTES_MAX).winner)


def replace_store_config(objects: Objects, config: StoreConfig) -> None:
    """Let this be the store's configuration from now on: for a copy alone, which gets an id of its own.

    `ConcurrentTransactionsError` where somebody else gave it another one at the same time.
    """
    objects.overwrite(STORE_KEY, _encoded(config))
    if read_store_config(objects) != config:
        raise ConcurrentTransactionsError(
            "somebody else gives this store an id at the same time",
            actor="store",
            place=objects.store.url,
            action="look at store.json, and run it again if need be",
        )


def _encoded(config: StoreConfig) -> bytes:
    values = {name: value for name, value in asdict(config).items() if value not in (None, "", ())}
    return encode_json(values, STORE_KIND, written_format=LATER_FORMAT if config.root else FORMAT)


def store_at(place: ObjectStore, config: StoreConfig | None) -> ObjectStore:
    """The store that is at a place, by the configuration that was read there: its keys begin where its root is."""
    if config is None or not config.root:
        return place
    with store_errors():
        return store_below(place, config.root)


def find_store(place: ObjectStore) -> ObjectStore:
    """The store that is at a place; the place itself where none is."""
    return store_at(place, read_store_config(Objects(place)))


def root_of(store_id: str) -> str:
    """The folder of a restored store in its place. No other life of a store there has keys below it."""
    return f"{_ROOTS}/{store_id}"


def refuse_inside(objects: Objects) -> None:
    """Raise `InvalidRequestError` where a fresh store would lie inside another one, at any depth, or around one that is
    in a folder of its place: either would take the other's objects for strange ones. What the credentials may not look
    at is passed over.
    """
    with store_errors():
        found = [
            (url, data, "inside") for url, data in objects_around(objects.store, STORE_KEY, JSON_BYTES_MAX)
        ]
        found += [
            (url, data, "around") for url, data in objects_below(objects.store, STORE_KEY, JSON_BYTES_MAX)
        ]
    for other, data, where in found:
        with suppress(CorruptObjectError, UnsupportedFormatError):  # another program's file of this name
            _values_of_any(data)
            raise InvalidRequestError(
                f"a store {where} the one at {other}",
                actor="store",
                place=objects.store.url,
                expected="a place in no other store, and with no other store in it",
                action="name another place",
                reason=Reason.PLACES_OVERLAP,
            )


def is_restored(objects: Objects, config: StoreConfig) -> bool:
    """Whether the restore that began the store has come to its end. objects: of its place."""
    key = f"{config.root}/{RESTORED_KEY}" if config.root else RESTORED_KEY
    data = objects.find(key, max_bytes=JSON_BYTES_MAX)
    if data is None:
        return False
    decode_json(data, key=key, kind="restored", needed=())
    return True


def prove(store: ObjectStore) -> dict[str, Any]:
    """What shows that the store keeps put-if-absent. Raises `StoreAccessError` where it does not."""
    with store_errors():
        return asdict(prove_put_if_absent(store))


def _set_up_meanwhile(objects: Objects) -> StoreConfig:
    """There are topics: somebody has just set the store up, or `store.json` is gone."""
    config = read_store_config(objects)
    if config is None:
        raise InvalidRequestError(
            "there are topics, but no store.json",
            place=objects.store.url,
            expected="a store with its store.json, or an empty place",
            action="restore store.json from a copy, or name another place",
            reason=Reason.STORE_JSON_GONE,
        )
    return config


def _values(data: bytes) -> dict[str, Any]:
    """The fields. The later format is that of an object with a root alone."""
    try:
        return decode_json(data, key=STORE_KEY, kind=STORE_KIND, needed=())
    except UnsupportedFormatError:
        values = _values_of_any(data)
        if not values.get("root"):
            raise
        return values


def _values_of_any(data: bytes) -> dict[str, Any]:
    return decode_json(
        data, key=STORE_KEY, kind=STORE_KIND, needed=("store_id",), formats=(FORMAT, LATER_FORMAT)
    )


def _decode(data: bytes) -> StoreConfig:
    needed = [each.name for each in fields(StoreConfig) if each.name not in _OPTIONAL]
    values = _values(data)
    check_fields(values, needed, key=STORE_KEY, kind=STORE_KIND)
    limits, counts = values["limits"], values["internal_partitions"]
    for part, names in ((counts, _INTERNAL_TOPICS), (values["put_if_absent_proof"], ())):
        check_fields(part, names, key=STORE_KEY, kind=STORE_KIND)
        if not isinstance(part, dict):
            raise CorruptObjectError(f"{part!r:.80}", place=STORE_KEY, expected="a JSON object")
    return StoreConfig(
        checked_text(values, "store_id", key=STORE_KEY),
        bounded_time(checked_number(values, "created_ms", 0, _INT64_MAX, key=STORE_KEY)),
        values["put_if_absent_proof"],
        decoded_limits(limits, STORE_KEY, "store"),
        {name: checked_number(counts, name, 1, _PARTITIONS_MAX, key=STORE_KEY) for name in _INTERNAL_TOPICS},
        None if values.get("restored") is None else _restoring(values["restored"]),
        _root(values),
        _former_ids(values),
    )


def _former_ids(values: Mapping[str, Any]) -> tuple[str, ...]:
    found = values.get("former_ids", [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each.isprintable() for each in found):
        raise CorruptObjectError(f"former_ids {found!r:.80}", place=STORE_KEY, expected="a list of ids")
    return tuple(found)


def _root(values: Mapping[str, Any]) -> str:
    found = values.get("root", "")
    ids = (*_former_ids(values), values["store_id"])
    if found in ("", *map(root_of, ids)):
        return str(found)
    raise CorruptObjectError(f"root {found!r:.80}", place=STORE_KEY, expected=f"none, or {root_of(ids[-1])}")


def decoded_limits(held: Any, key: str, kind: str) -> StoreLimits:
    """The limits that an object says. `CorruptObjectError` for anything else."""
    later = "offsets_retention_minutes"  # stores of before have none
    named = [each.name for each in fields(StoreLimits) if each.name != later]
    check_fields(held, named, key=key, kind=kind)
    if not isinstance(held, dict):
        raise CorruptObjectError(f"limits {held!r:.80}", place=key, expected="a JSON object")
    found = {name: checked_number(held, name, 1, _INT64_MAX, key=key) for name in named}
    if later in held:
        found[later] = checked_number(held, later, -1, 2**31 - 1, key=key)
    return StoreLimits(**found)


def _restoring(held: Any) -> Restoring:
    check_fields(held, [each.name for each in fields(Restoring)], key=STORE_KEY, kind=STORE_KIND)
    if not isinstance(held, dict):
        raise CorruptObjectError(f"restored {held!r:.80}", place=STORE_KEY, expected="a JSON object")
    number, cut, restored_ms, first_block = (
        checked_number(held, name, 0, _INT64_MAX, key=STORE_KEY)
        for name in ("number", "cut", "restored_ms", "first_block")
    )
    backup_id, store_id = (checked_text(held, name, key=STORE_KEY) for name in ("backup_id", "store_id"))
    return Restoring(backup_id, number, store_id, cut, bounded_time(restored_ms), first_block)
