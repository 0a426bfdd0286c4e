"""Reasons: the stable codes under the words of an error."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from storage.reasons import StoreReason
from txn_engine import errors, reasons
from txn_engine.reasons import Reason

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.TxnEngineError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reason_survives_pickling(kind: type[errors.TxnEngineError]) -> None:
    """Spark and Airflow carry errors between processes, and programs compare reasons on the other side."""
    error = kind("it failed", actor="a", place="b", reason=Reason.UNKNOWN_COLUMN)
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), other.reason, str(other)) == (kind, Reason.UNKNOWN_COLUMN, str(error))


def test_a_reason_is_written_like_its_name() -> None:
    """One spelling in code, in `--json` and in stored columns; the store's reasons and the engine's do not clash."""
    for reason in (*Reason, *StoreReason):
        assert reason.value == reason.name.lower()
        assert re.fullmatch(r"[a-z][a-z0-9_]*", reason.value)
    assert not {reason.value for reason in Reason} & {reason.value for reason in StoreReason}


def test_every_reason_is_explained_and_raised() -> None:
    """Each member is followed by its sentence, and some code outside of its module uses it."""
    source = Path(reasons.__file__).read_text(encoding="utf-8")
    explained = re.findall(r'^    ([A-Z0-9_]+) = "[a-z0-9_]+"\n    """[A-Z].*\."""$', source, re.MULTILINE)
    assert explained == [reason.name for reason in Reason]
    root = Path(reasons.__file__).parents[1]
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("txn_engine", "plugins")
        for path in (root / folder).rglob("*.py")
        if path.name != "reasons.py"
    )
    used = set(re.findall(r"\bReason\.([A-Z0-9_]+)", code))
    assert used == {reason.name for reason in Reason}
