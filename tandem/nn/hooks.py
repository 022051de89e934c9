"""Hooks of modules: functions that run before forward, after it, and when gradients come by."""

from __future__ import annotations

from tandem import _runtime
from tandem.autograd.function import Function


class HookHandle:
    """What registering a hook returns: remove() takes it away, as leaving a `with` block does."""

    _count = 0

    def __init__(self, hooks: dict, hook, prepend: bool = False):
        HookHandle._count += 1
        self._hooks, self.id = hooks, HookHandle._count
        if prepend:
            others = list(hooks.items())
            hooks.clear()
            hooks[self.id] = hook
            hooks.update(others)
        else:
            hooks[self.id] = hook

    def remove(self):
        self._hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


class Hooks:
    """All hooks of one module. Modules without any do not have this object, so that calling them costs nothing more."""

    def __init__(self):
        self.forward_pre: dict = {}  # id -> (hook, with_kwargs)
        self.forward: dict = {}  # id -> (hook, with_kwargs, always)
        self.backward_pre: dict = {}
        self.backward: dict = {}

    def call(self, module, args: tuple, kwargs: dict):
        for hook, with_kwargs in tuple(self.forward_pre.values()):
            args, kwargs = _run_pre(module, hook, with_kwargs, args, kwargs)
        gradients = _Gradients(module, self) if self.backward or self.backward_pre else None
        if gradients is not None:
            args = gradients.watch_inputs(args)
        try:
            result = module.forward(*args, **kwargs)
        except Exception:
            for hook, with_kwargs, always in tuple(self.forward.values()):
                if always:
                    _run_post(module, hook, with_kwargs, args, kwargs, None)
            raise
        for hook, with_kwargs, _ in tuple(self.forward.values()):
            result = _run_post(module, hook, with_kwargs, args, kwargs, result)
        return result if gradients is None else gradients.watch_outputs(result)


def _run_pre(module, hook, with_kwargs, args, kwargs):
    if with_kwargs:
        changed = hook(module, args, kwargs)
        if changed is None:
            return args, kwargs
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise TypeError(
                f"a forward pre-hook with kwargs returns None or (args, kwargs), not {type(changed).__name__}"
            )
        return changed
    changed = hook(module, args)
    if changed is None:
        return args, kwargs
    return (changed if isinstance(changed, tuple) else (changed,)), kwargs


def _run_post(module, hook, with_kwargs, args, kwargs, result):
    changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
    return result if changed is None else changed


# -- backward


class _Gradients:
    """One call's gradients on their way back: of the outputs first, then of the inputs.

    Tensors that come in and go out pass through one record each, so that the hooks get all gradients together.
    """

    def __init__(self, module, hooks: Hooks):
        self.module = module
        self.pre = list(hooks.backward_pre.values())
        self.post = list(hooks.backward.values())
        self.num_inputs = 0
        self.watched_inputs: list[int] = []
        self.grad_outputs: tuple = ()

    def watch_inputs(self, args: tuple) -> tuple:
        self.num_inputs = len(args)
        self.watched_inputs = [i for i, a in enumerate(args) if _watchable(a)]
        if not self.watched_inputs or not _runtime.grad_enabled():
            self.watched_inputs = []
            return args
        passed = _Pass.apply(self.after_inputs, *(args[i] for i in self.watched_inputs))
        args = list(args)
        for i, t in zip(self.watched_inputs, passed, strict=True):
            args[i] = t
        return tuple(args)

    def watch_outputs(self, result):
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        watched = [i for i, t in enumerate(outputs) if _watchable(t)]
        if not watched or not _runtime.grad_enabled():
            return result

        def before_outputs(grads):
            full = [None] * len(outputs)
            for i, g in zip(watched, grads, strict=True):
                full[i] = g
            full = tuple(full)
            for hook in self.pre:
                changed = hook(self.module, full)
                if changed is not None:
                    full = changed if isinstance(changed, tuple) else (changed,)
            self.grad_outputs = full
            if not self.watched_inputs:  # no input needs a gradient: this is the only moment to tell
                for hook in self.post:
                    hook(self.module, (None,) * self.num_inputs, full)
            return [full[i] for i in watched]

        passed = _Pass.apply(before_outputs, *(outputs[i] for i in watched))
        if not isinstance(result, (tuple, list)):
            return passed[0]
        outputs = list(outputs)
        for i, t in zip(watched, passed, strict=True):
            outputs[i] = t
        return type(result)(*outputs) if hasattr(result, "_fields") else type(result)(outputs)

    def after_inputs(self, grads):
        full = [None] * self.num_inputs
        for i, g in zip(self.watched_inputs, grads, strict=True):
            full[i] = g
        full = tuple(full)
        for hook in self.post:
            changed = hook(self.module, full, self.grad_outputs)
            if changed is not None:
                full = changed if isinstance(changed, tuple) else (changed,)
        return [full[i] for i in self.watched_inputs]


def _watchable(x) -> bool:
    return isinstance(x, _runtime.Tensor) and x.requires_grad


class _Pass(Function):
    """Tensors as they are; their gradients go through a function on the way back."""

    @staticmethod
    def forward(ctx, change, *tensors):
        ctx.change = change
        return tuple(tensors)

    @staticmethod
    def backward(ctx, *grads):
        return None, *ctx.change(grads)
