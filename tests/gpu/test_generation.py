"""Generating text on a device: the same tokens as on the CPU, by every way of decoding."""

import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]

WAYS = [{}, {"cache": "paged"}, {"beams": 2}, {"draft": True}]


@pytest.mark.parametrize("way", WAYS, ids=[str(w) for w in WAYS])
def test_tokens_equal_those_of_the_cpu(way):
    td.manual_seed(0)
    settings = {"vocabulary": 50, "context": 32, "layers": 2, "heads": 2, "width": 16}
    here = td.models.GPT2(**settings).eval()
    there = td.models.GPT2(**settings).eval()
    there.load_state_dict(here.state_dict())
    there.to("cuda")
    prompts = [[1, 2, 3], [4, 5, 6, 7]]
    made = []
    for model in (here, there):
        more = {**way, **({"draft": model} if "draft" in way else {})}
        made.append(model.generate(prompts, 6, temperature=0, **more))
    assert made[0] == made[1]
