"""Language models on a CUDA device, on a stand-in whose kernels compute nothing: what runs where, and what the host reads."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

HEAD = """
import warnings
warnings.simplefilter("error")  # a program that cannot be compiled is told of by a warning
LLAMA = {"vocabulary": 50, "context": 64, "layers": 2, "heads": 4, "kv_heads": 2, "width": 16, "hidden": 32}
llama = td.models.Llama(**LLAMA).eval().cuda()
gpt = td.models.GPT2(vocabulary=50, context=64, layers=2, heads=2, width=16).eval().cuda()
def since(before):
    return {k: v - before[k] for k, v in counts().items() if v != before[k]}
"""


def test_prompts_go_on_where_the_model_is(tmp_path):
    run(
        HEAD
        + """
prompts = td.tensor([[1, 2, 3], [4, 5, 6]]).cuda()
for model in (llama, gpt):
    for settings in ({"temperature": 0}, {"temperature": 0.8, "top_k": 5}, {"cache": "paged"}, {"top_p": 0.9},
                     {"temperature": 0, "draft": gpt}):
        made = model.generate(prompts, 5, **settings)
        assert made.shape == (2, 8) and made.device == "cuda:0", settings
    lists = model.generate([[1, 2], [3, 4, 5]], 70, temperature=0)  # beyond the context
    assert [len(row) for row in lists] == [72, 73]
    assert [len(step) for step in model.stream([[1], [2, 3]], 3, temperature=0)] == [2, 2, 2]
""",
        tmp_path,
    )


def test_a_step_is_a_recorded_program_of_which_the_host_reads_the_tokens_alone(tmp_path):
    run(
        HEAD
        + """
for settings in ({"temperature": 0}, {"temperature": 0.8, "top_k": 5, "top_p": 0.9}, {"temperature": 0.7, "cache": "paged"}):
    steps = llama.stream([[1, 2, 3], [4, 5, 6]], 24, **settings)
    for _ in range(16):
        next(steps)
    before = counts()
    for _ in range(6):
        next(steps)
    found = since(before)
    assert found["reads"] == 6, (settings, found)
    assert found["graphs"] >= 6 and "recorded" not in found and "modules" not in found, (settings, found)
    assert found.get("launches", 0) <= 6, (settings, found)  # what a graph cannot hold
""",
        tmp_path,
    )


def test_a_step_begins_before_the_host_has_read_the_tokens_of_the_last(tmp_path):
    run(
        HEAD
        + """
from tandem.generation import Decoder
begun = []
advance = Decoder.advance
Decoder.advance = lambda self, *rest: begun.append(self.lengths[0]) or advance(self, *rest)
steps = llama.stream([[1, 2, 3]], 3, temperature=0)
found = []
for _ in steps:
    found.append(list(begun))
assert found == [[3], [3, 4], [3, 4]], found
""",
        tmp_path,
    )


def test_layers_of_fewer_bits_compute_where_the_model_is(tmp_path):
    run(
        HEAD
        + """
prompts = td.tensor([[1, 2, 3], [4, 5, 6]]).cuda()
for bits in (8, 4):
    for activations in (None, "dynamic"):
        made = td.quantize(llama, bits, 8 if bits == 4 else None, activations=activations)
        assert {b.device for b in made.buffers()} == {llama.lm_head.weight.device}
        assert made.generate(prompts, 4, temperature=0).device == "cuda:0"
        assert made.cpu().generate(prompts.cpu(), 2, temperature=0).device == "cpu"
image = td.ones(2, 3, 8, 8, device="cuda")
network = td.nn.Sequential(td.nn.Conv2d(3, 8, 3, padding=1), td.nn.ReLU(), td.nn.Flatten(), td.nn.Linear(512, 4)).cuda()
for settings in ({}, {"activations": "dynamic"}, {"training": True}):
    for run in (lambda m: m, td.compile):
        made = run(td.quantize(network, 8, **settings))(image)
        assert made.device == "cuda:0" and made.shape == (2, 4)
""",
        tmp_path,
    )


def test_a_server_answers_from_a_model_on_a_device(tmp_path):
    run(
        HEAD
        + """
import asyncio
from tandem.generation import Sampling
from tandem.serve.engine import Engine
engine = Engine(llama, rows=4)
async def ask(prompt):
    return [token async for token in engine.submit(prompt, 6, Sampling(temperature=0))]
async def ask_all():
    return await asyncio.gather(*(ask(list(range(1, n + 1))) for n in range(1, 7)))
assert [len(a) for a in asyncio.run(ask_all())] == [6] * 6
engine.close()
""",
        tmp_path,
    )


def test_a_step_reads_keys_where_they_lie_and_normalises_in_one_kernel(tmp_path):
    run(
        HEAD
        + """
from collections import Counter
for prompt, count in ((4, 20), (7, 12)):  # the second time by a program that computes with sizes
    for steps in (1, 9):
        with td.profile() as p:
            llama.generate(td.ones(1, prompt, dtype=td.int64), count + steps, temperature=0)
        found = Counter(s.name for s in p.steps if s.kind == "kernel")
        norms = Counter(s.name for s in p.steps if s.kind == "kernel" and s.op == "rms_norm")
        assert sum(norms.values()) <= 5 * (count + steps), (norms, found)
        assert "sum" not in norms, norms
        keys = [s for s in p.steps if s.kind == "kernel" and s.op == "scaled_dot_product_attention" and s.name == "slice"]
        assert len(keys) <= 4, found  # of the prompt
""",
        tmp_path,
    )
