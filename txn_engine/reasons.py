"""The reason of an error: a stable code for one of the several faults that an error class covers.

An error's class and `code` say what the caller does next. Its `reason` says which fault it was. Programs and tests
compare reasons, because the words of a message may be improved at any time. A reason is never renamed and never used
for another fault. Each member is followed by a sentence that says what happened.

The sections below follow the package that raises most of a section's reasons.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Which fault an error reports."""

    # --- names and arguments of any call -------------------------------------------------------------------
    UNKNOWN_COLUMN = "unknown_column"
    """The topic, table or file does not have a column of this name."""
    MISSING_PACKAGE = "missing_package"
    """An optional Python package that the call needs is not installed."""

    # --- files and loading -----------------------------------------------------------------------------------

    # --- databases: Postgres and SQLite ------------------------------------------------------------------------

    # --- schemas, tables and SQL -------------------------------------------------------------------------------

    # --- erasure -----------------------------------------------------------------------------------------------

    # --- log, engine, coordinator ------------------------------------------------------------------------------

    # --- admin, settings, cuts, backup -------------------------------------------------------------------------

    # --- maintenance -------------------------------------------------------------------------------------------

    # --- quality and verification ------------------------------------------------------------------------------

    # --- Spark -------------------------------------------------------------------------------------------------

    # --- Airflow -----------------------------------------------------------------------------------------------

    # --- demo, bench, tools ------------------------------------------------------------------------------------
