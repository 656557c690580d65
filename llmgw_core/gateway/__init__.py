"""The OpenAI-compatible front: a process of its own that outlives its controller."""
