"""What to write instead of reading a value, where a function compiled with whole=True reads one: the fix that fits the line."""

from __future__ import annotations

import ast
import functools
import linecache

_LEAVE_OUT = ", or leave out whole=True"
_CHOOSE = (
    "choose inside the program by td.cond(condition, lambda: a, lambda: b) or td.where(condition, a, b) instead of "
)
_REPEAT = "repeat inside the program by td.while_loop(condition, body, start) instead of `while`"
_KEEP = "keep it as a tensor: operators take it as they take a number; read it when the function has returned"
_PRINT = 'print by td.print("y", y), which shows the value when the program has run'
_SIZE = (
    "how many elements that gives depends on values: keep all of them and mask by td.where(condition, y, 0), or give the number: "
    "td.nonzero_static(condition, size=n)"
)
_GENERAL = (
    "choose by td.cond or td.where instead of `if`, repeat by td.while_loop instead of `while`, print by td.print, and read values "
    "when the function has returned"
)
_CALLS = {
    **dict.fromkeys(
        ["item", "tolist", "numpy", "float", "int", "bool", "asarray", "array", "list", "format", "str", "repr"], _KEEP
    ),
    **dict.fromkeys(["nonzero", "argwhere", "flatnonzero", "masked_select", "unique", "unique_consecutive"], _SIZE),
    **dict.fromkeys(["max", "min"], "compare by td.maximum and td.minimum"),
    "print": _PRINT,
    "range": "repeat inside the program by td.fori_loop(0, n, lambda i, y: ..., y)",
}


def fix_at(frame) -> str:
    """What to do about the instruction that runs in this frame."""
    return (_fitting(frame) or _GENERAL) + _LEAVE_OUT


def _fitting(frame) -> str | None:
    if frame is None:
        return None
    position = next(_skip(frame.f_code.co_positions(), frame.f_lasti // 2), None)
    tree = _tree(frame.f_code.co_filename)
    if tree is None or position is None or None in position:
        return None
    line, end_line, column, end_column = position
    inner, path = None, _around(tree, (line, column), (end_line, end_column))
    for node in path:  # the innermost first
        found = _of(node, inner)
        if found is not None:
            if found is _KEEP and any(isinstance(n, ast.Call) and getattr(n.func, "id", None) == "range" for n in path):
                return _CALLS["range"]
            return found
        if isinstance(node, (ast.stmt, ast.Lambda)):
            return None
        inner = node
    return None


def _of(node, inner) -> str | None:
    """The fix for a value read by this node, while it works on `inner`, a part of it."""
    asked = inner is None or inner is getattr(node, "test", None)
    if isinstance(node, ast.While) and asked:
        return _REPEAT
    if isinstance(node, (ast.If, ast.IfExp)) and asked:
        return _CHOOSE + "`if`"
    if isinstance(node, ast.BoolOp):
        return "combine conditions by & and |, which take tensors, instead of `and` and `or`; " + _CHOOSE + "`if`"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return "use ~ or td.logical_not instead of `not`; " + _CHOOSE + "`if`"
    if isinstance(node, ast.Assert) and asked:
        return "check it when the function has returned"
    if isinstance(node, ast.Subscript) and inner is None:
        return _SIZE
    if isinstance(node, ast.FormattedValue):
        return _PRINT
    if isinstance(node, ast.Call) and inner is None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        return _CALLS.get(name)
    return None


def _around(tree, start: tuple, end: tuple) -> list:
    """The nodes that this piece of text lies in, from the innermost to the outermost."""
    path, node = [], tree
    while node is not None:
        path.append(node)
        node = next((child for child in _children(node) if _covers(child, start, end)), None)
    return path[:0:-1]


def _children(node):
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _children(child)  # comprehensions and arguments have no place of their own


def _covers(node, start: tuple, end: tuple) -> bool:
    first = min([node, *getattr(node, "decorator_list", ())], key=lambda n: n.lineno)
    return (first.lineno, first.col_offset) <= start and end <= (node.end_lineno, node.end_col_offset)


def _skip(iterator, count: int):
    for i, item in enumerate(iterator):
        if i >= count:
            yield item


@functools.lru_cache(maxsize=8)
def _parsed(text: str):
    try:
        return ast.parse(text)
    except SyntaxError:  # not the text that runs
        return None


def _tree(file: str):
    text = "".join(linecache.getlines(file))
    return _parsed(text) if text else None
