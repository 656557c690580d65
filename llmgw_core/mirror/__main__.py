"""``python -m llmgw_core.mirror pull``: see ``puller``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run what the first word says."""
    if sys.argv[1:] != ["pull"]:
        sys.stderr.write("usage: python -m llmgw_core.mirror pull < REQUEST.json\n")
        return 2
    from llmgw_core.mirror.puller import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
