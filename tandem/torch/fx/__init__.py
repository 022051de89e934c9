"""torch.fx: programs as graphs of calls that can be read and changed.

symbolic_trace follows a module or function once, with proxies for its inputs, and gives a GraphModule: its nodes are calls of
functions, methods and submodules as the program wrote them, its code is Python. What runs, eagerly or under td.compile, is that
code; `GraphModule.program(*args)` is the graph that it is compiled from.
"""

from __future__ import annotations

from tandem.aliases import path as _path
from tandem.torch.fx import graph as graph
from tandem.torch.fx import interpreter as interpreter
from tandem.torch.fx import node as node
from tandem.torch.fx import proxy as proxy
from tandem.torch.fx.graph import Graph
from tandem.torch.fx.interpreter import Interpreter, ShapeProp, TensorMetadata, Transformer
from tandem.torch.fx.module import GraphModule, symbolic_trace
from tandem.torch.fx.node import Node, map_aggregate, map_arg
from tandem.torch.fx.proxy import Attribute, Proxy, TraceError
from tandem.torch.fx.rewriter import Match, replace_pattern
from tandem.torch.fx.tracer import Tracer, wrap

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "TraceError", "Tracer", "Transformer", "map_arg", "replace_pattern",
    "symbolic_trace", "wrap",
]  # fmt: skip

# The files of PyTorch's that programs import these from.
_path(f"{__name__}._symbolic_trace", {"Tracer": Tracer, "symbolic_trace": symbolic_trace, "wrap": wrap})
_path(f"{__name__}.graph_module", {"GraphModule": GraphModule})
_path(f"{__name__}.subgraph_rewriter", {"Match": Match, "replace_pattern": replace_pattern})
_path(f"{__name__}.passes", {"__path__": []})
_path(f"{__name__}.passes.shape_prop", {"ShapeProp": ShapeProp, "TensorMetadata": TensorMetadata})
_path(f"{__name__}.experimental", {"__path__": []})
_path(f"{__name__}.experimental.proxy_tensor", {"get_proxy_mode": lambda: None})
