"""Docstrings as Markdown, for the reference pages: an extension of griffe, which mkdocs.yml names.

Our docstrings are plain text with shapes such as `(*s)` and examples after `>>>`; in Markdown the one would be emphasis, the
other a quotation.
"""

import re

import griffe

_FIELD = re.compile(r"\w[\w, ]*: ")


def as_markdown(text: str) -> str:
    """text with its examples and indented parts as code, and everything else as it is written."""
    lines, code = [], None

    def close():
        nonlocal code
        if code is not None:
            lines.append("```\n")
        code = None

    for line in text.splitlines():
        if line.startswith(">>>") and code is None:
            lines.append("\n```pycon")
            code = "example"
        elif code == "example" and not line.strip():
            close()
        elif line.startswith("    ") and code is None:
            lines.append("\n```text")
            code = "indented"
        elif code == "indented" and line.strip() and not line.startswith("    "):
            close()
        if code is None:
            # Inside backticks everything stands for itself already.
            line = "".join(
                part if i % 2 else re.sub(r"([*_\[\]])", r"\\\1", part).replace("<", "&lt;")
                for i, part in enumerate(re.split("(`[^`]*`)", line))
            )
            if lines and _FIELD.match(line) and lines[-1].strip():  # `x: (n, c)`: one parameter a line
                lines[-1] += "  "
        lines.append(line)
    close()
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_):
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
