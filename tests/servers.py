"""Real servers for tests, the bench and the demo: started on 127.0.0.1, stopped by process id."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import urllib3
from minio import Minio
from minio.error import MinioException

REPOSITORY = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0


def minio_binary() -> Path | None:
    """The MinIO server: `TXN_ENGINE_MINIO`, or what `make minio` built; None when there is neither."""
    given = os.environ.get("TXN_ENGINE_MINIO")
    binary = Path(given) if given else REPOSITORY / ".cache" / "bin" / "minio"
    return binary if os.access(binary, os.X_OK) and binary.is_file() else None


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


class MinioServer:
    """A MinIO server of one's own: random credentials, data in a folder that goes when the server stops.

    `with MinioServer(binary) as server:` or `start()` and `stop()`. `kill()` and a second `start()` on the
    same port and data are a crash and a restart.
    """

    def __init__(self, binary: Path, *, data: Path | None = None) -> None:
        self._binary = binary
        self._own_data = data is None
        self.data = data or Path(tempfile.mkdtemp(prefix="minio-"))
        self.access_key = f"test-{secrets.token_hex(6)}"
        self.secret_key = secrets.token_urlsafe(24)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The endpoint, `http://127.0.0.1:port`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use this server through the environment."""
        return {
            "TXN_ENGINE_S3_ENDPOINT": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def client(self) -> Minio:
        """A client of this server."""
        return minio_client(self.url, self.access_key, self.secret_key)

    def start(self) -> Self:
        """Start and wait until the server says that it is ready; another port is tried when one was just
        taken.
        """
        for _ in range(3):
            self._launch()
            if self._wait_until_ready():
                return self
            self.kill()
            self.port = 0
        log = self._log.read_text(errors="replace")[-2_000:] if self._log.exists() else ""
        self.stop()
        raise RuntimeError(f"{self._binary} did not become ready: {log}")

    def stop(self) -> None:
        """End the process, politely at first, and remove its data."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        self._process = process
        self.kill()
        if self._own_data:
            shutil.rmtree(self.data, ignore_errors=True)

    def kill(self) -> None:
        """End the process at once, as a crash would; the data stay."""
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
        self.port = self.port or free_port()
        objects = self.data / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("MINIO_", "AWS_"))
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(objects)],
                env={
                    **inherited,
                    "HOME": str(self.data),
                    "MINIO_ROOT_USER": self.access_key,
                    "MINIO_ROOT_PASSWORD": self.secret_key,
                    "MINIO_BROWSER": "off",
                    "MINIO_UPDATE": "off",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server themselves
            )

    def _answers_signed_requests(self) -> bool:
        """MinIO calls itself ready a little before it serves buckets, and then asks to come back in 60 seconds."""
        with contextlib.suppress(MinioException, urllib3.exceptions.HTTPError):
            self.client().list_buckets()
            return True
        return False

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + START_TIMEOUT_S
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                return False
            with (
                contextlib.suppress(urllib.error.URLError, http.client.HTTPException, OSError),
                opener.open(f"{self.url}/minio/health/cluster", timeout=1) as answer,
            ):
                if answer.status == 200 and self._answers_signed_requests():
                    return True
            time.sleep(0.05)
        return False
