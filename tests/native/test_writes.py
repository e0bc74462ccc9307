"""New values of inputs: written by the kernels into the inputs, where that is the same as writing them last."""

import copy

import pytest
import torch

import argand
from argand.native.ir.tensor_text import parse_graph, print_graph
from argand.support import events

R = torch.randn


def check(function, *inputs, aside=0):
    """Results, inputs and versions as in eager; ``aside``: how many writes cannot be in place."""
    argand.reset()
    ours, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
    with events.collect() as heard, torch.no_grad():
        compiled = argand.compile(
            function, fullgraph=True, options={"measure": False, "cache": False}
        )
        for _ in range(2):
            result, wanted = compiled(*ours), function(*theirs)
            torch.testing.assert_close(result, wanted)
            torch.testing.assert_close(ours, theirs)
    assert [x._version for x in ours] == [x._version for x in theirs]
    decisions = "\n".join(heard.texts("fusion"))
    assert decisions.count("aside") == aside, decisions
    assert "write input" in decisions


def step(parameter, gradient, mean, square):
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    parameter.addcdiv_(mean, square.sqrt().add_(1e-8), value=-1e-3)


def test_adam_step_is_in_place():
    check(step, R(33, 65), R(33, 65), R(33, 65), R(33, 65).abs())


def test_rows_are_read_before_they_are_written():
    check(lambda x: x.copy_(torch.softmax(x, -1)), R(6, 70))
    check(lambda x: x.sub_(x.mean(0)), R(40, 9))
    check(lambda x: x.sub_(x.mean()), R(40, 9))


def test_what_reads_the_old_value_runs_first():
    def f(x, w):
        old = x @ w
        x.add_(1)
        return old, x.sum(0) + old

    check(f, R(5, 8), R(8, 8))

    def g(x, y):
        before = x.sum(1) * y
        x.mul_(2)
        return before

    check(g, R(5, 8), R(5))


def test_other_places_of_the_same_input():
    check(lambda x: x.copy_(x.t().clone()), R(8, 8), aside=1)
    check(lambda x: x.copy_(x.flip(0)), R(8), aside=1)
    check(lambda x: x[1:].add_(x[:-1].clone()), R(40))
    check(lambda x: x[1:].mul_(3), R(40))


def test_exchanged_inputs():
    def swap(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)

    check(swap, R(9, 70), R(9, 70), aside=1)


def test_calls_of_torch_come_first():
    def f(x, w):
        x.add_(1)
        return x @ w

    check(f, R(5, 8), R(8, 8), aside=1)

    def g(x, y, w):
        x.copy_(y @ w)

    check(g, R(5, 8), R(5, 8), R(8, 8))


def test_strides_types_and_values_without_old_ones():
    check(lambda x: x.mul_(2), R(6, 8).t())
    check(lambda x: x.mul_(2), R(6, 16)[:, ::2])
    check(lambda x: x.mul_(2), R(1, 8, 1).expand(1, 8, 1))
    check(lambda x, y: (x.zero_(), y.copy_(x)), R(7), R(7))
    check(lambda x, y: x.copy_(y), torch.zeros(7, dtype=torch.int32), R(7) * 10)
    check(lambda x, y: x.add_(y), R(7, 40).bfloat16(), R(7, 40).bfloat16())
    check(lambda x: x.logical_not_(), R(300) > 0)


def test_a_result_that_is_the_old_value():
    def f(x):
        old = x.clone()
        x.add_(1)
        return old, x.view(-1)

    check(f, R(5, 40))


def test_a_failing_call_leaves_inputs_alone():
    def f(x, table, at):
        x.add_(1)
        return table[at] + x

    x, table = R(4), R(3)
    with torch.no_grad():
        compiled = argand.compile(f, options={"measure": False, "cache": False})
        compiled(x, table, torch.tensor([0, 1, 2, 0]))
        before = x.clone()
        with pytest.raises(IndexError):
            compiled(x, table, torch.tensor([0, 1, 7, 0]))
    torch.testing.assert_close(x, before)


def test_inputs_that_share_memory_later():
    def f(x, y):
        x.add_(1)
        return y * 2

    compiled = argand.compile(f, options={"measure": False, "cache": False})
    compiled(R(40), R(40))
    base = R(80)
    again = base.clone()
    torch.testing.assert_close(compiled(base[:40], base[20:60]), f(again[:40], again[20:60]))
    torch.testing.assert_close(compiled(base[:40], base[:40]), f(again[:40], again[:40]))
    torch.testing.assert_close(base, again)


def test_text_names_the_input():
    text = "graph(f32[4])\n%0 = input[0]() : f32[4]\n%1 = neg(%0) : f32[4]\nreturn %1 into 0, %1"
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_lists_of_tensors(mode):
    def f(parameters, gradients):
        torch._foreach_mul_(gradients, 0.5)
        roots = torch._foreach_sqrt(gradients)
        torch._foreach_addcdiv_(parameters, gradients, roots, -0.1)
        return roots

    with mode():
        ours, theirs = [R(3), R(4, 5)], [R(3).abs() + 1, R(4, 5).abs() + 1]
        again = copy.deepcopy((ours, theirs))
        wanted, got = (
            f(*again),
            argand.compile(f, options={"measure": False, "cache": False})(ours, theirs),
        )
        torch.testing.assert_close((got, ours, theirs), (wanted, *again))
