"""The settings of buckets in docs/BUCKETS.md, each made on a real MinIO."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from minio.commonconfig import COMPLIANCE, ENABLED, GOVERNANCE
from minio.objectlockconfig import DAYS, ObjectLockConfig
from minio.sseconfig import Rule as EncryptionRule
from minio.sseconfig import SSEConfig
from minio.versioningconfig import SUSPENDED, VersioningConfig

from tests.buckets.places import Place, prepare
from tests.buckets.relay import Answer, Relay, Request
from tests.support.certificates import make_certificates

Made = Callable[[Place], AbstractContextManager[None]]


@dataclass(frozen=True)
class Setting:
    """A row of the table. title and how: what the page says. injects: the notes that a relay makes happen, because it
    answers in MinIO's place; None where every answer is MinIO's own.
    """

    title: str
    how: str
    made: Made
    injects: frozenset[str] | None = None


SETTINGS: dict[str, Setting] = {}


def _setting(
    name: str, title: str, how: str, *, injects: Collection[str] | None = None
) -> Callable[[Callable[[Place], Iterator[None]]], Made]:
    def added(function: Callable[[Place], Iterator[None]]) -> Made:
        given = None if injects is None else frozenset(injects)
        SETTINGS[name] = Setting(title, how, contextmanager(function), given)
        return SETTINGS[name].made

    return added


def _bucket(place: Place, *, object_lock: bool = False) -> None:
    place.client.make_bucket(place.name, object_lock=object_lock)


@_setting("plain", "plain", "No setting was changed.")
def plain(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    yield


@_setting("versioned", "versioned", "Versioning is Enabled from the start, without a lifecycle rule.")
def versioned(place: Place) -> Iterator[None]:
    _bucket(place)
    place.client.set_bucket_versioning(place.name, VersioningConfig(ENABLED))
    prepare(place)
    yield


@_setting(
    "suspended", "suspended", "Versioning was Enabled while the store was loaded, and is Suspended now."
)
def suspended(place: Place) -> Iterator[None]:
    _bucket(place)
    place.client.set_bucket_versioning(place.name, VersioningConfig(ENABLED))
    prepare(place)
    place.client.set_bucket_versioning(place.name, VersioningConfig(SUSPENDED))
    yield


@_setting(
    "governance",
    "Object Lock, governance",
    "Object Lock with a default retention of 1 day in governance mode.",
)
def governance(place: Place) -> Iterator[None]:
    _bucket(place, object_lock=True)
    place.client.set_object_lock_config(place.name, ObjectLockConfig(GOVERNANCE, 1, DAYS))
    prepare(place)
    yield


@_setting(
    "compliance",
    "Object Lock, compliance",
    "Object Lock with a default retention of 1 day in compliance mode.",
)
def compliance(place: Place) -> Iterator[None]:
    _bucket(place, object_lock=True)
    place.client.set_object_lock_config(place.name, ObjectLockConfig(COMPLIANCE, 1, DAYS))
    prepare(place)
    yield


@_setting(
    "lock_as_aws",
    "Object Lock as on AWS",
    "The same, and a relay refuses puts without a checksum, as AWS does and MinIO does not.",
    injects=(),
)
def lock_as_aws(place: Place) -> Iterator[None]:
    def look(request: Request) -> Answer | None:
        bare = not any(
            name.startswith("x-amz-checksum-") or name == "content-md5" for name in request.headers
        )
        return Answer(400, "InvalidRequest") if request.method == "PUT" and bare else None

    _bucket(place, object_lock=True)
    place.client.set_object_lock_config(place.name, ObjectLockConfig(COMPLIANCE, 1, DAYS))
    prepare(place)
    with _behind(place, look):
        yield


@contextmanager
def _behind(place: Place, look: Callable[[Request], Answer | None]) -> Iterator[None]:
    def counted(request: Request) -> Answer | None:
        instead = look(request)
        place.injected += instead is not None
        return instead

    with Relay(place.server, counted) as relay:
        place.env["TXN_ENGINE_S3_ENDPOINT"] = relay.url
        yield


@_setting(
    "sse",
    "SSE by the bucket",
    "The bucket encrypts every object by default (SSE-S3), with a key of MinIO's KMS.",
)
def sse(place: Place) -> Iterator[None]:
    _bucket(place)
    place.client.set_bucket_encryption(place.name, SSEConfig(EncryptionRule.new_sse_s3_rule()))
    prepare(place)
    yield


def _demanding(place: Place) -> None:
    """A key that may put only with the header for server-side encryption."""
    _bucket(place)
    prepare(place)
    bucket = f"arn:aws:s3:::{place.name}"
    place.user_with(
        {"Action": ["s3:*"], "Resource": [bucket, f"{bucket}/*"]},
        {
            "Effect": "Deny",
            "Action": ["s3:PutObject"],
            "Resource": [f"{bucket}/*"],
            "Condition": {"StringNotEquals": {"s3:x-amz-server-side-encryption": "AES256"}},
        },
    )


@_setting(
    "sse_header",
    "SSE demanded, and set",
    "The key's policy refuses puts without the header of SSE-S3, and `AWS_SERVER_SIDE_ENCRYPTION` is `AES256`.",
)
def sse_header(place: Place) -> Iterator[None]:
    _demanding(place)
    place.env["AWS_SERVER_SIDE_ENCRYPTION"] = "AES256"
    yield


@_setting("sse_missing", "SSE demanded, not set", "The same policy, without `AWS_SERVER_SIDE_ENCRYPTION`.")
def sse_missing(place: Place) -> Iterator[None]:
    _demanding(place)
    yield


@_setting("quota", "quota used up", "The bucket got a quota of 1 byte after two loads.")
def quota(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    place.admin.bucket_quota_set(place.name, 1)
    yield


@_setting(
    "disk_full",
    "server's disk full",
    "A relay answers every put with 507.",
    injects=("no_room", "doctor_no_room"),
)
def disk_full(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    with _behind(
        place, lambda request: Answer(507, "XMinioStorageFull") if request.method == "PUT" else None
    ):
        yield


def _rights(place: Place, *actions: str, listing: bool = True) -> None:
    _bucket(place)
    prepare(place)
    bucket = f"arn:aws:s3:::{place.name}"
    found = [{"Action": ["s3:ListBucket"], "Resource": [bucket]}] if listing else []
    place.user_with(*found, {"Action": [f"s3:{each}" for each in actions], "Resource": [f"{bucket}/*"]})


@_setting("read_only", "read-only key", "The key may list and get.")
def read_only(place: Place) -> Iterator[None]:
    _rights(place, "GetObject")
    yield


@_setting("no_delete", "no delete", "The key may list, get and put.")
def no_delete(place: Place) -> Iterator[None]:
    _rights(place, "GetObject", "PutObject")
    yield


@_setting("no_list", "no list", "The key may get, put and delete.")
def no_list(place: Place) -> Iterator[None]:
    _rights(place, "GetObject", "PutObject", "DeleteObject", listing=False)
    yield


@_setting(
    "prefix_list",
    "list of the prefixes only",
    "The key may list, get, put and delete below its own prefixes.",
)
def prefix_list(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    bucket, prefixes = f"arn:aws:s3:::{place.name}", ("ledger", "backups", "restored")
    below = {"StringLike": {"s3:prefix": [f"{each}/*" for each in prefixes]}}
    place.user_with(
        {"Action": ["s3:ListBucket"], "Resource": [bucket], "Condition": below},
        {
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            "Resource": [f"{bucket}/{each}/*" for each in prefixes],
        },
    )
    yield


@_setting(
    "rotating",
    "rotating credentials",
    "The key's secret is exchanged at the third request of each command, on the server and in the environment.",
)
def rotating(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    bucket = f"arn:aws:s3:::{place.name}"
    key = place.user_with({"Action": ["s3:*"], "Resource": [bucket, f"{bucket}/*"]})
    exchange = threading.Lock()

    def look(request: Request) -> Answer | None:
        with exchange:
            place.asked += 1
            if place.asked == 3:
                fresh = secrets.token_hex(16)
                place.admin.user_add(key, fresh)
                place.keys(key, fresh)
                os.environ["AWS_SECRET_ACCESS_KEY"] = fresh
        return None

    with _behind(place, look):
        yield


@_setting("revoked", "revoked key", "The server does not know the key any more.")
def revoked(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    place.admin.user_remove(place.user_with({"Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}))
    yield


@_setting(
    "private_ca",
    "private CA, named",
    "The server's certificate is signed by a private authority, which `AWS_CA_BUNDLE` names. A relay in front of MinIO "
    "ends TLS.",
)
def private_ca(place: Place) -> Iterator[None]:
    with _tls(place) as authority:
        place.env["AWS_CA_BUNDLE"] = authority
        yield


@_setting("unknown_ca", "private CA, not named", "The same certificate, without `AWS_CA_BUNDLE`.")
def unknown_ca(place: Place) -> Iterator[None]:
    with _tls(place):
        yield


@contextmanager
def _tls(place: Place) -> Iterator[str]:
    _bucket(place)
    prepare(place)
    files = make_certificates(place.folder / "certificates")
    with Relay(place.server, certificates=files) as relay:
        place.env["TXN_ENGINE_S3_ENDPOINT"] = relay.url
        yield str(files.authority)


@_setting("proxy", "proxy", "`http_proxy` names a proxy, and only the proxy knows the endpoint's host.")
def proxy(place: Place) -> Iterator[None]:
    _bucket(place)
    prepare(place)
    with Relay(place.server) as relay:
        place.env |= {"TXN_ENGINE_S3_ENDPOINT": "http://store.invalid:9000", "http_proxy": relay.url}
        yield
        assert relay.requests


@_setting(
    "archived",
    "data files archived",
    "A relay answers every get of a data file as AWS does for an object in Glacier.",
    injects=("archived", "verify_archived", "doctor_archived", "doctor_archived_backups"),
)
def archived(place: Place) -> Iterator[None]:
    def look(request: Request) -> Answer | None:
        is_get = request.method == "GET" and "/data/" in request.path
        return Answer(403, "InvalidObjectState") if is_get else None

    _bucket(place)
    prepare(place)
    with _behind(place, look):
        yield
