"""A query that somebody gave consists of what is permitted, and of nothing else that Spark can parse."""

from __future__ import annotations

from pathlib import Path

import great_expectations.expectations as gxe
import pytest
from great_expectations.expectations.row_conditions import Column
from pyspark.sql import SparkSession

from txn_engine.errors import InvalidRequestError
from txn_engine.quality import check_rows
from txn_engine.quality.spark_queries import permitted_query
from txn_engine.reasons import Reason

pytestmark = pytest.mark.spark

PERMITTED = (
    (
        "SELECT account, sum(amount) AS total, count(DISTINCT kind) FROM topic WHERE NOT amount < 0 GROUP BY account "
        "HAVING count(*) > 1 ORDER BY 1 DESC NULLS LAST LIMIT 5 OFFSET 2"
    ),
    (
        "SELECT t.*, -a + b * 2 / 3 % 4 DIV 5, ~a & b | c ^ d, a || 'x', 1.5, 1e0, X'ab', NULL, DATE '2020-01-01', "
        "INTERVAL 1 DAY FROM topic AS t WHERE a = 1 AND b <> 2 OR c <=> 3 AND d BETWEEN 1 AND 2"
    ),
    (
        "SELECT CASE WHEN a THEN 1 END, CAST(a AS decimal(10,2)), a::string, try_cast(a AS int), a IN (1, 2), "
        "a LIKE 'x%' ESCAPE '!', a ILIKE 'x', a RLIKE 'x', a IS NOT NULL, a IS TRUE, a LIKE ANY ('x', 'y') FROM topic"
    ),
    "SELECT a IN (SELECT b FROM topic), EXISTS (SELECT 1 FROM topic), (SELECT max(a) FROM topic) FROM topic",
    (
        "WITH x AS (SELECT 1 AS n), y(m) AS (SELECT n FROM x) SELECT * FROM y JOIN x ON y.m = x.n "
        "LEFT JOIN topic USING (n) CROSS JOIN x AS z NATURAL JOIN y AS w"
    ),
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    (
        "SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), rank() OVER w, "
        "sum(a) OVER (ORDER BY c RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) "
        "FROM topic WINDOW w AS (PARTITION BY b ORDER BY c)"
    ),
    (
        "SELECT s.f, m['k'], named_struct('a', 1), map('a', 1), transform(r, x -> x + 1) FROM topic "
        "LATERAL VIEW explode(r) e AS item LATERAL VIEW OUTER posexplode(r) p AS pos, other"
    ),
    "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(a, b) UNION SELECT 1, 'x' EXCEPT SELECT 1, 'x' INTERSECT TABLE topic",
    (
        "SELECT extract(YEAR FROM d), trim(BOTH 'x' FROM s), substring(s FROM 1 FOR 2), position('a' IN s), "
        "timestampadd(DAY, 1, d), percentile_cont(0.5) WITHIN GROUP (ORDER BY a), sum(a) FILTER (WHERE b > 1) "
        "FROM topic GROUP BY GROUPING SETS ((a), ())"
    ),
    "SELECT a, b, sum(c) FROM topic GROUP BY CUBE (a, b)",
    "SELECT a, b, sum(c) FROM topic GROUP BY ROLLUP (a, b)",
    "SELECT * FROM topic PIVOT (sum(c) FOR a IN (1 AS one, 2))",
    "SELECT * FROM topic UNPIVOT (v FOR n IN (a, b))",
    "SELECT * FROM topic, LATERAL (SELECT topic.a + 1 AS z), range(10)",
    'SELECT * EXCEPT (a), "quoted" FROM topic; ',
    "SELECT a FROM topic -- and no more",
)
REFUSED = (
    "SELECT TRANSFORM(a) USING 'cat' AS (b) FROM topic",
    "MAP a USING 'cat' AS b FROM topic",
    "FROM topic REDUCE a USING 'cat'",
    "WITH x AS (SELECT TRANSFORM(a) USING 'cat' AS (b) FROM topic) SELECT * FROM x",
    "SELECT (SELECT TRANSFORM(a) USING 'cat' AS (b) FROM topic) AS x FROM topic",
    "SELECT * FROM topic WHERE a IN (SELECT TRANSFORM(a) USING 'cat' AS (b) FROM topic)",
    "SELECT * FROM topic, LATERAL (SELECT TRANSFORM(a) USING 'cat' AS (b))",
    "SELECT * FROM parquet.`/etc`",
    "SELECT * FROM default.secret",
    "SELECT * FROM secret",
    "SELECT * FROM Topic",
    "SELECT * FROM secret, (WITH secret AS (SELECT 1 AS n) SELECT n FROM secret) AS s",
    "WITH secret AS (SELECT * FROM secret) SELECT * FROM secret",
    "WITH a AS (SELECT * FROM secret), secret AS (SELECT 1) SELECT * FROM a",
    "SELECT * FROM topic WITH (`path` = '/etc')",
    "SELECT '${env:HOME}' AS x FROM topic",
    "SELECT * FROM `${system:user.home}`",
    "SELECT * FROM topic VERSION AS OF 1",
    "SELECT * FROM STREAM topic",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'exit')",
    "SELECT * FROM IDENTIFIER('sec' || 'ret')",
    "SELECT :parameter",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
    "SELECT java_method('java.lang.System', 'getProperty', 'user.home')",
    "SELECT from_protobuf(a, 'x', '/etc/passwd') FROM topic",
    "SELECT xpath('<a/>', 'a')",
    "SELECT raise_error(a) FROM topic",
    "SELECT assert_true(a = 'x') FROM topic",
    "SELECT input_file_name() FROM topic",
    "SELECT spark_catalog.default.mine(a) FROM topic",
    "SELECT mine(a) FROM topic",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM topic LATERAL VIEW mine(a) t AS b",
    "SELECT a FROM topic TABLESAMPLE (10 PERCENT)",
    "FROM topic |> WHERE a > 1",
)


@pytest.mark.parametrize("query", PERMITTED)
def test_a_query_that_computes_is_permitted(spark: SparkSession, query: str) -> None:
    """Every part of SELECT that computes rows of the view is permitted."""
    assert permitted_query(_ansi(spark), query, ["topic"], what="a query", actor="test")


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_that_reaches_further_is_refused(spark: SparkSession, query: str) -> None:
    """A query may not start a program, read another table or a file, or call a function that does more than compute.
    What is refused is found inside WITH and subqueries too, and a name that WITH defines is known only where it holds.
    """
    with pytest.raises(InvalidRequestError) as refused:
        permitted_query(_ansi(spark), query, ["topic"], what="a query", actor="test")
    assert refused.value.reason is Reason.NOT_PERMITTED_IN_SQL


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1; SELECT 2",
        "DROP VIEW topic",
        "SELECT 1) AS a UNION ALL (SELECT 2",
        "SELECT 1 /*",
        "EXPLAIN SELECT 1",
    ],
)
def test_what_is_not_one_query_is_refused(spark: SparkSession, query: str) -> None:
    """Only one query is permitted, and no other statement."""
    with pytest.raises(InvalidRequestError) as refused:
        permitted_query(_ansi(spark), query, ["topic"], what="a query", actor="test")
    assert refused.value.reason is Reason.NOT_ONE_SELECT


def test_a_recursive_name_is_no_table(spark: SparkSession) -> None:
    """The name of a recursive WITH means itself in its definition, and no table of the catalog that has this name."""
    session = _ansi(spark)
    session.sql("CREATE OR REPLACE TEMP VIEW secret AS SELECT 'kept' AS word")
    try:
        for query in (
            "WITH RECURSIVE secret AS (SELECT * FROM secret) SELECT * FROM secret",
            "WITH RECURSIVE secret AS (SELECT * FROM secret UNION ALL SELECT 'x') SELECT * FROM secret",
            "WITH RECURSIVE secret(word) AS (SELECT word FROM secret UNION ALL SELECT word FROM secret) TABLE secret",
        ):
            with pytest.raises(Exception, match="RECURSI"):
                session.sql(
                    permitted_query(session, query, ["topic"], what="a query", actor="test")
                ).collect()
    finally:
        session.catalog.dropTempView("secret")


def test_a_suites_query_starts_no_program(spark: SparkSession, tmp_path: Path) -> None:
    """A check whose query would start a program is not made, and decides. The others of its suite are made."""
    started = tmp_path / "started"
    queries = (
        f"SELECT TRANSFORM(n) USING 'touch {started}; cat' AS (m) FROM {{batch}}",
        "SELECT * FROM {batch} WHERE n < 0",
        "SELECT * FROM {batch} JOIN elsewhere USING (n)",
    )
    suite = [gxe.UnexpectedRowsExpectation(unexpected_rows_query=query) for query in queries]
    run = check_rows(spark.createDataFrame([(1,), (2,)], "n int"), suite)
    assert [check.status for _, check in run.checks] == ["errored", "passed", "errored"]
    assert not run.success
    assert not started.exists()


@pytest.mark.parametrize("text", ["c\u00a0d", "it's", "back\\slash", "${env:HOME}"])
def test_a_condition_that_spark_would_read_otherwise_is_not_made(spark: SparkSession, text: str) -> None:
    """Such a condition would choose other rows, or none, and the check would pass. One of plain text is made."""
    rows = spark.createDataFrame([(text, None), ("plain", 1)], "s string, n int")
    suite = [
        gxe.ExpectColumnValuesToNotBeNull(column="n", row_condition=Column("s") == text),
        gxe.ExpectColumnValuesToNotBeNull(column="n", row_condition=Column("s") == "plain"),
    ]
    assert [check.status for _, check in check_rows(rows, suite).checks] == ["errored", "passed"]


def _ansi(spark: SparkSession) -> SparkSession:
    """A session with the settings of a proof that the parser knows."""
    session = spark.newSession()
    for name in (
        "spark.sql.ansi.enabled",
        "spark.sql.ansi.doubleQuotedIdentifiers",
        "spark.sql.caseSensitive",
    ):
        session.conf.set(name, "true")
    return session
