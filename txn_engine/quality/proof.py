"""A proof as a durable thing: what was proved, up to which offsets, and which proof it goes on from.

On the store a proof is `proofs/<topic>/<incarnation>/<number, 20 digits>.json`, and each partition's ranges and digests
a Parquet object that it names (docs/FORMAT.md). The JSON is put if absent, and last: of two provers one has the number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
import xxhash

from storage import decode_parquet, encode_parquet
from txn_engine.errors import CorruptObjectError
from txn_engine.log.objects import Objects, decode_json, encode_json, store_errors
from txn_engine.quality.declaration import ACTOR, Declaration
from txn_engine.quality.digest import Digest

Held = TypeVar("Held")

FOLDER: Final = "proofs"
_KIND, _RANGES_KIND = "proof", "proof-ranges"
_JSON_BYTES_MAX: Final = 1 << 20
_TIME_MS_MAX: Final = 253_402_300_799_999  # the year 9999
_RANGES_BYTES_MAX: Final = 64 << 20
_NUMBERED: Final = re.compile(r"([0-9]{20})\.json")
_HEX: Final = re.compile(r"[0-9a-f]{32}")
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_INT64_MAX: Final = 2**63 - 1
_FIELDS: list[Any] = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("incarnation", pa.int64(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("start_offset", pa.int64(), nullable=False),
    pa.field("end_offset", pa.int64(), nullable=False),
    pa.field("records", pa.int64(), nullable=False),
    pa.field("digest", pa.string(), nullable=False),
]
_RANGES: Final = pa.schema(_FIELDS)
_RANGES_OF_VERSIONS: Final = pa.schema([*_FIELDS, pa.field("schema_version", pa.int32(), nullable=False)])
"""Where a digest is of another version than the first: programs that know only that one refuse such topics."""


@dataclass(frozen=True, slots=True)
class ProvedRange:
    """Records of a partition from `start_offset` to below `end_offset` that the chain has proved so far, with their
    digest by the columns of that version of the topic's schema. A partition whose topic's columns changed within a
    chain has several, one behind the other.
    """

    topic: str
    incarnation: int
    partition: int
    start_offset: int
    end_offset: int
    digest: Digest
    schema_version: int = 0

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class ProvedCheck:
    """A check's outcome; `examples` are hashes of the rows that the report shows, which may be gone one day."""

    name: str
    status: str
    total: int
    wrong: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """One link of a chain.

    `number`: its place in the folder. `first`: the number at which the chain began, and `began` why it did. `since`:
    the number of the proof from whose ends on this one looked at records; its own where it looked at all of them.
    `parent`: the hash of the JSON before it, empty for the first of all. `declaration`: a hash of what was declared.
    `positions`: the group's committed offsets, by partition. `cut`: as of which; -1: of the store as it was then.
    `schema_versions`: by topic, the version of its schema by whose columns the run judged; a topic that is not named:
    by those that it was made with. `again`: by topic and partition, the offsets whose data files it read again, though
    an earlier proof had read them; empty where no file's turn had come. `turns`: where the next proof goes on with
    that, so that all of them are read again in turn.
    `erasures`: by topic, how many there had been when the run began; a topic of which one was under way is not named.
    """

    number: int
    first: int
    since: int
    parent: str
    began: str
    topic: str
    incarnation: int
    created_ms: int
    run_name: str
    engine: str
    version: str
    declaration: str
    success: bool
    checks: tuple[ProvedCheck, ...]
    ranges: tuple[ProvedRange, ...]
    group_id: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    ranges_object: str = ""
    cut: int = -1
    schema_versions: Mapping[str, int] = field(default_factory=dict)
    again: Mapping[tuple[str, int], range] = field(default_factory=dict)
    turns: Mapping[tuple[str, int], int] = field(default_factory=dict)
    erasures: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether it looked at every record."""
        return self.since == self.number

    @property
    def scope(self) -> str:
        """What it looked at, in words."""
        at = f", as of cut {self.cut}" if self.cut >= 0 else ""
        at += "".join(
            f", by version {version} of the columns of {topic}"
            for topic, version in sorted(self.schema_versions.items())
            if version
        )
        if not self.is_whole:
            return (
                f"what is new since proof {self.since}{at}; of older data files names and sizes, and the contents of"
                f" {_told_again(self.again)}; the rest is taken over from proof {self.since}"
            )
        return f"everything{at} ({self.began})" if self.began else f"everything{at}"

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Up to where each partition is proved."""
        found: dict[tuple[str, int], int] = {}
        for each in self.ranges:
            found[each.place] = max(each.end_offset, found.get(each.place, 0))
        return found

    @property
    def starts(self) -> dict[tuple[str, int], int]:
        """From where on each partition is proved."""
        found: dict[tuple[str, int], int] = {}
        for each in self.ranges:
            found[each.place] = min(each.start_offset, found.get(each.place, each.start_offset))
        return found


_TOLD_PARTITIONS: Final = 3


def _told_again(again: Mapping[tuple[str, int], range]) -> str:
    told = [
        f"{topic}-{partition} offsets {offsets.start:,} to {offsets.stop - 1:,}"
        for (topic, partition), offsets in sorted(again.items())
        if offsets
    ]
    more = f" and of {len(told) - _TOLD_PARTITIONS} more partitions" if len(told) > _TOLD_PARTITIONS else ""
    return ", ".join(told[:_TOLD_PARTITIONS]) + more if told else "none of them"


def hash_of(declaration: Declaration) -> str:
    """A hash of what is declared: another declaration proves something else, and begins a chain of its own. Suites are
    held against rows that were proved before as well: they are no part of it.
    """
    declared = replace(declaration, suites=())
    return xxhash.xxh3_128_hexdigest(repr(_plain(declared)).encode())


def _plain(value: Any) -> Any:
    """The values in an order that does not depend on how they were given, each under the name of its class."""
    if is_dataclass(value):
        held = [(each.name, _plain(getattr(value, each.name))) for each in fields(value)]
        return [type(value).__name__, *held]
    if isinstance(value, Mapping):
        return sorted((str(name), _plain(held)) for name, held in value.items())
    if isinstance(value, (tuple, list)):
        return [_plain(held) for held in value]
    return value


class ProofShelf:
    """The proofs of one incarnation of a topic."""

    def __init__(self, objects: Objects, topic: str, incarnation: int) -> None:
        self._objects = objects
        self._topic = topic
        self._incarnation = incarnation
        self._folder = f"{FOLDER}/{topic}/{incarnation}"

    def numbers(self, *, behind: int = -1) -> list[int]:
        """Those that are there, upwards; of higher numbers than `behind`."""
        found = []
        start = self._key(behind) if behind >= 0 else None
        for info in self._objects.infos(f"{self._folder}/", start_after=start):
            match = _NUMBERED.fullmatch(info.key.removeprefix(f"{self._folder}/"))
            if match is not None:
                found.append(int(match[1]))
        return sorted(found)

    def read(self, number: int, *, with_ranges: bool = True) -> tuple[Proof, str]:
        """The proof and the hash of its JSON. Raises `CorruptObjectError` for one that is damaged, or is not there."""
        key = self._key(number)
        data = bytes(self._objects.read(key, max_bytes=_JSON_BYTES_MAX))
        try:
            held = decode_json(data, key=key, kind=_KIND, needed=_NEEDED)
            proof = self._decoded(held, number, with_ranges=with_ranges)
        except (KeyError, TypeError, ValueError) as error:
            raise self._odd(key, type(error).__name__) from error
        if (proof.topic, proof.incarnation, proof.number) != (self._topic, self._incarnation, number):
            raise self._odd(key, f"proof {proof.number} of {proof.topic}, incarnation {proof.incarnation}")
        return proof, xxhash.xxh3_128_hexdigest(data)

    def put(self, proof: Proof) -> bool:
        """Add the proof under its number; False where there is one of that number already."""
        ranges = encode_parquet(_table(proof.ranges), kind=_RANGES_KIND)
        name = f"{proof.number:020d}-{xxhash.xxh3_128_hexdigest(ranges)}.parquet"
        with store_errors():
            self._objects.create(f"{self._folder}/{name}", ranges, max_bytes=_RANGES_BYTES_MAX)
            data = encode_json(_fields(proof, name), _KIND)
            won = self._objects.create(self._key(proof.number), data, max_bytes=_JSON_BYTES_MAX).won
            self._objects.confirm()
            return won

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"

    def _decoded(self, held: Mapping[str, Any], number: int, *, with_ranges: bool) -> Proof:
        for name in _TEXTS:
            _of_type(held[name], str)
        for name in _NUMBERS:
            _whole(held[name])
        if (
            not held["first"] <= held["since"] <= held["number"] == number
            or type(held["success"]) is not bool
            or held["created_ms"] > _TIME_MS_MAX
        ):
            raise ValueError("numbers that no proof has")
        name = held["ranges_object"]
        if name.rpartition("/")[0] or not name.startswith(f"{number:020d}-"):
            raise ValueError("an object of another proof")
        return Proof(
            **{name: held[name] for name in (*_TEXTS, *_NUMBERS)},
            success=held["success"],
            checks=tuple(_check(each) for each in _of_type(held["checks"], list)),
            ranges=self._ranges(name) if with_ranges else (),
            cut=_cut(held.get("cut", -1)),
            schema_versions=_counts(held.get("schema_versions", {})),
            erasures=_counts(held["erasures"]),
            positions=_positions(held["positions"]),
            again=_again(held.get("again", [])),
            turns=_turns(held.get("turns", [])),
        )

    def _ranges(self, name: str) -> tuple[ProvedRange, ...]:
        key = f"{self._folder}/{name}"
        data = bytes(self._objects.read(key, max_bytes=_RANGES_BYTES_MAX))
        if name != f"{name[:20]}-{xxhash.xxh3_128_hexdigest(data)}.parquet":
            raise self._odd(key, "other bytes than its name says")
        with store_errors():
            table, _ = decode_parquet(data, key=key, kind=_RANGES_KIND)
        if table.schema not in (_RANGES, _RANGES_OF_VERSIONS):
            raise self._odd(key, f"columns {table.schema.names}"[:200])
        return tuple(_range(row) for row in table.to_pylist())

    def _odd(self, key: str, seen: str) -> CorruptObjectError:
        return CorruptObjectError(
            seen,
            actor=ACTOR,
            place=key,
            expected="a proof as it was written",
            action="the next proof is a whole one",
        )


def _of_type(held: object, kind: type[Held]) -> Held:
    """The value of a field. Raises TypeError where it is of another type, and of one derived from it."""
    if type(held) is not kind:
        raise TypeError("a field of another type")
    return held


def _whole(held: object, *, at_least: int = 0) -> int:
    """A count, an offset or a number. Raises TypeError or ValueError for anything else."""
    number = _of_type(held, int)
    if not at_least <= number <= _INT64_MAX:
        raise ValueError("a number that no proof has")
    return number


def _cut(held: object) -> int:
    """Proofs of earlier versions name none."""
    return _whole(held, at_least=-1)


def _counts(held: object) -> dict[str, int]:
    """A number for each topic."""
    return {topic: _whole(number) for topic, number in _of_type(held, dict).items()}


def _positions(held: object) -> dict[int, int]:
    found = {}
    for partition, offset in _of_type(held, dict).items():
        if _DIGITS.fullmatch(partition) is None:
            raise ValueError("a partition that no topic has")
        found[int(partition)] = _whole(offset)
    return found


def _again(held: object) -> dict[tuple[str, int], range]:
    """`[topic, partition, start, end]` each. Proofs of earlier versions name none."""
    found = {}
    for each in _of_type(held, list):
        topic, partition, start, end = _of_type(each, list)
        found[_of_type(topic, str), _whole(partition)] = range(_whole(start), _whole(end))
    return found


def _turns(held: object) -> dict[tuple[str, int], int]:
    """`[topic, partition, offset]` each. Proofs of earlier versions name none."""
    found = {}
    for each in _of_type(held, list):
        topic, partition, offset = _of_type(each, list)
        found[_of_type(topic, str), _whole(partition)] = _whole(offset)
    return found


def _check(held: object) -> ProvedCheck:
    check = _of_type(held, dict)
    name, status = (_of_type(check[each], str) for each in ("name", "status"))
    total, wrong = (_whole(check[each]) for each in ("total", "wrong"))
    examples = tuple(_of_type(each, str) for each in _of_type(check["examples"], list))
    return ProvedCheck(name, status, total, wrong, examples)


_TEXTS: Final = (
    "parent",
    "began",
    "topic",
    "run_name",
    "engine",
    "version",
    "declaration",
    "group_id",
    "ranges_object",
)
_NUMBERS: Final = ("number", "first", "since", "incarnation", "created_ms")
_NEEDED: Final = frozenset(each.name for each in fields(Proof)) - {
    "ranges",
    "cut",
    "schema_versions",
    "again",
    "turns",
}


def _fields(proof: Proof, ranges_object: str) -> dict[str, Any]:
    held = {
        each.name: getattr(proof, each.name)
        for each in fields(proof)
        if each.name not in ("ranges", "checks", "again", "turns")
    }
    held |= {
        "checks": [asdict(check) for check in proof.checks],
        "positions": {str(partition): offset for partition, offset in proof.positions.items()},
        "ranges_object": ranges_object,
        "again": [[*place, offsets.start, offsets.stop] for place, offsets in sorted(proof.again.items())],
        "turns": [[*place, offset] for place, offset in sorted(proof.turns.items())],
    }
    return held


def _table(ranges: tuple[ProvedRange, ...]) -> pa.Table:
    rows = [
        {
            "topic": each.topic,
            "incarnation": each.incarnation,
            "partition": each.partition,
            "start_offset": each.start_offset,
            "end_offset": each.end_offset,
            "records": each.digest.rows,
            "digest": each.digest.hex,
            "schema_version": each.schema_version,
        }
        for each in ranges
    ]
    is_plain = all(each.schema_version == 0 for each in ranges)
    return pa.Table.from_pylist(rows, schema=_RANGES if is_plain else _RANGES_OF_VERSIONS)


def _range(row: Mapping[str, Any]) -> ProvedRange:
    if (
        _HEX.fullmatch(row["digest"]) is None
        or not 0 <= row["start_offset"] <= row["end_offset"]
        or row["records"] < 0
    ):
        raise ValueError("a range that no partition has")
    version = row.get("schema_version", 0)
    if version < 0:
        raise ValueError("a version that no schema has")
    digest = Digest(row["records"], int(row["digest"][16:], 16), int(row["digest"][:16], 16))
    return ProvedRange(
        row["topic"],
        row["incarnation"],
        row["partition"],
        row["start_offset"],
        row["end_offset"],
        digest,
        version,
    )
