"""The engine of llmgw: catalog, nodes, placement, controller and gateway, without a screen."""

__version__ = "0.1.0"
