"""Where a bucket is and how to get in, from arguments and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.errors import InvalidStoreUrlError
from storage.keys import validate_prefix
from storage.reasons import StoreReason

CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class S3Config:
    """Where the bucket is and how to get in; `repr` shows no secret.

    A key pair given here is used alone; without one, the environment is asked each time a client is made
    (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), then the machine's own role.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str = "us-east-1"
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def place(self) -> str:
        """The URL and, where there is one, the endpoint: for messages."""
        return f"{self.url} ({self.endpoint})" if self.endpoint else self.url

    def credentials(self) -> tuple[str, str, str | None] | None:
        """Key, secret and token to sign with; None leaves it to the machine's role."""
        if self.access_key and self.secret_key:
            return self.access_key, self.secret_key, self.session_token
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        if key and secret:
            return key, secret, os.environ.get("AWS_SESSION_TOKEN") or None
        return None


def s3_config(
    bucket: str,
    prefix: str = "",
    *,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    region: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> S3Config:
    """Return the checked configuration, with endpoint and region from the environment where not given."""
    env = os.environ if environment is None else environment
    names = ("TXN_ENGINE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    found = endpoint or next((env[name] for name in names if env.get(name)), None)
    if _BUCKET.fullmatch(bucket) is None:
        named = "what stands there" if ":" in bucket or "@" in bucket else repr(bucket)
        raise _invalid(
            f"{named} is not the name of a bucket", "s3://bucket/prefix", StoreReason.BAD_BUCKET_NAME
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
    )


def _invalid(seen: str, expected: str, reason: StoreReason) -> InvalidStoreUrlError:
    return InvalidStoreUrlError(
        seen,
        actor="s3 store",
        expected=expected,
        action="fix the URL or the settings",
        reason=reason,
    )
