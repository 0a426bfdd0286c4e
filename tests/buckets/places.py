"""A bucket with a ledger, its backups and room for a restored one, and looks at it with all rights."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from minio import Minio, MinioAdmin
from minio.commonconfig import CopySource
from minio.credentials import StaticProvider

from storage import ObjectStore, open_store
from tests.support.internal import FEW_INTERNAL
from tests.support.servers import MinioServer
from txn_engine import Engine, connect
from txn_engine.backup import check_backup

SCHEMA = pa.schema([("account_id", pa.int64()), ("amount", pa.int64())])


@dataclass
class Place:
    """A bucket of the table's own. env: what the commands run with; a setting changes it. asked: how many requests
    a relay has had of this command. injected: how many of them it answered itself.
    """

    server: MinioServer
    folder: Path
    name: str = field(default_factory=lambda: f"row-{secrets.token_hex(6)}")
    env: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    injected: int = 0

    def __post_init__(self) -> None:
        self.env.update(self.server.environment)

    @property
    def store(self) -> str:
        return f"s3://{self.name}/ledger"

    @property
    def backups(self) -> str:
        return f"s3://{self.name}/backups"

    @property
    def restored(self) -> str:
        return f"s3://{self.name}/restored"

    @cached_property
    def client(self) -> Minio:
        """A client with all rights."""
        return self.server.client()

    @cached_property
    def admin(self) -> MinioAdmin:
        root = StaticProvider(self.server.access_key, self.server.secret_key)
        endpoint = self.server.url.removeprefix("http://")
        return MinioAdmin(endpoint=endpoint, credentials=root, region="us-east-1", secure=False)

    @property
    def file(self) -> Path:
        """Two payments to load."""
        path = self.folder / "payments.csv"
        path.write_text("account_id,amount\n5,1\n6,1\n")
        return path

    def keys(self, key: str, secret: str) -> None:
        """Let the commands use this key."""
        self.env |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}

    def user_with(self, *statements: dict[str, Any]) -> str:
        """Let the commands use a key with these rights alone, and return it."""
        key, secret = f"user-{secrets.token_hex(4)}", secrets.token_hex(16)
        allowed = [{"Effect": "Allow", "Sid": f"S{at}", **each} for at, each in enumerate(statements)]
        self.admin.policy_add(key, policy={"Version": "2012-10-17", "Statement": allowed})
        self.admin.user_add(key, secret)
        self.admin.policy_set(key, user=key)
        self.keys(key, secret)
        return key

    def open(self, url: str) -> ObjectStore:
        """A place in the bucket, with all rights and past every relay."""
        return open_store(url, **self._root)

    def engine(self, url: str) -> Engine:
        return connect(url, configs=FEW_INTERNAL, **self._root)

    @property
    def _root(self) -> dict[str, str]:
        return {
            "endpoint": self.server.url,
            "access_key": self.server.access_key,
            "secret_key": self.server.secret_key,
            "region": "us-east-1",
        }


def prepare(place: Place) -> None:
    """A topic with two loads, two backups, and a data file that no entry names."""
    with place.engine(place.store) as engine:
        engine.admin.create_topic("payments", partitions=1, schema=SCHEMA, key="account_id")
        for number, accounts in enumerate(([1, 2], [3])):
            table = pa.table({"account_id": accounts, "amount": [1] * len(accounts)}, schema=SCHEMA)
            with engine.producer(transactional_id="loader") as producer:
                producer.init_transactions()
                with producer.transaction(run_id=f"run {number}"):
                    producer.produce("payments", table)
            engine.backup(place.open(place.backups))
    _leave_an_orphan(place)


def _leave_an_orphan(place: Place) -> None:
    keys = [
        str(each.object_name) for each in place.client.list_objects(place.name, "ledger/", recursive=True)
    ]
    named = next(key for key in keys if "/topics/payments/" in key and "/data/" in key)
    orphan = re.sub(r"[0-9a-f]{32}\.parquet$", f"{secrets.token_hex(16)}.parquet", named)
    place.client.copy_object(place.name, orphan, CopySource(place.name, named))


# --- looks with all rights


def rows_of(place: Place, topic: str, url: str | None = None) -> int:
    with place.engine(url or place.store) as engine:
        return int(engine.scan(topic).to_table().num_rows)


def backups_are_whole(place: Place) -> bool:
    return not check_backup(place.open(place.backups)).damaged


def logs_are_sound(place: Place) -> bool:
    with place.engine(place.store) as engine:
        return not engine.admin.verify().findings


def erased_is_held(place: Place) -> bool:
    """Whether any version of an object below the store's prefix is a data file with the erased account."""
    import io

    import pyarrow.parquet as pq

    for each in place.client.list_objects(
        place.name, "ledger/topics/payments/", recursive=True, include_version=True
    ):
        if each.is_delete_marker or "/data/" not in str(each.object_name):
            continue
        answer = place.client.get_object(place.name, str(each.object_name), version_id=each.version_id)
        found = pq.read_table(io.BytesIO(answer.data))
        if 1 in found.column("account_id").to_pylist():
            return True
    return False
