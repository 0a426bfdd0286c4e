from __future__ import annotations

from pathlib import Path

import pytest

from storage import (
    AccessDeniedError,
    LocalStore,
    MemoryStore,
    ObjectStore,
    PutIfAbsentUnsupportedError,
    prove_put_if_absent,
)
from storage.s3 import S3Store
from storage.s3.config import s3_config
from tests.conftest import S3Bucket
from tests.support.faults import FaultyStore, OverwritingStore, faults, keys_of, raising


def test_a_proof_says_what_was_seen() -> None:
    """The proof says what was observed and how long it took, in the folder that it used."""
    store = FaultyStore(MemoryStore())
    proof = prove_put_if_absent(store, key_prefix="probes/here")
    assert (proof.first_won, proof.second_lost, proof.bytes_kept) == (True, True, True)
    assert (proof.racers, proof.race_winners) == (4, 1)
    assert proof.latency_ms > 0
    assert proof.race_ms > 0
    assert {key.rsplit("/", 2)[0] for _, key, _ in store.calls} == {"probes/here"}


def refused(store: ObjectStore) -> None:
    with pytest.raises(PutIfAbsentUnsupportedError) as caught:
        prove_put_if_absent(store)
    assert "\n" not in str(caught.value)
    assert caught.value.place == store.url
    assert keys_of(store.list("")) == []


def test_a_local_store_that_overwrites_is_refused(tmp_path: Path) -> None:
    """A store that ignores the condition is refused in one line, and left as it was."""
    refused(OverwritingStore(LocalStore(tmp_path / "store")))


@pytest.mark.minio
def test_an_s3_store_that_overwrites_is_refused(minio_bucket: S3Bucket) -> None:
    """A real server that ignores the condition is refused, as with minio-py's put_object and If-None-Match as
    metadata."""
    config = s3_config(
        minio_bucket.name,
        endpoint=minio_bucket.endpoint,
        access_key=minio_bucket.access_key,
        secret_key=minio_bucket.secret_key,
    )
    refused(OverwritingStore(S3Store(config)))


def test_a_store_that_says_taken_and_overwrites_is_refused() -> None:
    """A store that says "taken" and still overwrites is refused, because the bytes must stay."""

    class Polite(OverwritingStore):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            taken = any(info.key == key for info in self.inner.list(""))
            super().put_if_absent(key, data)
            return not taken

    refused(Polite(MemoryStore()))


def test_a_store_with_two_winners_of_a_race_is_refused() -> None:
    """A store that keeps the condition one call after another but not in a race is refused."""

    class LookThenWrite(FaultyStore):
        def put_if_absent(self, key: str, data: bytes) -> bool:
            if key.endswith("/race"):
                self.inner.put(key, data)
                return True
            return self.inner.put_if_absent(key, data)

    refused(LookThenWrite(MemoryStore()))


def test_a_lost_answer_does_not_fail_the_proof() -> None:
    """A first put that is stored but answered with an error is settled, not judged."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults("after")})
    assert prove_put_if_absent(store).first_won


def test_other_errors_come_as_themselves() -> None:
    """A missing permission is raised as itself, not as missing support."""
    store = FaultyStore(MemoryStore(), {"put_if_absent": faults("before")}, error=raising(AccessDeniedError))
    with pytest.raises(AccessDeniedError):
        prove_put_if_absent(store)


def test_probes_that_cannot_be_deleted_do_not_fail_the_proof() -> None:
    """If deleting is not allowed, the probe's few bytes stay and the proof is still valid."""
    store = FaultyStore(
        MemoryStore(), {"delete": faults("before", "before")}, error=raising(AccessDeniedError)
    )
    assert prove_put_if_absent(store).second_lost
    assert len(keys_of(store.list("probes"))) == 2
