"""A MinIO of one's own on 127.0.0.1, where its server was built: data in the home, credentials new at each start."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path

from minio import Minio
from minio.error import MinioException
from urllib3.exceptions import HTTPError

from txn_engine.clock import monotonic_ms, pause_ms
from txn_engine.errors import IllegalStateError
from txn_engine.ids import new_write_id
from txn_engine.reasons import Reason
from txn_engine_airflow.standalone.processes import Guard, Service

BUCKET = "ledger"
_READY_S = 30


def minio_binary(project: Path) -> Path | None:
    """The server: `TXN_ENGINE_MINIO`, or what `make minio` built in the checkout; None where there is neither."""
    given = os.environ.get("TXN_ENGINE_MINIO")
    binary = Path(given) if given else project / ".cache" / "bin" / "minio"
    return binary if binary.is_file() and os.access(binary, os.X_OK) else None


class OwnMinio:
    """The server and its one bucket."""

    def __init__(self, binary: Path, guard: Guard, *, objects: Path, logs: Path, port: int) -> None:
        self._port, self._address = port, f"127.0.0.1:{port}"
        self.access_key, self.secret_key = f"standalone-{new_write_id()[:12]}", new_write_id()
        objects.mkdir(parents=True, exist_ok=True)
        self.service = Service(
            "minio",
            (str(binary), "server", "--quiet", "--address", self._address, str(objects)),
            environment={
                "HOME": str(objects.parent),
                "PATH": os.environ.get("PATH", ""),
                "MINIO_ROOT_USER": self.access_key,
                "MINIO_ROOT_PASSWORD": self.secret_key,
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
            folder=logs,
            guard=guard,
        )

    @property
    def connection(self) -> Mapping[str, object]:
        """The fields of the Airflow connection to the bucket."""
        return {
            "conn_type": "txn_engine",
            "login": self.access_key,
            "password": self.secret_key,
            "extra": {
                "url": f"s3://{BUCKET}",
                "endpoint_url": f"http://{self._address}",
                "region_name": "us-east-1",
            },
        }

    def start(self) -> None:
        """Start it, wait until it serves, make the bucket unless it is there.

        It is this very process that serves: whoever else answers at its port is sent neither a key nor a payment.
        """
        self.service.start()
        deadline_ms = monotonic_ms() + _READY_S * 1_000
        while not self._is_ready():
            has_ended = self.service.exit_code is not None
            if has_ended or monotonic_ms() > deadline_ms:
                raise IllegalStateError(
                    f"not ready: {self.service.last_lines()}",
                    actor="minio",
                    place=str(self.service.log),
                    reason=Reason.SERVICE_ENDED if has_ended else None,
                )
            pause_ms(50)

    def _is_ready(self) -> bool:
        """Its own port first, then health: a client that asks too early is sent away for a minute."""
        if not self.service.listens_on(self._port):
            return False
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        client = Minio(
            self._address,
            access_key=self.access_key,
            secret_key=self.secret_key,
            secure=False,
            region="us-east-1",
        )
        try:
            opener.open(f"http://{self._address}/minio/health/cluster", timeout=1).close()
            if not client.bucket_exists(BUCKET):
                client.make_bucket(BUCKET)
        except (OSError, HTTPException, MinioException, HTTPError):
            return False
        return True
