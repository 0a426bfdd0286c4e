"""Where a bucket is and how to get in, from arguments and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from configparser import Error as ConfigParserError
from dataclasses import dataclass, field
from pathlib import Path

from storage.errors import InvalidStoreUrlError, told_bucket
from storage.keys import validate_prefix
from storage.reasons import StoreReason

CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
"""What S3 takes as the header x-amz-server-side-encryption."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class S3Config:
    """Where the bucket is and how to get in; `repr` shows no secret.

    A key pair given here is used alone; without one, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
    `AWS_SESSION_TOKEN` of the environment are, then the profile that AWS_PROFILE names in AWS's own files, then the
    machine's role. provider: gives key, secret and, if there is one, token, whenever they are needed; then nothing else
    is asked. ca_bundle: a file of certificates to trust beside the system's. server_side_encryption,
    sse_kms_key_id: what every put asks for.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str = "us-east-1"
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None
    provider: Callable[[], Sequence[str | None]] | None = field(default=None, repr=False, compare=False)

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def place(self) -> str:
        """The URL and, where there is one, the endpoint: for messages."""
        return f"{self.url} ({self.endpoint})" if self.endpoint else self.url

    def credentials(self) -> tuple[str, str, str | None] | None:
        """Key, secret and token to sign with, as they are now; None leaves it to the machine's role."""
        if self.provider is not None:
            return _checked(self.provider())
        if self.access_key and self.secret_key:
            return self.access_key, self.secret_key, self.session_token
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        if key and secret:
            return key, secret, os.environ.get("AWS_SESSION_TOKEN") or None
        return _of_profile()

    def trusted(self) -> str | None:
        """The certificates of `ca_bundle`, as PEM without what stands between them, which may be in any encoding.
        Raises `InvalidStoreUrlError` for a file that cannot be read or has none.
        """
        if self.ca_bundle is None:
            return None
        import ssl

        try:
            found = _CERTIFICATE.findall(Path(self.ca_bundle).read_bytes())
            trusted = "\n".join(each.decode("ascii") for each in found)
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=trusted)
        except (OSError, ValueError) as error:
            raise _invalid(
                f"the CA bundle {self.ca_bundle} cannot be read: {error}",
                "a file of certificates (PEM)",
                StoreReason.BAD_CERTIFICATE,
            ) from error
        return trusted


def s3_config(
    bucket: str,
    prefix: str = "",
    *,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    region: str | None = None,
    ca_bundle: str | None = None,
    server_side_encryption: str | None = None,
    sse_kms_key_id: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> S3Config:
    """Return the checked configuration, with endpoint and region from the environment where not given."""
    env = os.environ if environment is None else environment
    names = ("TXN_ENGINE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    found = endpoint or next((env[name] for name in names if env.get(name)), None)
    if _BUCKET.fullmatch(bucket) is None:
        raise _invalid(
            f"{told_bucket(bucket)} is not the name of a bucket",
            "s3://bucket/prefix",
            StoreReason.BAD_BUCKET_NAME,
        )
    if found is not None:
        found = found.rstrip("/")
        if re.fullmatch(r"https?://[A-Za-z0-9._\[\]:-]+(?:/[^\s?#@]*)?", found) is None:
            raise _invalid(
                "the endpoint is not the URL of a server",
                "http(s)://host[:port], without user and password",
                StoreReason.BAD_ENDPOINT,
            )
    if bool(access_key) != bool(secret_key):
        raise _invalid(
            "only one of access key and secret key was given",
            "both, or neither and the environment",
            StoreReason.HALF_A_KEY_PAIR,
        )
    return S3Config(
        bucket,
        validate_prefix(prefix).rstrip("/"),
        found,
        region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
        access_key or None,
        secret_key or None,
        session_token or None,
        ca_bundle or env.get("AWS_CA_BUNDLE") or None,
        _encryption(server_side_encryption or env.get("AWS_SERVER_SIDE_ENCRYPTION")),
        sse_kms_key_id or env.get("AWS_SSE_KMS_KEY_ID") or None,
    )


def _encryption(asked: str | None) -> str | None:
    if asked and asked not in ENCRYPTIONS:
        raise _invalid(
            f"server-side encryption {asked!r:.40}", f"{' or '.join(ENCRYPTIONS)}", StoreReason.BAD_ENCRYPTION
        )
    return asked or None


def _checked(given: object) -> tuple[str, str, str | None]:
    parts = list(given) if isinstance(given, tuple | list) else []
    parts += [None] * (len(parts) == 2)
    if len(parts) != 3 or not all(isinstance(each, str) and each for each in parts[:2]):
        raise _invalid(
            "credentials of another form",
            "a key, its secret and, if there is one, a session token",
            StoreReason.MALFORMED_CREDENTIALS,
        )
    return parts[0], parts[1], parts[2] or None


def _of_profile() -> tuple[str, str, str | None] | None:
    """The keys that a profile has in AWS's file of credentials. Without AWS_PROFILE it is the one called default."""
    from minio.credentials.providers import AWSConfigProvider  # 60 ms, which only those without keys wait for

    try:
        found = AWSConfigProvider().retrieve()
    except (ValueError, OSError, ConfigParserError):
        return None  # no such file, or no keys in it
    return found.access_key, found.secret_key, found.session_token or None


def _invalid(seen: str, expected: str, reason: StoreReason) -> InvalidStoreUrlError:
    return InvalidStoreUrlError(
        seen,
        actor="s3 store",
        expected=expected,
        action="fix the URL or the settings",
        reason=reason,
    )
