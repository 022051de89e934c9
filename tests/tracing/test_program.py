"""Which sizes a program of captured calls computes with, and which it knows."""

import tandem as td


def inputs_of(fn, number: int) -> str:
    return "\n".join(line for line in str(fn.graph(number)).splitlines() if "= input()" in line)


def test_sizes_of_modules_stay_known_when_sizes_of_data_change():
    model = td.nn.Sequential(td.nn.Linear(6, 7), td.nn.LayerNorm(7))
    fn = td.compile(lambda x: model(x).sum(1))
    for shape in ((2, 3, 6), (4, 5, 6), (3, 9, 6)):
        x = td.randn(*shape)
        assert td.testing.assert_close(fn(x), model(x).sum(1)) is None
    assert fn._programs.num_programs == 2
    assert "f32[7,6] = input()" in inputs_of(fn, 1)
    assert "f32[7] = input()" in inputs_of(fn, 1)
    assert any("[s" in line for line in inputs_of(fn, 1).splitlines())


def test_a_function_of_several_modules_computes_with_their_sizes():
    fn = td.compile(lambda model, x: model(x) * 2)
    for width in (3, 4, 5, 6, 9):
        model, x = td.nn.Linear(width, width + 1), td.randn(2, width)
        td.testing.assert_close(fn(model, x), model(x) * 2)
    assert fn._programs.num_programs == 2


def test_buffers_are_no_batches():
    model = td.nn.BatchNorm1d(8).eval()
    fn = td.compile(lambda x: model(x) + 1)
    for n in (4, 5, 8):
        fn(td.randn(n, 8))
    assert fn._programs.num_programs == 1
    assert "f32[8] = input()" in inputs_of(fn, 0)
