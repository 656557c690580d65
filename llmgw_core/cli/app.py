"""``llmgw`` itself: the console, the daemon, and the groups of commands below it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmgw_core.cli import changes, gguf, keys, mirror, reads, serve, usage

HELP = "Serve language models on the machines you already have."

app = typer.Typer(
    help=HELP, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
run = typer.Typer(
    help="Look at the cluster and change it, for scripts. Every command takes --json.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(run, name="run")
reads.register(run)
changes.register(run)
serve.register(run)
gguf.register(run)
mirror.register(run)
keys.register(run)
usage.register(run)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    state: Annotated[Path | None, typer.Option(help="State directory.")] = None,
    headless: Annotated[bool, typer.Option("--headless", help="Run without a screen.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Change nothing.")] = False,
    theme: Annotated[str | None, typer.Option(help="Theme of the console.")] = None,
    log_format: Annotated[str, typer.Option(help="Of --headless: text or json.")] = "text",
    fps: Annotated[int | None, typer.Option(help="Most frames a second.")] = None,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Plain characters only.")] = False,
    mouse: Annotated[bool, typer.Option(help="React to the mouse.")] = True,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Open the full-screen console, or with --headless run the same engine as a daemon."""
    from llmgw_core.cli.place import Place

    place = context.obj = Place(config, state)
    if version:
        import llmgw_core

        typer.echo(f"llmgw {llmgw_core.__version__}")
        return
    if context.invoked_subcommand is not None:
        return
    if headless:
        from llmgw_core.cli.headless import headless as run_headless

        raise typer.Exit(run_headless(place, log_format))
    from llmgw_core.cli.console import Look, console

    look = Look(theme=theme, read_only=read_only, fps=fps, ascii_only=ascii_only, mouse=mouse)
    raise typer.Exit(console(place, look))


@app.command()
def demo(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Ask once without a screen.")] = False,
    directory: Annotated[Path | None, typer.Option(help="Where the demo keeps its files.")] = None,
    question: Annotated[str, typer.Option(help="What --check asks.")] = "Name three rivers.",
    port: Annotated[int, typer.Option(help="Port of the gateway; 0 takes a free one.")] = 0,
    theme: Annotated[str | None, typer.Option(help="Theme of the console.")] = None,
) -> None:
    """Everything on this machine: a node, a real engine, a real small model, the gateway."""
    from llmgw_core.cli.demo import demo as run_demo

    raise typer.Exit(run_demo(directory, check=check, question=question, port=port, theme=theme))
