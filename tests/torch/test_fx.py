"""torch.fx: programs as nodes that are read, replaced, taken out and run."""

import copy
import operator

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
import tandem.torch as torch
from tandem import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.arange(4.0))
        self.seq = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x, k=2.0):
        y = self.lin(x) * (self.scale * 2) + self.shift
        a, b = y.chunk(2, -1)
        z = torch.cat([b, a], dim=-1).sigmoid() + F.gelu(y, approximate="tanh")
        return self.seq(z[:, 0:4] * k), {"rows": y.shape[0]}


def names(graph):
    return [(n.op, n.target if isinstance(n.target, str) else n.target.__name__) for n in graph.nodes]


def test_a_trace_computes_what_the_module_does_and_shares_its_parameters():
    net, x = Net(), torch.randn(5, 3)
    traced = torch.fx.symbolic_trace(net)
    (expected, _), (got, more) = net(x), traced(x)
    np.testing.assert_array_equal(got.detach().numpy(), expected.detach().numpy())
    assert more == {"rows": 5}
    assert traced.scale is net.scale
    assert [n for n, _ in traced.named_buffers()] == ["shift"]
    assert {n for n, _ in traced.named_parameters()} == {n for n, _ in net.named_parameters()}
    got.sum().backward()
    assert net.scale.grad is not None  # scale * 2 is computed by calls, not once by the trace
    assert net(x, 3.0)[0].tolist() == traced(x, 3.0)[0].tolist()


def test_tracing_leaves_the_module_as_it_was():
    net = Net()
    before = {n: id(p) for n, p in net.state_dict(keep_vars=True).items()}
    torch.fx.symbolic_trace(net)
    assert before == {n: id(p) for n, p in net.state_dict(keep_vars=True).items()}
    assert all("forward" not in vars(m) for m in net.modules())
    with pytest.raises(torch.fx.TraceError):
        torch.fx.symbolic_trace(Doubtful(net))
    assert isinstance(net.scale, nn.Parameter)
    assert net(torch.ones(1, 3))[0].shape == (1, 2)


class Doubtful(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = self.net(x)[0]
        return y if y.sum() > 0 else -y


def test_nodes_are_the_calls_that_the_program_wrote():
    def function(x, y):
        return torch.relu(x + y).sum(-1) * 2

    graph = torch.fx.symbolic_trace(function).graph
    assert names(graph) == [
        ("placeholder", "x"),
        ("placeholder", "y"),
        ("call_function", "add"),
        ("call_function", "relu"),
        ("call_method", "sum"),
        ("call_function", "mul"),
        ("output", "output"),
    ]
    relu = graph.find_nodes(op="call_function", target=torch.relu)[0]
    assert [n.name for n in relu.users] == ["sum_1"]
    assert [n.name for n in relu.all_input_nodes] == ["add"]
    assert len(graph.nodes) == 7
    graph.lint()


def test_nodes_are_replaced_inserted_and_erased():
    traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    graph = traced.graph
    relu = graph.find_nodes(op="call_function", target=torch.relu)[0]
    with graph.inserting_after(relu):
        first = graph.call_function(torch.neg, (relu.args[0],))
        graph.call_method("abs", (first,))
    relu.replace_all_uses_with(first)
    with pytest.raises(RuntimeError, match="x is used by"):
        graph.erase_node(next(iter(graph.nodes)))
    graph.erase_node(relu)
    assert traced(torch.tensor([2.0])).tolist() == [3.0]  # until it is compiled again
    traced.recompile()
    assert traced(torch.tensor([2.0])).tolist() == [-1.0]
    assert graph.eliminate_dead_code()  # abs, which nobody uses
    graph.lint()
    assert [n.name for n in graph.nodes] == ["x", "negative", "add", "output"]


def test_a_loop_over_nodes_may_change_them():
    traced = torch.fx.symbolic_trace(lambda x: torch.relu(torch.relu(x)))
    for node in traced.graph.nodes:
        if node.target is torch.relu:
            with traced.graph.inserting_after(node):
                other = traced.graph.call_function(torch.exp, node.args)
            node.replace_all_uses_with(other)
            traced.graph.erase_node(node)
    traced.recompile()
    x = torch.tensor([0.5])
    assert traced(x).tolist() == x.exp().exp().tolist()


def test_a_submodule_is_replaced():
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    for node in traced.graph.nodes:
        if node.op == "call_module" and isinstance(traced.get_submodule(node.target), nn.ReLU):
            traced.add_submodule("other", nn.Tanh())
            node.target = "other"
    traced.recompile()
    traced.delete_all_unused_submodules()
    assert [n for n, _ in traced.named_children()] == ["0", "other"]
    assert traced(torch.ones(1, 2)).abs().max().item() < 1


def test_a_node_whose_target_is_missing_is_found_by_lint():
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    next(n for n in traced.graph.nodes if n.op == "call_module").target = "1"
    with pytest.raises(td.ValueRangeError, match="has no 1, which a node names"):
        traced.graph.lint()


def test_a_graph_made_by_hand():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    w = graph.get_attr("w")
    graph.output(graph.call_function(operator.matmul, (x, w)))
    module = torch.fx.GraphModule({"w": nn.Parameter(torch.eye(2))}, graph)
    assert module(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]
    assert "x @ w" in module.code


def test_patterns_are_replaced_wherever_they_stand():
    traced = torch.fx.symbolic_trace(lambda x, y: torch.relu(x + y) * torch.relu(y + x) + x)
    found = torch.fx.replace_pattern(traced, lambda a, b: torch.relu(a + b), lambda a, b: a * b)
    assert len(found) == 2
    x, y = torch.tensor([2.0]), torch.tensor([3.0])
    assert traced(x, y).tolist() == [38.0]
    assert torch.fx.replace_pattern(traced, lambda a: torch.exp(a), lambda a: a) == []


def test_a_result_that_others_use_is_no_part_of_a_pattern():
    def function(x):
        y = torch.exp(x)
        return torch.relu(y) + y

    traced = torch.fx.symbolic_trace(function)
    assert torch.fx.replace_pattern(traced, lambda a: torch.relu(torch.exp(a)), lambda a: a) == []


def test_interpreters_and_transformers_override_calls():
    class Counts(torch.fx.Interpreter):
        calls = 0

        def call_module(self, target, args, kwargs):
            self.calls += 1
            return super().call_module(target, args, kwargs)

    class Negates(torch.fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.neg if target is torch.relu else target, args, kwargs)

    net, x = Net(), torch.ones(2, 3)
    traced = torch.fx.symbolic_trace(net)
    run = Counts(traced)
    assert run.run(x)[0].tolist() == net(x)[0].tolist()
    assert run.calls == 3
    assert torch.fx.Transformer(traced).transform()(x)[0].tolist() == net(x)[0].tolist()
    assert Negates(torch.fx.symbolic_trace(lambda y: torch.relu(y))).transform()(x).tolist() == (-x).tolist()


def test_a_tracer_says_what_is_a_leaf():
    class Everything(torch.fx.Tracer):
        def is_leaf_module(self, m, qualname):
            return False

    graph = Everything().trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert not graph.find_nodes(op="call_module")
    assert {n.target for n in graph.find_nodes(op="get_attr")} == {"0.weight", "0.bias"}


def test_functions_that_are_wrapped_are_not_followed():
    traced = torch.fx.symbolic_trace(lambda x: decides(x) + len(x))
    assert ("call_function", "decides") in names(traced.graph)
    assert traced(torch.tensor([-1.0, 1.0])).tolist() == [1.0, 3.0]
    assert decides(torch.tensor(3.0)).item() == 3.0  # the function itself again


@torch.fx.wrap
def decides(x):
    return x * 1 if x.sum() == 0 else x


torch.fx.wrap("len")


def test_values_that_decide_are_refused_at_the_line():
    with pytest.raises(torch.fx.TraceError, match="a decision by gt") as raised:
        torch.fx.symbolic_trace(lambda x: x if x > 0 else -x)
    assert "test_fx.py" in str(raised.value)
    with pytest.raises(torch.fx.TraceError, match="a loop over x"):
        torch.fx.symbolic_trace(lambda x: sum(x))


def test_a_copy_is_changed_alone():
    traced = torch.fx.symbolic_trace(Net())
    other = copy.deepcopy(traced)
    for node in other.graph.nodes:
        if node.target is operator.add:
            node.target = operator.sub
    other.recompile()
    x = torch.ones(1, 3)
    assert other.scale is not traced.scale
    assert [n for n, _ in other.named_buffers()] == ["shift"]
    assert other(x)[0].tolist() != traced(x)[0].tolist()


def test_compiled_it_is_a_graph_of_this_library():
    net, x = Net(), torch.ones(2, 3)
    traced = torch.fx.symbolic_trace(net)
    np.testing.assert_allclose(torch.compile(traced)(x)[0].detach(), net(x)[0].detach(), rtol=1e-5, atol=1e-6)
    assert any(node.op.name == "matmul" for node in traced.program(x).nodes)


def test_values_and_names_that_python_has_no_literal_for():
    def function(x, lambda_=None):
        return x.to(torch.float64).clamp(min=float("-inf")) + torch.zeros_like(x, dtype=torch.float64)

    traced = torch.fx.symbolic_trace(function)
    assert traced(torch.ones(1)).dtype is torch.float64


def test_concrete_arguments_are_followed():
    def function(x, flag):
        return x + 1 if flag else x - 1

    traced = torch.fx.symbolic_trace(function, concrete_args={"flag": False})
    assert traced(torch.ones(1), False).tolist() == [0.0]


def test_shapes_are_noted():
    traced = torch.fx.symbolic_trace(lambda x: x.sum(0))
    torch.fx.passes.shape_prop.ShapeProp(traced).propagate(torch.ones(2, 3))
    assert [n.meta["tensor_meta"].shape for n in traced.graph.nodes][:2] == [(2, 3), (3,)]


def test_proxies_extend_a_graph_that_is_there():
    graph = torch.fx.Graph()
    x = torch.fx.Proxy(graph.placeholder("x"))
    graph.output((torch.relu(x) + 1).node)
    assert torch.fx.GraphModule(nn.Module(), graph)(torch.tensor([-1.0])).tolist() == [1.0]
