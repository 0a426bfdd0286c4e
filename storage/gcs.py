"""Google Cloud Storage: what it is told, how it answers, and how other engines reach it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from storage.backend import Backend, Finding, Given, Setting, checked_endpoint
from storage.bucket_errors import Words
from storage.bucket_store import BucketStore

if TYPE_CHECKING:
    from storage.runtime import Obstore

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_NO_TOKEN: Final = "none"
CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_DENIED: Final = frozenset(
    {"AccessDenied", "AuthenticationRequired", "InvalidSecurity", "InvalidAccessKeyId", "SignatureDoesNotMatch",
     "UserProjectAccountProblem", "UserProjectMissing"}
)  # fmt: skip


def _denied_action(code: str) -> str:
    del code
    return "check the service account and what it may do in this bucket"


@dataclass(frozen=True, slots=True)
class GcsConfig:
    """Where the bucket is and how to get in; `repr` shows no secret.

    A service account given here is used alone; without one the environment is asked each time a client is made, then
    what obstore finds itself: the application-default credentials, the machine's own service account. Over plain HTTP
    no token is sent: that is an emulator, and a token would be anybody's to read.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    service_account: str | None = None
    service_account_key: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """`gs://bucket/prefix`."""
        return f"gs://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def is_unsigned(self) -> bool:
        """Whether requests carry no token of anybody's."""
        return (self.endpoint or "").startswith("http://")

    def credential(self) -> tuple[str, str] | None:
        """The service account, "service_account" (a file) or "service_account_key" (its text); None leaves it to
        obstore.
        """
        if self.service_account_key or self.service_account:
            if self.service_account_key:
                return "service_account_key", self.service_account_key
            return "service_account", self.service_account or ""
        for keyword in ("service_account_key", "service_account"):
            if value := GCS.setting(keyword).of({}):
                return keyword, value
        return None


def _open(url: str, given: Given) -> BucketStore:
    GCS.refuse_credentials(url)
    bucket, path = GCS.bucket_and_path(url)
    if _BUCKET.fullmatch(bucket) is None:
        shown = "what stands there" if ":" in bucket else repr(bucket)
        raise GCS.invalid(f"{shown} is not the name of a bucket", url)
    if given.get("service_account") and given.get("service_account_key"):
        raise GCS.invalid("both a file and the text of a service account were given", url, "give one of them")
    prefix = GCS.prefix(path, url)
    endpoint = checked_endpoint(GCS, GCS.setting("endpoint").of(given))
    keys = {name: given.get(name) or None for name in ("service_account", "service_account_key")}
    return GcsStore(GcsConfig(bucket, prefix, endpoint, **keys))


GCS = Backend(
    name="GCS",
    schemes=("gs", "gcs"),
    example="gs://bucket/prefix",
    credentials=CREDENTIALS,
    environment=("GOOGLE_", "TXN_ENGINE_GCS_", "STORAGE_EMULATOR_HOST"),
    settings=(
        Setting(
            "endpoint",
            "Endpoint",
            "of a server that is not `https://storage.googleapis.com`; over plain HTTP no token is sent.",
            ("TXN_ENGINE_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL"),
            "endpoint_url",
        ),
        Setting(
            "service_account",
            "Key file",
            "of the service account, on the machine that opens the store.",
            ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
            "key_path",
            "/etc/txn-engine/gcs.json",
        ),
        Setting(
            "service_account_key",
            "Key of the service account",
            "the text of that file, instead of it.",
            ("GOOGLE_SERVICE_ACCOUNT_KEY",),
            "keyfile_dict",
            secret=True,
        ),
    ),
    open=_open,
    identities=("GOOGLE_BEARER_TOKEN",),
)


class GcsStore(BucketStore):
    """A store in a bucket of Google Cloud Storage. Put-if-absent is a put with `x-goog-if-generation-match: 0`."""

    backend: ClassVar = GCS
    words: ClassVar = Words(
        actor=GCS.actor,
        bucket="bucket",
        no_object=frozenset({"NoSuchKey"}),
        no_bucket=frozenset({"NoSuchBucket"}),
        denied=_DENIED,
        denied_action=_denied_action,
        no_identity=("169.254.169.254", "metadata.google.internal"),
        credentials=GCS.credentials,
    )
    _config: GcsConfig

    def client(self, obstore: Obstore, options: dict[str, Any], retries: dict[str, Any]) -> Any:
        """As the base class says."""
        config = self._config
        arguments: dict[str, Any] = {}
        if config.endpoint is not None:
            arguments["base_url"] = config.endpoint
        if config.is_unsigned:
            # obstore would ask the machine for a token before a put, even where it is told to sign nothing.
            arguments["credential_provider"] = lambda: {"token": _NO_TOKEN, "expires_at": None}
        elif (credential := config.credential()) is not None:
            arguments[credential[0]] = credential[1]
        return obstore.kinds.GCSStore(
            config.bucket,
            prefix=config.prefix or None,
            client_options=options,
            retry_config=retries,
            **arguments,
        )

    # --- for people -----------------------------------------------------------------------------------------

    def described(self) -> str:
        """Where the bucket is."""
        config = self._config
        return f"Google Cloud Storage, {config.url} at {config.endpoint or 'Google'}"

    def credentials_found(self) -> Finding:
        """A service account of the caller, of the environment, or what obstore finds."""
        config = self._config
        if config.is_unsigned:
            return Finding("credentials", "ok", "none are needed over plain HTTP: an emulator")
        if config.service_account or config.service_account_key:
            return Finding("credentials", "ok", "given by the caller")
        if (found := config.credential()) is not None:
            named = next(name for name in GCS.setting(found[0]).variables if os.environ.get(name))
            return Finding("credentials", "ok", f"{named}, from the environment")
        return Finding(
            "credentials",
            "warning",
            "none in the environment: the application-default ones, or the machine's own, are tried",
            f"set {CREDENTIALS}, unless this machine has a service account",
        )

    def inspected(self) -> Iterator[Finding]:
        """Whether the bucket can be listed. Its rules take another right, and another interface."""
        yield from self.listed_findings(
            "versioning, soft delete, retention and lifecycle rules were not asked for",
            "make sure that no lifecycle rule deletes objects of the store, and that no retention policy keeps them",
        )

    # --- for other engines ----------------------------------------------------------------------------------

    def with_credentials_of_now(self) -> Self:
        """As the base class says; a file goes along as its text."""
        found = self._config.credential()
        if found is None or self._config.is_unsigned:
            return self
        keyword, value = found
        if keyword == "service_account":
            try:
                with open(value, encoding="utf-8") as file:
                    value = file.read()
            except OSError:
                return self  # the first request says it
        return type(self)(replace(self._config, service_account=None, service_account_key=value))

    def storage_options(self) -> dict[str, str]:
        """By object_store's names."""
        config = self._config
        found: dict[str, str] = {}
        if config.endpoint is not None:
            found["google_base_url"] = config.endpoint
        if config.is_unsigned:
            found |= {"google_skip_signature": "true", "allow_http": "true"}
        elif (credential := config.credential()) is not None:
            found[f"google_{credential[0]}"] = credential[1]
        return found
