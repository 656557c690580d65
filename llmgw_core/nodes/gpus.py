"""What drivers' tools say about GPUs, read into values. Pure; what is not a number is None."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from llmgw_core.nodes.facts import GpuFacts

NVIDIA, AMD = "nvidia", "amd"
_VENDORS = {"0x10de": NVIDIA, "0x1002": AMD}
_MIB_PER_GIB = 1024.0
_BYTES_PER_GIB = 1024.0**3
_BROKEN = ("requires reset", "err!", "unknown error", "gpu is lost")


def parse_nvidia_line(line: str) -> GpuFacts | None:
    """One line of ``nvidia-smi --query-gpu`` for uuid, index, name, memory.total, memory.used,
    utilization.gpu and driver_version, without units; None where it is no such line."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) < 7 or not fields[1].isdigit():
        return None
    # a name may hold a comma: count from both ends
    uuid, index, name = fields[0], int(fields[1]), ", ".join(fields[2:-4])
    total, used, busy, driver = fields[-4:]
    share = _number(busy)
    return GpuFacts(
        uuid=uuid,
        index=index,
        vendor=NVIDIA,
        name=name,
        memory_gb=_scaled(total, _MIB_PER_GIB),
        memory_used_gb=_scaled(used, _MIB_PER_GIB),
        utilization=None if share is None else share / 100,
        driver=None if driver.startswith("[") else driver,
        healthy=not any(word in line.lower() for word in _BROKEN),
    )


def parse_nvidia(lines: Iterable[str]) -> tuple[GpuFacts, ...]:
    """All GPUs of one answer of ``nvidia-smi``, by index."""
    return _by_index(gpu for line in lines if (gpu := parse_nvidia_line(line)) is not None)


def parse_rocm(text: str) -> tuple[GpuFacts, ...] | None:
    """What ``rocm-smi --json`` says; None where it is not JSON (warnings around it are skipped)."""
    document = _embedded_json(text)
    if not isinstance(document, dict):
        return None
    system = document.get("system")
    driver = _found(system, "Driver version") if isinstance(system, dict) else None
    gpus = []
    for key, card in document.items():
        if key.startswith("card") and key[4:].isdigit() and isinstance(card, dict):
            gpus.append(_rocm_card(int(key[4:]), card, driver))
    return _by_index(gpus)


def _rocm_card(index: int, card: Mapping[str, object], driver: str | None) -> GpuFacts:
    busy = _number(_found(card, "GPU use (%)"))
    name = _found(card, "Card Series", "Card series", "Card Model", "Card model", "Device Name")
    return GpuFacts(
        uuid=_found(card, "Unique ID", "GUID") or f"card{index}",
        index=index,
        vendor=AMD,
        name=name or "AMD GPU",
        memory_gb=_scaled(_found(card, "VRAM Total Memory (B)"), _BYTES_PER_GIB),
        memory_used_gb=_scaled(_found(card, "VRAM Total Used Memory (B)"), _BYTES_PER_GIB),
        utilization=None if busy is None else busy / 100,
        driver=driver,
        healthy=True,
    )


def parse_amd_smi(static: str, metric: str) -> tuple[GpuFacts, ...] | None:
    """What ``amd-smi static --json`` and ``amd-smi metric --json`` say; None without the first."""
    cards = _amd_cards(static)
    if cards is None:
        return None
    metrics = _amd_cards(metric) or {}
    gpus = []
    for index, card in cards.items():
        numbers = metrics.get(index, {})
        busy = _number(_leaf(numbers, "usage", "gfx_activity"))
        name = _leaf(card, "asic", "market_name") or _leaf(card, "board", "product_name")
        serial = _leaf(card, "asic", "asic_serial")
        gpus.append(
            GpuFacts(
                uuid=serial or _leaf(card, "bus", "bdf") or f"gpu{index}",
                index=index,
                vendor=AMD,
                name=name or "AMD GPU",
                memory_gb=_scaled(
                    _leaf(card, "vram", "size") or _leaf(numbers, "mem_usage", "total_vram"),
                    _MIB_PER_GIB,
                ),
                memory_used_gb=_scaled(_leaf(numbers, "mem_usage", "used_vram"), _MIB_PER_GIB),
                utilization=None if busy is None else busy / 100,
                driver=_leaf(card, "driver", "version"),
                healthy=True,
            )
        )
    return _by_index(gpus)


def _amd_cards(text: str) -> dict[int, Mapping[str, object]] | None:
    document = _embedded_json(text)
    if isinstance(document, dict):  # newer versions wrap the list
        document = document.get("gpu_data")
    if not isinstance(document, list):
        return None
    cards: dict[int, Mapping[str, object]] = {}
    for card in document:
        if isinstance(card, dict) and isinstance(card.get("gpu"), int):
            cards[card["gpu"]] = card
    return cards


def parse_pci(lines: Iterable[str]) -> tuple[GpuFacts, ...]:
    """Display controllers of the two vendors as sysfs lists them: ``ADDRESS VENDOR TOTAL USED``.

    Without their vendor's tool their health is unknown.
    """
    gpus: list[GpuFacts] = []
    for line in lines:
        words = line.split()
        vendor = _VENDORS.get(words[1]) if len(words) == 4 else None
        if vendor is not None:
            gpus.append(
                GpuFacts(
                    uuid=words[0],
                    index=len(gpus),
                    vendor=vendor,
                    name=f"{vendor.upper()} GPU",
                    memory_gb=_scaled(words[2], _BYTES_PER_GIB),
                    memory_used_gb=_scaled(words[3], _BYTES_PER_GIB),
                )
            )
    return tuple(gpus)


def parse_amd_line(line: str) -> GpuFacts | None:
    """One line of gpus.sh about an AMD card: ``ID PATH TOTAL USED BUSY``."""
    words = line.split()
    if len(words) != 5:
        return None
    unique, path, total, used, busy = words
    share = _number(busy)
    index = "".join(c for c in path.rpartition("/")[2] if c.isdigit())
    return GpuFacts(
        uuid=f"0x{unique.removeprefix('0x')}" if unique != "-" else path,
        index=int(index or 0),
        vendor=AMD,
        name="AMD GPU",
        memory_gb=_scaled(total, _BYTES_PER_GIB),
        memory_used_gb=_scaled(used, _BYTES_PER_GIB),
        utilization=None if share is None else share / 100,
    )


def unhealthy(gpus: Iterable[GpuFacts]) -> tuple[GpuFacts, ...]:
    """The same GPUs, marked as not usable: their driver does not answer."""
    return tuple(replace(gpu, healthy=False) for gpu in gpus)


def _by_index(gpus: Iterable[GpuFacts]) -> tuple[GpuFacts, ...]:
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _embedded_json(text: str) -> object:
    """The first JSON value in a tool's output, which may warn before it and after."""
    starts = [at for at in (text.find("{"), text.find("[{")) if at >= 0]
    if not starts:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, min(starts))
    except ValueError:
        return None
    found: object = value
    return found


def _found(card: Mapping[str, object], *keys: str) -> str | None:
    for key in keys:
        value = card.get(key)
        if isinstance(value, str | int | float) and str(value) not in {"", "N/A"}:
            return str(value)
    return None


def _leaf(card: Mapping[str, object], group: str, key: str) -> str | None:
    """A value of amd-smi: plain, or with its unit as ``{"value": 1, "unit": "MB"}``."""
    part = card.get(group)
    value = part.get(key) if isinstance(part, dict) else None
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str | int | float) and str(value) not in {"", "N/A"}:
        return str(value)
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < float("inf") else None


def _scaled(text: str | None, unit: float) -> float | None:
    value = _number(text)
    return None if value is None else value / unit
