"""What llama.cpp's log says about why it ended. Pure."""

from __future__ import annotations

import re

from llmgw_core.engines.words import last_line

_OURS = "llmgw: error: "
"""Before a sentence of our launcher or start script on why it ends."""

_SIGNS = tuple(
    (re.compile(sign), sentence)
    for sign, sentence in (
        (r"llmgw: port (\d+) is taken",
         "port {0} was taken by another process; it is tried again on another port"),
        (r"couldn't bind HTTP server socket.*port: (\d+)",
         "port {0} was taken by another process; it is tried again on another port"),
        (r"couldn't bind",
         "its port was taken by another process; it is tried again on another port"),
        (r"failed to open GGUF file '([^']*)' \(No such file",
         "there is no model file {0}; put it there or correct the model's source"),
        (r"failed to open GGUF file '([^']*)' \(([^)]*)\)",
         "the model file {0} cannot be opened ({1})"),
        (r"unknown model architecture: '([^']*)'",
         "this build of llama.cpp does not know the model's architecture {0}; install a newer one"),
        (r"invalid magic characters: '([^']*)'",
         "the model file is not GGUF (it begins with {0!r}); fetch it again or choose "
         "another file"),
        (r"is not within the file bounds|corrupted or incomplete|tensor data .*out of bounds",
         "the model file is incomplete; fetch it again"),
        (r"failed to read (?:magic|header|key|tensor)|invalid GGUF|failed to load model from",
         "the model file's header is broken; fetch it again or choose another file"),
        (r"(?:failed|unable) to allocate (?:\S+ )*buffer(?: of size (\d+))?",
         "there was not enough memory for it; choose a smaller context, or raise min_memory_gb so "
         "that it is placed where there is more"),
        (r"std::bad_alloc|[Cc]annot allocate memory|out of memory",
         "there was not enough memory for it; choose a smaller context, or raise min_memory_gb so "
         "that it is placed where there is more"),
        (r"error: invalid argument: (\S+)",
         "this llama-server does not know the option {0}; remove it from the profile's args"),
        (r"error while handling argument \"?([^\":]+)\"?: (.*)",
         "this llama-server cannot use the value of {0} ({1}); correct the profile's args"),
        (r"error loading model: (.*)", "the model could not be loaded: {0}"),
    )
)  # fmt: skip
"""Tried in this order; what is exact comes before what is general."""

_ALLOCATION = re.compile(r"unable to allocate|failed to allocate", re.IGNORECASE)


def reason_in(log_tail: str, exit_status: int | None) -> str | None:
    """The sentence for what the log says, or None where it says nothing that is known.

    A process that was killed, or that ran when it ended, is not explained by old lines of its log:
    only an exit status of its own making is looked up.
    """
    if exit_status is not None and (exit_status > 128 or exit_status in (126, 127)):
        return None if exit_status != 134 or not _ALLOCATION.search(log_tail) else _sign(log_tail)
    return _sign(log_tail) or _own_words(log_tail)


def _sign(log_tail: str) -> str | None:
    for pattern, sentence in _SIGNS:
        found = pattern.search(log_tail)
        if found:
            return sentence.format(*(group or "" for group in found.groups()))
    return None


def _own_words(log_tail: str) -> str | None:
    """The last sentence that our launcher or start script printed itself."""
    lines = [line for line in log_tail.splitlines() if line.startswith(_OURS)]
    return last_line(lines[-1]).removeprefix(_OURS) if lines else None
