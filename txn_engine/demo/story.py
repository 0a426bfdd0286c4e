"""The demo from its first step to its last."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from txn_engine.clock import monotonic_ms
from txn_engine.demo.airflow_home import airflow_environment
from txn_engine.demo.balances import BALANCES, Balances
from txn_engine.demo.child import Child, Children
from txn_engine.demo.closing import Closing
from txn_engine.demo.folder import Folder, discard_folder, make_folder
from txn_engine.demo.load import DAYS_MIN, Load
from txn_engine.demo.payments import (
    KEY,
    PARTITIONS,
    PAYMENTS,
    PAYMENTS_SCHEMA,
    read_payments,
    split_into_days,
    write_arrow_file,
)
from txn_engine.demo.proof import Proof
from txn_engine.demo.sample import write_sample
from txn_engine.demo.screen import Screen
from txn_engine.demo.sweep import Sweep
from txn_engine.demo.tables import Tables
from txn_engine.engine import Engine, connect
from txn_engine.errors import InvalidRequestError, TopicExistsError
from txn_engine.extras import need
from txn_engine.reasons import Reason
from txn_engine.spark.java import find_java_home
from txn_engine.suggested import command

NEEDED = ("airflow", "quality", "tables", "spark")
"""The extras that the demo shows."""
_AIRFLOW, _FIRST_SPARK, _SECOND_SPARK, _CHECKER = 1, 2, 15, 16
"""Niceness: what is needed later warms up behind what is needed now."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """Where the story plays."""

    engine: Engine
    folder: Folder
    input_file: Path
    payments: pa.Table


class Story:
    """Tells itself on the screen while it happens."""

    def __init__(
        self, console: Console, *, json_output: bool, start_child: Callable[..., Child] = Child
    ) -> None:
        self._screen = Screen(console)
        self._json_output = json_output
        self._start_child = start_child
        self._started_ms = monotonic_ms()

    def tell(self, url: str | None, input_file: Path | None) -> int:
        """The whole of it; the exit code."""
        _check_machine()
        scene = self._set_up(url, input_file)
        with scene.engine, Children(scene.folder.logs, self._start_child) as children:
            closing = self._play(scene, children)
        self._close(scene, closing)
        return 1 if closing.unexpected else 0

    def _set_up(self, url: str | None, input_file: Path | None) -> _Scene:
        """The input read whole, a store that is free, a folder: in this order, so that an error leaves nothing."""
        payments = None if input_file is None else read_payments(input_file, days_min=DAYS_MIN)
        folder = make_folder(Path.cwd())
        try:
            engine = connect(folder.ledger_url) if url is None else _open_free_store(url)
        except BaseException:
            discard_folder(folder)
            raise
        if payments is None or input_file is None:
            input_file = folder.sample
            write_sample(input_file)
            payments = read_payments(input_file, days_min=DAYS_MIN)
        write_arrow_file(payments, folder.arrow_file)
        self._screen.note(f"store     {engine.url}")
        self._screen.note(f"logs      {folder.logs}")
        self._screen.note(f"payments  {input_file}, {payments.num_rows:,} rows")
        return _Scene(engine, folder, input_file.resolve(), payments)

    def _play(self, scene: _Scene, children: Children) -> Closing:
        engine, folder, screen = scene.engine, scene.folder, self._screen
        airflow = children.start(
            "airflow",
            "txn_engine.demo.dag_runner",
            environment=airflow_environment(folder.airflow, engine.url),
            niceness=_AIRFLOW,
        )
        first_spark = _start_spark(children, "spark", scene, _FIRST_SPARK)
        days = split_into_days(scene.payments)
        with screen.step(f"Load {scene.payments.num_rows:,} payments of {len(days):,} days", "load"):
            engine.admin.create_topic(PAYMENTS, partitions=PARTITIONS, schema=PAYMENTS_SCHEMA, key=KEY)
            screen.say(f"topic {PAYMENTS}: {PARTITIONS} partitions by {KEY}; a transaction a day")
            load = Load(children, screen, engine.url, folder.arrow_file, days)
            load.run()
        second_spark = _start_spark(children, "spark-again", scene, _SECOND_SPARK)
        with screen.step("Sweep with the DAGs", "sweep"):
            sweep = Sweep(engine, screen, airflow)
            sweep.run(load)
        checker = children.start("checker", "txn_engine.demo.checker", niceness=_CHECKER)
        with screen.step("Sum up with Spark", "spark"):
            balances = Balances(engine, screen)
            balances.run(first_spark, second_spark)
        with screen.step("Publish it for every other engine", "tables"):
            tables = Tables(engine, screen)
            tables.run()
        with screen.step("Prove it with Great Expectations", "proof"):
            proof = Proof(engine, screen, checker)
            proof.run(scene.input_file, folder.report)
        return Closing(
            scene.payments.num_rows,
            load.report,
            sweep.report,
            balances.report,
            tables.report,
            proof.report,
            self._seconds(),
        )

    def _seconds(self) -> Mapping[str, float]:
        return {**self._screen.seconds, "all": (monotonic_ms() - self._started_ms) / 1_000}

    def _close(self, scene: _Scene, closing: Closing) -> None:
        screen = self._screen
        screen.heading("What became of it")
        screen.show(closing.table())
        for told in closing.unexpected:
            screen.note(f"not as it was to go: {told}", style="bold red")
        screen.note(f"report  {closing.proof.report.as_uri()}")
        for root, readers in closing.tables.opened():
            screen.note(f"table   {root}   ({readers})")
        look = command("transactions list", url=scene.engine.url)
        screen.note(f"store   {scene.engine.url}   ({look})")
        if self._json_output:
            document = {
                "url": scene.engine.url,
                "folder": str(scene.folder.path),
                "input": str(scene.input_file),
                **closing.document(),
            }
            sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _start_spark(children: Children, name: str, scene: _Scene, niceness: int) -> Child:
    arguments = ("--url", scene.engine.url, "--checkpoint", str(scene.folder.checkpoint))
    return children.start(name, "txn_engine.demo.spark_runner", *arguments, niceness=niceness)


def _check_machine() -> None:
    """Raise unless there is a Java for Spark and every package that the demo shows."""
    need(*NEEDED, actor="demo")
    find_java_home()


def _open_free_store(url: str) -> Engine:
    """The store, if the demo has never run on it. Raises without a change to it otherwise."""
    if url.startswith("memory:"):
        raise InvalidRequestError(
            "a store in memory",
            actor="demo",
            place=url,
            expected="one that several processes reach: a folder or a bucket",
            reason=Reason.STORE_IN_MEMORY,
        )
    engine = connect(url)
    taken = sorted({PAYMENTS, BALANCES} & set(engine.admin.list_topics()))
    if taken:
        engine.close()
        raise TopicExistsError(
            f"{' and '.join(taken)}: there already",
            actor="demo",
            place=engine.url,
            expected="a store that the demo has not run on",
            action="give another --url, or neither --url nor TXN_ENGINE_URL for a new folder; nothing was touched",
        )
    return engine
