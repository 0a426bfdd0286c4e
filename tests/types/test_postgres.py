"""Every type goes into a table of Postgres and back exactly, or is refused in one sentence."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.types.columns import Column
from tests.types.wide import exact_columns, wrong_refusals
from tests.types.world import World
from txn_engine.postgres import consume_into, insert_into, load_query


def test_postgres(world: World, dsn: str) -> None:
    """A table that is made for the topic, and a topic that is loaded from it."""
    wide = exact_columns("postgres")
    topic, again = world.topic(wide.schema), world.topic(wide.schema)
    world.produce(topic, wide.records)
    with psycopg.connect(dsn) as connection:

        def out(source: str, table: str) -> None:
            consumer = world.engine.consumer(group_id=f"to-{table}")
            consumer.subscribe([source])
            consume_into(connection, consumer, insert_into(table, create=True))

        def alone(column: Column) -> list[Any]:
            out(world.topic_of(column), f"t{next(world.number)}")
            return column.values

        out(topic, "kinds")
        load_query(world.engine, connection, "SELECT * FROM kinds", again, run_id="1")
        assert wide.wrong_in(world.engine.scan(again).to_table(wide.names)) == {}
        assert wrong_refusals("postgres", alone) == {}
