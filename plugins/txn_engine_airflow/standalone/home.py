"""Where a standalone Airflow keeps what it has: database, logs, reports, and the secrets made at its first start."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from txn_engine.errors import IllegalStateError
from txn_engine.ids import new_write_id
from txn_engine.reasons import Reason

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

    @property
    def cli_environment(self) -> Path:
        """What the command line needs to open the store."""
        return self.path / "cli.env"

    @property
    def input(self) -> Path:
        """The files that a run's params may name."""
        return self.path / "input"

    @property
    def is_new(self) -> bool:
        """Whether nobody was told its password yet."""
        return not self._secrets.exists()

    @property
    def _secrets(self) -> Path:
        return self.path / "secrets.json"

    @contextmanager
    def taken(self) -> Iterator[Sequence[str]]:
        """This process's alone until the block ends, or the process does; and this user's alone from now on.

        Gives the names of what was open to other users, and is not any more. Raises `IllegalStateError` where another
        process has it, or another user. What the holder starts does not hold it.
        """
        self._make_folder()
        closed = self._close_to_others()
        with only_process(
            self.path / "lock",
            actor="standalone",
            held="this home",
            action="stop that one, or start this one with another --home",
        ) as lock:
            note_holder(lock)
            yield closed

    def make(self) -> Secrets:
        """Make it, unless it is there; its secrets."""
        self._make_folder()
        self.input.mkdir(exist_ok=True, mode=0o700)
        self._close_to_others()
        kept = self._secrets
        if kept.exists():
            return Secrets(**json.loads(kept.read_text(encoding="utf-8")))
        secrets = Secrets(
            password=new_write_id()[:20],
            jwt_secret=_long_secret(),
            session_key=_long_secret(),
            fernet_key=base64.urlsafe_b64encode(bytes.fromhex(new_write_id() + new_write_id())).decode(),
        )
        write_private(self.passwords, json.dumps({USER: secrets.password}))
        fields = {name: getattr(secrets, name) for name in Secrets.__slots__}
        write_private(kept, json.dumps(fields))
        return secrets

    def _make_folder(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _close_to_others(self) -> list[str]:
        """Take from others what they may do with the folder and the files in it; what was changed, by name.

        What lies deeper is behind the folder. Raises `IllegalStateError` for what is another user's, who could open it
        again, and for a link that leads out: whoever put it there chose what is read and written behind it.
        """
        within = list(self.path.iterdir())
        links = [path for path in within if path.is_symlink()]
        found = [self.path, *(path for path in within if path not in links)]
        for path in (*found, *links):
            if (path.lstat() if path in links else path.stat()).st_uid != os.getuid():
                raise self._strange(path, "another user's", Reason.OWNED_BY_ANOTHER_USER)
        for path in links:
            if not path.resolve().is_relative_to(self.path.resolve()):
                raise self._strange(path, "a link that leads out of it", Reason.LINK_LEADS_OUT)
        lax = [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]
        for path in lax:
            path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)
        return [path.name for path in lax]

    def _strange(self, path: Path, seen: str, reason: Reason) -> IllegalStateError:
        return IllegalStateError(
            f"{path.name} is {seen}",
            actor="standalone",
            place=str(self.path),
            expected="a home that is this user's alone",
            action="remove it, or start with another --home",
            reason=reason,
        )


@contextmanager
def only_process(lock: Path, *, actor: str, held: str, action: str) -> Iterator[TextIO]:
    """Hold `lock` until the block ends, or the process does. What the holder starts does not hold it.

    Gives the file at its beginning, as the last holder left it: the number of its process, and what it wrote after
    that. `note_holder` replaces it. Raises `IllegalStateError` if another process holds it.
    """
    with open(lock, "a+", encoding="utf-8", opener=_open_private) as file:
        file.seek(0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise IllegalStateError(
                f"process {file.readline().strip()} has {held}",
                actor=actor,
                place=str(lock.parent),
                expected="one process at a time",
                action=action,
                reason=Reason.HOME_IN_USE,
            ) from None
        yield file


def note_holder(lock: TextIO, *lines: str) -> None:
    """Write the number of this process into a lock that it holds, and then these lines."""
    lock.truncate(0)
    lock.write("".join(f"{line}\n" for line in (os.getpid(), *lines)))
    lock.flush()


def _long_secret() -> str:
    return new_write_id() + new_write_id()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read at any moment; one that was there is replaced whole."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)
