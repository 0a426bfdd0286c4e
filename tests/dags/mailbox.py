"""A mail server on 127.0.0.1 that keeps its messages. It knows as much of SMTP as Python's own client
needs."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage

from tests.support.waiting import LIMIT_S


class Mailbox:
    """The messages received so far. `port` is the server's port."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        messages = self.messages

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 mailbox")
                while line := self.rfile.readline().decode().strip():
                    command = line.split(maxsplit=1)[0].upper()
                    if command == "DATA":
                        self._say("354 go on")
                        messages.append(self._message())
                    self._say("221 bye" if command == "QUIT" else "250 ok")
                    if command == "QUIT":
                        return

            def _message(self) -> EmailMessage:
                lines = []
                while (line := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(line[1:] if line.startswith(b"..") else line)
                found = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                assert isinstance(found, EmailMessage)
                return found

            def _say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    @property
    def subjects(self) -> list[str]:
        """The subjects of the received messages."""
        return [str(message["Subject"]) for message in self.messages]

    def body(self, number: int) -> str:
        """The text of a message."""
        part = self.messages[number].get_body(("html", "plain"))
        assert part is not None
        return str(part.get_content())

    @contextmanager
    def listening(self) -> Iterator[Mailbox]:
        """Listen until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(LIMIT_S)
