"""Models that clients may ask for: values, rules, and the overlay of what was added at run time."""
