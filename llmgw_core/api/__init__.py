"""The control socket: the one protocol between the engine and its faces."""
