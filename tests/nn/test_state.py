"""state_dict and load_state_dict."""

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tests.nn.test_module import Block, Model


def test_state_shares_memory_and_round_trips():
    a, b = Model(), Model()
    state = a.state_dict()
    assert list(state)[:4] == ["layers.0.scale", "layers.0.count", "layers.0.linear.weight", "layers.0.linear.bias"]
    assert not any(t.requires_grad for t in state.values()) and "layers.0.scratch" not in state
    assert a.state_dict(keep_vars=True)["out.weight"] is a.out.weight
    assert repr(b.load_state_dict(state)) == "<All keys matched successfully>"
    assert a(td.ones(1, 4)).tolist() == b(td.ones(1, 4)).tolist()
    state["out.bias"].fill_(7.0)
    assert a.out.bias.tolist() == [7.0, 7.0] and b.out.bias.tolist() != [7.0, 7.0]
    assert ["x.scale", "x.count", "x.linear.weight", "x.linear.bias"] == list(Block().state_dict(prefix="x."))


def test_errors_list_every_key_and_nothing_is_changed():
    m = Block()
    state = m.state_dict()
    bad = {k: td.zeros_like(v) for k, v in state.items()}
    bad["other.weight"] = td.ones(1)
    bad["scale"] = td.ones(5)
    bad["count"] = "text"
    del bad["linear.bias"]
    before = m.linear.weight.tolist()
    with pytest.raises(nn.StateError) as info:
        m.load_state_dict(bad)
    text = str(info.value)
    assert "the state does not fit Block" in text
    assert "missing: linear.bias" in text and "unexpected: other.weight" in text
    assert "scale: the state has (5,), the module (4,)" in text and "count: a str is not a tensor" in text
    assert before == m.linear.weight.tolist()
    with pytest.raises(nn.StateError, match="mismatched"):
        m.load_state_dict(bad, strict=False)


def test_without_strict_the_rest_is_loaded():
    m = Block()
    result = m.load_state_dict({"scale": td.zeros(4), "more": td.ones(1)}, strict=False)
    assert (["count", "linear.weight", "linear.bias"], ["more"]) == (result.missing_keys, result.unexpected_keys)
    assert not m.scale.any()


def test_a_common_prefix_is_noticed():
    m = Block()
    with pytest.raises(nn.StateError, match=r"strip 'module\.'"):
        m.load_state_dict({"module." + k: v for k, v in m.state_dict().items()})


def test_arrays_numbers_and_other_dtypes_are_taken():
    m = nn.BatchNorm1d(2)
    m.load_state_dict({
        "weight": np.ones(2), "bias": td.ones(2, dtype=td.float16), "running_mean": np.zeros(2, dtype=np.float32),
        "running_var": td.ones(2), "num_batches_tracked": 5,
    })  # fmt: skip
    assert m.num_batches_tracked.item() == 5 and m.weight.dtype is td.float32


def test_assign_takes_the_tensors_themselves():
    m = Block()
    state = {k: v.double() for k, v in m.state_dict().items()}
    m.scale.requires_grad = False
    m.load_state_dict(state, assign=True)
    assert m.linear.weight.dtype is td.float64 and isinstance(m.linear.weight, nn.Parameter)
    assert m.linear.weight.requires_grad and not m.scale.requires_grad and m.count is state["count"]
    state["linear.weight"].fill_(3.0)
    assert m.linear.weight.tolist()[0][0] == 3.0


def test_old_batch_norm_files_have_no_counter():
    m = nn.BatchNorm1d(2)
    state = m.state_dict()
    del state["num_batches_tracked"]
    m.load_state_dict(state)


def test_extra_state_and_hooks():
    class Counting(nn.Linear):
        steps = 3

        def get_extra_state(self):
            return {"steps": self.steps}

        def set_extra_state(self, state):
            self.steps = state["steps"]

    a, b = Counting(1, 1), Counting(1, 1)
    a.steps = 9
    assert a.state_dict()["_extra_state"] == {"steps": 9}
    b.load_state_dict(a.state_dict())
    assert b.steps == 9
    seen = []
    a.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(prefix))
    a.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop(prefix + "bias") and None)
    assert list(nn.Sequential(a).state_dict()) == ["0.weight", "0._extra_state"] and seen == ["0."]
    b.register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: state.update({prefix + "bias": td.ones(1)}))
    assert b.load_state_dict(a.state_dict()).missing_keys == [] and b.bias.tolist() == [1.0]
    b.register_load_state_dict_post_hook(lambda m, result: result.unexpected_keys.clear())
    b.load_state_dict({**a.state_dict(), "odd": td.ones(1)})


def test_loading_can_be_overridden_as_in_pytorch():
    class Renamed(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            if prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, *args)

    m = nn.Sequential(Renamed(1, 1, bias=False))
    m.load_state_dict({"0.w": td.full((1, 1), 4.0)})
    assert m[0].weight.item() == 4.0
