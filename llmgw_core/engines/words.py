"""What engines have in common when they speak of options and of how a process ended. Pure."""

from __future__ import annotations

import re

from llmgw_core.plain_text import sanitise

_TAIL_MOST = 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def option_name(arg: str) -> str:
    """The option that an argument names: what stands before ``=``, or the argument itself."""
    return arg.partition("=")[0]


def last_line(log_tail: str) -> str:
    """The last line that says something, without colours, cut to what fits into a sentence."""
    for line in reversed(log_tail.splitlines()):
        clean = _CONTROL.sub("", line).strip()
        if clean:
            return sanitise(clean, most=_TAIL_MOST)
    return ""


def ended(engine: str, exit_status: int | None, log_tail: str) -> str:
    """A sentence on how a process ended, for where its log explains nothing."""
    said = last_line(log_tail)
    tail = f"; its last line was: {said}" if said else "; its log is empty"
    if exit_status is None:
        return f"{engine} ended and nobody saw how{tail}"
    if exit_status == 137:
        return (
            f"{engine} was killed (137), most often for want of memory: raise min_memory_gb, "
            "choose a smaller context or model, or free memory on the node"
        )
    if exit_status == 132:
        return (
            f"{engine} was built for a newer processor than this node has (illegal instruction); "
            "install a build for it, or the xllamacpp package"
        )
    if exit_status == 127:
        return f"the program of {engine} is not there any more; install it again on this node"
    if exit_status == 126:
        return f"the program of {engine} may not be executed; correct its permissions on this node"
    if exit_status > 128:
        number = exit_status - 128
        return f"{engine} was ended by {_SIGNALS.get(number, f'signal {number}')}{tail}"
    return f"{engine} ended with exit status {exit_status}{tail}"
