"""Module: what has parameters, buffers and other modules, and a forward."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tandem import _runtime, dtypes
from tandem.autograd.modes import no_grad
from tandem.compiling.compiled import compile_module
from tandem.errors import module_calls
from tandem.nn import state
from tandem.nn.hooks import HookHandle, Hooks
from tandem.nn.parameter import Buffer, Parameter
from tandem.nn.summary import summarize
from tandem.ops import empty_like

Tensor = _runtime.Tensor
_MEMBERS = ("_parameters", "_buffers", "_modules")


class Module:
    """Base of all layers and models. Parameters, buffers and modules that are assigned to it become part of it.

    >>> class Net(td.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = td.nn.Linear(4, 8)
    ...         self.out = td.nn.Linear(8, 2)
    ...     def forward(self, x):
    ...         return self.out(self.hidden(x).relu())
    >>> net = Net()
    >>> net(td.ones(3, 4)).shape
    (3, 2)
    >>> [name for name, _ in net.named_parameters()]
    ['hidden.weight', 'hidden.bias', 'out.weight', 'out.bias']
    """

    training: bool
    _hooks: Hooks | None = None
    _state_hook_lists: dict | None = None
    call_super_init = False

    def __init__(self, *args, **kwargs):
        if args or kwargs:
            raise TypeError(
                f"{type(self).__name__}.__init__() got arguments that Module does not take: {(*args, *kwargs)}"
            )
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        own["_modules"] = {}

    def forward(self, *args, **kwargs):
        """What the module computes. Classes define it; calling the module calls it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define what it computes")

    def compile(self, *, whole: bool = False, memory_budget: float | None = None, recompile_limit: float | None = None):
        """Makes calls of this module run as compiled programs, in place; td.compile(module) leaves the module itself as it is."""
        compile_module(self, whole, memory_budget, recompile_limit)

    def __call__(self, *args, **kwargs) -> Any:
        first, number = _runtime.captured_calls(), _runtime.open_module(self)
        try:
            if self._hooks is None:
                result = self.forward(*args, **kwargs)
            else:
                result = self._hooks.call(self, args, kwargs)
        except BaseException as error:
            _runtime.close_module(number, True)
            if isinstance(error, Exception):
                module_calls.note(error, self, first)
            raise
        _runtime.close_module(number)
        return result

    # -- members

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        _runtime.look_up_members(cls)

    def __setattr__(self, name: str, value):
        own = self.__dict__
        if "_parameters" not in own:
            if isinstance(value, (Parameter, Buffer, Module)):
                raise AttributeError(
                    f"cannot assign {name} before {type(self).__name__}'s super().__init__() was called"
                )
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            _forget(self, name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            _forget(self, name, "_modules")
            self._check_name("module", name, None)
            own["_modules"][name] = value
        elif isinstance(value, Buffer):
            _forget(self, name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in own["_parameters"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign a {type(value).__name__} as parameter {name!r} (a Parameter or None is expected)"
                )
            own["_parameters"][name] = None
        elif name in own["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign a {type(value).__name__} as child module {name!r} (a Module or None is expected)"
                )
            own["_modules"][name] = None
        elif name in own["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign a {type(value).__name__} as buffer {name!r} (a Tensor or None is expected)"
                )
            if value is not None:
                _runtime.note_rebinding(own["_buffers"], name, value)
            own["_buffers"][name] = value
        else:
            if isinstance(value, Tensor):
                _runtime.note_rebinding(own, name, value)
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str):
        own = self.__dict__
        try:
            return own["_parameters"][name]
        except KeyError:
            pass
        for kind in ("_modules", "_buffers"):
            if kind in own and name in own[kind]:
                return own[kind][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __delattr__(self, name: str):
        for kind in _MEMBERS:
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _check_name(self, kind: str, name: str, members: dict | None):
        """That a member may have this name; that no other attribute has it, if members of its kind are given."""
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot add a {kind} before {type(self).__name__}'s super().__init__() was called")
        if not isinstance(name, str):
            raise TypeError(f"the name of a {kind} is a str, not a {type(name).__name__}")
        if "." in name:
            raise KeyError(f"the name of a {kind} cannot contain a dot: {name!r}")
        if not name:
            raise KeyError(f"the name of a {kind} cannot be empty")
        if members is not None and name not in members and hasattr(self, name):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}")

    def register_parameter(self, name: str, param: Parameter | None):
        """Adds a parameter; None keeps the name for a parameter that is not there."""
        self._check_name("parameter", name, self.__dict__.get("_parameters", {}))
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot register a {type(param).__name__} as parameter {name!r}: wrap it in nn.Parameter"
                )
            if not param.is_leaf:
                raise ValueError(f"parameter {name!r} was computed by a recorded operator; make it from detached data")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor, persistent: bool = True):
        """Adds a tensor that belongs to the state but is not learned. Not persistent: not in state_dict."""
        self._check_name("buffer", name, self.__dict__.get("_buffers", {}))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot register a {type(tensor).__name__} as buffer {name!r} (a Tensor or None is expected)"
            )
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None):
        """Adds a child module."""
        self._check_name("module", name, self.__dict__.get("_modules", {}))
        if module is not None and not isinstance(module, Module):
            raise TypeError(
                f"cannot add a {type(module).__name__} as child module {name!r} (a Module or None is expected)"
            )
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None):
        """Same as add_module."""
        self.add_module(name, module)

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as "layers.2.linear"; "" is the module itself."""
        module = self
        for i, name in enumerate(target.split(".") if target else ()):
            child = module._modules.get(name)
            if child is None:
                where = ".".join(target.split(".")[:i]) or type(self).__name__
                raise AttributeError(
                    f"{where} has no child module {name!r} (asked for {target!r}); it has {list(module._modules)}"
                )
            module = child
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False):
        """Puts a module in place of the one at a path; with strict there must be one."""
        path, _, name = target.rpartition(".")
        if strict:
            self.get_submodule(target)
        setattr(self.get_submodule(path), name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as "layers.2.linear.weight"."""
        return self._get_member(target, "parameter", "_parameters")

    def get_buffer(self, target: str):
        """The buffer at a path."""
        return self._get_member(target, "buffer", "_buffers")

    def _get_member(self, target: str, what: str, kind: str):
        path, _, name = target.rpartition(".")
        members = getattr(self.get_submodule(path), kind)
        if members.get(name) is None:
            raise AttributeError(
                f"{path or type(self).__name__} has no {what} {name!r} (asked for {target!r}); it has {list(members)}"
            )
        return members[name]

    # -- walking the tree

    def children(self):
        """Direct child modules."""
        return (module for _, module in self.named_children())

    def named_children(self):
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True):
        """This module and all below it, each once unless told otherwise."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def _named_members(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in getattr(module, kind).items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def parameters(self, recurse: bool = True):
        """Parameters of this module and all below it, each once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True):
        """(path, parameter) of this module and all below it."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True):
        return (b for _, b in self.named_buffers(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True):
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def apply(self, fn):
        """Calls fn on every module below this one, then on itself. Returns the module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- modes

    def train(self, mode: bool = True):
        """Training mode (or, with False, evaluation mode) for this module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError(f"train() takes True or False, not {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True):
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True):
        """Forgets the gradients of all parameters, or fills them with zeros."""
        for p in self.parameters():
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad = p.grad.detach()
                p.grad.zero_()

    # -- dtype and device

    def _apply(self, fn, recurse: bool = True):
        """Replaces every parameter, gradient and buffer t by fn(t). Parameters stay the objects they are. Children are asked by
        their own _apply, which a class may have written again for tensors that are neither parameters nor buffers."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for name, p in self._parameters.items():
                if p is not None:
                    grad = p.grad
                    changed = fn(p)
                    if changed.is_meta or p.is_meta:  # one has no memory that the other could take
                        if changed is not p:
                            self._parameters[name] = Parameter(changed.detach(), p.requires_grad)
                    elif changed is not p:
                        p.grad = None
                        _runtime.set_data(p, changed)
                        if grad is not None:
                            p.grad = fn(grad)
            for name, b in self._buffers.items():
                if b is not None:
                    self._buffers[name] = fn(b)
        return self

    def to(self, *args, dtype=None, device=None, memory_format=None, **kwargs):
        """Converts floating parameters and buffers to a dtype, and all of them to a device or a memory format: to(td.float16),
        to("cuda"), to(x), to(memory_format=td.channels_last)."""
        for a in args:
            if isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, dtypes.DType) or a in (float, complex):
                dtype = a
            elif not isinstance(a, bool):  # non_blocking by position
                device = a
        dtype = None if dtype is None else dtypes.as_dtype(dtype)
        if dtype is not None and not dtype.is_inexact:
            raise TypeError(f"a module can be converted to floating types only, not to {dtype}")

        def convert(t):
            fits = memory_format is not None and t.ndim == len(memory_format.order or ())
            return t.to(
                dtype=dtype if t.dtype.is_inexact else None,
                device=device,
                memory_format=memory_format if fits else None,
            )

        return self._apply(convert)

    def to_empty(self, *, device, recurse: bool = True):
        """Moves parameters and buffers to a device without their values, which are undefined afterwards."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self, dst_type):
        """Converts all parameters and buffers, those of integers too, to a dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def _convert_reals(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.dtype.is_floating_point else t)

    def float(self):
        return self._convert_reals(dtypes.float32)

    def double(self):
        return self._convert_reals(dtypes.float64)

    def half(self):
        return self._convert_reals(dtypes.float16)

    def bfloat16(self):
        return self._convert_reals(dtypes.bfloat16)

    def cpu(self):
        return self._apply(lambda t: t.to(device="cpu"))

    def cuda(self, device=None):
        device = "cuda" if device is None else device if isinstance(device, str) else f"cuda:{device}"
        return self._apply(lambda t: t.to(device=device))

    def share_memory(self):
        """Moves parameters and buffers to memory that other processes see when they are given the module."""
        for t in (*self.parameters(), *self.buffers()):
            t.share_memory_()
        return self

    # -- state

    def state_dict(self, *, destination=None, prefix: str = "", keep_vars: bool = False) -> OrderedDict:
        """All parameters and persistent buffers by path, on the same memory as the module's own."""
        return state.state_dict(self, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict, strict: bool = True, assign: bool = False) -> state.LoadResult:
        """Copies tensors by path into this module; with assign, takes them instead of copying.

        Nothing is changed unless all of it fits. strict=False: paths may be missing or left over; the result lists them.
        """
        return state.load_state_dict(self, state_dict, strict, assign)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        state.save_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        state.load_own(self, state_dict, prefix, local_metadata, missing_keys, error_msgs)

    def get_extra_state(self):
        """Override, with set_extra_state, to put more than tensors into state_dict."""
        raise NotImplementedError

    def set_extra_state(self, state):
        raise NotImplementedError

    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state):
        self.__dict__.update(state)

    # -- hooks

    def _own_hooks(self) -> Hooks:
        if self._hooks is None:
            self.__dict__["_hooks"] = Hooks()
        return self._hooks

    def register_forward_pre_hook(self, hook, *, prepend: bool = False, with_kwargs: bool = False) -> HookHandle:
        """hook(module, args) runs before forward; what it returns, if anything, replaces the arguments."""
        return HookHandle(self._own_hooks().forward_pre, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> HookHandle:
        """hook(module, args, output) runs after forward; what it returns, if anything, replaces the output."""
        return HookHandle(self._own_hooks().forward, (hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook, prepend: bool = False) -> HookHandle:
        """hook(module, grad_input, grad_output) runs when the gradients of the inputs are known; may return other ones."""
        return HookHandle(self._own_hooks().backward, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook, prepend: bool = False) -> HookHandle:
        """hook(module, grad_output) runs when the gradients of the outputs are known; may return other ones."""
        return HookHandle(self._own_hooks().backward_pre, hook, prepend)

    # By PyTorch's names, for who asks whether there are any.
    _forward_hooks = property(lambda self: self._hooks.forward if self._hooks else {})
    _forward_pre_hooks = property(lambda self: self._hooks.forward_pre if self._hooks else {})
    _backward_hooks = property(lambda self: self._hooks.backward if self._hooks else {})

    def _state_hooks(self, kind: str) -> tuple:
        return () if self._state_hook_lists is None else tuple(self._state_hook_lists.get(kind, {}).values())

    def _add_state_hook(self, kind: str, hook) -> HookHandle:
        if self._state_hook_lists is None:
            self.__dict__["_state_hook_lists"] = {}
        return HookHandle(self._state_hook_lists.setdefault(kind, {}), hook)

    def register_state_dict_pre_hook(self, hook) -> HookHandle:
        """hook(module, prefix, keep_vars) runs before state_dict."""
        return self._add_state_hook("state_dict_pre", hook)

    def register_state_dict_post_hook(self, hook) -> HookHandle:
        """hook(module, state_dict, prefix, metadata) runs after state_dict and may change it."""
        return self._add_state_hook("state_dict", hook)

    def register_load_state_dict_pre_hook(self, hook) -> HookHandle:
        """hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors) may change what is loaded."""
        return self._add_state_hook("load_state_dict_pre", hook)

    def _register_load_state_dict_pre_hook(self, hook, with_module: bool = False) -> HookHandle:
        """PyTorch's older name, whose hooks do not get the module."""
        return self.register_load_state_dict_pre_hook(hook if with_module else _WithoutModule(hook))

    def register_load_state_dict_post_hook(self, hook) -> HookHandle:
        """hook(module, result) runs after loading was planned; it may empty result.missing_keys or result.unexpected_keys."""
        return self._add_state_hook("load_state_dict_post", hook)

    # -- text

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What the repr shows between the parentheses; override it."""
        return ""

    def __repr__(self):
        extra = self.extra_repr().splitlines()
        children = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        lines = extra + children
        if not lines:
            return f"{self._get_name()}()"
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def summary(self, *args, **kwargs):
        """A table of all modules with the shapes of their outputs and their parameter counts, by running forward once.

        >>> net = td.nn.Sequential(td.nn.Linear(4, 8), td.nn.ReLU())
        >>> print(net.summary(td.ones(2, 4)))
        module  type        output  parameters
                Sequential  (2, 8)          40
        0       Linear      (2, 8)          40
        1       ReLU        (2, 8)           0
        40 parameters (160 bytes), all trainable
        """
        return summarize(self, args, kwargs)


Module.get_extra_state.is_default = True  # state.py asks whether a class has one of its own
module_calls.bases.append(Module)
module_calls.codes.append(Module.__call__.__code__)
_runtime.look_up_members(Module)  # and in each subclass: __getattr__ without Python code


class _WithoutModule:
    """A hook that is called without the module: a class, so that modules with such hooks can be pickled."""

    def __init__(self, hook):
        self.hook = hook

    def __call__(self, module, *rest):
        return self.hook(*rest)


def _forget(module: Module, name: str, keep: str):
    """Takes a name away from everything but the members of one kind."""
    own = module.__dict__
    own.pop(name, None)
    for kind in _MEMBERS:
        if kind != keep and name in own[kind]:
            del own[kind][name]
    own["_non_persistent_buffers_set"].discard(name)
