"""The command line: typer commands, loaded only when asked for."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``llmgw``: every error is one sentence on stderr and an exit code."""
    from llmgw_core.errors import LlmgwError

    try:
        if len(sys.argv) > 1:
            from llmgw_core.cli.app import app

            app()
        else:  # no words to read: the console opens without the command line being loaded
            from llmgw_core.cli.console import Look, console
            from llmgw_core.cli.place import Place

            raise SystemExit(console(Place(), Look()))
    except LlmgwError as error:
        _say(str(error))
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        # The reader of our output has left (head, a closed pager): nothing is wrong.
        sys.stderr.close()
        raise SystemExit(1) from None
    except OSError as error:
        # A disk, folder or file that fails where nobody could do more about it than the person.
        where = f" ({error.filename})" if error.filename else ""
        _say(f"{error.strerror or error}{where}; mend that and try again")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _say(text: str) -> None:
    """One line on stderr; errors quote texts from outside."""
    from llmgw_core.plain_text import plain

    sys.stderr.write(f"llmgw: {plain(text)}\n")
