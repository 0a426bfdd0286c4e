"""A query is given only files whose records it may need."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from txn_engine.sql.file_parts import FilePart
from txn_engine.sql.pruning import chosen
from txn_engine.sql.statement import read_statement

PARTS = [
    FilePart(f"{partition}/{start}", 1, partition, start, start, start + 10, is_whole=True, records=records)
    for partition in (0, 1, 2)
    for start, records in ((0, 10), (10, 5), (20, 10))
]
"""Three files of ten offsets in each of three partitions; five offsets of the middle ones have no record."""
ALL = [part.key for part in PARTS]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        yield made


@pytest.mark.parametrize(
    ("query", "files"),
    [
        ("SELECT * FROM t WHERE _partition = 1", ["1/0", "1/10", "1/20"]),
        ("SELECT max(x) FROM t a WHERE x > 1 AND a._partition = 1 AND 20 <= _offset", ["1/20"]),
        ("SELECT * FROM t WHERE _offset BETWEEN 9 AND 10 AND _partition < 1", ["0/0", "0/10"]),
        ("SELECT * FROM t WHERE _offset > 9 AND _offset < 11 AND _partition IN (0, 2)", ["0/10", "2/10"]),
        ("SELECT * FROM t WHERE _offset = 30", []),
        ("SELECT * FROM t WHERE _offset > -5 AND _partition >= 2", ["2/0", "2/10", "2/20"]),
        ("SELECT * FROM t ORDER BY _offset LIMIT 10", ["0/0", "1/0", "2/0"]),
        ("SELECT * FROM t ORDER BY _offset DESC LIMIT 1", ["0/20", "1/20", "2/20"]),
        ("SELECT * FROM t ORDER BY _offset DESC LIMIT 31", ["0/10", "0/20", "1/10", "1/20", "2/10", "2/20"]),
        ("SELECT * FROM t ORDER BY _partition, _offset LIMIT 11", ["0/0", "0/10"]),
        ("SELECT * FROM t ORDER BY _partition, _offset LIMIT 10 OFFSET 6", ["0/0", "0/10", "0/20"]),
        ("SELECT * FROM t ORDER BY _partition DESC, _offset DESC LIMIT 2", ["2/20"]),
        ("SELECT x, y FROM t WHERE _partition = 1 ORDER BY t._offset, x LIMIT 3", ["1/0"]),
        ("SELECT max(_offset) FROM t", ["0/20", "1/20", "2/20"]),
        ("SELECT min(_offset) AS least FROM t WHERE _partition = 1", ["1/0"]),
        ("SELECT _partition, max(_offset) FROM t GROUP BY 1 ORDER BY 2 LIMIT 1", ["0/20", "1/20", "2/20"]),
        # what is not certain leaves nothing out
        ("SELECT * FROM t WHERE _partition = 1 OR x = 2", ALL),
        ("SELECT * FROM t WHERE NOT _partition = 1", ALL),
        ("SELECT * FROM t WHERE _partition = x", ALL),
        ("SELECT * FROM t WHERE _partition + 0 = 1", ALL),
        ("SELECT * FROM t WHERE t.s._offset = 1", ALL),
        ("SELECT * FROM t WHERE x = 1 ORDER BY _offset LIMIT 1", ALL),
        ("SELECT * FROM t ORDER BY x, _offset LIMIT 1", ALL),
        ("SELECT * FROM t ORDER BY _offset LIMIT 10%", ALL),
        ("SELECT * FROM t ORDER BY _offset", ALL),
        ("SELECT * FROM t LIMIT 1", ALL),
        ("SELECT DISTINCT x FROM t ORDER BY _offset LIMIT 1", ALL),
        ("SELECT x, y + 1 FROM t ORDER BY _offset LIMIT 1", ALL),
        ("SELECT -x AS _offset FROM t ORDER BY _offset LIMIT 1", ALL),
        ("SELECT count(*) FROM t ORDER BY max(_offset) LIMIT 1", ALL),
        ("SELECT max(_offset), count(*) FROM t", ALL),
        ("SELECT max(_offset), min(_offset) FROM t", ALL),
        ("SELECT max(_offset) FILTER (x = 1) FROM t", ALL),
        ("SELECT max(_offset) FROM t HAVING count(*) > 1", ALL),
        ("SELECT _partition, max(_offset) FROM t GROUP BY 1 ORDER BY count(*)", ALL),
        ("SELECT max(_offset) FROM t GROUP BY x", ALL),
        ("SELECT max(_offset) FROM t TABLESAMPLE 10%", ALL),
        ("SELECT * FROM t JOIN u USING (x) WHERE t._partition = 1", ALL),
        ("SELECT * FROM (SELECT -_partition AS _partition FROM t) WHERE _partition = 1", ALL),
        ("SELECT * FROM t WHERE _partition = 1 AND x = (SELECT max(x) FROM t)", ALL),
        ("WITH u AS (SELECT 1) SELECT * FROM t WHERE _partition = 1", ALL),
        ("SELECT * FROM t WHERE _partition = 1 UNION ALL SELECT * FROM t", ALL),
    ],
)
def test_files_of_a_query(connection: duckdb.DuckDBPyConnection, query: str, files: list[str]) -> None:
    wanted = read_statement(connection, query).wanted
    assert [part.key for part in chosen(PARTS, wanted)] == files
    assert wanted.count is None


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT count(*) FROM t", "count_star()"),
        ("FROM t SELECT count() AS n", "n"),
        ("SELECT count(*) FROM t LIMIT 0", None),
        ("SELECT count(*) FROM t WHERE x = 1", None),
        ("SELECT count(x) FROM t", None),
        ("SELECT count(*) FILTER (x) FROM t", None),
        ("SELECT count(*) OVER () FROM t", None),
        ("SELECT count(*) + 0 FROM t", None),
        ("SELECT count(*), 1 FROM t", None),
        ("SELECT count(*) FROM t GROUP BY x", None),
        ("SELECT count(*) FROM t, t", None),
        ("SELECT DISTINCT count(*) FROM t", None),
        ("SELECT count(*) FROM t TABLESAMPLE 10%", None),
        ("SELECT count(*) FROM t HAVING max(x) > 1", None),
    ],
)
def test_a_count_is_known_without_a_file(
    connection: duckdb.DuckDBPyConnection, query: str, name: str | None
) -> None:
    assert read_statement(connection, query).wanted.count == name


def test_files_of_whose_records_nobody_knows_the_number_bring_none(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """A part of a merged file may hold fewer records than offsets, so it does not count towards a query's
    LIMIT."""
    wanted = read_statement(connection, "SELECT * FROM t ORDER BY _partition, _offset LIMIT 1").wanted
    parts = [FilePart("a", 1, 0, 0, 0, 10, is_whole=False), *PARTS[1:4]]
    assert [part.key for part in chosen(parts, wanted)] == ["a", "0/10"]
