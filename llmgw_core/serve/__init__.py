"""From weights to a catalog entry: the serve plan and its form. Pure."""
