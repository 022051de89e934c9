"""Write docs/switches.md from the switches in tandem/switches.py."""

import pathlib

from tandem.switches import SWITCHES

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "switches.md"

HEAD = """\
# Switches

For looking inside and for bisecting. Set one in the environment, where it is read at import:

    TANDEM_DEBUG=2 python train.py

or in a scope, for the whole process until the scope is left:

```python
import tandem as td

double = td.compile(lambda x: x * 2)
with td.switches(EAGER=1):
    double(td.ones(3))  # line by line
```

`0` always means off. What changes results is an argument somewhere, never a switch.

| variable | default | what it does |
| --- | --- | --- |
"""

TAIL = "\nMade by `make docs` from `tandem/switches.py`.\n"


def render() -> str:
    rows = [
        f"| `{s.variable}` | {f'`{s.default}`' if s.default != '' else ''} | {s.help} |\n" for s in SWITCHES.values()
    ]
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE}")
