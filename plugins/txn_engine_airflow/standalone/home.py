"""Where a standalone Airflow keeps what it has: database, logs, reports, and the secrets made at its first start."""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from txn_engine.errors import IllegalStateError
from txn_engine.ids import new_write_id

USER = "admin"


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is kept from everybody but this user; made once for each home."""

    password: str
    jwt_secret: str
    session_key: str
    fernet_key: str


@dataclass(frozen=True, slots=True)
class Home:
    """A folder and what is in it."""

    path: Path

    @property
    def logs(self) -> Path:
        """One log a service."""
        return self.path / "services"

    @property
    def objects(self) -> Path:
        """What a MinIO of our own stores."""
        return self.path / "minio"

    @property
    def ledger_url(self) -> str:
        """The embedded store, where there is no MinIO."""
        return (self.path / "ledger").as_uri()

    @property
    def passwords(self) -> Path:
        """The file that Airflow's simple auth manager reads."""
        return self.path / "passwords.json"

    @contextmanager
    def taken(self) -> Iterator[None]:
        """This process's alone until the block ends, or the process does.

        Raises `IllegalStateError` where another has it. What the holder starts does not hold it.
        """
        self._make_folder()
        with (self.path / "lock").open("a+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise IllegalStateError(
                    f"process {lock.read().strip()} has this home",
                    actor="standalone",
                    place=str(self.path),
                    expected="one process to a home",
                    action="stop that one, or start this one with another --home",
                ) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def make(self) -> Secrets:
        """Make it, unless it is there; its secrets."""
        self._make_folder()
        kept = self.path / "secrets.json"
        if kept.exists():
            return Secrets(**json.loads(kept.read_text(encoding="utf-8")))
        secrets = Secrets(
            password=new_write_id()[:20],
            jwt_secret=_long_secret(),
            session_key=_long_secret(),
            fernet_key=base64.urlsafe_b64encode(bytes.fromhex(new_write_id() + new_write_id())).decode(),
        )
        _write_private(self.passwords, json.dumps({USER: secrets.password}))
        fields = {name: getattr(secrets, name) for name in Secrets.__slots__}
        _write_private(kept, json.dumps(fields))
        return secrets

    def _make_folder(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)


def _long_secret() -> str:
    return new_write_id() + new_write_id()


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
