"""GraphModule: a module whose forward is a graph."""

from __future__ import annotations

import copy
import itertools
import linecache

from tandem.compiling.compiled import compile as compiled
from tandem.nn import Module
from tandem.tensors.methods import Tensor
from tandem.torch.fx.graph import Graph, fetch
from tandem.torch.fx.tracer import Tracer

_files = itertools.count()


class GraphModule(Module):
    """A module that runs a graph. After the graph was changed, recompile() has calls run the changed one.

    root: the module, or a dict of paths and values, that nodes name attributes and submodules of.
    """

    def __init__(self, root, graph: Graph, class_name: str = "GraphModule"):
        super().__init__()
        if isinstance(root, Module):
            self.training = root.training
        object.__setattr__(self, "_name", class_name)
        for node in graph.nodes:
            if node.op in ("call_module", "get_attr"):
                self._take(root, node.target)
        self.graph = graph

    def _take(self, root, path: str):
        """Has the attribute that a node names, at the same path."""
        value = root[path] if isinstance(root, dict) else fetch(root, path)
        owner, _, name = path.rpartition(".")
        holder = self._holder(owner)
        if name in holder._parameters or name in holder._buffers or name in holder._modules:
            return
        if (
            isinstance(value, Tensor)
            and not isinstance(root, dict)
            and name in getattr(fetch_owner(root, owner), "_buffers", ())
        ):
            holder.register_buffer(name, value)
        else:
            setattr(holder, name, value)

    def _holder(self, path: str) -> Module:
        holder = self
        for part in path.split(".") if path else ():
            if part not in holder._modules:
                holder.add_module(part, Module())
            holder = holder._modules[part]
        return holder

    # -- the graph

    @property
    def graph(self) -> Graph:
        return self.__dict__["_graph"]

    @graph.setter
    def graph(self, graph: Graph):
        graph.owning_module = self
        object.__setattr__(self, "_graph", graph)
        self.recompile()

    @property
    def code(self) -> str:
        """forward, as Python."""
        return self.__dict__["_code"]

    def recompile(self):
        """Has calls run the graph as it is now."""
        python = self.graph.python_code("self")
        file = f"<fx graph {next(_files)}>"
        space = dict(python.globals)
        exec(compile(python.src, file, "exec"), space)
        linecache.cache[file] = (len(python.src), None, python.src.splitlines(True), file)
        object.__setattr__(self, "_code", python.src)
        object.__setattr__(self, "_run", space["forward"])
        self.__dict__.pop("_compiled", None)
        return python

    def forward(self, *args, **kwargs):
        return self._run(self, *args, **kwargs)

    def program(self, *args, **kwargs):
        """The graph that td.compile makes of calls with such arguments.

        >>> traced = td.torch.fx.symbolic_trace(lambda x: x * 2 + 1)
        >>> len(traced.program(td.ones(2)).outputs)
        1
        """
        call = self.__dict__.get("_compiled") or compiled(lambda *a, **k: self.forward(*a, **k))
        object.__setattr__(self, "_compiled", call)
        call(*args, **kwargs)
        return call.graph()

    def print_readable(self, print_output: bool = True, **_) -> str:
        """The program as Python."""
        text = f"class {self._name}(torch.nn.Module):\n" + "".join(f"    {line}\n" for line in self.code.splitlines())
        if print_output:
            print(text)
        return text

    # -- submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Has a submodule at a path, for nodes to call."""
        owner, _, name = target.rpartition(".")
        self._holder(owner).add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes a submodule away; whether it was there."""
        owner, _, name = target.rpartition(".")
        holder = self.get_submodule(owner) if owner else self
        return holder._modules.pop(name, None) is not None

    def delete_all_unused_submodules(self) -> None:
        """Takes away the submodules that no node calls or reads from."""
        used = {n.target for n in self.graph.nodes if n.op in ("call_module", "get_attr")}
        for path, _ in [*self.named_modules()]:
            of = f"{path}."
            if path and not any(t == path or t.startswith(of) or path.startswith(f"{t}.") for t in used):
                self.delete_submodule(path)

    # -- copies

    def __deepcopy__(self, memo):
        made = object.__new__(type(self))
        own = {k: v for k, v in self.__dict__.items() if k not in _OF_THE_GRAPH}
        made.__dict__.update(copy.deepcopy(own, memo))
        made.graph = copy.deepcopy(self.graph)
        return made


_OF_THE_GRAPH = ("_graph", "_code", "_run", "_compiled")


def fetch_owner(root, path: str):
    return fetch(root, path) if path else root


def symbolic_trace(root, concrete_args=None) -> GraphModule:
    """root as a GraphModule: followed once with proxies for its inputs, so that its calls are nodes that can be changed.

    >>> traced = td.torch.fx.symbolic_trace(lambda x: td.torch.relu(x) + 1)
    >>> for node in traced.graph.nodes:
    ...     if node.target is td.torch.relu:
    ...         node.target = td.torch.neg
    >>> _ = traced.recompile()
    >>> traced(td.tensor([2.0]))
    tensor([-1.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
