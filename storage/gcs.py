"""Google Cloud Storage: what it is told, how it answers, and how other engines reach it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from storage.backend import Backend, Finding, Given, Setting, Signing
from storage.bucket_errors import Words
from storage.bucket_store import BucketStore

if TYPE_CHECKING:
    from storage.runtime import Obstore

_NO_TOKEN: Final = "none"
CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_DENIED: Final = frozenset(
    {"AccessDenied", "AuthenticationRequired", "InvalidSecurity", "InvalidAccessKeyId", "SignatureDoesNotMatch",
     "UserProjectAccountProblem", "UserProjectMissing"}
)  # fmt: skip


def _denied_action(code: str, operation: str) -> str:
    del code, operation
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


def _open(url: str, given: Given) -> BucketStore:
    opened = GCS.opened(url, given)
    return GcsStore(GcsConfig(opened.bucket, opened.prefix, **opened.settings))


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
    legal=r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]",
    signing=Signing(
        ("service_account_key", "service_account"),
        "the application-default ones, or the machine's own, are tried",
        "a service account",
    ),
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
        elif (credential := self.credential()) is not None:
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
        """None are sent to an emulator."""
        if self._config.is_unsigned:
            return Finding("credentials", "ok", "none are needed over plain HTTP: an emulator")
        return super().credentials_found()

    def inspected(self) -> Iterator[Finding]:
        """Whether the bucket can be listed. Its rules take another right, and another interface."""
        not_asked, remedy = (
            "versioning, soft delete, retention and lifecycle rules were not asked for",
            "make sure that no lifecycle rule deletes objects of the store, and that no retention policy keeps them",
        )
        yield from self.listed_findings([Finding("lifecycle", "warning", not_asked, remedy)])

    # --- for other engines ----------------------------------------------------------------------------------

    def with_credentials_of_now(self) -> Self:
        """As the base class says; a file goes along as its text."""
        found = self.credential()
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
        elif (credential := self.credential()) is not None:
            found[f"google_{credential[0]}"] = credential[1]
        return found
