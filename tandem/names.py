"""Names that a module does not have: which one may have been meant."""

from __future__ import annotations

import sys


class MissingName(AttributeError):
    """Suggests a name when it is shown. Python does so by itself, but not for modules of more than 750 names."""

    __module__, __qualname__ = "builtins", "AttributeError"  # as which it is shown

    def __str__(self):
        import difflib  # when it is shown: most programs name what is there

        text = super().__str__()
        known = [n for n in dir(self.obj) if not n.startswith("_")]
        close = difflib.get_close_matches(self.name, known, 1, 0.7)
        return f"{text}. Did you mean: {close[0]!r}?" if close and len(dir(self.obj)) > 750 else text


def missing(module: str, name: str, advice: str = "") -> MissingName:
    """The error of a module's __getattr__. advice: what follows "has no attribute"."""
    text = f"module {module!r} has no attribute {name!r}{advice}"
    return MissingName(text, name=name, obj=sys.modules[module])
