"""Prefetch on the CPU, where batches pass as they are; on devices: tests/gpu/test_stand_in.py."""

import pytest

import tandem as td


def test_batches_pass_as_they_are_on_the_cpu():
    batches = [{"x": td.ones(2), "name": "a"}, {"x": td.zeros(2), "name": "b"}]
    sent = td.data.prefetch(batches, "cpu")
    assert len(sent) == 2
    for _ in range(2):
        assert [b is e for b, e in zip(sent, batches, strict=True)] == [True, True]


def test_one_batch_is_made_at_a_time_on_the_cpu():
    made = []

    def batches():
        for i in range(3):
            made.append(i)
            yield td.tensor(i)

    for i, x in enumerate(td.data.prefetch(batches(), "cpu")):
        assert int(x) == i
        assert made == list(range(i + 1))


def test_a_loader_for_the_cpu_is_the_same_loader():
    data = td.data.TensorDataset(td.arange(10))
    plain, told = (td.data.DataLoader(data, batch_size=3, **more) for more in ({}, {"device": "cpu"}))
    for (a,), (b,) in zip(plain, told, strict=True):
        assert a.tolist() == b.tolist()
        assert told.state_dict()["batches"] == plain.state_dict()["batches"]
    assert told.epoch == 1


def test_errors():
    with pytest.raises(td.ValueRangeError, match="ahead=0"):
        td.data.prefetch([], "cpu", ahead=0)
    with pytest.raises(td.DeviceError, match="not known"):
        td.data.prefetch([], "tpu")
    if not td.cuda.is_available():
        with pytest.raises(td.DeviceError, match="not available"):
            td.data.DataLoader([1, 2], device="cuda")
