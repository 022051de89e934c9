"""Passes: graph -> graph. pipeline.py has their order, docs/passes.md describes them."""
