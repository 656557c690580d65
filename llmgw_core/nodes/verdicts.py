"""Asking the engine on a node whether it knows an architecture; there it is ``architecture.sh``."""

from __future__ import annotations

from llmgw_core.engines.registry import ENGINES
from llmgw_core.engines.verdict import ASKED_S, Verdict, not_asked, read_answer
from llmgw_core.nodes.exec import Exec
from llmgw_core.nodes.facts import EngineFacts
from llmgw_core.nodes.script import load, word

TIMEOUT_S = 30.0
"""Bound on a question, the way there and back included."""
REMEMBERED = 256
"""Answers kept in memory; names come from files, of which there can be any number."""


class Verdicts:
    """One node's engines' answers, asked once for each engine, version and architecture."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Verdict] = {}

    async def ask(self, exec_: Exec, found: EngineFacts, architecture: str) -> Verdict:
        """Whether this engine knows the architecture; ``known`` is None where it does not say.

        Raises:
            NodeLost: the link went away, or the node did not answer in time.
            NodeRefused: the login has no usable shell.
        """
        engine = ENGINES.get(found.name)
        question = engine.architecture_question(found, architecture) if engine else None
        if question is None:
            return not_asked(found, architecture)
        # where the version is not known, a newer engine at the same path would not be noticed
        key = (found.path, found.version, architecture) if found.version else None
        if key is not None and key in self._known:
            return self._known[key]
        result = await exec_.feed(
            load("lib.sh", "architecture.sh"),
            *(question.kind, word(question.path), str(ASKED_S), str(len(question.model))),
            payload=question.model + question.program,
            timeout_s=TIMEOUT_S,
        )
        output = (result.stdout + result.stderr).decode(errors="replace")
        verdict = read_answer(found, architecture, result.exit_status, output)
        if key is not None and verdict.known is not None:
            while len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = verdict
        return verdict
