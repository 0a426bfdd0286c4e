"""What a kind of store says of itself: whoever opens, describes or checks one goes by this, and knows no kind by name.

A kind is one module with a `Backend` and a `BucketStore`, and its line in `storage/backends.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from storage.errors import InvalidKeyError, InvalidStoreUrlError, told_bucket, told_url
from storage.keys import validate_prefix
from storage.reasons import StoreReason

if TYPE_CHECKING:
    from storage.bucket_store import BucketStore

_ENDPOINT = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(?:/[^\s?#@]*)?")

Given = Mapping[str, str | None]
"""Settings by keyword; None and "" are left to the environment."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that a store of this kind is told beside its URL.

    keyword: of `connect` and `open_store`; variables: of the environment, the first that is set counts, and the first
    is the one that users are told of; field: of an Airflow connection, "login", "password" or a name in its extra.
    """

    keyword: str
    label: str
    help: str
    variables: tuple[str, ...] = ()
    field: str = ""
    placeholder: str = ""
    secret: bool = False

    def of(self, given: Given, environment: Mapping[str, str] | None = None) -> str | None:
        """What was given, else what the environment has."""
        env = os.environ if environment is None else environment
        return given.get(self.keyword) or next((env[name] for name in self.variables if env.get(name)), None)


@dataclass(frozen=True, slots=True)
class Hadoop:
    """The connector by which Spark reads files of such a store itself: the scheme of its URLs, and the list of its jars
    (a file of `txn_engine/spark`).
    """

    scheme: str
    jars: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, how it is, and the remedy where it is not fine."""

    name: str
    status: Literal["ok", "warning", "failed"]
    seen: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Signing:
    """What signs requests to such a store, where one setting alone does.

    keywords: of those settings, the first that has a value counts. elsewhere: variables by which the client finds an
    identity of its own, and what that is called; machines: what it tries where there is none of these; machine: what a
    machine needs for that.
    """

    keywords: tuple[str, ...]
    machines: str
    machine: str
    elsewhere: tuple[str, ...] = ()
    called: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a URL and settings say that a store is. settings: by keyword; what signs is as it was given."""

    bucket: str
    prefix: str
    settings: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of store in the network.

    schemes: of its URLs, the one that stands in `url` first; example: such a URL; credentials: what of the environment
    opens it, for messages; environment: the beginnings of all variables that it or its client reads; hadoop: None where
    Spark has no connector for it, so that only our own data source reads it; identities: variables that choose other
    credentials than the settings do; authority: a pattern of what may stand before a URL's first slash although it has
    an @ in it, which is a password's sign otherwise: its groups are the bucket, and settings by their keywords;
    container: what a bucket is called; legal: a pattern of their names; signing: None where keys come in pairs.
    """

    name: str
    schemes: tuple[str, ...]
    example: str
    credentials: str
    environment: tuple[str, ...]
    settings: tuple[Setting, ...]
    open: Callable[[str, Given], BucketStore]
    hadoop: Hadoop | None = None
    identities: tuple[str, ...] = ()
    authority: str = ""
    container: str = "bucket"
    legal: str = ".+"
    signing: Signing | None = None

    def setting(self, keyword: str) -> Setting:
        """The setting of that keyword. KeyError where this kind has none."""
        for each in self.settings:
            if each.keyword == keyword:
                return each
        raise KeyError(keyword)

    @property
    def actor(self) -> str:
        """Who acts, in its errors: "s3 store"."""
        return f"{self.name.lower()} store"

    @property
    def endpoint_variable(self) -> str:
        """The variable that says where its server is, when that is not the provider's own."""
        return self.setting("endpoint").variables[0]

    @property
    def backup_endpoint_variable(self) -> str:
        """The same for the place of backups."""
        return self.endpoint_variable.replace("TXN_ENGINE_", "TXN_ENGINE_BACKUP_", 1)

    def opened(self, url: str, given: Given) -> Opened:
        """What a URL and the settings beside it say. Raises `InvalidStoreUrlError`, and repeats no secret."""
        self.refuse_credentials(url)
        bucket, path = self.bucket_and_path(url)
        told = dict(given)
        named = re.fullmatch(self.authority, bucket) if self.authority else None
        if named is not None:
            of_url = named.groupdict()
            bucket = of_url.pop("bucket")
            for keyword, value in of_url.items():
                if given.get(keyword) not in (None, "", value):
                    label = self.setting(keyword).label.lower()
                    seen = f"the URL names the {label} {value!r}, the settings another one"
                    raise self.invalid(seen, url, reason=StoreReason.OTHER_THAN_THE_URL)
            told |= of_url
        if re.fullmatch(self.legal, bucket) is None:
            seen = f"{told_bucket(bucket)} is not the name of a {self.container}"
            raise self.invalid(seen, url, reason=StoreReason.BAD_BUCKET_NAME)
        signing = self.signing.keywords if self.signing else ()
        if len(several := [keyword for keyword in signing if given.get(keyword)]) > 1:
            seen = f"{' and '.join(several)} were given"
            raise self.invalid(seen, url, "give one of them", reason=StoreReason.SEVERAL_CREDENTIALS)
        prefix = self.prefix(path, url)
        settings = {
            each.keyword: (given.get(each.keyword) or None) if each.keyword in signing else each.of(told)
            for each in self.settings
        }
        settings["endpoint"] = checked_endpoint(self, settings["endpoint"])
        return Opened(bucket, prefix, settings)

    def credential(self, config: object) -> tuple[str, str] | None:
        """What signs requests of a store of this configuration: a setting's keyword and its value. One that was given
        counts alone, else the environment as it is now; None leaves it to the client.
        """
        if self.signing is None:
            return None
        keywords = self.signing.keywords
        given = [(keyword, getattr(config, keyword)) for keyword in keywords]
        found = [(keyword, self.setting(keyword).of({})) for keyword in keywords]
        return next(((keyword, value) for keyword, value in (*given, *found) if value), None)

    def credentials_found(self, config: object) -> Finding:
        """Where that comes from; no secret in it."""
        if self.signing is None:
            raise NotImplementedError
        if any(getattr(config, keyword) for keyword in self.signing.keywords):
            return Finding("credentials", "ok", "given by the caller")
        if (found := self.credential(config)) is not None:
            named = next(name for name in self.setting(found[0]).variables if os.environ.get(name))
            return Finding("credentials", "ok", f"{named}, from the environment")
        if any(os.environ.get(name) for name in self.signing.elsewhere):
            return Finding("credentials", "ok", f"{self.signing.called}, from the environment")
        return Finding(
            "credentials",
            "warning",
            f"none in the environment: {self.signing.machines}",
            f"set {self.credentials}, unless this machine has {self.signing.machine}",
        )

    def bucket_and_path(self, url: str) -> tuple[str, str]:
        """What stands before the first slash of a URL, and what behind it. Raises for one with anything else in it."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise self.invalid("this URL cannot be read", url) from error
        if parts.query or parts.fragment:
            raise self.invalid("'?' and '#' have no meaning here", url, reason=StoreReason.URL_WITH_QUERY)
        return parts.netloc, parts.path.strip("/")

    def prefix(self, path: str, url: str) -> str:
        """The store's place in its bucket, of a URL with this path. Raises for one that begins no key."""
        try:
            return validate_prefix(path).rstrip("/")
        except InvalidKeyError as error:
            raise self.bad_prefix(path, url, error) from error

    def bad_prefix(self, path: str, url: str, error: InvalidKeyError) -> InvalidStoreUrlError:
        """The error of a path that begins no key: it shows a blank, and says what may stand there."""
        return self.invalid(
            f"{path[:120]!r} cannot be the place of a store in its {self.container}",
            url,
            f"use {error.expected}",
            reason=StoreReason.BAD_PREFIX,
        )

    def refuse_credentials(self, url: str) -> None:
        """Raise for a URL with an @, which no bucket or prefix holds."""
        authority, _, path = url.partition("://")[2].partition("/")
        if self.authority and re.fullmatch(self.authority, authority):
            url = path
        if "@" in url:
            raise self.invalid(
                "credentials do not belong into a URL",
                url,
                f"set {self.credentials}",
                reason=StoreReason.URL_WITH_CREDENTIALS,
            )

    def invalid(
        self,
        seen: str,
        url: str = "",
        action: str = "fix the URL or the settings",
        *,
        reason: StoreReason | None = None,
    ) -> InvalidStoreUrlError:
        """The error of a URL, or of a setting, that names no store of this kind."""
        return InvalidStoreUrlError(
            seen, actor=self.actor, place=told_url(url), expected=self.example, action=action, reason=reason
        )


def checked_endpoint(backend: Backend, endpoint: str | None) -> str | None:
    """The URL of a server, without a slash at its end. Raises for anything else, and does not repeat it."""
    if endpoint is None:
        return None
    found = endpoint.rstrip("/")
    if _ENDPOINT.fullmatch(found) is None:
        raise InvalidStoreUrlError(
            "the endpoint is not the URL of a server",
            actor=backend.actor,
            expected="http(s)://host[:port], without user and password",
            action="fix the URL or the settings",
            reason=StoreReason.BAD_ENDPOINT,
        )
    return found
