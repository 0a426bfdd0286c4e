"""The machine's certificate authorities in the form that Java reads.

A Java from a wheel knows only the authorities that it was built with. Behind a proxy that signs with its own,
which the machine's administrator has put into the system's bundle, everything else on the machine connects and
that Java does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

TRUST_STORE_PASSWORD = "changeit"  # no secret: Java's own for files of public certificates

SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian and its kin
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora and its kin
    Path("/etc/ssl/cert.pem"),  # macOS, Alpine
)

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def system_certificates(
    environment: Mapping[str, str] = os.environ, bundles: Iterable[Path] = SYSTEM_BUNDLES
) -> list[bytes]:
    """The authorities (DER) of `SSL_CERT_FILE`, else of the first system bundle; none without a bundle."""
    named = environment.get("SSL_CERT_FILE")
    for bundle in (Path(named),) if named else bundles:
        try:
            text = bundle.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        return [ssl.PEM_cert_to_DER_cert(certificate) for certificate in _CERTIFICATE.findall(text)]
    return []


def java_trust_store(certificates: Iterable[bytes]) -> bytes:
    """A key store in Java's JKS format that trusts these certificates; same certificates, same bytes.

    The format is that of `sun.security.provider.JavaKeyStore`: big-endian, strings with a two-byte length, at the
    end a SHA-1 over the password, a fixed phrase and the content.
    """
    entries = [
        _int32(2)  # an entry of a trusted certificate
        + _text(f"system-{number}")
        + bytes(8)  # its creation time, which nothing reads
        + _text("X.509")
        + _int32(len(certificate))
        + certificate
        for number, certificate in enumerate(certificates)
    ]
    content = bytes.fromhex("feedfeed") + _int32(2) + _int32(len(entries)) + b"".join(entries)
    seed = TRUST_STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    return content + hashlib.sha1(seed + content, usedforsecurity=False).digest()


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode("ascii")
