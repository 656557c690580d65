"""``python -m llmgw_core.gateway``: one gateway process.

Exits 0 after a drain, 2 for options that cannot be used, 3 where the address is taken, 4 where
another gateway holds the state directory or the address is not allowed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import fields
from pathlib import Path

import uvloop

from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.process import serve
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.log_lines import log_to_stderr


def parse(argv: list[str] | None = None) -> tuple[Path, GatewaySettings]:
    """Read the command line; ends the process with 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m llmgw_core.gateway", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the state directory")
    defaults = GatewaySettings()
    for option in fields(GatewaySettings):
        flag = "--" + option.name.removesuffix("_s").replace("_", "-")
        default = getattr(defaults, option.name)
        if isinstance(default, bool):
            parser.add_argument(flag, dest=option.name, action="store_true")
        else:
            parser.add_argument(flag, dest=option.name, type=type(default), default=default)
    values = vars(parser.parse_args(argv))
    state_dir: Path = values.pop("state")
    for name, value in values.items():
        if isinstance(value, int | float) and value < 0:
            parser.error(f"{name} is {value}, but must not be below 0")
    return state_dir, GatewaySettings(**values)


def main() -> int:
    """Run; returns the exit status."""
    state_dir, settings = parse()
    log_to_stderr()
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    try:
        uvloop.run(serve(state_dir, settings))
    except LlmgwError as error:
        sys.stderr.write(f"{error}.\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
