"""torch.backends: settings that programs make."""

import pytest

import tandem as td


def test_backends_accept_what_programs_set():
    td.backends.cudnn.benchmark = True
    td.backends.cudnn.deterministic = True
    assert not td.backends.mps.is_available()
    if td.cuda.is_available():
        td.set_float32_matmul_precision("high")
        assert td.backends.cuda.matmul.allow_tf32
        td.set_float32_matmul_precision("highest")
    with pytest.raises(td.ValueRangeError, match="'highest', 'high' or 'medium'"):
        td.set_float32_matmul_precision("low")
