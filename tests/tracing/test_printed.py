"""Stages of code generation that TANDEM_PRINT names, and TANDEM_DEBUG=4 where kernels come from the cache."""

import os
import subprocess
import sys
import warnings

import pytest

import tandem as td
from tandem.codegen.lower import LOWERING
from tandem.errors import SwitchWarning


def printed(capsys, name: str, fn, *arguments, **options) -> str:
    with td.switches(PRINT=name), warnings.catch_warnings():
        warnings.simplefilter("error", SwitchWarning)
        td.compile(fn, **options)(*arguments)
    return capsys.readouterr().out


def test_steps_of_lowering_show_which_operators_share_a_kernel(capsys):
    arguments = td.rand(4, 5), td.rand(5, 6)
    first, *groups = printed(capsys, "fuse", lambda x, w: ((x @ w + 1).exp() * 2).sum(0), *arguments).splitlines()
    assert first.startswith("== fuse: ") and f"-> {len(groups)} groups, " in first
    first, *steps = printed(capsys, "make_steps", lambda x, w: ((x @ w + 1).exp() * 2).sum(0), *arguments).splitlines()
    assert first.startswith("== make_steps: ") and f"-> {len(steps)} steps, " in first
    assert any("# matmul" in step for step in steps) and any("exp" in step.partition("#")[2] for step in steps)


def test_recompute_shows_what_is_computed_again(capsys):
    assert "== recompute: no memory_budget" in printed(capsys, "recompute", lambda x: x.exp() + 1, td.rand(8))
    model = td.nn.Sequential(
        *[td.nn.Sequential(td.nn.Linear(32, 32), td.nn.LayerNorm(32), td.nn.GELU()) for _ in range(8)]
    )

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss

    text = printed(capsys, "recompute", step, td.rand(2048, 32), memory_budget=0.7)
    assert "== recompute: " in text and "computed again: " in text and "computed again: nothing" not in text


def test_a_step_that_changes_nothing_says_so(capsys):
    text = printed(capsys, "epilogues", lambda x: x.exp() + 1, td.rand(8))
    assert text == "== epilogues: 1 steps stay as they are\n"


def test_an_eager_call_is_printed_too(capsys):
    with td.switches(PRINT="fuse"):
        td.rand(5, 1, 1, 3).cosh()
    assert "== fuse: " in capsys.readouterr().out


def test_all_prints_all(capsys):
    text = printed(capsys, "all", lambda x: (x * 1).exp() + 1, td.rand(8))
    for name in ("simplify", "recompute", *(step.__name__ for step in LOWERING)):
        assert f"== {name}: " in text


def test_only_what_is_optional_can_be_left_out():
    with (
        td.switches(SKIP="fuse"),
        pytest.warns(SwitchWarning, match="names no pass that can be left out: fuse, which nothing can do without"),
    ):
        td.compile(lambda x: x.exp() + 2)(td.rand(8))
    with td.switches(SKIP="fusion"), pytest.warns(SwitchWarning, match="names no pass: fusion"):
        td.compile(lambda x: x.exp() + 3)(td.rand(8))


def test_generated_code_is_shown_though_it_comes_from_the_cache(tmp_path):
    script = "import tandem as td; td.compile(lambda x: (x * 3).exp() - x.sqrt())(td.ones(5))"
    environment = {
        **os.environ, "TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_CACHE": "1", "TANDEM_DEBUG": "4", "TANDEM_PREBUILT": "0"
    }  # fmt: skip
    texts = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        ).stdout
        for _ in range(2)
    ]
    assert all("define" in text for text in texts)
    assert "found in the cache; it is made of this" not in texts[0]
    assert "found in the cache; it is made of this" in texts[1]
