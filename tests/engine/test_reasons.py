"""Reasons are the stable codes of errors, whatever their words are."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from types import ModuleType

import pytest

from storage import reasons as store_reasons
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_arrives_alone_has_the_reason(kind: type[errors.TxnEngineError]) -> None:
    """Where only the text of an error arrives, it ends with code and reason. An error without a reason, and an
    error that nobody asked for its reason, end with the code."""
    error = kind("it failed", reason=Reason.UNKNOWN_COLUMN)
    assert str(error).endswith(f" [{kind.code}]")
    error.end_with_reason()
    assert str(error).endswith(f" [{kind.code} unknown_column]")
    error = kind("it failed")
    error.end_with_reason()
    assert str(error).endswith(f" [{kind.code}]")


def test_a_reason_is_written_like_its_name() -> None:
    """A reason is spelled alike in code, in `--json` and in stored columns, and the store's reasons and the
    engine's have no value in common."""
    for reason in (*Reason, *StoreReason):
        assert reason.value == reason.name.lower()
        assert re.fullmatch(r"[a-z][a-z0-9_]*", reason.value)
    assert not {reason.value for reason in Reason} & {reason.value for reason in StoreReason}


def test_every_reason_is_explained_and_raised() -> None:
    """Each member is followed by a sentence, and code outside its module uses it."""
    assert explained(reasons) == [reason.name for reason in Reason]
    assert used("Reason", "txn_engine", "plugins") == {reason.name for reason in Reason}


def test_every_reason_of_a_store_is_explained_and_raised() -> None:
    """Each reason of the store package is followed by a sentence and used, too."""
    assert explained(store_reasons) == [reason.name for reason in StoreReason]
    assert used("StoreReason", "storage") == {reason.name for reason in StoreReason}


def explained(module: ModuleType) -> list[str]:
    """The members of a module's enumeration that are followed by a sentence."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    return re.findall(r'^    ([A-Z0-9_]+) = "[a-z0-9_]+"\n    """[A-Z].*\."""$', source, re.MULTILINE)


def used(name: str, *folders: str) -> set[str]:
    """The members of an enumeration of this name that the code in these folders of the repository uses."""
    root = Path(reasons.__file__).parents[1]
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if path.name != "reasons.py"
    )
    return set(re.findall(rf"\b{name}\.([A-Z0-9_]+)", code))
