"""A partition's log as a strip: along it the offsets, up it what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from txn_engine.quality.evidence import PartitionEvidence, SeenFile, TopicRows

KINDS = ("committed", "marker", "aborted", "undecided", "unexplained")
"""From the bottom of the strip up. `marker`: offsets without a record (markers and other control rows)."""

WIDTH, HEIGHT = 1000, 40
_BINS_MAX = 200


@dataclass(frozen=True, slots=True)
class LogStrip:
    """One partition: how many offsets of each kind, an SVG path for each, and where the last stable offset lies."""

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    counts: Mapping[str, int]
    paths: Mapping[str, str]
    stable_x: float


def draw_topic(
    states: Sequence[PartitionEvidence],
    rows: TopicRows,
    hidden: Mapping[int, Sequence[tuple[SeenFile, str]]],
) -> tuple[LogStrip, ...]:
    """One strip for each of a topic's partitions; `hidden`: which files readers do not see, and why."""
    strips = []
    for state in states:
        files: dict[str, list[SeenFile]] = {kind: [] for kind in ("aborted", "undecided", "unexplained")}
        for file, reason in hidden.get(state.partition, ()):
            files[reason].append(file)
        strips.append(_draw(state, {**files, "committed": rows.of(state.partition)}))
    return tuple(strips)


def _draw(state: PartitionEvidence, files: Mapping[str, Sequence[SeenFile]]) -> LogStrip:
    """The strip from the log's start to its end, in at most 200 steps; each step shows the share of each kind in it."""
    start, end = state.log_start_offset, max(state.high_watermark, state.log_start_offset)
    edges = np.linspace(start, end, min(_BINS_MAX, max(end - start, 1)) + 1).round().astype(np.int64)
    sizes = np.maximum(np.diff(edges), 1)
    shares = {kind: _binned(of_kind, edges) for kind, of_kind in files.items()}
    shares["marker"] = np.maximum(np.diff(edges) - sum(shares.values()), 0)
    foot = np.zeros(len(sizes))
    paths = {}
    for kind in KINDS:
        top = foot + shares[kind] / sizes
        paths[kind] = _steps(foot, top)
        foot = top
    span = max(end - start, 1)
    return LogStrip(
        state.topic,
        state.partition,
        start,
        state.last_stable_offset,
        state.high_watermark,
        {kind: int(share.sum()) for kind, share in shares.items()},
        {kind: path for kind, path in paths.items() if path},
        round(min(max((state.last_stable_offset - start) / span, 0.0), 1.0) * WIDTH, 1),
    )


def _binned(files: Iterable[SeenFile], edges: Any) -> Any:
    """How many records lie in each step, those of a file taken as evenly spread; none outside the log."""
    below = np.zeros(len(edges))
    for file in files:
        if file.records and file.last_offset >= file.first_offset:
            share = (edges - file.first_offset) / (file.last_offset + 1 - file.first_offset)
            below += file.records * np.clip(share, 0, 1)
    return np.diff(np.floor(below + 0.5).astype(np.int64))


def _steps(foot: Any, top: Any) -> str:
    """Rectangles between two lines, as one path; neighbours of the same height are one rectangle."""
    width = WIDTH / len(foot)
    parts: list[str] = []
    left = 0
    for step in range(1, len(foot) + 1):
        if step < len(foot) and foot[step] == foot[left] and top[step] == top[left]:
            continue
        if top[left] > foot[left]:
            high, low = HEIGHT * (1 - min(top[left], 1.0)), HEIGHT * (1 - foot[left])
            parts.append(f"M{left * width:.1f} {low:.1f}V{high:.1f}H{step * width:.1f}V{low:.1f}z")
        left = step
    return "".join(parts)
