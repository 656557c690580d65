"""``python -m llmgw_core`` is ``llmgw``."""

from llmgw_core.cli import main

if __name__ == "__main__":
    main()
