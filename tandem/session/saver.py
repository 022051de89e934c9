"""Saver: variables to and from files, in the format of td.save."""

from __future__ import annotations

from tandem.checkpoint import load, save
from tandem.errors import ValueRangeError


class Saver:
    """Saves and restores variables under their names: all of the graph's, a list of them, or a dict of names."""

    def __init__(self, variables=None):
        self._variables = variables

    def _named(self, session) -> dict:
        chosen = session.graph.variables if self._variables is None else self._variables
        return dict(chosen) if isinstance(chosen, dict) else {v.node.name: v for v in chosen}

    def save(self, session, path, global_step=None) -> str:
        """Writes the variables' values; gives the path written."""
        path = str(path) if global_step is None else f"{path}-{int(global_step)}"
        named = self._named(session)
        save(dict(zip(named, session.values_of(named.values()), strict=True)), path)
        return path

    def restore(self, session, path):
        """Gives the variables the values saved there; they need no initialiser then."""
        saved = load(str(path))
        named = self._named(session)
        for name in named:
            if name not in saved:
                raise ValueRangeError("restore", f"{path} has no variable {name!r}; it has {', '.join(sorted(saved))}")
        session.load_all({v: saved[name] for name, v in named.items()})
