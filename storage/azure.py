"""Azure Blob Storage: what it is told, how it answers, and how other engines reach it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from storage.backend import Backend, Finding, Given, Setting, Signing
from storage.bucket_errors import Words
from storage.bucket_store import BucketStore
from storage.errors import AccessDeniedError
from storage.reasons import StoreReason

if TYPE_CHECKING:
    from storage.runtime import Obstore

_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_AUTHORITY: Final = r"(?P<bucket>[a-z0-9-]+)@(?P<account>[a-z0-9]+)\.(?:dfs|blob)\.core\.[a-z.]+"
"""`container@account.dfs.core.windows.net`, as Hadoop and Iceberg write it."""
_SUFFIX: Final = "core.windows.net"
CREDENTIALS: Final = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
_DENIED: Final = frozenset(
    {"AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch", "InvalidAuthenticationInfo",
     "NoAuthenticationInformation", "AuthorizationSourceIPMismatch", "AuthorizationProtocolMismatch",
     "AuthorizationServiceMismatch", "AuthorizationResourceTypeMismatch", "InsufficientAccountPermissions",
     "KeyBasedAuthenticationNotPermitted", "AccountIsDisabled", "PublicAccessNotPermitted"}
)  # fmt: skip


def _denied_action(code: str, operation: str) -> str:
    del operation
    if code in ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"):
        return "check account name, account key or SAS token, and this machine's clock"
    if code == "KeyBasedAuthenticationNotPermitted":
        return "this account takes no key: sign in as a service principal or a managed identity"
    return "check the credentials and what they may do in this container"


@dataclass(frozen=True, slots=True)
class AzureConfig:
    """Where the container is and how to get in; `repr` shows no secret.

    A key or a SAS token given here is used alone; without one the environment is asked each time a client is made,
    then what obstore finds there itself: a service principal (`AZURE_CLIENT_ID`, `AZURE_CLIENT_SECRET`,
    `AZURE_TENANT_ID`), a workload identity, the Azure CLI (`AZURE_USE_AZURE_CLI`), the machine's managed identity.
    """

    bucket: str
    prefix: str
    account: str
    endpoint: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """`az://container/prefix`."""
        return f"az://{self.bucket}/{self.prefix}".rstrip("/")


def _open(url: str, given: Given) -> BucketStore:
    opened = AZURE.opened(url, given)
    account = opened.settings["account"]
    if account is None:
        action = "set AZURE_STORAGE_ACCOUNT_NAME"
        raise AZURE.invalid("no storage account was named", url, action, reason=StoreReason.NO_ACCOUNT)
    if _ACCOUNT.fullmatch(account) is None:
        seen = f"{account!r} is not the name of a storage account"
        raise AZURE.invalid(seen, url, reason=StoreReason.BAD_ACCOUNT_NAME)
    others = {keyword: value for keyword, value in opened.settings.items() if keyword != "account"}
    return AzureStore(AzureConfig(opened.bucket, opened.prefix, account, **others))


AZURE = Backend(
    name="Azure",
    schemes=("az", "abfss", "abfs", "azure"),
    example="az://container/prefix",
    credentials=CREDENTIALS,
    environment=("AZURE_", "TXN_ENGINE_AZURE_"),
    settings=(
        Setting(
            "endpoint",
            "Endpoint",
            "of a blob service that is not `https://<account>.blob.core.windows.net`, with the account in its path.",
            ("TXN_ENGINE_AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
            "endpoint_url",
            "http://127.0.0.1:10000/account",
        ),
        Setting(
            "account",
            "Storage account",
            "that the container is of, where the URL does not name it.",
            ("AZURE_STORAGE_ACCOUNT_NAME",),
            "login",
        ),
        Setting(
            "account_key",
            "Account key",
            "of the storage account.",
            ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
            "password",
            secret=True,
        ),
        Setting(
            "sas_token",
            "SAS token",
            "instead of the account key.",
            ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
            "sas_token",
            secret=True,
        ),
    ),
    open=_open,
    identities=("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_TOKEN"),
    authority=_AUTHORITY,
    container="container",
    legal=r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
    signing=Signing(
        ("account_key", "sas_token"),
        "the machine's own identity is tried",
        "an identity",
        ("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"),
        "a service principal or workload identity",
    ),
)


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _is_query(text: str) -> bool:
    return all("=" in each for each in text.removeprefix("?").split("&") if each.strip())


class AzureStore(BucketStore):
    """A store in a container of Azure Blob Storage. Put-if-absent is `If-None-Match: *` on Put Blob."""

    backend: ClassVar = AZURE
    words: ClassVar = Words(
        actor=AZURE.actor,
        bucket=AZURE.container,
        no_object=frozenset({"BlobNotFound"}),
        no_bucket=frozenset({"ContainerNotFound", "ContainerBeingDeleted"}),
        denied=_DENIED,
        denied_action=_denied_action,
        no_identity=("169.254.169.254",),
        credentials=AZURE.credentials,
        sentences=(  # of a delete, which is sent as a batch of one
            ("The specified blob does not exist", "BlobNotFound"),
            ("The specified container does not exist", "ContainerNotFound"),
        ),
        archived=frozenset({"BlobArchived", "BlobBeingRehydrated"}),
    )
    _config: AzureConfig

    def client(self, obstore: Obstore, options: dict[str, Any], retries: dict[str, Any]) -> Any:
        """As the base class says."""
        config = self._config
        arguments: dict[str, Any] = {"account_name": config.account}
        if config.endpoint is not None:
            arguments["endpoint"] = config.endpoint
        if (credential := self.credential()) is not None:
            keyword, value = credential
            name = "access_key" if keyword == "account_key" else keyword
            if keyword == "account_key" and not _is_base64(value):
                raise self._unusable(
                    "an account key that is not base64", "the key", "AZURE_STORAGE_ACCOUNT_KEY"
                )
            if keyword == "sas_token" and not _is_query(value):
                seen = "a SAS token that is not name=value, with & between"
                raise self._unusable(seen, "the token", "AZURE_STORAGE_SAS_TOKEN")
            held = {name: value.removeprefix("?"), "expires_at": None}
            # A provider, because obstore would add to a key of ours what else the environment has.
            arguments["credential_provider"] = lambda: dict(held)
        return obstore.kinds.AzureStore(
            config.bucket,
            prefix=config.prefix or None,
            client_options=options,
            retry_config=retries,
            **arguments,
        )

    def _unusable(self, seen: str, expected: str, variable: str) -> AccessDeniedError:
        """What the client would refuse in its own words, with nothing of it."""
        return AccessDeniedError(
            seen,
            actor=AZURE.actor,
            place=self.place,
            expected=f"{expected} as the account's page shows it",
            action=f"mend {variable}, or what was given for it",
            reason=StoreReason.MALFORMED_CREDENTIALS,
        )

    def uri(self, key: str) -> str:
        """`abfss://container@account.dfs.core.windows.net/prefix/key`, which Hadoop, Iceberg and Delta all read."""
        config = self._config
        root = f"abfss://{config.bucket}@{config.account}.dfs.{_SUFFIX}"
        return f"{root}/{config.prefix}/{key}" if config.prefix else f"{root}/{key}"

    # --- for people -----------------------------------------------------------------------------------------

    def described(self) -> str:
        """Account and container."""
        config = self._config
        return f"Azure Blob Storage, {config.url} of account {config.account} at {config.endpoint or 'Azure'}"

    def inspected(self) -> Iterator[Finding]:
        """Whether the container can be listed. Its rules are the account's, which its client cannot ask for."""
        not_asked, remedy = (
            "soft delete, versioning and lifecycle rules are the account's, and were not asked for",
            "make sure that no lifecycle rule deletes or archives blobs of the store",
        )
        yield from self.listed_findings([Finding("lifecycle", "warning", not_asked, remedy)])

    # --- for other engines ----------------------------------------------------------------------------------

    def with_credentials_of_now(self) -> Self:
        """As the base class says."""
        found = self.credential()
        if found is None:
            return self
        keys: dict[str, Any] = {"account_key": None, "sas_token": None, found[0]: found[1]}
        return type(self)(replace(self._config, **keys))

    def storage_options(self) -> dict[str, str]:
        """By the names of its variables."""
        config = self._config
        found = {"azure_storage_account_name": config.account}
        if config.endpoint is not None:
            found["azure_storage_endpoint"] = config.endpoint
            found |= {"allow_http": "true"} if config.endpoint.startswith("http://") else {}
        if (credential := self.credential()) is not None:
            found["azure_storage_" + credential[0]] = credential[1]
        return found

    def iceberg_properties(self) -> dict[str, str]:
        """`adls.*`."""
        config = self._config
        found = {"adls.account-name": config.account}
        if config.endpoint is not None:
            found["adls.connection-string"] = self._connection_string()
        if (credential := self.credential()) is not None:
            found[f"adls.{credential[0].replace('_', '-')}"] = credential[1]
        return found

    def duckdb_secret(self) -> tuple[str, dict[str, str]]:
        """Of its extension azure."""
        return "azure", {"TYPE": "azure", "CONNECTION_STRING": self._connection_string()}

    def arrow_files(self) -> Any:
        """PyArrow's Azure."""
        from pyarrow import fs

        config = self._config
        arguments: dict[str, Any] = {}
        if config.endpoint is not None:
            scheme, _, rest = config.endpoint.partition("://")
            for service in ("blob", "dfs"):  # it asks the second whether folders are objects
                arguments[f"{service}_storage_authority"] = rest.partition("/")[0]
                arguments[f"{service}_storage_scheme"] = scheme
        if (credential := self.credential()) is not None:
            arguments[credential[0]] = credential[1]
        container = fs.AzureFileSystem(config.account, **arguments)
        return fs.SubTreeFileSystem(f"{config.bucket}/{config.prefix}".rstrip("/"), container)

    def _connection_string(self) -> str:
        config = self._config
        endpoint = config.endpoint or f"https://{config.account}.blob.{_SUFFIX}"
        parts = [f"AccountName={config.account}", f"BlobEndpoint={endpoint}"]
        if (credential := self.credential()) is not None:
            name = "AccountKey" if credential[0] == "account_key" else "SharedAccessSignature"
            parts.append(f"{name}={credential[1]}")
        return ";".join(parts)
