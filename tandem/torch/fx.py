"""torch.fx on our graphs: symbolic_trace gives a module whose graph is the program that its calls run.

PyTorch's tracer follows Python code without inputs; here graphs are made of calls: `graph`, `code` and `print_readable` are there
after the first one.
"""

from __future__ import annotations

from tandem.aliases import path as _path
from tandem.compiling.compiled import compile
from tandem.errors import UnsupportedError
from tandem.graph import Graph, Node
from tandem.nn import Module

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "symbolic_trace", "wrap"]


class GraphModule(Module):
    """A module or function whose calls run as compiled programs; `graph` is the latest of them."""

    def __init__(self, root):
        super().__init__()
        self.root = root
        object.__setattr__(self, "_call", compile(root))

    def forward(self, *args, **kwargs):
        return self._call(*args, **kwargs)

    @property
    def graph(self):
        """The td.Graph of the latest call: nodes, inputs, outputs; print it, or view() it."""
        found = self._call if not isinstance(self.root, Module) else type(self._call)._compiled_call
        if not found._report:
            raise UnsupportedError(
                "symbolic_trace",
                "there is no graph before the first call: it is made of what runs",
                fix="call the module once",
            )
        return found.graph()

    @property
    def code(self) -> str:
        """The graph as text."""
        return str(self.graph)

    def print_readable(self, print_output: bool = True) -> str:
        if print_output:
            print(self.code)
        return self.code

    def recompile(self):
        raise UnsupportedError(
            "GraphModule.recompile", "graphs are not rewritten node by node here",
            fix="write a pass, graph -> graph: docs/passes.md",
        )  # fmt: skip


def symbolic_trace(root, concrete_args=None) -> GraphModule:
    """root, whose graph can be looked at once it was called.

    >>> traced = td.torch.fx.symbolic_trace(lambda x: x * 2 + 1)
    >>> traced(td.ones(2))
    tensor([3., 3.])
    >>> len(traced.graph.outputs)
    1
    """
    return GraphModule(root)


def wrap(fn_or_name):
    """The function itself: calls are followed whatever they go through."""
    return fn_or_name


class Proxy:
    """What PyTorch's tracer hands to functions: nothing here is one, which isinstance tells."""


class Tracer:
    """What derives from torch.fx.Tracer to choose leaves has no counterpart: whole programs are traced."""

    def __init__(self, *args, **kwargs):
        raise UnsupportedError(
            "fx.Tracer",
            "there is no tracer that follows code without inputs",
            fix="use fx.symbolic_trace, or td.compile(fn).graph(x)",
        )


class Interpreter:
    """Runs graphs node by node in PyTorch."""

    def __init__(self, *args, **kwargs):
        raise UnsupportedError(
            "fx.Interpreter", "graphs run as programs here", fix="use graph.run(...), or walk graph.nodes"
        )


# What packages ask before they trace: nothing here is traced by proxies.
__path__ = []  # so that the modules below are looked up
_path(f"{__name__}.experimental", {"__path__": []})
_path(f"{__name__}.experimental.proxy_tensor", {"get_proxy_mode": lambda: None})
