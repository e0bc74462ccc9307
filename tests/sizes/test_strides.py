"""Strides that follow from no size: slices of something larger, whose length varies from call to call."""

import pytest
import torch

import argand
from argand.support import events

# A tensor of `n` rows (columns, steps ...) in memory that has room for `room` more.
LAYOUTS = {
    "cropped": lambda n, room: torch.arange(4.0 * (n + room)).view(4, -1)[:, :n],
    "one_row": lambda n, room: torch.arange(1.0 * (n + room)).view(1, -1)[:, :n],
    "cache": lambda n, room: torch.arange(48.0 * (n + room)).view(2, 3, -1, 8)[:, :, :n],
    "cache_of_one": lambda n, room: torch.arange(8.0 * (n + room)).view(1, 1, -1, 8)[:, :, :n],
    "inner_of_one": lambda n, room: torch.arange(3.0 * (n + room)).view(3, 1, -1)[:, :, :n],
    "turned": lambda n, room: torch.arange(24.0 * (n + room)).view(3, -1, 8)[:, :n].mT,
    "column": lambda n, room: torch.arange(6.0 * (n + room)).view(6, -1)[:, 0],
    "steps": lambda n, room: torch.arange(6.0 * n * (room + 1)).view(6, -1)[:, :: room + 1],
    "fixed_sizes": lambda n, room: torch.arange(5.0 * (12 + room)).view(5, -1)[:, :12],
    "offset": lambda n, room: torch.arange(4.0 * (n + room)).view(4, -1)[1:, 1:n],
    "expanded": lambda n, room: (
        torch.arange(4.0 * (n + room)).view(4, 1, -1)[..., :n].expand(4, 5, n)
    ),
    "one_buffer": lambda n, room: torch.arange(400.0).view(4, 100)[:, :n],
}
PROGRAMS = {
    "pointwise": lambda x: x * 2 + 1,
    "in_place": lambda x: x.add_(1),
    "contiguous_is_itself": lambda x: x.contiguous().mul_(2),
    "asks": lambda x: (x * 2, x.stride(), x.is_contiguous(), torch.empty_like(x).stride()),
    "softmax": lambda x: torch.softmax(x, -1),
    "view_or_not": lambda x: x.view(-1) if x.is_contiguous() else x * 3,
    "product": lambda x: x @ x.mT if x.dim() > 1 else x @ x,
    "parts": lambda x: x[..., 1:-1].mul_(2),
    "absolute": lambda x: x.as_strided((2,), (x.stride(0),)) * 2,
}
SIZES = [(20, 3), (21, 5), (22, 1), (30, 7), (17, 0), (100, 0), (50, 50)]


def outcome(function, x):
    try:
        return function(x)
    except RuntimeError as error:
        return type(error)


def same(ours, theirs):
    if isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if not isinstance(theirs, torch.Tensor):
        return ours == theirs
    return ours.stride() == theirs.stride() and torch.allclose(ours, theirs)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_of_any_length(layout, program):
    function, make = PROGRAMS[program], LAYOUTS[layout]
    compiled = argand.compile(function)
    with events.collect() as seen:
        for n, room in SIZES:
            ours, theirs = make(n, room), make(n, room)
            expected = outcome(function, theirs)
            result = outcome(compiled, ours)
            assert same(result, expected), (n, room)
            assert torch.equal(ours, theirs), (n, room)
            if isinstance(expected, torch.Tensor):
                shared = [r.untyped_storage()._cdata for r in (result, ours, expected, theirs)]
                assert (shared[0] == shared[1]) == (shared[2] == shared[3]), (n, room)
    # sizes as they are, open, open in dense memory; of a program that asks, one for each answer
    assert seen.total("capture.graphs") <= 3


def test_what_a_slice_shares_with_its_buffer_is_seen_where_it_fills_it():
    """Dense at the full length: `contiguous()` is the argument itself there, and was a copy."""

    def double(x):
        return x.contiguous().mul_(2)

    compiled = argand.compile(double)
    for n in (50, 60, 100):
        buffer = torch.ones(4, 100)
        compiled(buffer[:, :n])
        assert buffer[:, :n].eq(2).all() == (n == 100)


def test_gradients_of_cropped_tokens():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20))
    compiled = argand.compile(net)
    with events.collect() as seen:
        for length in (9, 12, 17, 33, 8):
            tokens = torch.randint(20, (3, length))
            found = []
            for call in (compiled, net):
                net.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
                )
                loss.backward()
                found.append([p.grad.clone() for p in net.parameters()])
            torch.testing.assert_close(*found)
    assert seen.total("capture.graphs") == 2


def test_two_caches_are_open_apart():
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    compiled = argand.compile(attend)
    with events.collect() as seen:
        for n, room, other in ((13, 7, 3), (15, 9, 4), (21, 9, 30), (30, 1, 2)):
            q = torch.randn(1, 2, 1, 16)
            k = torch.randn(1, 2, n + room, 16)[:, :, :n]
            v = torch.randn(1, 2, n + other, 16)[:, :, :n]
            torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))
    assert seen.total("capture.graphs") == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda graph, inputs: graph.forward])
def test_every_backend_gets_them(backend):
    def program(x):
        return x.contiguous().mul_(2), x.stride()

    compiled = argand.compile(program, backend=backend)
    for n, room in SIZES:
        ours, theirs = LAYOUTS["cropped"](n, room), LAYOUTS["cropped"](n, room)
        assert same(compiled(ours), program(theirs)) and torch.equal(ours, theirs)


def test_a_stride_that_is_no_whole_number_of_steps_is_taken_for_good():
    def make(stride):
        return torch.arange(100.0).as_strided((3, 4, 2), (stride, 3, 1))

    compiled = argand.compile(lambda x: x * 2)
    for stride in (15, 18, 16, 17, 21):
        assert torch.equal(compiled(make(stride)), make(stride) * 2)
