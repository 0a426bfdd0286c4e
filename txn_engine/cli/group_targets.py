"""Where `groups reset-offsets` moves a group: by a time, or from where it is."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from txn_engine.admin import ResetTarget
    from txn_engine.engine import Engine
    from txn_engine.types import TopicPartition

_DURATION: Final = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})S)?)?")
_PARTS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


class Moment(click.ParamType[int]):
    """A date and a time, in UTC unless it names another zone; as milliseconds since the epoch."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds."""
        try:
            found = dt.datetime.fromisoformat(str(value))
            return round((found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp() * 1_000)
        except (ValueError, OverflowError):
            self.fail(
                f"{str(value)!r:.60}; expected YYYY-MM-DDTHH:mm:SS.sss, with a zone or in UTC", param, ctx
            )


class Duration(click.ParamType[int]):
    """A length of time as ISO 8601 writes it (PnDTnHnMnS), in milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds."""
        found = _DURATION.fullmatch(str(value))
        if found is None or not any(found.groups()):
            self.fail(f"{str(value)!r:.60}; expected PnDTnHnMnS, such as P7D or PT1H30M", param, ctx)
        return sum(int(part or 0) * size for part, size in zip(found.groups(), _PARTS_MS, strict=True))


def at_time(
    engine: Engine, partitions: Sequence[TopicPartition], time_ms: int
) -> Mapping[TopicPartition, ResetTarget]:
    """The first record of each partition that is at least as new as the time; the end where there is none."""
    with engine.consumer() as consumer:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
    return {at: "latest" if offset is None else offset for at, offset in found.items()}


def shifted(
    engine: Engine, group: str, partitions: Sequence[TopicPartition], by: int
) -> Mapping[TopicPartition, ResetTarget]:
    """Move by this many offsets, forward or back, but stop at either end of the log. Raises `InvalidRequestError` for a
    partition in which the group has no offset.
    """
    from txn_engine.errors import InvalidRequestError
    from txn_engine.types import TopicPartition

    known = engine.admin.describe_group(group)
    now = {
        TopicPartition(at.topic, at.partition): at.committed_offset
        for at in known.partitions
        if at.committed_offset >= 0
    }
    if unknown := [at for at in partitions if at not in now]:
        raise InvalidRequestError(
            f"no committed offset in {unknown[0].topic}-{unknown[0].partition}",
            actor=f"group {group!r}",
            expected="one, from which it is shifted",
            action="move it there first: --to-earliest, --to-latest or --to-offset",
        )
    with engine.consumer() as consumer:
        first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return {at: min(max(now[at] + by, first[at]), last[at]) for at in partitions}
