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
from txn_engine.quality.suite_report import run_with_report
from txn_engine.quality.suite_run import Asked, SuiteCheck, SuitesRun
from txn_engine.quality.suites import Suite, load_suite
from txn_engine.spark.reading import uploaded_rows
from txn_engine.spark.uploading import UploadedFile

log = logging.getLogger(__name__)

_NAMED_MAX = 5

Checks = Any
"""What `checks=` takes: what `txn_engine.quality.load_suite` does, for every output; or that by topic."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The suites that an output has to pass, by topic or for every one, and where their report goes."""

    suites: Suite | Mapping[str, Suite]
    report_folder: Path | None = None

    def suite_of(self, topic: str) -> Suite | None:
        """The suite that votes on this topic; None where none does."""
        return self.suites if isinstance(self.suites, Suite) else self.suites.get(topic)

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
) -> Vote | None:
    """The vote that `checks=` asks for. `outputs`: the topics that may be written to, where that is known by now.

    Raises `InvalidRequestError` in one line for checks that are none, and for those of a topic that is no output: a
    mistyped one would be let through unchecked. `UnknownTopicOrPartitionError` for a topic that is not there.
    """
    if checks is None:
        if report_folder is not None:
            raise InvalidRequestError(
                "report_folder without checks", actor=actor, expected="checks, whose report goes there"
            )
        return None
    folder = None if report_folder is None else Path(os.fspath(report_folder))
    if not isinstance(checks, Mapping):
        return Vote(load_suite(checks), folder)
    for topic in checks:
        if outputs is not None and topic not in outputs:
            raise InvalidRequestError(
                f"checks of {topic!r}, which is no output",
                actor=actor,
                expected=f"those of {', '.join(sorted(outputs))}",
            )
        engine.logs.topics.look_up(topic)
    return Vote({topic: load_suite(suite) for topic, suite in checks.items()}, folder)


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
