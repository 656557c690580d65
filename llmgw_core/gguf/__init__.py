"""GGUF files: their headers, the memory they need, and whether an engine can load them."""
