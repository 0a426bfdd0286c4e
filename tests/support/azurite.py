"""Azurite, the emulator of Azure's blob service, and a client that shares no code with the store under test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from tests.support.servers import REPOSITORY, Server

SCRIPT: Final = (
    REPOSITORY / ".cache" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
)
_VERSION: Final = "2023-11-03"


def missing_azurite() -> str | None:
    """What is missing to run Azurite, or None if nothing is missing."""
    if shutil.which("node") is None:
        return "no Node.js on this machine: with it, .ci/setup-azurite brings Azurite"
    return None if SCRIPT.is_file() else "no Azurite: run .ci/setup-azurite"


@dataclass(frozen=True)
class AzureContainer:
    """A container of one test's own, with its credentials and a client that signs by itself (Shared Key)."""

    name: str
    endpoint: str
    account: str
    key: str

    @property
    def url(self) -> str:
        return f"az://{self.name}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings for `open_store`."""
        return {"endpoint": self.endpoint, "account": self.account, "account_key": self.key}

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TXN_ENGINE_AZURE_ENDPOINT": self.endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
        }

    def create(self) -> None:
        """Make the container."""
        self._ask("PUT", "", {"restype": "container"})

    def put(self, name: str, data: bytes) -> None:
        """Put a blob, and overwrite an existing one."""
        self._ask("PUT", name, {}, data, {"x-ms-blob-type": "BlockBlob"})

    def get(self, name: str) -> bytes:
        """The blob. Raises `HTTPError` if it does not exist."""
        return self._ask("GET", name, {})

    def exists(self, name: str) -> bool:
        """Whether this blob exists."""
        try:
            self._ask("HEAD", name, {})
        except HTTPError as error:
            if error.code == 404:
                return False
            raise
        return True

    def names(self) -> str:
        """The service's list of the container, as XML."""
        return self._ask("GET", "", {"restype": "container", "comp": "list"}).decode()

    def _ask(
        self,
        method: str,
        name: str,
        query: Mapping[str, str],
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        path = quote(f"/{self.account}/{self.name}" + (f"/{name}" if name else ""))
        sent = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION, **(headers or {})}
        length = str(len(body)) if body else ""
        kind = "application/octet-stream" if method == "PUT" else ""
        shown = "".join(f"{each}:{sent[each]}\n" for each in sorted(sent))
        resource = f"/{self.account}{path}" + "".join(f"\n{each}:{query[each]}" for each in sorted(query))
        text = "\n".join([method, "", "", length, "", kind, "", "", "", "", "", "", shown + resource])
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        sent["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
        if kind:
            sent |= {"Content-Type": kind, "Content-Length": str(len(body))}
        root = self.endpoint.removesuffix(f"/{self.account}")
        asked = urllib.request.Request(
            f"{root}{path}" + (f"?{urlencode(query)}" if query else ""),
            data=body if method == "PUT" else None,
            method=method,
            headers=sent,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(asked, timeout=30) as answer:
            return bytes(answer.read())


class AzuriteServer(Server):
    """Azurite's blob service alone, without a queue service, a table service or telemetry."""

    stop_patience_s = 0.5  # it waits for connections that clients keep open; the data are in memory

    def __init__(self, *, data: Path | None = None) -> None:
        super().__init__(SCRIPT, data=data)
        self.account = f"test{secrets.token_hex(6)}"
        self.key = base64.b64encode(secrets.token_bytes(48)).decode()

    def command(self) -> list[str]:
        """The command. Data are in memory, because they are removed with the server anyway."""
        return [
            str(shutil.which("node")), str(SCRIPT), "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
            "--silent", "--disableTelemetry", "--inMemoryPersistence",
            "--skipApiVersionCheck",  # it knows what is asked of it, if not the newest name for it
        ]  # fmt: skip

    def process_environment(self) -> dict[str, str]:
        """The server has an account of its own, not the emulator's well-known one."""
        return {
            "AZURITE_ACCOUNTS": f"{self.account}:{self.key}",
            "NODE_OPTIONS": os.environ.get("NODE_OPTIONS", ""),
        }

    def is_ready(self) -> bool:
        """The server is ready as soon as a container can be made."""
        self.container()
        return True

    @property
    def endpoint(self) -> str:
        """The endpoint, with the account in its path, as emulators have it."""
        return f"{self.url}/{self.account}"

    def container(self) -> AzureContainer:
        """A new container, which nobody else uses."""
        made = AzureContainer(f"test-{secrets.token_hex(8)}", self.endpoint, self.account, self.key)
        made.create()
        return made
