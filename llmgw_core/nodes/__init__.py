"""Nodes over SSH: connections, probe, host metrics, and the processes that llmgw keeps there."""
