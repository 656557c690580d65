"""What an engine is started with on a node."""

from __future__ import annotations

from llmgw_core.catalog.model import Model, Profile
from llmgw_core.engines.base import LaunchRequest
from llmgw_core.errors import EngineFailed
from llmgw_core.nodes.api import NodeHandle


def launch_request(
    node: NodeHandle, model: Model, profile: Profile, source: str, port: int, key: str
) -> LaunchRequest:
    """What an engine needs to know to make its command.

    Raises:
        EngineFailed: the node does not have it.
    """
    facts = node.facts
    found = facts.engine(profile.engine) if facts else None
    if found is None:
        raise EngineFailed(
            f"engine {profile.engine} is not on {node.config.name}; install it with "
            f"`llmgw run node provision {node.config.name}`"
        )
    return LaunchRequest(
        model=model.name,
        source=source,
        profile=profile,
        found=found,
        host=listen_address(node),
        port=port,
        api_key=key,
    )


def listen_address(node: NodeHandle) -> str:
    """Where an engine on this node listens: loopback where nothing else needs to reach it."""
    config = node.config
    if config.serve_address:
        return config.serve_address
    return "127.0.0.1" if config.local or config.data_path == "tunnel" else "0.0.0.0"  # noqa: S104 - reached from the gateway's machine; a key per replica protects it
