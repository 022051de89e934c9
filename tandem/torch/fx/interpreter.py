"""Interpreter: a graph run node by node, by methods that classes may override."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.nn import Module
from tandem.torch.fx.graph import Graph, fetch
from tandem.torch.fx.module import GraphModule
from tandem.torch.fx.node import Node, map_arg
from tandem.torch.fx.proxy import Proxy
from tandem.torch.fx.tracer import Tracer


class Interpreter:
    """Runs a GraphModule node by node; `env` holds what nodes gave.

    >>> class Names(td.torch.fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         print(target.__name__)
    ...         return super().call_function(target, args, kwargs)
    >>> Names(td.torch.fx.symbolic_trace(lambda x: td.torch.relu(x))).run(td.tensor([-1.0]))
    relu
    tensor([0.])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None):
        self.module, self.graph = module, graph or module.graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, object] = {}

    def run(self, *args, initial_env: dict | None = None, enable_io_processing: bool = True):
        """The output for these inputs."""
        self.env = dict(initial_env or {})
        self.args_iter: Iterator = iter(args)
        last = {used: node for node in self.graph.nodes for used in node.all_input_nodes}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for used in node.all_input_nodes:
                    if last[used] is node:
                        self.env.pop(used, None)
        return None

    def run_node(self, n: Node):
        """What a node gives."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: str, args: tuple, kwargs: dict):
        """The next input."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise TypeError(f"no input was given for {target}") from None

    def get_attr(self, target: str, args: tuple, kwargs: dict):
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target, args: tuple, kwargs: dict):
        """What a function gives."""
        return target(*args, **kwargs)

    def call_method(self, target: str, args: tuple, kwargs: dict):
        """What a method of the first argument gives."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: str, args: tuple, kwargs: dict):
        """What a submodule gives."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: tuple, kwargs: dict):
        """The result."""
        return args[0]

    def fetch_attr(self, target: str):
        return fetch(self.module, target)

    def fetch_args_kwargs_from_env(self, n: Node):
        return self.map_nodes_to_values((n.args, n.kwargs), n)

    def map_nodes_to_values(self, args, n: Node):
        return map_arg(args, lambda node: self.env[node])


class Transformer(Interpreter):
    """Makes a new GraphModule of what its methods do with proxies."""

    def __init__(self, module: GraphModule):
        super().__init__(module)
        self.tracer = _NewGraph(module)
        self.new_graph = self.tracer.graph

    def placeholder(self, target: str, args: tuple, kwargs: dict):
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...), self.tracer)

    def get_attr(self, target: str, args: tuple, kwargs: dict):
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: str, args: tuple, kwargs: dict):
        return self.tracer.call_module(fetch(self.module, target), self.fetch_attr(target).forward, args, kwargs)

    def call_function(self, target, args: tuple, kwargs: dict):
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: str, args: tuple, kwargs: dict):
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        result = super().run()
        self.new_graph.output(self.tracer.create_arg(result))
        return GraphModule(self.module, self.new_graph)


class _NewGraph(Tracer):
    def __init__(self, module: Module):
        super().__init__()
        self.root, self.graph = module, Graph()
        self._constants, self._members = {}, {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class ShapeProp(Interpreter):
    """Runs a graph and notes in node.meta["tensor_meta"] the shape and dtype that each node gave."""

    def run_node(self, n: Node):
        result = super().run_node(n)
        if hasattr(result, "shape") and hasattr(result, "dtype"):
            n.meta["tensor_meta"] = TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride())
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """run()."""
        return super().run(*args)


class TensorMetadata(tuple):
    """shape, dtype, requires_grad and stride of what a node gave."""

    def __new__(cls, *values):
        return super().__new__(cls, values)

    shape = property(lambda self: self[0])
    dtype = property(lambda self: self[1])
    requires_grad = property(lambda self: self[2])
    stride = property(lambda self: self[3])
