"""state_dict and load_state_dict: a module's tensors by path."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple

from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.errors import TandemError
from tandem.nn.parameter import Parameter
from tandem.tensors.constructors import asarray

Tensor = _runtime.Tensor
_EXTRA = "_extra_state"


class LoadResult(namedtuple("LoadResult", ("missing_keys", "unexpected_keys"))):
    """What load_state_dict(strict=False) could not match."""

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class StateError(TandemError, RuntimeError):
    """A state_dict that does not fit the module; lists every key that is missing, unexpected or of another shape."""


StateError.__module__ = "tandem.nn"


def state_dict(module, destination=None, prefix: str = "", keep_vars: bool = False):
    destination = OrderedDict() if destination is None else destination
    for hook in module._state_hooks("state_dict_pre"):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in module._state_hooks("state_dict"):
        changed = hook(module, destination, prefix, {})
        destination = destination if changed is None else changed
    return destination


def save_own(module, destination: dict, prefix: str, keep_vars: bool):
    """Puts the module's own tensors, not its children's, into destination."""
    for name, t in module._parameters.items():
        if t is not None:
            destination[prefix + name] = t if keep_vars else t.detach()
    for name, t in module._buffers.items():
        if t is not None and name not in module._non_persistent_buffers_set:
            destination[prefix + name] = t if keep_vars else t.detach()
    if _has_extra_state(module):
        destination[prefix + _EXTRA] = module.get_extra_state()


def _has_extra_state(module) -> bool:
    return not hasattr(type(module).get_extra_state, "is_default")


class Loading:
    """A load in progress: what fits, and what does not. Nothing is written before everything is known to fit."""

    def __init__(self, assign: bool):
        self.assign = assign
        self.used: set[str] = set()
        self.actions: list = []
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []


def load_state_dict(module, state_dict, strict: bool = True, assign: bool = False) -> LoadResult:
    if not hasattr(state_dict, "items"):
        raise TypeError(f"load_state_dict takes a dict of tensors by path, not a {type(state_dict).__name__}")
    state = OrderedDict(state_dict)
    loading = Loading(assign)
    _plan(module, state, "", loading, strict)
    loading.unexpected += [key for key in state if key not in loading.used]
    result = LoadResult(loading.missing, loading.unexpected)
    for m in module.modules():
        for hook in m._state_hooks("load_state_dict_post"):
            hook(m, result)
    if loading.errors or (strict and (loading.missing or loading.unexpected)):
        raise StateError(None, _message(module, loading, strict), fix=_fix(loading))
    with no_grad():
        for action in loading.actions:
            action()
    return result


def _plan(module, state, prefix: str, loading: Loading, strict: bool):
    metadata = {"assign_to_params_buffers": loading.assign, "loading": loading}
    arguments = (state, prefix, metadata, strict, loading.missing, loading.unexpected, loading.errors)
    for hook in module._state_hooks("load_state_dict_pre"):
        hook(module, *arguments)
    module._load_from_state_dict(*arguments)
    for name, child in module._modules.items():
        if child is not None:
            _plan(child, state, f"{prefix}{name}.", loading, strict)


def load_own(module, state: dict, prefix: str, metadata: dict, missing: list, errors: list):
    """Plans the loading of the module's own tensors, not its children's."""
    loading = metadata["loading"]
    for kind in ("_parameters", "_buffers"):
        for name, target in getattr(module, kind).items():
            if target is None or name in module._non_persistent_buffers_set:
                continue
            key = prefix + name
            if key not in state:
                missing.append(key)
                continue
            loading.used.add(key)
            source = as_tensor(state[key])
            if source is None:
                errors.append(f"{key}: a {type(state[key]).__name__} is not a tensor")
            elif source.shape != target.shape and not (target.shape == () and source.shape == (1,)):
                errors.append(f"{key}: the state has {source.shape}, the module {target.shape}")
            else:
                loading.actions.append(_Assign(module, kind, name, source) if loading.assign else _Copy(target, source))
    if _has_extra_state(module):
        key = prefix + _EXTRA
        if key in state:
            loading.used.add(key)
            loading.actions.append(lambda: module.set_extra_state(state[key]))
        else:
            missing.append(key)


def as_tensor(value):
    """A tensor for a tensor, an array or a number; None for anything else."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        return asarray(value)
    if isinstance(value, (bool, int, float)):
        return _runtime.from_data(value, None)
    return None


class _Copy:
    def __init__(self, target, source):
        self.target, self.source = target, source

    def __call__(self):
        source = self.source
        if self.target.is_meta and not source.is_meta:
            warnings.warn(
                "load_state_dict: the module is on the device meta, which nothing can be copied to; pass assign=True",
                stacklevel=4,
            )
        self.target.copy_(source if source.shape == self.target.shape else source.reshape(self.target.shape))


class _Assign:
    """The state's tensor becomes the module's; parameters stay parameters."""

    def __init__(self, module, kind, name, source):
        self.module, self.kind, self.name, self.source = module, kind, name, source

    def __call__(self):
        members = getattr(self.module, self.kind)
        source = self.source
        if self.kind == "_parameters" and not isinstance(source, Parameter):
            source = Parameter(
                source.detach(), requires_grad=members[self.name].requires_grad and source.dtype.is_inexact
            )
        members[self.name] = source


def _message(module, loading: Loading, strict: bool) -> str:
    parts = []
    if strict and loading.missing:
        parts.append("missing: " + ", ".join(loading.missing))
    if strict and loading.unexpected:
        parts.append("unexpected: " + ", ".join(loading.unexpected))
    if loading.errors:
        parts.append("mismatched:\n      " + "\n      ".join(loading.errors))
    return f"the state does not fit {type(module).__name__}\n    " + "\n    ".join(parts)


def _fix(loading: Loading) -> str | None:
    if loading.errors:
        return "build the module with the sizes that the state was saved with"
    prefix = _common_prefix(loading.missing, loading.unexpected)
    if prefix:
        return f"the keys differ by a prefix: strip {prefix!r} from the state's keys"
    return "pass strict=False to load what matches"


def _common_prefix(missing: list[str], unexpected: list[str]) -> str | None:
    """A prefix (such as "module.") that turns every missing key into an unexpected one."""
    for key in unexpected:
        if missing and key.endswith("." + missing[0]):
            prefix = key[: -len(missing[0])]
            if {prefix + m for m in missing} <= set(unexpected):
                return prefix
    return None
