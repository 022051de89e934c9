"""td.special, of whose two operands one must be a tensor."""

from tandem import special as _special
from tandem.torch.adapt import of_tensors as _of_tensors

__all__ = [n for n in dir(_special) if not n.startswith("_") and callable(getattr(_special, n))]
for _name in __all__:
    _function = getattr(_special, _name)
    _binary = _name in ("xlog1py", "xlogy", "zeta") or "polynomial" in _name
    globals()[_name] = _of_tensors(_name, _function, 0) if _binary else _function
