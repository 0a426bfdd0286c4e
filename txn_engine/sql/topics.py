"""Which topics the tables of a query are."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from txn_engine.errors import InvalidRequestError, InvalidTopicError, UnknownTopicOrPartitionError
from txn_engine.log.logs import Logs
from txn_engine.log.topics import Topic
from txn_engine.sql.permitted import ACTOR


def topics_of(logs: Logs, tables: Sequence[str]) -> Mapping[str, Topic]:
    """The topic of each table, by the name that the query has for it. No other topic is looked at.

    A name is a topic's as it is written, or else that of the one topic that differs from it by case alone. Raises
    `InvalidRequestError` for no table, and for two topics that SQL cannot tell apart;
    `UnknownTopicOrPartitionError` for a name that is no topic's; and what looking a topic up raises.
    """
    if not tables:
        raise InvalidRequestError(
            "SQL that names no topic", actor=ACTOR, expected="a SELECT from topics, which are its tables"
        )
    found = {table: _topic_of(logs, table) for table in tables}
    by_case: dict[str, str] = {}
    for table, topic in found.items():
        other = by_case.setdefault(table.lower(), topic.name)
        if other != topic.name:
            raise InvalidRequestError(
                f"topics {other!r} and {topic.name!r} in one query",
                actor=ACTOR,
                expected="names that differ by more than case, which SQL does not tell apart",
            )
    return found


def _topic_of(logs: Logs, table: str) -> Topic:
    try:
        return logs.topics.look_up(table)
    except (UnknownTopicOrPartitionError, InvalidTopicError) as error:
        names = logs.topics.survey().names
        alike = [name for name in names if name.lower() == table.lower()]
        if len(alike) == 1:
            return logs.topics.look_up(alike[0])
        if alike:
            raise InvalidRequestError(
                f"the table {table!r}",
                actor=ACTOR,
                expected=f"one of {alike} as it is written, in double quotes",
            ) from error
        raise UnknownTopicOrPartitionError(
            f"there is no topic {table!r}", actor=ACTOR, action=_nearest(table, names)
        ) from error


def _nearest(table: str, names: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(table, names, n=1) or [name for name in names if name in table][:1]
    return f'did you mean "{near[0]}"?' if near else None
