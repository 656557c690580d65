"""Which faults befall which hosts, when and for how long: drawn from a seed alone. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HOST_VERBS = {
    "cut": 4, "slow": 2, "freeze": 2, "reboot": 3, "crash": 2, "lose power": 2, "stop": 1,
    "stop sshd": 1, "stop sshd and sessions": 2, "fill": 2, "ban": 1, "rekey": 1, "noexec": 1,
}  # fmt: skip
"""What befalls a whole host, with how often; one at a time on each host."""
PROCESS_VERBS = {
    "kill engine": 4, "kill engine's child": 1, "stop engine": 2, "term engine": 2,
    "kill supervisor": 2, "kill engine and supervisor": 2, "delete record": 2,
    "kill gateway": 1, "kill daemon": 3, "pause daemon": 1, "kill mirror": 1,
}  # fmt: skip
"""What befalls single processes and records, with how often."""
COMMAND_VERBS = {
    "scale up": 2, "scale down": 2, "edit": 2, "restart": 2, "drain": 2, "cordon": 1,
    "remove and add": 1,
}  # fmt: skip
"""What a person does meanwhile, with how often."""
VERBS = {**HOST_VERBS, **PROCESS_VERBS, **COMMAND_VERBS}
LASTING_S = ((0.3, 1.5), (2.0, 4.0), (6.0, 9.0), (14.0, 18.0))
"""Ranges from which a fault's duration is drawn: unnoticed, in between, noticed, replaced."""
_LASTING_WEIGHTS = (4, 4, 3, 1)
TOGETHER = (1, 2, 3, 4)
_TOGETHER_WEIGHTS = (60, 25, 8, 7)
LATEST_S = 3.0
"""Faults of one round begin within so long of each other."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens."""

    number: int
    verb: str
    host: str
    """Where, for what befalls a host; a preference for what befalls a process."""
    after_s: float
    """Since the round began."""
    lasts_s: float
    pick: float
    """0 to 1: which of the processes that are there."""


def rounds(
    seed: int, count: int, hosts: Sequence[str], verbs: Sequence[str] = tuple(VERBS)
) -> Iterator[tuple[Fault, ...]]:
    """So many faults in all, in rounds of one or several that overlap.

    The same seed gives the same faults, however long each takes.
    """
    rng = random.Random(seed)
    weights = [VERBS[verb] for verb in verbs]
    number = 0
    while number < count:
        together = min(rng.choices(TOGETHER, _TOGETHER_WEIGHTS)[0], count - number)
        places = rng.sample(list(hosts), len(hosts))
        # several hosts that go the same way at once make this machine itself suspect
        alike = together > 2 and rng.random() < 0.5
        verb = rng.choice([v for v in HOST_VERBS if v in verbs] or list(verbs))
        faults = []
        for step in range(together):
            number += 1
            low, high = rng.choices(LASTING_S, _LASTING_WEIGHTS)[0]
            drawn = rng.choices(list(verbs), weights)[0]
            faults.append(
                Fault(
                    number=number,
                    verb=verb if alike else drawn,
                    host=places[step % len(places)],
                    after_s=0.0 if step == 0 else rng.uniform(0.0, LATEST_S),
                    lasts_s=rng.uniform(low, high),
                    pick=rng.random(),
                )
            )
        yield tuple(sorted(faults, key=lambda fault: fault.after_s))
