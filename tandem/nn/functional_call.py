"""Modules as functions of their parameters, for transforms."""

from __future__ import annotations

import contextlib

from tandem.ops import stack


def functional_call(
    module, parameter_and_buffer_dicts, args=(), kwargs=None, *, tie_weights: bool = True, strict: bool = False
):
    """module(*args, **kwargs) with other tensors in place of its parameters and buffers, which are given by name.

    parameter_and_buffer_dicts: a dict, or a tuple of dicts; what it does not name stays as it is, unless strict. The module itself
    is the same afterwards. tie_weights: what is given for one of several names of one tensor counts for all of them.

    >>> layer = td.nn.Linear(2, 1, bias=False)
    >>> td.func.functional_call(layer, {"weight": td.ones(1, 2)}, (td.tensor([3.0, 4.0]),))
    tensor([7.])
    """
    given = {}
    for part in (
        parameter_and_buffer_dicts
        if isinstance(parameter_and_buffer_dicts, (tuple, list))
        else [parameter_and_buffer_dicts]
    ):
        given.update(part)
    with replaced(module, given, tie_weights, strict):
        args = args if isinstance(args, (tuple, list)) else (args,)
        return module(*args, **(kwargs or {}))


@contextlib.contextmanager
def replaced(module, given: dict, tie_weights: bool = True, strict: bool = False):
    """While inside, a module has other tensors in place of its parameters and buffers, which are given by name."""
    given = dict(given)
    known = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    unknown = [name for name in given if name not in known]
    if unknown:
        raise KeyError(f"functional_call: {type(module).__name__} has no parameter or buffer {unknown[0]!r}")
    if tie_weights:
        shared = {id(known[name]): value for name, value in given.items() if known[name] is not None}
        given.update({name: shared[id(t)] for name, t in known.items() if id(t) in shared and name not in given})
    missing = [name for name in known if name not in given]
    if strict and missing:
        raise KeyError(f"functional_call: nothing was given for {', '.join(missing)}")
    places = []
    for name, value in given.items():
        path, _, last = name.rpartition(".")
        owner = module.get_submodule(path) if path else module
        kind = owner._parameters if last in owner._parameters else owner._buffers
        places.append((kind, last, kind[last]))
        kind[last] = value
    try:
        yield module
    finally:
        for kind, last, before in places:
            kind[last] = before


def stack_module_state(models):
    """Parameters and buffers of like modules, stacked: two dicts by name, for td.vmap over an ensemble.

    >>> params, buffers = td.func.stack_module_state([td.nn.Linear(2, 1) for _ in range(3)])
    >>> params["weight"].shape
    (3, 1, 2)
    """
    models = list(models)
    if not models:
        raise ValueError("stack_module_state: there are no models")

    def stacked(kind: str) -> dict:
        each = [dict(getattr(m, kind)()) for m in models]
        return {name: stack([d[name].detach() for d in each], 0) for name in each[0]}

    params = {name: p.requires_grad_() for name, p in stacked("named_parameters").items()}
    return params, stacked("named_buffers")
