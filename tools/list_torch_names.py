"""Writes tests/torch_names.txt: what the installed PyTorch offers, one name a line, with the parameters where it tells them.

    python tools/list_torch_names.py

tests/test_torch_names.py compares the list with this library and with what docs/pytorch.md says is left out.
"""

import importlib
import inspect
import re
from pathlib import Path

import torch
import torch.nn.functional
import torch.overrides

TARGET = Path(__file__).parent.parent / "tests" / "torch_names.txt"
SPACES = {
    "torch": torch,
    "Tensor": torch.Tensor,
    "nn.functional": torch.nn.functional,
    "special": torch.special,
    "nn": torch.nn,
}
# Of these, what their __all__ names.
LISTED = {
    name: importlib.import_module("torch." + name)
    for name in (
        "amp", "autograd", "autograd.functional", "cuda", "distributions", "distributions.constraints", "fft", "func", "linalg",
        "nn.init", "nn.utils", "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "optim",
        "optim.lr_scheduler", "optim.swa_utils", "testing", "utils.data",
    )
}  # fmt: skip
SPACES |= LISTED


def parameters(function, known) -> str:
    """The names of parameters, if PyTorch tells them."""
    try:
        signature = inspect.signature(known.get(function, function))
    except (TypeError, ValueError):
        return ""
    names = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return f"({', '.join(names)})" if names else ""


def main():
    known = torch.overrides.get_testing_overrides()
    lines = []
    for space, module in SPACES.items():
        # nn.utils.prune has no __all__; what it defines itself counts.
        own = [n for n in dir(module) if getattr(getattr(module, n, None), "__module__", "") == module.__name__]
        for name in sorted(getattr(module, "__all__", own) if space in LISTED else dir(module)):
            thing = getattr(module, name, None)
            if name.startswith("_") or inspect.ismodule(thing) or not (callable(thing) or space == "Tensor"):
                continue
            describe = callable(thing) and not inspect.isclass(thing)
            lines.append(f"{space}.{name}{parameters(thing, known) if describe else ''}")
    TARGET.write_text(f"# PyTorch {re.match('[0-9.]+', torch.__version__)[0]}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
