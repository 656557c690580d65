"""``python -m llmgw_core.demo FOLDER``: fetch the demo's model into a folder and print its path."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from llmgw_core.demo.model import ensure_model
from llmgw_core.errors import LlmgwError


def main() -> int:
    """Fetch; returns the exit status."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m llmgw_core.demo FOLDER\n")
        return 2
    try:
        path = asyncio.run(ensure_model(Path(sys.argv[1]).absolute(), progress=lambda _: None))
    except LlmgwError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
