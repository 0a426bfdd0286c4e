"""Ports for the real servers of the tests."""

from __future__ import annotations

import socket

from tests.servers import free_port, free_ports


def test_a_servers_port_is_none_that_an_outgoing_connection_may_get() -> None:
    """Each is another, and can be listened on."""
    ports = free_ports(64)
    assert len(set(ports)) == 64
    assert 10_000 <= min(ports) <= max(ports) < 32_768
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()
