"""How much maintenance keeps, and from when on work is worth its while."""

from __future__ import annotations

from dataclasses import dataclass

from txn_engine.errors import InvalidRequestError
from txn_engine.reasons import Reason

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """What the jobs go by. Every value is safe: they decide how much is kept, never whether something is lost.

    orphan_age_ms: a file that no entry names is deleted once the log has moved on for this long since its upload
        began. A writer that takes longer between its upload and its entry is refused (`floor`).
    entries_age_ms: entries younger than this are not sealed; at least `orphan_age_ms`, since the log's times are read
        from them.
    tables_age_ms: what a version of a table needs is kept for this long after the next one.
    trim_step: `entries_start` moves when it gets on by at least this many offsets: a trim is an entry itself.
    target_file_bytes: compaction merges small files up to about this size; it holds one such file in memory.
    min_files: fewer files than this are not worth a rewrite.
    min_dirty_ratio: compaction by key waits until this part of a partition's bytes was written since the last time; 0:
        never waits; None: as the topic's `min.cleanable.dirty.ratio` says.
    key_memory_bytes: what its keys may take in memory (`log.cleaner.dedupe.buffer.size`); those of a partition that
        are more go to the local disk, into the folder for temporary files.
    spill_bytes: what they may take there; a partition that needs more is left as it is, with an error.
    spark_above_records, spark_above_bytes: where Spark may be asked for (`engine` auto), what of a partition is looked
        at or merged in one run is this process's up to here, and Spark's above.
    """

    orphan_age_ms: int = 7 * DAY_MS
    entries_age_ms: int = 7 * DAY_MS
    tables_age_ms: int = 7 * DAY_MS
    trim_step: int = 64
    target_file_bytes: int = 64 << 20
    min_files: int = 8
    min_dirty_ratio: float | None = None
    key_memory_bytes: int = 512 << 20
    spill_bytes: int = 64 << 30
    spark_above_records: int = 1_000_000_000
    spark_above_bytes: int = 128_000_000_000

    def __post_init__(self) -> None:
        if not 0 <= self.orphan_age_ms <= self.entries_age_ms:
            raise InvalidRequestError(
                f"orphan_age_ms {self.orphan_age_ms}, entries_age_ms {self.entries_age_ms}",
                actor="maintenance policy",
                expected="0 or more, and entries kept for at least as long as orphans",
                reason=Reason.BAD_ARGUMENT,
            )
        if self.min_dirty_ratio is not None and not 0 <= self.min_dirty_ratio <= 1:
            raise InvalidRequestError(
                f"min_dirty_ratio {self.min_dirty_ratio}",
                actor="maintenance policy",
                expected="0 to 1",
                reason=Reason.BAD_ARGUMENT,
            )
        counts = (
            ("tables_age_ms", 0),
            ("trim_step", 1), ("target_file_bytes", 1), ("min_files", 2), ("key_memory_bytes", 1), ("spill_bytes", 0),
            ("spark_above_records", 0), ("spark_above_bytes", 0),
        )  # fmt: skip
        for name, least in counts:
            if getattr(self, name) < least:
                raise InvalidRequestError(
                    f"{name} {getattr(self, name)}",
                    actor="maintenance policy",
                    expected=f"{least} or more",
                    reason=Reason.BAD_ARGUMENT,
                )


DEFAULT_POLICY = MaintenancePolicy()
