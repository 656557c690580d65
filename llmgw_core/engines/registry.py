"""The engines that llmgw knows, by name. Importing this loads nothing that talks to anything."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from llmgw_core.engines.base import Engine
from llmgw_core.engines.llamacpp import LlamaCpp
from llmgw_core.engines.vllm import Vllm

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {engine.name: engine for engine in (LlamaCpp(), Vllm())}
)
"""One value per engine; they hold no state."""
