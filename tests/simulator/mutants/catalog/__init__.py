"""The bugs, by the part of the code that they are put into."""

from __future__ import annotations

from tests.simulator.mutants.catalog import (
    backups,
    cleaning,
    clients,
    compaction,
    coordinator,
    cuts,
    disks,
    erasure,
    groups,
    logs,
    partitions,
    schemas,
    settings,
    tables,
)
from tests.simulator.mutants.mutation import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *logs.MUTANTS,
    *disks.MUTANTS,
    *partitions.MUTANTS,
    *coordinator.MUTANTS,
    *clients.MUTANTS,
    *groups.MUTANTS,
    *cleaning.MUTANTS,
    *compaction.MUTANTS,
    *cuts.MUTANTS,
    *tables.MUTANTS,
    *backups.MUTANTS,
    *settings.MUTANTS,
    *schemas.MUTANTS,
    *erasure.MUTANTS,
)
