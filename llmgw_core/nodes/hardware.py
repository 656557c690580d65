"""Cores and memory of a node, from what its kernel says. Pure."""

from __future__ import annotations

from collections.abc import Iterable

KIB_PER_GIB = 1024.0**2
BYTES_PER_GIB = 1024.0**3


def cpu_list(text: str) -> frozenset[int]:
    """The kernel's lists of CPUs: ``0-3,8,10-11``. What does not parse is left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        low, dash, high = part.partition("-")
        if low.isdigit() and (high.isdigit() or not dash):
            cpus.update(range(int(low), int(high if dash else low) + 1))
    return frozenset(cpus)


def count_cores(
    allowed: str | None, siblings: Iterable[str], online: str | None, quotas: Iterable[str]
) -> tuple[float | None, float | None]:
    """Logical and physical cores that may be used: affinity, cpusets and cgroup quotas honoured.

    Args:
        allowed: ``Cpus_allowed_list``.
        siblings: one ``thread_siblings_list`` for each CPU that is online.
        online: what ``nproc`` says, for kernels that show no topology.
        quotas: ``QUOTA/PERIOD`` of each cgroup above.
    """
    groups = {cpu_list(group) for group in siblings} - {frozenset()}
    usable = cpu_list(allowed) if allowed else None
    logical: float | None = None
    physical: float | None = None
    if groups:
        present = frozenset().union(*groups)
        usable = present if usable is None else usable & present
        logical = float(len(usable))
        physical = float(sum(1 for group in groups if group & usable))
    elif online and online.isdigit():
        logical = float(online)
    elif usable:
        logical = float(len(usable))
    for quota in quotas:
        limit = _ratio(quota)
        if limit is not None:
            logical = limit if logical is None else min(logical, limit)
            physical = None if physical is None else min(physical, limit)
    return logical or None, physical or None


def memory_gb(
    total_kb: str | None, available_kb: str | None, limits: str
) -> tuple[float | None, float | None]:
    """Total and available memory in GiB, within ``LIMIT USAGE INACTIVE`` bytes of the cgroup."""
    total = _number(total_kb, KIB_PER_GIB)
    available = _number(available_kb, KIB_PER_GIB)
    words = [*limits.split(), "-", "-", "-"]
    limit, usage, inactive = (_number(word, BYTES_PER_GIB) for word in words[:3])
    if limit is not None and (total is None or limit < total):
        total = limit
        if usage is not None:
            # cache that gives way at once is no use of it
            left = max(0.0, limit - max(0.0, usage - (inactive or 0.0)))
            available = left if available is None else min(available, left)
    return total, available


def _ratio(quota: str) -> float | None:
    parts = quota.split("/")
    if len(parts) != 2 or not all(p.isdigit() and int(p) for p in parts):
        return None
    return int(parts[0]) / int(parts[1])


def _number(text: str | None, unit: float) -> float | None:
    return int(text) / unit if text is not None and text.isdigit() else None
