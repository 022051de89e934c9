"""Deferred graphs as text."""

import re

import pytest

import tandem as td
from tests.pages.data import data_in


@pytest.fixture
def graph():
    with td.Graph() as g:
        yield g


def test_a_deferred_graph_reads_like_the_code_that_built_it(graph):
    x = td.placeholder(td.float32, (None, 3), name="x")
    v = td.Variable(td.zeros(3), name="v")
    with td.control_dependencies([v.assign(x.sum(0))]), td.device("cpu"):
        td.concat([x * 2, x], 1)
    text = str(graph)
    assert "multiply(%0, 2) after %" in text and "concat([%" in text and ", 1) after %" in text and " on cpu" in text
    assert "assign(v, %" in text and "# test_printer.py:" in text
    nodes = data_in(graph.view())["levels"]["operators"]["nodes"]
    text = "\n".join(line for node in nodes for line in node["text"])
    assert "size unknown" in text and "12 B" in text and "MB" not in text


def test_printed_graphs_have_names_and_bodies(graph):
    x = td.placeholder(td.float32, (None, 4), name="x")
    p = td.placeholder(td.bool, (), name="p")
    w = td.Variable(td.zeros(4), name="w")
    y = td.cond(p, lambda: x * 2 + w, lambda: td.cond(p, lambda: x, lambda: x - 1))
    total = td.session.identity(y.sum(), name="total")
    td.gradients(total, [w], grad_ys=[2.0])
    text = re.sub(r"   # .*", "", str(graph)).splitlines()
    assert (
        text
        == """\
%0: f32[s0,4] = placeholder('x')
%1: b1[] = placeholder('p')
%2: f32[4] = full((4,), 0, dtype=tandem.float32)
%3: f32[4] = variable('w')
%4: b1[] = reshape(%1, ())
%5: f32[s0,4] = cond(%4, %1, %0, %3)
  false_fn:
    %0: b1[] = outer(%1)
    %1: b1[] = reshape(%0, ())
    %2: f32[s0,4] = outer(%0)
    %3: f32[s0,4] = cond(%1, %2)
      false_fn:
        %0: f32[s0,4] = outer(%2)
        %1: f32[s0,4] = subtract(%0, 1)
        return %1
      true_fn:
        %0: f32[s0,4] = outer(%2)
        return %0
    return %3
  true_fn:
    %0: f32[s0,4] = outer(%0)
    %1: f32[s0,4] = multiply(%0, 2)
    %2: f32[4] = outer(%3)
    %3: f32[s0,4] = add(%1, %2)
    return %3
%6: f32[] = sum(%5, None, False)
%7: f32[] = identity(%6) as 'total'
%8: f32[] = constant(2.0)
%9: f32[4] = gradients([%7], [%3], [%8])""".splitlines()
    )
