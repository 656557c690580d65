"""The person's ssh agent, and what it would not do.

An agent may refuse each signature: it is locked, the person says no to its question, or a hardware
key is not touched. To the SSH server that looks like a key that was never offered, so it is noted.
"""

from __future__ import annotations

import asyncio
import errno

import asyncssh

AGENT_TIMEOUT_S = 10.0
"""For the agent to say which keys it has, and for each signature, with the person's answer."""


class Agent(asyncssh.SSHAgentClient):
    """A connection to the agent at ``path``."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
        self.unsigned: dict[bytes, str] = {}
        """Keys, by their public half, that it did not sign with although the server took them, and
        why."""

    async def sign(self, key_blob: bytes, data: bytes, flags: int = 0) -> bytes:
        """A signature; what is refused is noted.

        Raises:
            ValueError: it does not sign; the library then goes on with the next key.
        """
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_S):
                return await super().sign(key_blob, data, flags)
        except TimeoutError:
            why = f"it did not answer within {AGENT_TIMEOUT_S:.0f} s"
        except (OSError, ValueError, asyncssh.Error):
            why = "it refused to"
        self.unsigned[key_blob] = why
        raise ValueError(why)


async def ask_agent(path: str) -> tuple[Agent | None, list[asyncssh.SSHKeyPair], str]:
    """The agent with the keys that it offers; else None and what is wrong with it."""
    agent = Agent(path)
    try:
        async with asyncio.timeout(AGENT_TIMEOUT_S):
            await agent.connect()
            keys: list[asyncssh.SSHKeyPair] = list(await agent.get_keys())
    except (OSError, ValueError, TimeoutError, asyncssh.Error) as error:
        agent.close()
        return None, [], _trouble(error)
    if not keys:
        agent.close()
        return None, [], "it offers no key: add one with ssh-add, or unlock it with ssh-add -X"
    return agent, keys, ""


def _trouble(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "this user may not use it"
    if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ECONNREFUSED):
        return "no agent is there any more: start one, or set SSH_AUTH_SOCK anew"
    return "it does not answer"
