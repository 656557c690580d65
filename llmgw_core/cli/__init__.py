"""The command line: typer commands, loaded only when asked for."""
