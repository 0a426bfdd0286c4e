"""Checks that vote before the commit: on files that are uploaded and that nobody has named yet.

They run between the upload and the transaction's beginning. So no partition is in a transaction meanwhile, no last
stable offset waits, no time-out runs, however long they take; and what they were red about was never anywhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from txn_engine.engine import Engine
from txn_engine.errors import ChecksErroredError, ChecksFailedError, InvalidRequestError
from txn_engine.log.topics import Topic
from txn_engine.quality.report_files import path_of
from txn_engine.quality.row_checks import parted
from txn_engine.quality.suite_file import is_plain_suite
from txn_engine.quality.suite_report import run_with_report
from txn_engine.quality.suite_run import Asked, SuiteCheck, SuitesRun
from txn_engine.quality.suites import Suite, load_suite
from txn_engine.reasons import Reason
from txn_engine.row_checks import RowCheck
from txn_engine.spark.dead_letters import DeadLettersTo
from txn_engine.spark.reading import uploaded_rows
from txn_engine.spark.uploading import UploadedFile

log = logging.getLogger(__name__)

_NAMED_MAX = 5

_Parted = tuple[tuple[RowCheck, ...], Suite | None]
"""Checks of rows, and the suite of the others."""
Checks = Any
"""What `checks=` takes: what `txn_engine.quality.load_suite` does, for every output; or that by topic. A dict with a
list of "expectations" is a suite.
"""


@dataclass(frozen=True, slots=True)
class Vote:
    """The suites that an output has to pass, by topic or for every one, and where their report goes; what is left of
    them without the checks of rows, which are made before.
    """

    suites: _Parted | Mapping[str, _Parted]
    report_folder: Path | None = None

    def suite_of(self, topic: str) -> Suite | None:
        """The suite that votes on this topic; None where none does."""
        return self._of(topic)[1]

    def row_checks_of(self, topic: str) -> tuple[RowCheck, ...]:
        """What each row of this topic has to pass, or is a dead letter."""
        return self._of(topic)[0]

    def _of(self, topic: str) -> _Parted:
        return self.suites.get(topic, ((), None)) if isinstance(self.suites, Mapping) else self.suites

    def hold(
        self,
        engine: Engine,
        spark: SparkSession,
        uploaded: Mapping[Topic, Sequence[UploadedFile]],
        *,
        actor: str,
    ) -> SuitesRun | None:
        """Hold the files against their suites; None where no suite is asked for.

        Raises `ChecksFailedError`, or its `ChecksErroredError`, for what is red.
        """
        asked = [
            Asked(
                topic.name,
                suite,
                uploaded_rows(spark, engine, topic, files),
                sum(file.record_count for file in files),
            )
            for topic, files in uploaded.items()
            if (suite := self.suite_of(topic.name)) is not None
        ]
        if not asked:
            return None
        run = run_with_report(asked, report_folder=self.report_folder, name=actor)
        for about, check in run.warnings:
            log.warning("%s: checks: %s; a warning, it goes on", actor, _sentence(about, check))
        if not run.success:
            raise _red(run, actor)
        return run


def vote_of(
    checks: Checks | None,
    report_folder: str | os.PathLike[str] | None,
    *,
    engine: Engine,
    outputs: Collection[str] | None,
    actor: str,
    letters: DeadLettersTo | None,
) -> Vote | None:
    """The vote that `checks=` asks for. `outputs`: the topics that may be written to, where that is known by now.

    Raises `InvalidRequestError` in one line for checks that are none, for those of a topic that is no output (a
    mistyped one would be let through unchecked), and for rows that are to be dead letters where there are none.
    `UnknownTopicOrPartitionError` for a topic that is not there.
    """
    if checks is None:
        if report_folder is not None:
            raise InvalidRequestError(
                "report_folder without checks",
                actor=actor,
                expected="checks, whose report goes there",
                reason=Reason.REPORT_WITHOUT_CHECKS,
            )
        return None
    folder = None if report_folder is None else path_of(report_folder, "report_folder", actor=actor)
    if is_plain_suite(checks) or not isinstance(checks, Mapping):
        return Vote(_parted(checks, actor, letters), folder)
    for topic in checks:
        if outputs is not None and topic not in outputs:
            raise InvalidRequestError(
                f"checks of {topic!r}, which is no output",
                actor=actor,
                expected=f"those of {', '.join(sorted(outputs))}",
                reason=Reason.CHECKS_OF_NO_OUTPUT,
            )
        engine.logs.topics.look_up(topic)
    return Vote({topic: _parted(suite, actor, letters) for topic, suite in checks.items()}, folder)


def _parted(checks: Checks, actor: str, letters: DeadLettersTo | None) -> _Parted:
    found = parted(load_suite(checks))
    if found[0] and letters is None:
        raise InvalidRequestError(
            f"check {found[0][0].name}, whose rows are to be dead letters",
            actor=actor,
            expected="a dead_letter_topic",
            reason=Reason.CHECK_NEEDS_DEAD_LETTER_TOPIC,
        )
    return found


def _red(run: SuitesRun, actor: str) -> ChecksFailedError:
    failed = [check for _, check in run.red if check.status == "failed"]
    errored = len(run.red) - len(failed)
    counted = [f"{len(failed)} of {len(run.checks)} checks failed"] if failed else []
    counted += [f"{errored} of {len(run.checks)} could not be made"] if errored else []
    told = "; ".join(_sentence(about, check) for about, check in run.red[:_NAMED_MAX])
    more = f"; and {len(run.red) - _NAMED_MAX} more" if len(run.red) > _NAMED_MAX else ""
    kind = ChecksFailedError if failed else ChecksErroredError
    return kind(
        f"{', '.join(counted)}: {told}{more}",
        actor=actor,
        place=None if run.report is None else f"report {run.report}",
    )


def _sentence(about: str, check: SuiteCheck) -> str:
    """Topic, name and counts. What else a check says may quote records: that is for the report, which is guarded."""
    return f"{about}: {check.name} ({check.counts})"
