"""After the storm the audit checks that everything promised is in the store once, and that nothing refused is
there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tests.torture.journal import Line, read_journals
from tests.torture.workloads import GROUP, load_rows
from txn_engine import Engine

FINAL_STATES = {"Empty", "CompleteCommit", "CompleteAbort"}
_SHOWN_MAX = 5


@dataclass(slots=True)
class Told:
    """The journals, read once."""

    begun: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # role to names
    outcomes: dict[str, str] = field(default_factory=dict)
    places: dict[str, list[list[int]]] = field(default_factory=dict)
    seen: dict[str, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    maintained: Counter[str] = field(default_factory=Counter)
    children: int = 0
    working_children: int = 0
    findings: list[str] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """Take in one line of a journal. If two lines are about one load, the stronger one counts, because
        "committed" is a promise."""
        role = line.writer.partition("-")[0]
        match line.event:
            case "begin":
                self.begun[role].add(line.name)
            case "committed" | "loaded":
                self.outcomes[line.name] = "committed"
                self.places[line.name] = line.more.get("places", [])
            case "refused" | "unknown":
                if role != "load":  # a load that was refused is run again, under its name
                    self.outcomes[line.name] = line.event
                self.errors[str(line.more.get("code", line.event.upper()))] += 1
            case "seen":
                self.seen[line.writer] += [(part, offset, name) for part, offset, name in line.more["rows"]]
            case "own work":
                self.working_children += line.more["said"] == "works"
            case "child":
                self._child(line)
            case "maintained":
                self.maintained[line.name] += 1
            case "error":
                self.errors[line.name] += 1
            case "crash":
                last = line.more["text"].strip().splitlines()[-1]
                self.findings.append(f"{line.writer} ended with {last}\n{line.more['text']}")

    def _child(self, line: Line) -> None:
        said = str(line.more["said"])
        self.children += said == "refused"
        if said != "refused":
            self.findings.append(f"{line.writer}: its forked child, with the parent's open producer: {said}")


def read_told(journals: Path) -> Told:
    """Read what the workers said about this ledger."""
    told = Told()
    for line in read_journals(journals):
        told.take(line)
    return told


def audit(engine: Engine, told: Told) -> Iterator[str]:
    """Everything that differs from the promises, as lines. Call it when the sweeps are done and nobody
    writes."""
    yield from told.findings
    yield from _unfinished(engine)
    transfers = engine.scan("transfers").to_table()
    yield from _balances(transfers)
    yield from _once_each(told, "transfer", _names_of(transfers, "transfer"), whole=None)
    yield from _readers(told, transfers)
    inputs, outputs = engine.scan("inputs").to_table(), engine.scan("outputs").to_table()
    yield from _loads(told, inputs)
    yield from _copies(told, inputs, outputs)
    yield from _events(told, engine.scan("events").to_table())
    yield from _once_each(told, "fork", _names_of(engine.scan("forked").to_table(), "id"), whole=2)


def _names_of(table: pa.Table, column: str) -> Counter[str]:
    return Counter(table.column(column).to_pylist())


def _unfinished(engine: Engine) -> Iterator[str]:
    for listing in engine.admin.list_transactions():
        if listing.state not in FINAL_STATES:
            yield f"{listing.transactional_id} is still {listing.state} after the sweeps"
    for topic in engine.admin.list_topics():
        for partition, offsets in engine.admin.list_offsets(topic).items():
            if offsets.last_stable_offset != offsets.high_watermark:
                yield f"{partition}: LSO {offsets.last_stable_offset} below the end {offsets.high_watermark}"
    for part in engine.admin.describe_group(GROUP).partitions:
        if part.pending_offset != -1:
            yield f"group {GROUP}: an offset of {part.topic}-{part.partition} is still pending"


def _balances(transfers: pa.Table) -> Iterator[str]:
    """Money is only moved, so all rows sum to 0. The rows of each transfer sum to 0 too, or the transfer was
    torn."""
    sums: Counter[str] = Counter()
    for name, amount in zip(*(transfers.column(c).to_pylist() for c in ("transfer", "amount")), strict=True):
        sums[name] += amount
    if total := sum(sums.values()):
        yield f"the balances sum to {total}, not to 0"
    yield from _some(
        f"transfer {name} is torn: its rows sum to {left}" for name, left in sums.items() if left
    )
    pairs = Counter(zip(*(transfers.column(c).to_pylist() for c in ("transfer", "account")), strict=True))
    yield from _some(f"transfer {name}: account {at} {n} times" for (name, at), n in pairs.items() if n > 1)


def _once_each(told: Told, role: str, found: Counter[str], *, whole: int | None) -> Iterator[str]:
    """A committed name is there, and a refused one is not. Any other is there as a whole or not at all. No
    name is there that nobody began."""
    begun = told.begun[role]
    yield from _some(f"{role}: {name} is there, and nobody wrote it" for name in found if name not in begun)
    for name in sorted(begun):
        outcome = told.outcomes.get(name)
        if outcome == "committed" and not found[name]:
            yield f"{role}: {name} was acknowledged and is not there"
        if outcome == "refused" and found[name]:
            yield f"{role}: {name} was refused and is there"
        if whole is not None and found[name] not in (0, whole):
            yield f"{role}: {name} is there with {found[name]} rows instead of {whole}"


def _readers(told: Told, transfers: pa.Table) -> Iterator[str]:
    """The rows that a reader was shown are those in the store up to its position, each once and in order."""
    columns = [transfers.column(name).to_pylist() for name in ("_partition", "_offset", "transfer")]
    there: dict[int, dict[int, str]] = defaultdict(dict)
    for partition, offset, name in zip(*columns, strict=True):
        there[partition][offset] = name
    for reader, rows in told.seen.items():
        shown: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for partition, offset, name in rows:
            shown[partition].append((offset, name))
        for partition, seen in shown.items():
            last = seen[-1][0]
            expected = sorted((o, name) for o, name in there[partition].items() if o <= last)
            if seen != expected:
                odd = sorted(set(seen) ^ set(expected))[:_SHOWN_MAX] or "the order"
                yield f"{reader}: partition {partition} up to {last} was shown otherwise than it is: {odd}"


def _loads(told: Told, inputs: pa.Table) -> Iterator[str]:
    """Each load was begun, perhaps many times, and is there once."""
    found = _names_of(inputs, "id")
    begun = told.begun["load"]
    yield from _some(f"input {name} is there {n} times" for name, n in found.items() if n > 1)
    by_load: Counter[str] = Counter(name.partition("/")[0] for name in found)
    yield from _some(f"{name} is there, and nobody began it" for name in by_load if name not in begun)
    for name in sorted(begun):
        if by_load[name] not in (0, load_rows(name).num_rows):
            yield f"{name} is there with {by_load[name]} of {load_rows(name).num_rows} rows"
        if told.outcomes.get(name) == "committed" and not by_load[name]:
            yield f"{name} was acknowledged and is not there"


def _copies(told: Told, inputs: pa.Table, outputs: pa.Table) -> Iterator[str]:
    """Every input was consumed exactly once, by a copy that was not refused."""
    wanted, copied = _names_of(inputs, "id"), _names_of(outputs, "id")
    yield from _some(f"input {name} was never copied" for name in wanted if not copied[name])
    yield from _some(f"input {name} was copied {n} times" for name, n in copied.items() if n > 1)
    yield from _some(f"output {name} has no input" for name in copied if not wanted[name])
    yield from _once_each(told, "copy", _names_of(outputs, "copied_by"), whole=None)


def _events(told: Told, events: pa.Table) -> Iterator[str]:
    """Without a transaction each partition's share of a batch is independent. An acknowledged share is there
    once, at the offsets that the producer got. Any other share is there once or not at all."""
    columns = [events.column(name).to_pylist() for name in ("id", "number", "_partition", "_offset")]
    found = Counter(zip(*columns[:2], strict=True))
    yield from _some(f"event {name}, row {row}: {n} times" for (name, row), n in found.items() if n > 1)
    names = {name for name in columns[0] if not name.startswith("child-")}
    yield from _some(f"event {name} is there, and nobody wrote it" for name in names - told.begun["emit"])
    there = {(part, offset): name for name, _, part, offset in zip(*columns, strict=True)}
    for name in sorted(told.begun["emit"]):
        for partition, first, last in told.places.get(name, []):
            for offset in range(first, last + 1):
                at = there.get((partition, offset))
                if at != name:
                    yield f"emit: {name} was acknowledged at {partition}/{offset}, where {at} is"


def _some(lines: Iterator[str]) -> Iterator[str]:
    """The first few of many lines of a kind, and the number of the other ones."""
    for number, line in enumerate(lines):
        if number >= _SHOWN_MAX:
            yield f"... and {1 + sum(1 for _ in lines)} more like it"
            return
        yield line
