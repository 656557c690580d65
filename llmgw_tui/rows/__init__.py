"""From the engine's views to what stands in a row or on a card. Pure."""
