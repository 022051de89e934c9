"""The examples in docstrings and on the page of control flow run."""

import doctest
import pathlib
import re

import pytest

import tandem as td
from tandem.control import associative, branches, loops


@pytest.mark.parametrize("module", [associative, branches, loops])
def test_docstrings(module):
    assert doctest.testmod(module, extraglobs={"td": td}).failed == 0


def test_the_page(capsys):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "control_flow.md").read_text()
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, "control_flow.md", "exec"), {})
    assert capsys.readouterr().out == "(8, 8)\n"
