"""Ports for the real servers of the tests are never given to other connections."""

from __future__ import annotations

import socket

from tests.support.servers import free_port, free_ports


def test_ports_of_servers_are_not_ephemeral() -> None:
    """Outgoing connections never get such a port. All are different, and a server can listen on them."""
    ports = free_ports(64)
    assert len(set(ports)) == 64
    assert 10_000 <= min(ports) <= max(ports) < 32_768
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()
