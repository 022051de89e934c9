"""Optimizer: parameter groups, state, and the loop that all update rules share.

An optimiser is an update rule, one operator that takes a parameter, its state and its gradient and writes the new values in place:

    @rule("exp_avg")                                             # what state it keeps, beside the parameter
    def signed(param: Tensor, exp_avg: Tensor, grad: Tensor, lr: Tensor, beta: Tensor):
        exp_avg = beta * exp_avg + (1 - beta) * grad
        return param - lr * F.sign(exp_avg), exp_avg             # new values, in the order of the parameters

    class Signed(Optimizer):
        def __init__(self, params, lr=1e-3, beta=0.9):
            super().__init__(params, {"lr": lr, "beta": beta})

        def rule(self, group):
            return signed, (group["lr"], group["beta"])

So a parameter's update is one kernel that reads and writes everything once. Learning rates and the like come in as numbers that
the kernel computes with: a new value needs no new kernel, neither here nor in td.compile.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections import defaultdict

from tandem import _runtime, dtypes
from tandem.autograd.modes import enable_grad, no_grad
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.graph.ir import Value
from tandem.nn.hooks import HookHandle
from tandem.ops import full, full_like, view_as_complex, view_as_real
from tandem.ops.define import op
from tandem.optim.by_row import by_row, rows_of
from tandem.optim.together import Together
from tandem.session.train import minimize
from tandem.tensors.constructors import asarray

Tensor = _runtime.Tensor
_ACCEPTED = {"foreach", "fused", "capturable", "differentiable"}  # PyTorch's ways of running; there is one here


def rule(*state: str, elementwise: bool = False):
    """Makes a function an update rule: an operator that writes its parameter and the named state in place.

    elementwise: every element is updated by itself, so that many parameters can be updated at once (Note [Updates together]).
    """

    def decorate(fn):
        made = op(_on_parts(fn, 1 + len(state)), hidden=True, mutates=("param", *state))
        made.state = state
        made.role = made.role._replace(elementwise=elementwise)
        return made

    return decorate


def _on_parts(fn, writes: int):
    """fn, which sees complex numbers as pairs of real ones."""

    @functools.wraps(fn)
    def body(param, *rest):
        if not param.dtype.is_complex:
            return fn(param, *rest)
        args = (param, *rest)
        seen = [view_as_real(a) if isinstance(a, Value) and a.dtype.is_complex else a for a in args]
        made = fn(*seen)
        made = made if isinstance(made, tuple) else (made,)
        back = [view_as_complex(m) if a.dtype.is_complex else m for m, a in zip(made, args[:writes], strict=True)]
        return tuple(back) if writes > 1 else back[0]

    return body


def parts(t):
    """A tensor as update rules are best given it: complex memory as pairs of real numbers, so that they write straight into it."""
    return view_as_real(t) if isinstance(t, Tensor) and t.dtype.is_complex else t


def state_of(p):
    """The scope in which the state of a parameter is made: at once, even in a compiled function.

    Zeros that a program makes are results of it, zeros that are there are inputs: the first step would be another program than
    those that follow. A parameter that is itself deferred, or captured in the body of a loop, has no other way.
    """
    now = isinstance(p, Tensor) and _runtime.capturing() and not _runtime.in_body() and not _runtime.pending(p)
    return _runtime.PauseCapture() if now else contextlib.nullcontext()


def zeros_for(p):
    """Zeros for a parameter's state that lie as it does, so that updates run through both in one order. On the CPU those of
    contiguous ones are not written: the first step does."""
    if isinstance(p, Tensor) and not _runtime.pending(p) and _runtime.parts_of(p) is None:
        if not p.is_contiguous():
            return p.detach().clone().zero_()
        if p.device.type == "cpu":
            return _runtime.zeros(p.shape, p.dtype)
    return full_like(p, 0)


def together_for(group: dict) -> Together | None:
    """Who takes the updates of a group on to make them as few launches: on devices, outside capture."""
    params = group["params"]
    on_device = params and isinstance(params[0], Tensor) and params[0].is_cuda
    return Together() if on_device and not _runtime.capturing() else None


class _Required:
    """The default of an argument that optimisers cannot do without, as programs written for PyTorch mark it."""

    def __repr__(self):
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base of all optimisers.

    params: parameters, or (name, parameter) pairs, or dicts {"params": [...], "lr": ...} that are groups with settings of their own

    >>> w = td.nn.Parameter(td.tensor([1.0]))
    >>> optimizer = td.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.detach()
    tensor([0.8000])
    """

    def __init__(self, params, defaults: dict):
        ignored = defaults.pop("ignored", {})
        unknown = set(ignored) - _ACCEPTED
        if unknown:
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {sorted(unknown)[0]!r}")
        if ignored.get("differentiable"):
            raise ValueError("differentiable=True is not offered: updates are made in place")
        if isinstance(params, Tensor):
            raise TypeError("params must be an iterable of parameters or groups, not one tensor; put it in a list")
        self.defaults = defaults
        self.state: defaultdict = defaultdict(dict)
        self.param_groups: list[dict] = []
        self._counts: dict = {}  # parameter -> [its "step", the version that was looked at, its value], if it can be known
        self._before: dict = {}
        self._after: dict = {}
        self._state_hooks: dict = defaultdict(dict)  # by what they run before or after
        groups = list(params)
        if not groups:
            raise ValueError(
                f"{type(self).__name__} got no parameters\n  fix: pass model.parameters() of a model that has some; a part of a "
                'model without any, as a stage of a pipeline may be, has an optimiser of [{"params": []}], whose step does nothing'
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    # -- what a subclass defines

    def rule(self, group: dict) -> tuple:
        """The update rule of a group, and the arguments that follow the gradient."""
        raise NotImplementedError

    def counted_rule(self, group: dict, count: float) -> tuple:
        """The same for step number `count`, where that is known while the step is made and settings are plain numbers: what depends
        on nothing else is computed once, here, instead of in the kernel of every parameter."""
        raise NotImplementedError

    def new_state(self, p, group: dict, names: tuple[str, ...]) -> dict:
        """The state of a parameter before its first update: a number for "step", zeros of its shape for the rest."""
        return {
            name: full((), 0.0, dtype=dtypes.float32, device=getattr(p, "device", None))
            if name == "step"
            else zeros_for(p)
            for name in names
        }

    def update(self, group: dict):
        """One step of all parameters of a group that have a gradient."""
        apply, settings = self.rule(group)
        settings = tuple(as_float(s) for s in settings)
        # In the body of a loop one update stands for many, as does one that is replayed.
        counts = (
            type(self).counted_rule is not Optimizer.counted_rule
            and all(isinstance(s, (int, float)) for s in settings)
            and not _runtime.in_body()
            and not _runtime.recording()
        )
        params, together = list(group["params"]), together_for(group)
        counted: dict[float, tuple] = {}
        behind: list = []
        rule, count = (apply, settings), None
        i = 0
        while i < len(params):
            if together is None and (count is not None or not counts):
                known = self._counts if counts else None
                i = _runtime.apply_rule(params, i, self.state, apply.state, *rule, known, count)
                if i == len(params):
                    break
            p, i = params[i], i + 1
            g = p.grad
            if g is None:
                continue
            if g._in_parts:
                self.update_rows(group, p, g)
                continue
            own = self._state_for(p, group, apply.state)
            count = self._count(p, own["step"]) if counts else None
            rule = (apply, settings)
            if count is not None:
                rule = counted.get(count)
                if rule is None:
                    kind, numbers = self.counted_rule(group, count)
                    rule = counted[count] = kind, tuple(as_float(n) for n in numbers)
            tensors = (p, *[own[name] for name in apply.state], g)
            if together is not None and together.add(*rule, tensors):
                behind.append((p, count))
                continue
            rule[0](*(map(parts, tensors) if p.dtype.kind == "complex" else tensors), *rule[1])
            self._note_count(p, count)
        if together is not None:
            together.flush()
            for p, count in behind:
                self._note_count(p, count)

    def _state_for(self, p, group: dict, names: tuple[str, ...]) -> dict:
        own = self.state[p]
        if len(own) < len(names):
            with state_of(p):
                made = self.new_state(p, group, names)
            own.update({k: v for k, v in made.items() if own.get(k) is None})
        return own

    def _count(self, p, step) -> float | None:
        """The number of the step that a parameter is about to make, if that can be known."""
        known = self._counts.get(p)
        if known is None or known[0] is not step or known[1] != step._version:
            # Read before, and written by nobody but us since; otherwise it is read now, if that ends no program.
            readable = isinstance(step, Tensor) and not _runtime.pending(step)
            known = self._counts[p] = [step, None, step.item()] if readable else None
        return None if known is None else known[2] + 1

    def _note_count(self, p, count: float | None):
        if count is not None:
            known = self._counts[p]
            known[1:] = known[0]._version, count

    def sparse_rule(self, group: dict) -> tuple:
        """The same as `rule` for sparse gradients: what is done to the rows that they name."""
        raise UnsupportedError(
            type(self).__name__, "a gradient is sparse, and this optimiser changes all rows at every step",
            fix="use optim.SparseAdam, Adagrad or SGD for this parameter, or an Embedding without sparse=True",
        )  # fmt: skip

    def update_rows(self, group: dict, p, g):
        """One step of the rows of a parameter that a sparse gradient names."""
        apply, settings = self.sparse_rule(group)
        names = apply.state
        own = self._state_for(p, group, names)
        rows, values = rows_of(g)
        by_row(apply)(p, *[own[name] for name in names], rows, values, *[as_float(s) for s in settings])

    # -- what users call

    @no_grad()
    def step(self, closure=None):
        """Updates all parameters. closure, if given, computes the loss and its gradients first; its result is returned."""
        loss = None
        for hook in tuple(self._before.values()):
            hook(self, (closure,), {})
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(group)
        for hook in tuple(self._after.values()):
            hook(self, (closure,), {})
        return loss

    def _patch_step_function(self):
        """What PyTorch's optimisers prepare for its profiler: nothing here."""

    def zero_grad(self, set_to_none: bool = True):
        """Forgets all gradients, or fills them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad = p.grad.detach()
                    p.grad.zero_()

    def minimize(self, loss, *, var_list=None, global_step=None, name: str | None = None):
        """One step down the gradient of a loss: zero_grad, backward, step.

        For a loss of a deferred graph, an operation that makes the step when a session runs it (tandem/session/train.py). There,
        var_list: variables to change, instead of those that the optimiser was made with; global_step: a variable that each step
        adds one to; name: of the operation, the optimiser's own unless given.
        """
        if isinstance(loss, Value):
            return minimize(self, loss, var_list, global_step, name)
        if var_list is not None or global_step is not None or name is not None:
            raise UnsupportedError(
                "minimize",
                "var_list, global_step and name are for a loss of a deferred graph, and this is a tensor",
                fix="give the optimiser the parameters that it is to change",
            )
        self.zero_grad()
        loss.backward()
        self.step()
        return None

    def add_param_group(self, param_group: dict):
        """Adds parameters with settings of their own: {"params": [...], "lr": 0.01}."""
        group = dict(param_group)
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        if params and isinstance(params[0], tuple):
            group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        for p in params:
            if isinstance(p, Value):  # a variable of a deferred graph
                continue
            if not isinstance(p, Tensor):
                raise TypeError(f"optimisers take tensors, not {type(p).__name__}")
            if getattr(p, "is_uninitialized", False):
                raise ValueError(
                    "a lazy layer has no parameters yet: call the model once before you make the optimiser"
                )
            if not p.is_leaf:
                raise ValueError(
                    f"a tensor of shape {p.shape} was computed by a recorded operator; only leaves can be optimised"
                )
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if len({id(p) for p in params}) != len(params) or known & {id(p) for p in params}:
            raise ValueError("a parameter appears twice, in one group or in two")
        group["params"] = params
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        self.param_groups.append(group)

    # -- saving

    def state_dict(self) -> dict:
        """State by number of parameter, and groups with those numbers, as PyTorch has it."""
        for hook in tuple(self._state_hooks["state_dict_pre"].values()):
            hook(self)
        numbers = {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}
        groups = [
            {**{k: v for k, v in g.items() if k != "params"}, "params": [numbers[id(p)] for p in g["params"]]}
            for g in self.param_groups
        ]
        made = {
            "state": {numbers[id(p)]: dict(s) for p, s in self.state.items() if id(p) in numbers},
            "param_groups": groups,
        }
        return self._run_state_hooks("state_dict_post", made)

    def _run_state_hooks(self, when: str, state_dict: dict) -> dict:
        for hook in tuple(self._state_hooks[when].values()):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        return state_dict

    def load_state_dict(self, state_dict: dict):
        """Takes over what state_dict() gave. Tensors are copied, and converted to the dtype of their parameter."""
        state_dict = self._run_state_hooks("load_state_dict_pre", {**state_dict})
        saved = state_dict["param_groups"]
        sizes, own = [len(g["params"]) for g in saved], [len(g["params"]) for g in self.param_groups]
        if sizes != own:
            raise ValueError(f"the state is of an optimiser with groups of {sizes} parameters; this one has {own}")
        params = {
            i: p
            for s, g in zip(saved, self.param_groups, strict=True)
            for i, p in zip(s["params"], g["params"], strict=True)
        }
        self.state = defaultdict(dict)
        counts = type(self).rule is not Optimizer.rule  # an optimiser with a step() of its own keeps what it keeps
        for i, values in state_dict["state"].items():
            i = int(i)  # JSON knows keys of text only
            if i in params:
                self.state[params[i]] = {name: _take(value, name, params[i], counts) for name, value in values.items()}
        for s, g in zip(saved, self.param_groups, strict=True):
            g.update({k: copy.deepcopy(v) for k, v in s.items() if k not in ("params", "param_names")})
        for hook in tuple(self._state_hooks["load_state_dict_post"].values()):
            hook(self)

    def register_step_pre_hook(self, hook) -> HookHandle:
        """hook(optimizer, args, kwargs) runs before every step."""
        return HookHandle(self._before, hook)

    def register_step_post_hook(self, hook) -> HookHandle:
        """hook(optimizer, args, kwargs) runs after every step."""
        return HookHandle(self._after, hook)

    def register_state_dict_pre_hook(self, hook, prepend: bool = False) -> HookHandle:
        """hook(optimizer) runs before state_dict() is made."""
        return HookHandle(self._state_hooks["state_dict_pre"], hook)

    def register_state_dict_post_hook(self, hook, prepend: bool = False) -> HookHandle:
        """hook(optimizer, state_dict) runs after state_dict() was made, and may give another one."""
        return HookHandle(self._state_hooks["state_dict_post"], hook)

    def register_load_state_dict_pre_hook(self, hook, prepend: bool = False) -> HookHandle:
        """hook(optimizer, state_dict) runs before a state is loaded, and may give another one."""
        return HookHandle(self._state_hooks["load_state_dict_pre"], hook)

    def register_load_state_dict_post_hook(self, hook, prepend: bool = False) -> HookHandle:
        """hook(optimizer) runs after a state was loaded."""
        return HookHandle(self._state_hooks["load_state_dict_post"], hook)

    def __repr__(self):
        lines = []
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {group[k]}" for k in sorted(group) if k not in ("params", "param_names")]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _take(value, name: str, p, counts: bool):
    """A copy of saved state: numbers of steps as they are, other floating tensors in the parameter's dtype.
    counts: whether a number of steps becomes a tensor, in which update rules count."""
    if isinstance(value, (list, tuple)):
        return type(value)(_take(v, name, p, counts) for v in value)
    if not isinstance(value, Tensor):
        if counts and name == "step" and isinstance(value, (int, float)):
            return full((), float(value), dtype=dtypes.float32)
        if not (hasattr(value, "__dlpack__") or hasattr(value, "__array__")):
            return copy.deepcopy(value)
        value = asarray(value)
    value = value.detach()
    keep = value.ndim == 0 or not value.dtype.is_inexact
    return value.to(value.dtype if keep else p.dtype, copy=True)


def as_float(setting):
    """A whole number as a float, so that lr=1 and lr=0.5 are one kind of argument and share a kernel."""
    return float(setting) if type(setting) is int else setting


def no_decay(name: str, group: dict):
    """Raises if a group with sparse gradients asks for weight decay, which would change all rows."""
    if not (isinstance(group["weight_decay"], (int, float)) and group["weight_decay"] == 0):
        raise ValueRangeError(
            name, "weight_decay does not go with sparse gradients: it would change rows that no gradient names",
            fix="put the parameter into a group with weight_decay=0",
        )  # fmt: skip


def check(**limits):
    """Raises for settings that are below their lower limit: check(lr=(lr, 0))."""
    for name, (value, lowest) in limits.items():
        if not isinstance(value, (Tensor, Value)) and not value >= lowest:
            raise ValueError(f"{name} is {value}; it must not be less than {lowest}")


def check_betas(betas):
    for i, beta in enumerate(betas):
        if not isinstance(beta, (Tensor, Value)) and not 0.0 <= beta < 1.0:
            raise ValueError(f"betas[{i}] is {beta}; it must lie in [0, 1)")
