"""What may go wrong, how often, and where exactly: a plan that follows from the seed and can be reduced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.simulator.chance import Chance
from tests.simulator.kernel import HOUR, MINUTE, MS, SECOND

PUT_FAULTS = (
    "refused",  # an error, and nothing was done
    "unconnected",  # no connection came about, nothing was done
    "denied",  # access denied, nothing was done
    "error-after",  # 500 after storing
    "lost-reply",  # stored; the reply never comes, the client gives up after its time-out
    "late",  # the client gives up; the put lands later, if at all
    "conflict",  # 409: "taken", with nothing written
    "taken-after",  # stored, and answered with 412 to the winner
)
READ_FAULTS = ("refused", "unconnected", "lost-reply")
LIST_FAULTS = ("refused", "lagging")  # lagging: objects of the last seconds are missing from the answer
PROCESS_FAULTS = ("crash-before", "crash-after", "pause-before", "pause-after", "clock-jump")
DISK_FAULTS = (
    "refused",  # the disk fails before anything was done
    "crash-inside",  # the process dies between two system calls of one operation
    "power-cut",  # the machine goes off between two of them: all its processes die, what was not synced is lost
)
BUCKET_FAULTS = tuple(dict.fromkeys((*PUT_FAULTS, *LIST_FAULTS, "slow", *PROCESS_FAULTS)))
"""What can go wrong where the store is a bucket behind a network."""
LOCAL_FAULTS = (*DISK_FAULTS, "slow", *PROCESS_FAULTS)
"""What can go wrong where it is a folder of one machine."""
ALL_FAULTS = tuple(dict.fromkeys((*BUCKET_FAULTS, *LOCAL_FAULTS)))
LONGEST_JUMP = 6 * HOUR
_EVERY_KIND_RATE = 0.02
_RARE = (*PROCESS_FAULTS, "crash-inside", "power-cut")


_MANY = 5_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong at one store operation of one process, and how long it takes."""

    kind: str
    duration: int = 0


@dataclass
class FaultPlan:
    """Which fault comes at which site (a store operation of one process; `Process.next_site`).

    Every kind has its own rate, drawn once for each run (swarm testing: many kinds are off in a given run, so
    that the others get room). `every_kind` turns all of them on. `only`: if it is not None, nothing fails
    except at these sites, which is how a failing run is shrunk. `local`: the store is a folder.
    """

    chance: Chance
    intensity: float = 1.0
    longest_pause: int = 6 * HOUR
    only: frozenset[str] | None = None
    every_kind: bool = False
    local: bool = False
    enabled: bool = True
    injected: Counter[str] = field(default_factory=Counter)
    sites: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in ALL_FAULTS:
            on = self.every_kind or self.chance.at("swarm", kind) < 0.5
            rate = self.chance.spread(5, 1_000, "rate", kind) / 10_000  # 0.05 % to 10 %
            if self.every_kind:
                rate = _EVERY_KIND_RATE
            if kind in _RARE:
                rate /= 5
            self.rates[kind] = rate * self.intensity if on else 0.0

    def at(self, site: str, operation: str) -> Fault | None:
        """What goes wrong at this operation."""
        if not self.enabled or (self.only is not None and site not in self.only):
            return None
        kind = self._kind(site, operation)
        if kind is None:
            return None
        self.injected[kind] += 1
        self.sites[site] = kind
        return Fault(kind, self._duration(site, kind))

    def _kind(self, site: str, operation: str) -> str | None:
        drawn = self.chance.at("fault", site)
        if self.injected.total() >= _MANY:
            drawn *= 10  # where one read in four fails, nobody ever loads a log of a hundred entries
        for kind in possible(operation, local=self.local):
            drawn -= self.rates[kind]
            if drawn < 0:
                return kind
        return None

    def _duration(self, site: str, kind: str) -> int:
        if kind == "late":
            return self.chance.spread(50 * MS, self.longest_pause, "length", site)
        if kind == "lost-reply":
            asleep = self.chance.at("asleep", site) < 0.2  # the machine was suspended while it waited
            return self.chance.spread(SECOND, self.longest_pause if asleep else 30 * SECOND, "length", site)
        if kind.startswith("pause"):
            return self.chance.spread(100 * MS, self.longest_pause, "length", site)
        if kind == "clock-jump":
            back = self.chance.at("back", site) < 0.5
            return self.chance.spread(SECOND, LONGEST_JUMP, "length", site) * (-1 if back else 1)
        if kind == "slow":
            return self.chance.spread(20 * MS, 10 * SECOND, "length", site)
        if kind == "lagging":
            return self.chance.spread(10 * MS, MINUTE, "length", site)
        return 0


def possible(operation: str, *, local: bool) -> tuple[str, ...]:
    """The kinds of fault that can come at an operation."""
    if local:
        return LOCAL_FAULTS
    if operation == "put_if_absent":
        own = PUT_FAULTS
    elif operation in ("put", "delete"):
        own = tuple(kind for kind in PUT_FAULTS if kind not in ("conflict", "taken-after"))
    elif operation in ("list", "list_folders"):
        own = LIST_FAULTS
    else:
        own = READ_FAULTS
    return (*own, "slow", *PROCESS_FAULTS)
