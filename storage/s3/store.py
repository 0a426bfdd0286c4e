"""S3, and servers that speak it: what it is told, how it answers, and how other engines reach it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from storage.backend import Backend, Finding, Given, Hadoop, Setting
from storage.bucket_errors import Words
from storage.bucket_store import BucketStore
from storage.errors import InvalidKeyError, StorageError
from storage.keys import validate_prefix
from storage.s3.codes import DENIED, denied_action
from storage.s3.config import CREDENTIALS, ENCRYPTIONS, S3Config, s3_config
from storage.store import KeptVersions, ObjectInfo

if TYPE_CHECKING:
    from storage.runtime import Obstore

_HADOOP_ENCRYPTION: Final = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}


def _open(url: str, given: Given) -> BucketStore:
    S3.refuse_credentials(url)
    bucket, prefix = S3.bucket_and_path(url)
    keywords: dict[str, Any] = {each.keyword: given.get(each.keyword) for each in S3.settings}
    try:
        config = s3_config(bucket, prefix, **keywords)
    except InvalidKeyError as error:
        raise S3.bad_prefix(prefix, url, error) from error
    return S3Store(config)


S3 = Backend(
    name="S3",
    schemes=("s3", "s3a", "s3n"),
    example="s3://bucket/prefix",
    credentials=CREDENTIALS,
    environment=("AWS_", "TXN_ENGINE_S3_"),
    settings=(
        Setting(
            "endpoint",
            "Endpoint",
            "of a server that is not AWS.",
            ("TXN_ENGINE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
            "endpoint_url",
            "http://minio:9000; empty: AWS",
        ),
        Setting(
            "region",
            "Region",
            "of the bucket; empty: AWS_REGION of the worker.",
            ("AWS_REGION", "AWS_DEFAULT_REGION"),
            "region_name",
            "eu-west-1",
        ),
        Setting("access_key", "Access key", "of the user.", ("AWS_ACCESS_KEY_ID",), "login"),
        Setting(
            "secret_key", "Secret key", "of the user.", ("AWS_SECRET_ACCESS_KEY",), "password", secret=True
        ),
        Setting(
            "session_token",
            "Session token",
            "with temporary credentials only.",
            ("AWS_SESSION_TOKEN",),
            "aws_session_token",
            secret=True,
        ),
        Setting(
            "ca_bundle",
            "CA bundle",
            "file of certificates (PEM) to trust beside the system's.",
            ("AWS_CA_BUNDLE",),
            "ca_bundle",
            "/etc/ssl/company.pem",
        ),
        Setting(
            "server_side_encryption",
            "Server-side encryption",
            f"that every put asks for ({', '.join(ENCRYPTIONS)}); empty: what the bucket does by itself.",
            ("AWS_SERVER_SIDE_ENCRYPTION",),
            "server_side_encryption",
            "aws:kms",
        ),
        Setting(
            "sse_kms_key_id",
            "KMS key",
            "that it uses; empty: the account's own.",
            ("AWS_SSE_KMS_KEY_ID",),
            "sse_kms_key_id",
        ),
    ),
    open=_open,
    hadoop=Hadoop("s3a", "s3a-jars.txt"),
    identities=("AWS_PROFILE",),
)


class S3Store(BucketStore):
    """A store in a bucket of S3."""

    backend: ClassVar = S3
    words: ClassVar = Words(
        actor=S3.actor,
        bucket="bucket",
        no_object=frozenset({"NoSuchKey"}),
        no_bucket=frozenset({"NoSuchBucket"}),
        denied=DENIED,
        denied_action=denied_action,
        no_identity=("169.254.169.254", "169.254.170.2"),
        credentials=S3.credentials,
        archived=frozenset({"InvalidObjectState"}),
        full=frozenset({"XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "QuotaExceeded"}),
    )
    _config: S3Config

    def client(self, obstore: Obstore, options: dict[str, Any], retries: dict[str, Any]) -> Any:
        """As the base class says."""
        config = self._config
        # AWS takes no put without a checksum into a bucket that locks objects by default.
        arguments: dict[str, Any] = {
            "region": config.region,
            "conditional_put": "etag",
            "checksum_algorithm": "SHA256",
        }
        if config.endpoint is not None:
            arguments |= {"endpoint": config.endpoint, "virtual_hosted_style_request": False}
        if config.server_side_encryption is not None:
            arguments["server_side_encryption"] = config.server_side_encryption
        if config.sse_kms_key_id is not None:
            arguments["sse_kms_key_id"] = config.sse_kms_key_id
        if (trusted := config.trusted()) is not None:
            options = {**options, "root_certificate": trusted}
        credentials = config.credentials()
        if credentials is not None:
            key, secret, token = credentials
            # A provider, because obstore would add the environment's session token to a key pair of ours.
            arguments["credential_provider"] = lambda: {
                "access_key_id": key,
                "secret_access_key": secret,
                "token": token,
                "expires_at": None,
            }
        return obstore.kinds.S3Store(
            config.bucket,
            prefix=config.prefix or None,
            client_options=options,
            retry_config=retries,
            **arguments,
        )

    def signature(self) -> tuple[str, str, str | None] | None:
        """As the base class says: a key pair and a token."""
        return self._config.credentials()

    def redirect_action(self) -> str:
        """As the base class says."""
        return f"check the region ({self._config.region}) and the endpoint"

    def list_any_names(
        self, folder: str, start_after: str | None, error: StorageError
    ) -> Iterator[ObjectInfo]:
        """By minio-py, which takes any name."""
        del error
        from storage.s3.listings import list_objects

        yield from list_objects(self._config, folder, start_after=start_after, patience=self.patience)

    def list_folders_of_any_name(self, folder: str, error: StorageError) -> Iterator[str]:
        """Likewise."""
        del error
        from storage.s3.listings import list_folders

        yield from list_folders(self._config, folder, patience=self.patience)

    def kept_versions(self) -> KeptVersions | None:
        """By the bucket's versioning, its rules and its lock."""
        from storage.s3.versions import kept_versions

        return kept_versions(self._config)

    def old_versions(self, prefix: str) -> Iterator[ObjectInfo]:
        """By minio-py."""
        from storage.s3.listings import old_versions

        folder = validate_prefix(prefix)
        return old_versions(self._config, folder, self.patience)

    # --- for people -----------------------------------------------------------------------------------------

    def described(self) -> str:
        """Where the bucket is."""
        config = self._config
        return f"S3, {config.url} at {config.endpoint or 'AWS'}, region {config.region}"

    def credentials_found(self) -> Finding:
        """Keys of the caller, of the environment, of a profile, or the machine's role."""
        if self._config.access_key:
            return Finding("credentials", "ok", "given by the caller")
        if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
            token = " and AWS_SESSION_TOKEN" if os.environ.get("AWS_SESSION_TOKEN") else ""
            return Finding("credentials", "ok", f"{CREDENTIALS}{token}, from the environment")
        if self._config.credentials() is not None:
            profile = os.environ.get("AWS_PROFILE") or "default"
            return Finding("credentials", "ok", f"profile {profile!r} of AWS's file of credentials")
        return Finding(
            "credentials",
            "warning",
            "none in the environment: the machine's own role is tried",
            f"set {CREDENTIALS}, unless this machine has a role",
        )

    def inspected(self) -> Iterator[Finding]:
        """The bucket, by the engine's own client; whether it is versioned, and what its rules do to our objects, by
        minio-py.
        """
        from storage.s3.bucket import findings

        yield from self.listed_findings(findings(self._config))

    # --- for other engines ----------------------------------------------------------------------------------

    def with_credentials_from(self, provider: Callable[[], Sequence[str | None]]) -> Self:
        """As the base class says: a key, its secret and, if there is one, a token."""
        return type(self)(replace(self._config, provider=provider))

    def access(self) -> dict[str, str | None]:
        """As the base class says, with the keys that a callable gives now."""
        return self.with_credentials_of_now().access() if self._config.provider else super().access()

    def __getstate__(self) -> Any:
        """Without a callable, which belongs to this process: with the keys that it gives now."""
        return (
            self.with_credentials_of_now().__getstate__() if self._config.provider else super().__getstate__()
        )

    def with_credentials_of_now(self) -> Self:
        """As the base class says."""
        credentials = self._config.credentials()
        if credentials is None:
            return self
        access_key, secret_key, session_token = credentials
        keys: dict[str, Any] = {
            "access_key": access_key,
            "secret_key": secret_key,
            "session_token": session_token,
            "provider": None,
        }
        return type(self)(replace(self._config, **keys))

    def hadoop_options(self) -> dict[str, str]:
        """For this one bucket. They never belong on a command line or into Spark's own settings."""
        config = self._config
        settings = self._hadoop_server()
        if config.server_side_encryption is not None:
            is_kms = config.server_side_encryption != "AES256"
            settings["encryption.algorithm"] = _HADOOP_ENCRYPTION[config.server_side_encryption]
            if is_kms and config.sse_kms_key_id:
                settings["encryption.key"] = config.sse_kms_key_id
        if credentials := config.credentials():
            access_key, secret_key, session_token = credentials
            provider = "Simple" if session_token is None else "Temporary"
            settings |= {
                "access.key": access_key,
                "secret.key": secret_key,
                "aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{provider}AWSCredentialsProvider",
            }
            if session_token is not None:
                settings["session.token"] = session_token
        return {f"fs.s3a.bucket.{config.bucket}.{name}": value for name, value in settings.items()}

    def hadoop_session_settings(self) -> dict[str, str]:
        """As the base class says. The connector finds keys in the JVM's environment, else the machine's role."""
        server = {f"fs.s3a.{name}": value for name, value in self._hadoop_server().items()}
        return server | {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}

    def _hadoop_server(self) -> dict[str, str]:
        """Where the server is, for the connector: AWS under an empty endpoint, so that a session's does not count."""
        config = self._config
        return {
            "endpoint.region": config.region,
            "endpoint": config.endpoint or "",
            "path.style.access": str(config.endpoint is not None).lower(),
        }

    def duckdb_secret(self) -> tuple[str, dict[str, str]]:
        """Of its extension httpfs."""
        config = self._config
        endpoint = config.endpoint or "https://s3.amazonaws.com"
        key, secret, token = config.credentials() or ("", "", None)
        found = {
            "TYPE": "s3",
            "KEY_ID": key,
            "SECRET": secret,
            "REGION": config.region,
            "ENDPOINT": endpoint.partition("://")[2],
            "URL_STYLE": "path",
            "USE_SSL": str(not endpoint.startswith("http://")).lower(),
        }
        return "httpfs", found | ({"SESSION_TOKEN": token} if token else {})

    def storage_options(self) -> dict[str, str]:
        """By the names of AWS's own variables."""
        config = self._config
        found = {"AWS_REGION": config.region}
        if config.endpoint is not None:
            found |= {"AWS_ENDPOINT_URL": config.endpoint}
            found |= {"AWS_ALLOW_HTTP": "true"} if config.endpoint.startswith("http://") else {}
        if credentials := config.credentials():
            key, secret, token = credentials
            found |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
            found |= {"AWS_SESSION_TOKEN": token} if token else {}
        return found

    def iceberg_properties(self) -> dict[str, str]:
        """`s3.*`."""
        config = self._config
        found = {"s3.region": config.region}
        if config.endpoint is not None:
            found["s3.endpoint"] = config.endpoint
        if credentials := config.credentials():
            key, secret, token = credentials
            found |= {"s3.access-key-id": key, "s3.secret-access-key": secret}
            found |= {"s3.session-token": token} if token else {}
        return found

    def arrow_files(self) -> Any:
        """PyArrow's S3."""
        from pyarrow import fs

        config = self._config
        key, secret, token = config.credentials() or (None, None, None)
        bucket = fs.S3FileSystem(
            access_key=key,
            secret_key=secret,
            session_token=token,
            region=config.region,
            endpoint_override=config.endpoint,
            scheme="http" if (config.endpoint or "").startswith("http://") else "https",
        )
        return fs.SubTreeFileSystem(f"{config.bucket}/{config.prefix}".rstrip("/"), bucket)
