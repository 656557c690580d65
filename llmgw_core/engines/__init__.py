"""Engines: one module per program that serves a model, behind one small protocol."""
