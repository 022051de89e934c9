"""GPT-2."""

import numpy as np
import pytest

import tandem as td
from tandem import models
from tests.models.small import check_training, count, gpt2, whole


@pytest.mark.slow
def test_parameter_count():
    assert count(models.gpt2()) == 124_439_808


def test_compiled_is_eager_and_the_loss_falls():
    check_training(gpt2)


def test_gpt2_generates_the_same_with_and_without_what_it_remembers():
    td.manual_seed(0)
    model = models.GPT2(11, 12, 2, 2, 8).eval()
    start = whole(11, 2, 3)
    tokens = model.generate(start, 6, temperature=0)
    assert tokens.shape == (2, 9)
    for t in range(3, 9):
        expected = model(tokens[:, :t])[:, -1].argmax(-1)
        assert tokens[:, t].tolist() == expected.tolist()
    drawn = model.generate(start, 12, top_k=3)  # past its context
    assert drawn.shape == (2, 15)


def test_gpt2_takes_published_weights():
    model, other = models.GPT2(11, 8, 1, 2, 8).eval(), models.GPT2(11, 8, 1, 2, 8).eval()
    published = {"lm_head.weight": model.wte.weight.detach(), "transformer.h.0.attn.bias": td.ones(1, 1, 8, 8)}
    for name, value in model.state_dict().items():
        transposed = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
        published["transformer." + name] = value.T if transposed else value
    other.load_published(published)
    tokens = whole(11, 1, 5)
    np.testing.assert_array_equal(other(tokens).detach().numpy(), model(tokens).detach().numpy())
