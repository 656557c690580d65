"""The full-screen console of llmgw. It talks to the engine only through ``llmgw_core.api``."""
