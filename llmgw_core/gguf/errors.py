"""What is said about files that cannot be read. Pure."""

from __future__ import annotations

from llmgw_core.errors import InvalidInput


class HeaderError(InvalidInput):
    """A file is no GGUF, is cut or damaged, or says of itself what cannot be."""


class SourceError(HeaderError):
    """The bytes of a file could not be had; whether its header is good is not known."""

    exit_code = 1
    code = "failed"
