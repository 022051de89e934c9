"""From Python functions to graphs, and from graphs to plans."""
