"""The demo's model: where it comes from, and getting it whole."""
