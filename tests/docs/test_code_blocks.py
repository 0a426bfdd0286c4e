"""The code of README and docs works: Python runs on a store, and commands exist in Makefile and command line."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from contextlib import suppress
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest

import txn_engine
from tests.conftest import S3Bucket
from tests.docs import buckets_page, configs_page, operators_page, types_page
from tests.docs.terminals import Terminal, check_shown, make_checkout
from tests.docs.test_references import tracked
from tests.suite.tiers import in_shard
from tests.support.kills import DyingStore, ProcessDiedError
from tests.support.servers import REPOSITORY
from txn_engine.cli.main import cli
from txn_engine.engine import Engine, connect
from txn_engine.errors import InvalidProducerEpochError
from txn_engine.loading import DEAD_LETTERS

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWN_URL = "s3://ledger/prod"
PAYMENTS = pa.schema([("account_id", pa.int64()), ("amount", pa.decimal128(18, 2))])
RUN = {
    "CONTRIBUTING.md": 2,
    "README.md": 6,
    "docs/AIRFLOW.md": 1,
    "docs/FIRST_PIPELINE.md": 5,
    "docs/KAFKA.md": 1,
    "docs/POSTGRES.md": 5,
    "docs/POSTGRES_PIPELINE.md": 3,
    "docs/SCHEMAS.md": 1,
    "docs/SPARK.md": 6,
    "docs/TABLES.md": 1,
}
"""Pages whose Python is run by a test, and how many blocks: below, KAFKA.md's in tests/kafka_rules, POSTGRES.md's
in tests/postgres, POSTGRES_PIPELINE.md's in test_postgres_pipeline.py, README's last three in tests/readers.
"""


def payments(*accounts: int) -> pa.Table:
    """One payment of 2.50 for each account."""
    return pa.table([accounts, [Decimal("2.50")] * len(accounts)], schema=PAYMENTS)


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in that language, in their order."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return [code for found, code in _BLOCK.findall(text) if found == language]


def shown_after(page: str, command: str) -> list[str]:
    """What the page shows as the output of each block of shell that ends with this command."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = [(language, code) for language, code in _BLOCK.findall(text)]
    return [
        output
        for (language, code), (kind, output) in pairwise(found)
        if (language, kind) == ("sh", "text") and code.rstrip().endswith(command)
    ]


def examples_of_contributing(number: int, names: dict[str, Any]) -> dict[str, Any]:
    """The tests that a block of CONTRIBUTING.md defines, by their names; `names` is what they use."""
    code = "from __future__ import annotations\n" + blocks("CONTRIBUTING.md", "python")[number]
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    return names


def run_block(code: str, url: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block on that store and add what it defines to `names`."""
    exec(compile(code.replace(_SHOWN_URL, url), "a block of the documentation", "exec"), names)
    return names


def test_the_columns_of_a_topic_are_changed() -> None:
    """The call that executes a change does what the dry run before it says."""
    with connect("memory://docs-schemas") as engine:
        engine.admin.create_topic("payments", partitions=1, schema=PAYMENTS)
        (block,) = blocks("docs/SCHEMAS.md", "python")
        run_block(block, "memory://docs-schemas", {"engine": engine, "pa": pa})
        assert engine.scan("payments").to_table().schema.names[:3] == [*PAYMENTS.names, "currency"]


def test_every_block_of_shell_is_shell() -> None:
    """What a page gives to a shell parses in bash, whether or not a test runs it."""
    found = 0
    for path in tracked("*.md"):
        page = str(path.relative_to(REPOSITORY))
        for code in (*blocks(page, "sh"), *blocks(page, "bash")):
            found += 1
            parsed = subprocess.run(["bash", "-n"], input=code, text=True, capture_output=True, check=False)
            assert parsed.returncode == 0, f"{page}: {parsed.stderr}"
    assert found > 10


def test_every_block_of_python_is_run_by_a_test() -> None:
    """A page that gains a block of Python needs a test that runs it."""
    for path in tracked("*.md"):
        page = str(path.relative_to(REPOSITORY))
        found = len(blocks(page, "python"))
        assert found == RUN.get(page, 0), page


def test_contributing_python(tmp_path: Path, minio_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example tests of the page pass."""
    used: dict[str, Any] = {
        "DyingStore": DyingStore,
        "Engine": Engine,
        "InvalidProducerEpochError": InvalidProducerEpochError,
        "ProcessDiedError": ProcessDiedError,
        "in_shard": in_shard,
        "payments": payments,
        "pytest": pytest,
        "suppress": suppress,
        "txn_engine": txn_engine,
    }
    names = examples_of_contributing(0, used)
    with connect("memory://contributing") as engine:
        engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
        names["test_a_rule_of_the_engine"](engine)
    for at in (0, 3):
        names["test_a_death_at_any_write"](tmp_path / str(at), at)
    names["test_on_a_real_server"](minio_bucket, monkeypatch)


def test_readme_python(store_url: str) -> None:
    """The first and the third block run unchanged, and every reader gets the records."""
    table = payments(1, 2)
    run = run_block(blocks("README.md", "python")[0], store_url, {"table": table})
    assert run["batch"].num_rows == 2
    run_block(blocks("README.md", "python")[2], store_url, run)
    run["engine"].close()
    for name in ("by_deltalake", "by_pyiceberg"):
        assert run[name].column("amount").to_pylist() == table.column("amount").to_pylist(), name
    for name in ("by_polars", "by_polars_iceberg"):
        assert run[name]["amount"].to_list() == table.column("amount").to_pylist(), name


def test_tables_page(store_url: str) -> None:
    """Every reader on the page gets all records."""
    with connect(store_url) as engine:
        engine.admin.create_topic("payments", partitions=2, schema=PAYMENTS, key="account_id")
        with engine.producer() as producer:
            producer.produce("payments", payments(1, 2, 3)).result()
    (code,) = blocks("docs/TABLES.md", "python")
    run = run_block(code, store_url, {})
    for found in (run["from_delta"], run["from_polars"].to_arrow(), run["from_iceberg"]):
        assert sorted(found.column("account_id").to_pylist()) == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.together("Spark of the pages")
def test_readme_spark(store_url: str) -> None:
    """The second block runs on the store that the first block has written."""
    table = payments(1, 1)
    first, second, *_ = blocks("README.md", "python")
    run_block(first, store_url, {"table": table})["engine"].close()
    with connect(store_url) as engine:
        engine.admin.create_topic("balances", partitions=1, schema=PAYMENTS, key="account_id")
    run = run_block(second, store_url, {})
    with connect(store_url) as engine:
        (row,) = engine.scan("balances").to_table(columns=["account_id", "amount"]).to_pylist()
        assert (row["account_id"], str(row["amount"])) == (1, "5.00")
    run["spark"].stop()


@pytest.mark.spark
@pytest.mark.together("Spark of the pages")
@pytest.mark.parametrize("times", in_shard("machine", [1, 2], keep=[1]))
def test_spark_page(store_url: str, tmp_path: Path, times: int) -> None:
    """All blocks run: the batch, files and checks. A stream that runs twice copies each record once."""
    with connect(store_url) as engine:
        for topic in ("payments", "copies", "narrow"):
            engine.admin.create_topic(topic, partitions=2, schema=PAYMENTS, key="account_id")
        engine.admin.create_topic("narrow-dead", partitions=1, schema=DEAD_LETTERS)
        with engine.producer() as producer:
            producer.produce("payments", payments(1, 2, 3)).result()
    (tmp_path / "more.csv").write_text("account_id,amount\n4,2.50\n5,2.50\n")
    batch, *others = blocks("docs/SPARK.md", "python")
    names = run_block(batch, store_url, {"files": str(tmp_path / "*.csv")})
    assert names["large"].count() == 3
    for number, (code, copied) in enumerate(
        zip(
            others,
            ([], [1, 2, 3], [1, 2, 3], sorted([1, 2, 3] * 2 + [4, 5]), sorted([1, 2, 3] * 3 + [4, 5] * 2)),
            strict=True,
        )
    ):
        names["checkpoint"] = str(tmp_path / f"checkpoint-{number}")
        for _ in range(times):
            run_block(code, store_url, names)
        with connect(store_url) as engine:
            assert sorted(engine.scan("copies").to_table().column("account_id").to_pylist()) == copied
    names["spark"].stop()


@pytest.mark.airflow
def test_airflow_imports(store_url: str) -> None:
    """Everything that AIRFLOW.md imports exists."""
    run_block(blocks("docs/AIRFLOW.md", "python")[0], store_url, {})


@pytest.mark.airflow
@pytest.mark.timeout(900)  # some twenty processes, one after the other
def test_first_pipeline(store_url: str, tmp_path: Path) -> None:
    """The whole page runs in the terminal that it describes, and each command prints what the page shows: the topics,
    the DAG with `dag.test()`, the DAG that a watch starts, and the producer that is killed. Nothing is written outside
    of the checkout."""
    page = "docs/FIRST_PIPELINE.md"
    checkout = make_checkout(tmp_path / "checkout", {"extra": {"url": store_url}})
    airflow, first, topics, run_it, came_of_it, leave_open, listed = blocks(page, "sh")
    in_python, pipeline, at_the_end, watch, killed = blocks(page, "python")
    assert airflow == "make airflow\n"
    with connect(store_url) as engine:  # `make airflow` lets payments flow
        engine.admin.create_topic("payments")
        engine.admin.create_topic("balances")
    terminal = Terminal(checkout, tmp_path / "home", first=first)
    check_shown(terminal.run(""), *shown_after(page, "txn-engine topics list"))
    quiet = Terminal(checkout, tmp_path / "home", first=first.replace("txn-engine topics list", ""))
    check_shown(quiet.run(topics), *shown_after(page, "--key account_id"))
    quiet.save(in_python)
    quiet.run("python make_topics.py")
    refused = quiet.run(topics.replace("create", "create --json").replace("\n", " || true\n"))
    assert refused.count('"reason": "topic_is_the_same"') == 2
    for code in (pipeline + at_the_end, watch):
        (checkout / "dags" / code.splitlines()[0].removeprefix("# ")).write_text(code)
    check_shown(quiet.run(run_it), *shown_after(page, "dags/shop_pipeline.py"))
    check_shown(quiet.run(came_of_it), *shown_after(page, "txn-engine verify"))
    both = "import shop_pipeline, shop_report"
    states = "shop_pipeline.shop_dag.test().state, shop_report.report_dag.test().state"
    quiet.run(f"cd dags && python -c \"{both}; assert ({states}) == ('success', 'success')\"")
    quiet.save(killed)
    quiet.run(f"{leave_open.strip()} || [ $? = {128 + signal.SIGKILL} ]")
    check_shown(quiet.run(listed), *shown_after(page, "--transactional-id-pattern shop-killed"))
    quiet.check_home()
    with connect(store_url) as engine:
        sums = engine.scan("shop_sums").to_table().to_pylist()
        assert sorted((row["account_id"], str(row["amount"])) for row in sums) == [
            (1, "2.50"), (1, "2.50"), (2, "0.75"), (2, "0.75"),
        ]  # fmt: skip
        assert engine.admin.describe_group("shop_report")


@pytest.mark.airflow
@pytest.mark.shard("airflow")
def test_a_mistake_in_the_first_pipeline_is_told_at_the_end(store_url: str, tmp_path: Path) -> None:
    """A topic's name with a typing error is named in the log, and the last line says that the run failed. It is no
    traceback."""
    page = "docs/FIRST_PIPELINE.md"
    checkout = make_checkout(tmp_path / "checkout", {"extra": {"url": store_url}})
    _, first, topics, run_it, *_ = blocks(page, "sh")
    _, pipeline, at_the_end, *_ = blocks(page, "python")
    terminal = Terminal(checkout, tmp_path / "home", first=first)
    connect(store_url).close()
    terminal.run(topics)
    code = (pipeline + at_the_end).replace('topic="shop_payments", python', 'topic="shop_paymens", python')
    code = code.replace('"retries": 2', '"retries": 0')
    (checkout / "dags" / "shop_pipeline.py").write_text(code)
    lines = terminal.run(f"{run_it.strip()} || true", failed=True).splitlines()
    assert lines[-1].startswith("The run ended as failed")
    assert any("shop_paymens" in line for line in lines[-40:]), lines


def test_commands_are_there() -> None:
    """Each `make TARGET` and each `txn-engine COMMAND --option` of a shell block exists."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    checked = 0
    for path in tracked("*.md"):
        for line in "".join(blocks(str(path.relative_to(REPOSITORY)), "sh")).splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), f"{path.name}: {line}"
                checked += 1
            elif words and words[0].endswith("txn-engine"):
                check_command(words[1:], f"{path.name}: {line}")
                checked += 1
    assert checked > 10


def check_command(words: list[str], line: str) -> None:
    """Fail unless the command line has the command and all of its options."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, line
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, line


def test_operators_page() -> None:
    """docs/OPERATORS.md is up to date with the code. `make docs` writes it."""
    assert operators_page.PAGE.read_text(encoding="utf-8") == operators_page.page()


def test_configs_page() -> None:
    """docs/CONFIGS.md is up to date with the settings in the code. `make docs` writes it."""
    assert configs_page.PAGE.read_text(encoding="utf-8") == configs_page.page()


def test_types_page() -> None:
    """`make docs` has been run since the last change of the table of types and features."""
    assert types_page.PAGE.read_text(encoding="utf-8") == types_page.page()


def test_buckets_page() -> None:
    """`make docs` has been run since the last change of the table of buckets and commands."""
    assert buckets_page.PAGE.read_text(encoding="utf-8") == buckets_page.page()
