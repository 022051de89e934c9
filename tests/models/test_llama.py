"""Llama: its weights by the names of safetensors and GGUF files, and rotary positions."""

import json

import numpy as np
import pytest

import tandem as td
from tandem.errors import CheckpointError, ValueRangeError
from tandem.models.llama import rotary_frequencies, rotate
from tests.models.llamas import CONFIG


def test_a_folder_of_published_files_becomes_a_model(tmp_path):
    model = td.models.Llama.from_config(CONFIG).eval()
    state = {name: value.detach() for name, value in model.state_dict().items()}
    assert "model.layers.0.self_attn.q_proj.weight" in state and "lm_head.weight" not in state
    td.save(state, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        td.models.Llama.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    other = td.models.Llama.from_pretrained(tmp_path)
    tokens = td.arange(6)[None]
    np.testing.assert_array_equal(model(tokens).detach().numpy(), other(tokens).detach().numpy())


def test_scores_depend_on_the_distance_of_positions_only():
    q, k = td.randn(1, 1, 1, 8), td.randn(1, 1, 1, 8)
    frequencies = rotary_frequencies(8, 100.0)

    def score(a: int, b: int) -> float:
        turned = [rotate(x, (frequencies * p).cos(), (frequencies * p).sin()) for x, p in ((q, a), (k, b))]
        return float((turned[0] * turned[1]).sum())

    assert abs(score(3, 1) - score(12, 10)) < 1e-4 < abs(score(3, 1) - score(3, 2))


def test_scaling_of_rotary_positions():
    plain = rotary_frequencies(8, 100.0).numpy()
    np.testing.assert_allclose(
        rotary_frequencies(8, 100.0, {"rope_type": "linear", "factor": 4.0}).numpy(), plain / 4, rtol=1e-6
    )
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}  # fmt: skip
    scaled = rotary_frequencies(8, 100.0, scaling).numpy()
    assert scaled[0] == plain[0] and abs(scaled[-1] - plain[-1] / 8) < 1e-6
    with pytest.raises(ValueRangeError, match="scaled by 'yarn'"):
        rotary_frequencies(8, 100.0, {"rope_type": "yarn", "factor": 2.0})
