"""A run and its place in the chain: what it may take from an earlier proof, and what it leaves for the next."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import xxhash

from txn_engine.errors import InvalidRequestError
from txn_engine.installed import version
from txn_engine.log.erasures import ended_erasures
from txn_engine.quality.chain import TopicState, next_link, next_share, read_of
from txn_engine.quality.declaration import Declaration
from txn_engine.quality.digest import Digest
from txn_engine.quality.evidence import ChainDifference, Evidence
from txn_engine.quality.proof import Proof, ProofShelf, ProvedCheck, ProvedRange, hash_of
from txn_engine.quality.reducer import Reducer
from txn_engine.quality.result import CheckResult
from txn_engine.quality.rows import FileRows
from txn_engine.quality.standpoint import Standpoint
from txn_engine.schemas.layout import Schemas
from txn_engine.schemas.plan import sources
from txn_engine.sql.file_parts import FilePart
from txn_engine.types import TopicPartition

if TYPE_CHECKING:
    from txn_engine.engine import Engine


class NumberTakenError(Exception):
    """Another prover has put a proof under this number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"proof {number} is taken")
        self.number = number


class Prover:
    """One run over a declaration, as a link of the topic's chain."""

    def __init__(self, engine: Engine, declaration: Declaration, at: Standpoint, *, whole: bool) -> None:
        self._engine = engine
        self._declaration = declaration
        self._at = at
        self._whole = whole
        self._lives = {topic: at.incarnation(topic) for topic in declaration.topics}
        objects = engine.logs.tools.objects
        self.shelf = ProofShelf(objects, declaration.topic, self._lives[declaration.topic])
        self._erasures = {  # before any record is read: of those that begin from now on the next proof takes note
            topic: ended_erasures(objects, topic, incarnation) for topic, incarnation in self._lives.items()
        }
        self.link = next_link(self.shelf, declaration, self._states())

    @property
    def since(self) -> Mapping[TopicPartition, int]:
        """Up to where an earlier proof may be taken as it is; nothing where all is to be looked at."""
        base = self.link.base
        if base is None or self._whole:
            return {}
        return {TopicPartition(*place): end for place, end in base.ends.items()}

    @property
    def again(self) -> Mapping[TopicPartition, range]:
        """Below `since`, the share whose data files are read again: those that end at these offsets. It goes on where
        the last one ended.
        """
        base = self.link.base
        if base is None or self._whole:
            return {}
        return {
            TopicPartition(*place): next_share(range(base.starts[place], end), base.turns.get(place))
            for place, end in base.ends.items()
        }

    @functools.cached_property
    def _read_again(self) -> Mapping[tuple[str, int], range]:
        """The offsets of the data files that are read again."""
        found = {}
        for place, share in self.again.items():
            live = self._engine.partition(place.topic, place.partition).state.live
            found[place.topic, place.partition] = read_of(
                share, ((file.base_offset, file.last_offset) for file in live.values())
            )
        return found

    def is_behind(self, evidence: Evidence) -> bool:
        """Whether a partition goes less far now than what was proved: where a group's position was moved back."""
        return any(
            evidence.rows[place.topic].ends.get(place.partition, 0) < offset
            for place, offset in self.since.items()
            if place.topic in evidence.rows
        )

    def begin_anew(self, why: str) -> None:
        """Look at everything, as the first link of a chain."""
        self.link = replace(self.link, first=self.link.number, base=None, began=why)

    def _states(self) -> Mapping[str, TopicState]:
        found = {}
        for topic, incarnation in self._lives.items():
            states = [self._at.partition(topic, number) for number in range(self._at.partitions(topic))]
            starts = {state.partition: state.log_start_offset for state in states}
            found[topic] = TopicState(
                incarnation,
                starts,
                any(state.is_compacted for state in states),
                len(self._at.schemas(topic).layouts) - 1,
                self._erasures[topic],
            )
        return found

    def held_against_the_chain(self, evidence: Evidence, reducer: Reducer) -> Evidence:
        """The evidence, with where what the chain has proved is not what is there now; as it is where nothing was
        looked at twice.

        A digest goes by the columns of its version. Where files that were written since have not all of them, it is
        not judged: the chain is not gone on from then.
        """
        base = self.link.base
        if base is None or self.since:
            return evidence
        again = ProvedDigests(evidence, reducer)
        found: list[ChainDifference] = []
        unjudged: dict[tuple[str, int], str] = {}
        for proved in base.ranges:
            if proved.topic not in evidence.rows:
                continue
            try:
                seen = again.digest(proved, base)
            except InvalidRequestError as dropped:
                unjudged[proved.place] = dropped.seen
                continue
            if seen != proved.digest:
                number = self._first_unlike(base, again, proved)
                found.append(ChainDifference(*proved.place, number, str(proved.digest), str(seen)))
        if unjudged:
            (topic, partition), why = next(iter(unjudged.items()))
            self.begin_anew(f"of {topic}-{partition} what was proved cannot be judged: {why}")
        is_judged = len(unjudged) < len(base.ends)
        chain = tuple(found) if found or is_judged else None
        return replace(evidence, chain=chain, chain_unjudged=len(unjudged))

    def _first_unlike(self, base: Proof, again: ProvedDigests, proved: ProvedRange) -> int:
        """The number of the first proof of the chain that does not hold for this partition."""
        for number in self.shelf.numbers():
            if not base.first <= number < base.number:
                continue
            link, _ = self.shelf.read(number)
            for each in link.ranges if link.success and link.declaration == base.declaration else ():
                with suppress(InvalidRequestError):
                    if each.place == proved.place and again.digest(each, link) != each.digest:
                        return number
        return base.number

    def keep(self, evidence: Evidence, checks: Sequence[CheckResult], run_name: str, *, engine: str) -> Proof:
        """Put what this run found on the store. Raises `NumberTakenError` where another run has the number."""
        proof = self._proof(evidence, checks, run_name=run_name, engine=engine)
        if not self.shelf.put(proof):
            raise NumberTakenError(proof.number)
        return proof

    def _proof(
        self, evidence: Evidence, checks: Sequence[CheckResult], *, run_name: str, engine: str
    ) -> Proof:
        link, declared = self.link, self._declaration
        since = link.base.number if link.base is not None and self.since else link.number
        agrees = all(check.status == "passed" for check in checks if check.name == "digest_as_proved")
        return Proof(
            number=link.number,
            first=link.first if agrees else link.number,
            since=since if agrees else link.number,
            parent=link.parent,
            began=link.began if agrees else "what was proved before is not what is there",
            topic=declared.topic,
            incarnation=self._lives[declared.topic],
            created_ms=evidence.gathered_ms,
            run_name=run_name,
            engine=engine,
            version=version(),
            schema_versions={topic: rows.schemas.version for topic, rows in sorted(evidence.rows.items())},
            declaration=hash_of(declared),
            success=all(check.status in ("passed", "not_applicable", "warning") for check in checks),
            checks=tuple(_proved_check(check) for check in checks),
            ranges=self._ranges(evidence),
            group_id=declared.group_id or "",
            cut=-1 if self._at.cut is None else self._at.cut.cut,
            again=self._read_again if agrees else {},
            turns={(place.topic, place.partition): share.stop for place, share in self.again.items()}
            if agrees
            else {},
            erasures={topic: count for topic, count in self._erasures.items() if count is not None},
            positions={
                each.partition: each.committed_offset
                for each in evidence.group
                if each.topic == declared.topic and each.committed_offset >= 0
            },
        )

    def _ranges(self, evidence: Evidence) -> tuple[ProvedRange, ...]:
        """Each partition as far as it was proved: what the base has, and what was looked at now."""
        before: dict[tuple[str, int], list[ProvedRange]] = {}
        if self.link.base is not None and self.since:
            for each in self.link.base.ranges:
                before.setdefault(each.place, []).append(each)
        starts = {(state.topic, state.partition): state.log_start_offset for state in evidence.partitions}
        found: list[ProvedRange] = []
        for topic, rows in sorted(evidence.rows.items()):
            digests = rows.digests()
            for partition, end in sorted(rows.ends.items()):
                known = before.get((topic, partition), [])
                start = known[-1].end_offset if known else starts.get((topic, partition), 0)
                now = ProvedRange(
                    topic,
                    self._lives[topic],
                    partition,
                    start,
                    max(end, start),
                    digests.get(partition, Digest()),
                    rows.schemas.version,
                )
                found += _followed(known, now)
        return tuple(found)


class ProvedDigests:
    """Digests of what was proved before, of the records that are there now."""

    def __init__(self, evidence: Evidence, reducer: Reducer) -> None:
        self._rows = evidence.rows
        self._reducer = reducer

    def digest(self, proved: ProvedRange, proof: Proof) -> Digest:
        """By the columns of its version. Raises `InvalidRequestError` where a file has not all of them."""
        rows = self._rows[proved.topic]
        schemas = Schemas(rows.schemas.layouts, proved.schema_version)
        begin = proved.start_offset if proved.start_offset > proof.starts[proved.place] else 0
        found, again = Digest(), list[FilePart]()
        parts = rows.rows.parts if isinstance(rows.rows, FileRows) else ()
        for file, part in zip(rows.files, parts, strict=True):
            if part.partition != proved.partition or part.start >= proved.end_offset or part.end <= begin:
                continue
            is_inside = begin <= part.start and part.end <= proved.end_offset
            if is_inside and schemas.version == rows.schemas.version:
                found = found.plus(file.digest)
            else:
                again.append(part if is_inside else _within(part, begin, proved.end_offset))
        for written in sorted({part.schema_version for part in again}):
            sources(schemas, written, schemas.arrow.names, topic=proved.topic)
        if again:
            for fact in self._reducer.look_at(schemas, again, lambda _done, _of: None):
                found = found.plus(fact.digest)
        return found


def _followed(known: Sequence[ProvedRange], now: ProvedRange) -> list[ProvedRange]:
    """What was proved of a partition, and what is now, behind it: one range where both go by the same columns."""
    if not known:
        return [now]
    last = known[-1]
    if last.schema_version == now.schema_version:
        return [
            *known[:-1],
            replace(last, end_offset=now.end_offset, digest=last.digest.plus(now.digest)),
        ]
    if now.start_offset == now.end_offset:
        return list(known)
    if last.start_offset == last.end_offset:
        return [*known[:-1], now]
    return [*known, now]


def _within(part: FilePart, begin: int, end: int) -> FilePart:
    return replace(part, start=max(part.start, begin), end=min(part.end, end), is_whole=False, records=-1)


def _proved_check(check: CheckResult) -> ProvedCheck:
    hashes = tuple(
        xxhash.xxh3_128_hexdigest(repr(sorted(example.items())).encode()) for example in check.examples
    )
    return ProvedCheck(check.name, check.status, check.total, check.wrong, hashes)
