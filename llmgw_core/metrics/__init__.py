"""Numbers from engines: scrape, parse, map, keep."""
