"""A Kafka broker of the test's own: KRaft, one node, on free ports of 127.0.0.1. Its data are removed when it
stops."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.differential.broker import Broker
from tests.differential.errors import CallError
from tests.differential.wire import Connection
from tests.support.servers import REPOSITORY, free_port
from txn_engine.spark.java import find_java_home

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
ID_EXPIRATION_MS = 5_000
LONG_MS = 604_800_000
ADMIN_CLIENT_ID = "__admin_client"  # Kafka lets it write to internal topics

_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
log.retention.ms=-1
log.index.size.max.bytes=65536
num.io.threads=4
num.network.threads=2
background.threads=4
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=100
transaction.partition.verification.enable={verification}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transactional.id.expiration.ms={id_expiration_ms}
transaction.remove.expired.transaction.cleanup.interval.ms=100
"""
_JVM = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_SOON_UP = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a broker that lives for seconds: up sooner, and slower than it could be."""


def kafka_jars() -> Path | None:
    """The folder with Kafka's jars: `TXN_ENGINE_KAFKA_JARS`, or the one that `.ci/setup-kafka` fetched, or
    None."""
    given = os.environ.get("TXN_ENGINE_KAFKA_JARS")
    folder = Path(given) if given else REPOSITORY / ".cache" / "kafka" / "jars"
    return folder if any(folder.glob("*kafka_2.13-*.jar")) else None


class KafkaServer:
    """`with KafkaServer(jars) as server:` runs a broker, and `restart` keeps port and data.

    Without `verification` a partition takes transactional batches of any producer id and does not ask the
    coordinator, and ids expire after a few seconds. `measured` makes the broker as fast as possible once it
    is warm.
    """

    def __init__(self, jars: Path, *, verification: bool, measured: bool = False) -> None:
        self._jars = jars
        self._verification = verification
        self._jvm = _JVM if measured else (*_JVM, *_SOON_UP)
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._java = str(find_java_home() / "bin" / "java")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def connect(self, client_id: str = "differential") -> Connection:
        """A new connection of the caller's own."""
        return Connection(self.port, client_id)

    def start(self) -> Self:
        """Format the storage, start, and wait until the coordinators answer."""
        self.port = free_port()
        self._write_settings(free_port())
        self._run_tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._settings))
        self._launch()
        return self

    def restart(self, *, verification: bool) -> None:
        """Stop and start again, so that coordinators load their logs again."""
        self._end(signal.SIGTERM)
        self._verification = verification
        self._write_settings(free_port())
        self._launch()

    def stop(self) -> None:
        """End the broker and remove its data."""
        self._end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _settings(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _write_settings(self, controller_port: int) -> None:
        self._settings.write_text(
            _SETTINGS.format(
                port=self.port,
                controller_port=controller_port,
                data=self._folder / "data",
                verification=str(self._verification).lower(),
                id_expiration_ms=LONG_MS if self._verification else ID_EXPIRATION_MS,
            )
        )

    def _command(self, main: str, *arguments: str) -> list[str]:
        return [self._java, *self._jvm, "-cp", f"{self._jars}/*", main, *arguments]

    def _run_tool(self, main: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(main, *arguments),
            check=False,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"{main} failed: {done.stdout[-1_000:]}{done.stderr[-1_000:]}")

    def _launch(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the run, which then stops the server itself
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start: {self._log.read_text(errors='replace')[-2_000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, CallError), self.connect() as connection:
            broker = Broker(connection)
            for key_type in (0, 1):
                broker.find_coordinator("anybody", key_type)
            broker.init_producer_id("anybody", 60_000, -1, -1)
            broker.offset_fetch("anybody", "nothing", 0, require_stable=False)
            return True
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
