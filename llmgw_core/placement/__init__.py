"""Pure: what fits where, and why not."""
