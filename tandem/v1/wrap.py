"""Operators that build the default graph wherever they are called."""

import functools

from tandem.session.build import graph_of

_DROPPED = ("name",)  # names of operations are accepted and mean nothing


def in_graph(function=None, keywords: dict | None = None):
    """function as a builder of graphs: of the graph its arguments belong to, or else the default one.

    keywords: classic keyword -> ours.
    """

    @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
    def build(*args, **kwargs):
        kwargs = {(keywords or {}).get(k, k): v for k, v in kwargs.items() if k not in _DROPPED}
        flat = [a for x in (*args, *kwargs.values()) for a in (x if isinstance(x, (list, tuple)) else (x,))]
        with graph_of(*flat):
            return function(*args, **kwargs)

    return build
