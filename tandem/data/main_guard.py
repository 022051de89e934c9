"""Whether the program that runs could be started a second time by a worker process.

Note [Main guard]
A new process, of the server or spawned, imports the program's file to find its functions. Without a test of __name__ around
what the file does, that would run it once more, and its workers theirs. Such a file is known by the frame that has come
here: it stands in the file itself, on a line below no such test. Its workers are forked, as PyTorch's are on Linux: they
have everything and import nothing.
"""

from __future__ import annotations

import ast
import sys


def unguarded_main() -> bool:
    """Whether the loop that is being begun stands in the program's file, outside of a main guard."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None:  # python -c, a notebook: nothing is imported again
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is vars(main):
            return not _guarded(path, frame.f_lineno)
        frame = frame.f_back
    return False


def _guarded(path: str, line: int) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return True  # not known: as if it were a program like others
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.If) and node.lineno <= line <= node.end_lineno)
    return any(isinstance(n, ast.Name) and n.id == "__name__" for node in tests for n in ast.walk(node.test))
