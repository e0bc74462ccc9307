"""Random programs with views and in-place ops, and the comparison of a compiled run with eager's."""

import random

import torch

from argand.autograd.aot import compile_with_autograd
from argand.support import events
from argand.support.options import Options


def graph_of(function, count):
    """A torch-level GraphModule of one call."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(count)]
    graph.output(graph.call_function(function, tuple(inputs)))
    return torch.fx.GraphModule({}, graph)


def aot_eager(function, inputs, strict=True, **keywords):
    """The function compiled with a compiler that runs the aten graph as it is."""
    return compile_with_autograd(
        graph_of(function, len(inputs)),
        list(inputs),
        fw_compiler=lambda gm, examples: gm,
        options=Options(strict=strict),
        **keywords,
    )


POINTWISE = [
    lambda r, a, b: a * 1.5 + 0.25,
    lambda r, a, b: a.sin(),
    lambda r, a, b: a * a,
    lambda r, a, b: a.clone(),
    lambda r, a, b: a.sigmoid() + a,
    lambda r, a, b: a * b.sum(),
    lambda r, a, b: torch.where(a > 0, a, 0.5 * a),
    lambda r, a, b: torch.zeros_like(a),
    lambda r, a, b: a.contiguous(),
    lambda r, a, b: torch.cat([a.reshape(-1), b.reshape(-1)]),
]


def _select(r, a, b):
    d = r.randrange(a.dim())
    return a.select(d, r.randrange(a.shape[d]))


def _slice(r, a, b):
    d = r.randrange(a.dim())
    start = r.randrange(a.shape[d])
    return a.narrow(d, start, r.randint(1, a.shape[d] - start))


def _step(r, a, b):
    return a[:: r.randint(1, 2)]


def _transpose(r, a, b):
    return a.transpose(r.randrange(a.dim()), r.randrange(a.dim()))


VIEWS = [
    _select,
    _slice,
    _slice,
    _step,
    _transpose,
    lambda r, a, b: a.t() if a.dim() <= 2 else a.permute(2, 0, 1),
    lambda r, a, b: a.view(-1),
    lambda r, a, b: a.view_as(a),
    lambda r, a, b: a.unsqueeze(r.randint(0, a.dim())),
    lambda r, a, b: a.squeeze(),
    lambda r, a, b: a.expand(2, *a.shape),
    lambda r, a, b: a.diagonal(),
    lambda r, a, b: a.unbind(0)[r.randrange(a.shape[0])],
    lambda r, a, b: a.split(2)[0],
    lambda r, a, b: a.chunk(2, -1)[-1],
    lambda r, a, b: a.detach(),
    lambda r, a, b: a.unfold(0, 2, 2),
    lambda r, a, b: a.as_strided((2,), (1,)),
    lambda r, a, b: a.reshape(-1, 2),
    lambda r, a, b: a.movedim(0, -1),
]


def _set(r, a, b):
    a[0] = b.sum()
    return a


def _set_slice(r, a, b):
    a[..., :1] = a[..., -1:] * 2
    return a


INPLACE = [
    lambda r, a, b: a.add_(1),
    lambda r, a, b: a.mul_(1.25),
    lambda r, a, b: a.add_(b),
    lambda r, a, b: a.mul_(b),
    lambda r, a, b: a.copy_(b),
    lambda r, a, b: a.sin_(),
    lambda r, a, b: a.zero_(),
    lambda r, a, b: a.fill_(0.5),
    lambda r, a, b: a.masked_fill_(a > 0.3, 0.1),
    lambda r, a, b: a.clamp_(min=-0.2),
    lambda r, a, b: a.sub_(b, alpha=2),
    lambda r, a, b: a.addcmul_(a, b),
    lambda r, a, b: a.neg_(),
    lambda r, a, b: a.data.mul_(2),
    lambda r, a, b: a.relu_(),
    lambda r, a, b: a.index_fill_(0, torch.tensor([0]), 0.75),
    lambda r, a, b: a.transpose(0, -1).add_(0.5),
    _set,
    _set_slice,
]


def make_inputs(seed):
    """Inputs of each kind: leaf with gradient, non-leaf with gradient, plain, plain view."""
    generator = torch.Generator().manual_seed(seed)

    def new(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64) * 2 - 1

    leaf = new(3, 4).requires_grad_()
    other = new(4).requires_grad_()
    inner = new(4, 3).requires_grad_()
    leaves = [leaf, other, inner]
    return leaves, [leaf, other, inner * 1.0, new(2, 3, 4), new(4, 3).t(), inner[1:]]


class Statement:
    def __init__(self, table, which, operands, seed, quiet):
        self.table, self.which, self.operands = table, which, operands
        self.seed, self.quiet = seed, quiet

    def run(self, values):
        operands = [values[i] for i in self.operands]
        if self.table is INPLACE and 0 in operands[0].stride():
            raise RuntimeError("a write to an expanded tensor means nothing")
        a, b = operands
        if self.table is INPLACE and a is not b and storage(a) == storage(b):
            raise RuntimeError("what a write from overlapping memory gives depends on the kernel")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.quiet):
            return self.table[self.which](random.Random(self.seed), *operands)


def make_program(seed, length=9):
    """(function on six inputs, its statements): only statements eager accepts."""
    r = random.Random(seed)
    _, values = make_inputs(seed)
    values = list(values)
    statements = []
    while len(statements) < length:
        table = r.choice([POINTWISE, VIEWS, VIEWS, INPLACE, INPLACE])
        operands = (r.randrange(len(values)), r.randrange(len(values)))
        statement = Statement(
            table, r.randrange(len(table)), operands, r.random(), r.random() < 0.12
        )
        try:
            values.append(statement.run(values))
        except (RuntimeError, IndexError, ValueError):
            continue
        statements.append(statement)
    valid = [i for i, value in enumerate(values) if _has_history(value)]
    returned = [r.choice(valid) for _ in range(r.randint(1, 4))]

    def program(*inputs):
        values = list(inputs)
        for statement in statements:
            values.append(statement.run(values))
        return tuple(values[i] for i in returned)

    return program


def _has_history(value):
    """Eager forbids to ask for the history of some views after a write."""
    try:
        return value.is_leaf in (True, False)
    except RuntimeError:
        return False


def storage(tensor):
    return tensor.untyped_storage().data_ptr()


def facts(inputs, outputs):
    """Everything one can see of a run but the numbers."""
    tensors = [*inputs, *outputs]
    return {
        "same object": [[a is b for b in tensors] for a in tensors],
        "same storage": [[storage(a) == storage(b) for b in tensors] for a in tensors],
        "requires grad": [t.requires_grad for t in tensors],
        "leaf": [t.is_leaf for t in tensors],
        "view": [t._is_view() for t in tensors],
        "layout": [(t.shape, t.stride(), t.storage_offset()) for t in tensors],
        "versions": [t._version for t in inputs],
    }


def gradients(outputs, leaves, seed):
    """Gradients of a random functional of the outputs, or the error."""
    generator = torch.Generator().manual_seed(seed + 1)
    tracked = [o for o in outputs if o.requires_grad]
    tangents = [torch.rand(o.shape, generator=generator, dtype=o.dtype) for o in tracked]
    if not tracked:
        return []
    return torch.autograd.grad(tracked, leaves, tangents, allow_unused=True)


def check(seed, length=9, **keywords):
    """Compare one random program with eager; returns whether it ran compiled."""
    program = make_program(seed, length)
    leaves, inputs = make_inputs(seed)
    expected = program(*inputs)
    try:
        expected_gradients = gradients((*expected, *inputs[2:]), leaves, seed)
    except RuntimeError as error:
        expected_gradients = error
    leaves2, inputs2 = make_inputs(seed)
    failed = isinstance(expected_gradients, Exception)
    with events.collect() as heard:
        compiled = aot_eager(program, inputs2, strict=not failed, **keywords)
    ran = not failed and not heard.total("autograd.fallback")
    actual = compiled(*inputs2)
    want, got = facts(inputs, expected), facts(inputs2, actual)
    for key in want:
        assert got[key] == want[key], (key, got[key], want[key])
    for a, b in zip([*inputs2, *actual], [*inputs, *expected], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    if not isinstance(expected_gradients, Exception):
        found = gradients((*actual, *inputs2[2:]), leaves2, seed)
        assert [g is None for g in found] == [g is None for g in expected_gradients]
        for a, b in zip(found, expected_gradients, strict=True):
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    return ran
