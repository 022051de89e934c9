"""Tracer: a module or function followed once with proxies in place of its inputs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys

from tandem.nn import Module, Sequential, functional
from tandem.tensors.methods import Tensor
from tandem.torch import overrides
from tandem.torch.fx.graph import Graph
from tandem.torch.fx.proxy import Member, Proxy, TracerBase, tracer_of

_wrapped: list[tuple[dict, str]] = []  # names of modules whose functions are not followed into


def wrap(fn_or_name):
    """Has traces record calls of a function of this module as one node; a name, or a decorator.

    >>> @td.torch.fx.wrap
    ... def shift(x):
    ...     return x + 1
    >>> [n.name for n in td.torch.fx.symbolic_trace(lambda x: shift(x)).graph.nodes][:2]
    ['x', 'shift']
    """
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _wrapped.append((sys._getframe(1).f_globals, name))
    return fn_or_name


class Tracer(TracerBase):
    """Makes the graph of a module or function. Classes may say what is a leaf, and how calls become nodes."""

    def __init__(self, autowrap_modules=(), autowrap_functions=(), param_shapes_constant: bool = False):
        self.autowrap_functions = tuple(autowrap_functions)

    # -- what may be overridden

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of m are one node: layers of tandem.nn are, but Sequential."""
        return type(m).__module__.startswith("tandem.nn") and not isinstance(m, Sequential)

    def call_module(self, m: Module, forward, args: tuple, kwargs: dict):
        """A call of a submodule: a node if it is a leaf, what its forward does otherwise."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def path_of_module(self, mod: Module) -> str:
        """The name of a submodule of the root."""
        for name, found in self.root.named_modules():
            if found is mod:
                return name
        raise NameError(f"{type(mod).__name__} is called, but is no submodule of {type(self.root).__name__}")

    # -- tracing

    def trace(self, root, concrete_args: dict | None = None) -> Graph:
        """The graph of root; concrete_args are values for some of its parameters, which are followed with them."""
        self.root = root if isinstance(root, Module) else Module()
        function = root.forward if isinstance(root, Module) else root
        self.graph = Graph(tracer_cls=type(self))
        self._constants: dict[int, str] = {}
        _make_overridable()
        with contextlib.ExitStack() as stack:
            args, kwargs = self._inputs(function, concrete_args or {})
            stack.enter_context(self._members_as_proxies())
            stack.enter_context(self._calls_of_modules())
            stack.enter_context(self._wrapped_functions())
            result = function(*args, **kwargs)
        self.graph.output(self.create_arg(result))
        return self.graph

    def _inputs(self, function, concrete: dict):
        args, kwargs = [], {}
        for p in inspect.signature(function).parameters.values():
            star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            default = () if p.default is p.empty else (p.default,)
            given = Proxy(self.create_node("placeholder", star + p.name, default, {}, p.name), self)
            given = concrete.get(p.name, given)
            if star == "**":
                kwargs |= _Anything(given)
            elif star:
                args.append(given)
            elif p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = given
            else:
                args.append(given)
        return args, kwargs

    @contextlib.contextmanager
    def _members_as_proxies(self):
        """Parameters and buffers of all modules that are followed: what forward() computes of them becomes nodes too."""
        changed = []
        for path, module in self.root.named_modules():
            for members in (module._parameters, module._buffers):
                for name, value in members.items():
                    if isinstance(value, Tensor):
                        changed.append((members, name, value))
                        members[name] = Member(f"{path}.{name}" if path else name, self, value)
        self._members = {id(value): members[name] for members, name, value in changed}
        try:
            yield
        finally:
            for members, name, value in changed:
                members[name] = value

    @contextlib.contextmanager
    def _calls_of_modules(self):
        """Has submodules ask call_module in place of their forward()."""
        modules = [m for m in self.root.modules() if m is not self.root]
        before = [m.__dict__.get("forward") for m in modules]
        for m in modules:
            m.__dict__["forward"] = functools.partial(self._called, m, m.forward)
        try:
            yield
        finally:
            for m, forward in zip(modules, before, strict=True):
                if forward is None:
                    del m.__dict__["forward"]
                else:
                    m.__dict__["forward"] = forward

    def _called(self, module: Module, forward, *args, **kwargs):
        return self.call_module(module, forward, args, kwargs)

    @contextlib.contextmanager
    def _wrapped_functions(self):
        changed = []
        for space, name in _wrapped:
            function = space.get(name, _BUILTINS.get(name))
            if function is not None and not hasattr(function, "records"):
                changed.append((space, name, space.get(name)))
                space[name] = _recording(function)
        try:
            yield
        finally:
            for space, name, function in reversed(changed):
                if function is None:
                    del space[name]
                else:
                    space[name] = function

    def _leaf(self, a):
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, Tensor):
            if id(a) in self._members:
                return self._members[id(a)].node
            return self.graph.get_attr(self._constant(a))
        if isinstance(a, Module):
            return self.graph.get_attr(self.path_of_module(a))
        return a

    def _constant(self, x: Tensor) -> str:
        """The name of a tensor that is no member: an attribute of the root from now on."""
        name = self._constants.get(id(x))
        if name is None:
            name = next((k for k, v in vars(self.root).items() if v is x), None)
        if name is None:
            name = next(
                n for i in range(len(self._constants) + 10**6) if not hasattr(self.root, n := f"_tensor_constant{i}")
            )
            setattr(self.root, name, x)
        self._constants[id(x)] = name
        return name


class _Anything(dict):
    """**kwargs whose names are not known: a proxy stands for all of them."""

    def __init__(self, proxy):
        super().__init__()
        self.proxy = proxy


_BUILTINS = sys.modules["builtins"].__dict__


def _recording(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        tracer = tracer_of((args, kwargs))
        if tracer is None:
            return function(*args, **kwargs)
        return tracer.create_proxy("call_function", function, args, kwargs)

    call.records = function
    return call


@functools.cache
def _make_overridable():
    """Functions of Python ask their arguments from now on, so that calls with proxies become nodes."""
    torch = sys.modules["tandem.torch"]
    overrides.make_overridable(torch, functional, torch.linalg, torch.special, torch.fft)
