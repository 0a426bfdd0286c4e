"""A terminal never acts on the text of records, ids or errors."""

from __future__ import annotations

import json
import re
import subprocess

import pyarrow as pa
import pytest

import txn_engine
from tests.cli.conftest import COMMAND, Run, on_a_terminal
from tests.support.servers import REPOSITORY
from txn_engine.cli.failures import CommandFailed, errors_as_lines
from txn_engine.testing import write_transaction_state

EVIL = "\x1b]0;owned\x07\x9b31m\x7f\u202e\u2028\u200b\u200f\u061c\ufeff\xad\U000e0041"
SCHEMA = pa.schema([("n", pa.int64()), ("note", pa.string()), ("blob", pa.binary())])
_STYLES_AND_BARS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A)|\r")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger whose records, ids and columns hold control sequences. Such column names are refused today."""
    url = f"file://{tmp_path_factory.mktemp('terminal')}/store\u200b"
    engine = txn_engine.connect(url)
    engine.admin.create_topic("t", partitions=1, schema=SCHEMA)
    with engine.producer() as producer:
        producer.produce("t", pa.table({"n": [1], "note": [EVIL], "blob": [EVIL.encode()]}, schema=SCHEMA))
    write_transaction_state(engine, f"id{EVIL}", state="Ongoing", producer_id=7, producer_epoch=0)
    with pytest.MonkeyPatch.context() as before_the_rule:
        before_the_rule.setattr("txn_engine.log.topics.is_new_name", lambda _text: True)
        titled = pa.schema([(f"n{EVIL}", pa.int64())])
        engine.admin.create_topic("titled", partitions=1, schema=titled)
    with engine.producer() as producer:
        producer.produce("titled", pa.table([[1]], schema=titled))
    engine.close()
    return url


CALLS = (
    "consume t --from-beginning",
    "consume t --from-beginning --format csv",
    "consume t --from-beginning --format jsonl",
    "consume t --from-beginning --json",
    "consume titled --from-beginning",
    "consume titled --from-beginning --format csv",
    "consume titled --from-beginning --format jsonl",
    "topics describe titled",
    "topics describe titled --json",
    "transactions list",
    "transactions list --json",
    "dump-log t 0 --records",
    "dump-log t 0 --records --json",
    f"transactions describe no-such-id{EVIL}",
    f"transactions describe id{EVIL}",
    f"transactions describe id{EVIL} --json",
    f"consume t --group g{EVIL} --from-beginning",
    f"produce t /no/such{EVIL}.csv",
    "verify",
)


@pytest.fixture(scope="module")
def shown(url: str) -> dict[str, str]:
    """What each call writes to a terminal."""
    arguments = [[*words.split(" "), "--url", url] for words in CALLS]
    return dict(zip(CALLS, on_a_terminal(arguments, width=200), strict=True))


@pytest.mark.parametrize("words", CALLS)
def test_a_terminal_gets_text(shown: dict[str, str], words: str) -> None:
    """Escape sequences, C1 controls and direction overrides come out as text, in every format and in errors."""
    assert shown[words].strip()
    rest = _STYLES_AND_BARS.sub("", shown[words])
    found = sorted({character for character in rest if not character.isprintable()} - {"\n", "\t"})
    assert not found, shown[words]


def test_a_traceback_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The traceback of an error that is not the engine's is escaped, too."""
    with pytest.raises(CommandFailed), errors_as_lines(as_json=False, debug=True):
        raise ValueError(EVIL)
    told = capsys.readouterr().err
    assert "\\x1b]0;owned" in told
    assert told.replace("\n", "").isprintable()


def test_a_pipe_gets_the_bytes(run: Run, url: str) -> None:
    """CSV keeps every character in a pipe, and JSON means the same."""
    command = ["consume", "t", "--from-beginning", "--format"]
    piped = subprocess.run(
        [*COMMAND, *command, "csv", "--url", url], cwd=REPOSITORY, capture_output=True, check=True
    )
    assert EVIL in piped.stdout.decode()
    assert json.loads(run(*command, "jsonl").stdout)["note"] == EVIL
