"""A run and its place in the chain: what it may take from an earlier proof, and what it leaves for the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

import xxhash

from txn_engine.log.objects import Objects
from txn_engine.quality.chain import TopicState, next_link
from txn_engine.quality.declaration import Declaration
from txn_engine.quality.digest import Digest
from txn_engine.quality.evidence import ChainDifference, Evidence, TopicRows
from txn_engine.quality.file_pass import look_at
from txn_engine.quality.proof import Proof, ProofShelf, ProvedCheck, ProvedRange, hash_of
from txn_engine.quality.result import CheckResult
from txn_engine.quality.rows import FileRows
from txn_engine.quality.standpoint import Standpoint
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
        self.shelf = ProofShelf(Objects(engine.store), declaration.topic, self._lives[declaration.topic])
        self.link = next_link(self.shelf, declaration, self._states())

    @property
    def since(self) -> Mapping[TopicPartition, int]:
        """Up to where an earlier proof may be taken as it is; nothing where all is to be looked at."""
        base = self.link.base
        if base is None or self._whole:
            return {}
        return {TopicPartition(each.topic, each.partition): each.end_offset for each in base.ranges}

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
            found[topic] = TopicState(incarnation, starts, any(state.is_compacted for state in states))
        return found

    def differences(self, evidence: Evidence) -> tuple[ChainDifference, ...] | None:
        """Where what the chain has proved is not what is there now; None where nothing was looked at twice."""
        base = self.link.base
        if base is None or self.since:
            return None
        found = []
        for proved in base.ranges:
            rows = evidence.rows.get(proved.topic)
            if rows is None:
                continue
            seen = self._digest_below(rows, proved.partition, proved.end_offset)
            if seen != proved.digest:
                link = self._first_unlike(base, rows, proved)
                found.append(
                    ChainDifference(proved.topic, proved.partition, link, str(proved.digest), str(seen))
                )
        return tuple(found)

    def _digest_below(self, rows: TopicRows, partition: int, end: int) -> Digest:
        found, cut = Digest(), []
        parts = rows.rows.parts if isinstance(rows.rows, FileRows) else ()
        for file, part in zip(rows.files, parts, strict=True):
            if part.partition != partition or part.start >= end:
                continue
            if part.end <= end:
                found = found.plus(file.digest)
            else:
                cut.append(_ending_at(part, end))
        for fact in look_at(self._engine.store, rows.schema, cut):
            found = found.plus(fact.digest)
        return found

    def _first_unlike(self, base: Proof, rows: TopicRows, proved: ProvedRange) -> int:
        """The number of the first proof of the chain that does not hold for this partition."""
        for number in self.shelf.numbers():
            if not base.first <= number < base.number:
                continue
            link, _ = self.shelf.read(number)
            for each in link.ranges if link.success and link.declaration == base.declaration else ():
                same = (each.topic, each.partition) == (proved.topic, proved.partition)
                if same and self._digest_below(rows, each.partition, each.end_offset) != each.digest:
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
            version=_version(),
            declaration=hash_of(declared),
            success=all(check.status in ("passed", "not_applicable", "warning") for check in checks),
            checks=tuple(_proved_check(check) for check in checks),
            ranges=self._ranges(evidence),
            group_id=declared.group_id or "",
            cut=-1 if self._at.cut is None else self._at.cut.cut,
            positions={
                each.partition: each.committed_offset
                for each in evidence.group
                if each.topic == declared.topic and each.committed_offset >= 0
            },
        )

    def _ranges(self, evidence: Evidence) -> tuple[ProvedRange, ...]:
        """Each partition as far as it was proved: what the base has, and what was looked at now."""
        before = {}
        if self.link.base is not None and self.since:
            before = {(each.topic, each.partition): each for each in self.link.base.ranges}
        starts = {(state.topic, state.partition): state.log_start_offset for state in evidence.partitions}
        found = []
        for topic, rows in sorted(evidence.rows.items()):
            digests = rows.digests()
            for partition, end in sorted(rows.ends.items()):
                known = before.get((topic, partition))
                digest = digests.get(partition, Digest())
                start = starts.get((topic, partition), 0) if known is None else known.start_offset
                whole = digest if known is None else known.digest.plus(digest)
                found.append(ProvedRange(topic, self._lives[topic], partition, start, max(end, start), whole))
        return tuple(found)


def _ending_at(part: FilePart, end: int) -> FilePart:
    return FilePart(part.key, part.size, part.partition, part.base_offset, part.start, end, is_whole=False)


def _proved_check(check: CheckResult) -> ProvedCheck:
    hashes = tuple(
        xxhash.xxh3_128_hexdigest(repr(sorted(example.items())).encode()) for example in check.examples
    )
    return ProvedCheck(check.name, check.status, check.total, check.wrong, hashes)


def _version() -> str:
    try:
        return metadata.version("txn-engine")
    except metadata.PackageNotFoundError:
        return ""
