"""Rows: metadata, memory and identity of tensors that a program takes or holds."""

import torch

from tests.stale.machine import World, ramp, row, rows


def use(t, v):
    """All that a program may do with and ask about a tensor."""
    return (
        v * 2,
        v.shape,
        v.dtype,
        v.stride(),
        v.storage_offset(),
        v.is_contiguous(),
        v.requires_grad,
        v.dim(),
    )


OTHERS = {
    "sizes": lambda: ramp(3, 4),
    "rank": lambda: ramp(2, 3, 4),
    "dtype": lambda: ramp(3, 3).double(),
    "integers": lambda: ramp(3, 3).long(),
    "halves": lambda: ramp(3, 3).half(),
    "bools": lambda: ramp(3, 3) > 4,
    "complex": lambda: ramp(3, 3) + 1j,
    "conjugate": lambda: (ramp(3, 3) + 1j).conj(),
    "negative_bit": lambda: (ramp(3, 3) + 1j).conj().imag,
    "strides": lambda: ramp(3, 3).t(),
    "slice": lambda: ramp(4, 3)[1:],
    "columns": lambda: ramp(3, 6)[:, ::2],
    "expanded": lambda: ramp(1, 3).expand(3, 3),
    "requires_grad": lambda: ramp(3, 3).requires_grad_(),
    "not_a_leaf": lambda: ramp(3, 3).requires_grad_() * 1,
    "parameter": lambda: torch.nn.Parameter(ramp(3, 3)),
    "empty": lambda: torch.empty(0, 3),
    "one": lambda: torch.ones(1, 1),
    "meta": lambda: torch.ones(3, 3, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "subclass": lambda: ramp(3, 3).as_subclass(Own),
}


class Own(torch.Tensor):
    pass


@rows(
    "tensor", {name: (make,) for name, make in OTHERS.items() if name not in ("sparse", "subclass")}
)
def _tensor(make):
    first, other = ramp(3, 3), make()
    box = [first]
    return World(
        use,
        lambda: box.__setitem__(0, other),
        lambda: box.__setitem__(0, first),
        lambda: (ramp(), box[0]),
    )


@rows("kind_of_tensor", {name: (make,) for name, make in OTHERS.items()})
def _kind_of_tensor(make):
    first, other = ramp(3, 3), make()
    box = [first]

    def program(t, v):
        return (v * 2).sum(), v.dim(), type(v).__name__

    return World(
        program,
        lambda: box.__setitem__(0, other),
        lambda: box.__setitem__(0, first),
        lambda: (ramp(), box[0]),
    )


@rows(
    "changed_in_place",
    {
        "values": (lambda v: v.add_(1),),
        "resized": (lambda v: v.resize_(2, 2),),
        "transposed": (lambda v: v.t_(),),
        "squeezed": (lambda v: v.unsqueeze_(0),),
        "data": (lambda v: setattr(v, "data", torch.ones(2)),),
        "requires_grad": (lambda v: v.requires_grad_(),),
        "set": (lambda v: v.set_(torch.ones(5)),),
        "attribute": (lambda v: setattr(v, "tag", 5),),
        "grad": (lambda v: setattr(v, "grad", torch.ones(3, 4)),),
        "as_strided": (lambda v: v.as_strided_((2, 2), (1, 2), 1),),
    },
)
def _changed_in_place(change):
    held = ramp(3, 4)
    return World(
        lambda t: (
            t * 2,
            held * 2,
            held.shape,
            held.requires_grad,
            getattr(held, "tag", 2),
            held.grad is None,
        ),
        lambda: change(held),
    )


@row
def two_tensors_become_one():
    a, b = ramp(), ramp()
    box = [a, b]

    def program(t, x, y):
        return x * 2 if x is y else x + y

    return World(
        program,
        lambda: box.__setitem__(1, a),
        lambda: box.__setitem__(1, b),
        lambda: (ramp(), *box),
    )


@row
def one_tensor_becomes_two():
    a, b = ramp(), ramp() * 5
    box = [a, a]
    return World(
        lambda t, x, y: x * 2 + y,
        lambda: box.__setitem__(1, b),
        lambda: box.__setitem__(1, a),
        lambda: (ramp(), *box),
    )


@row
def written_tensors_that_overlap():
    memory = [ramp(6)]

    def program(t, x, y):
        x.add_(1)
        return y * 2

    parts = [lambda m: (m[:3].clone(), m[3:].clone())]

    def arguments():
        m = ramp(6)
        memory[0] = m
        return (ramp(), *parts[0](m))

    return World(
        program,
        lambda: parts.__setitem__(0, lambda m: (m[:3], m[1:4])),
        lambda: parts.__setitem__(0, lambda m: (m[:3].clone(), m[3:].clone())),
        arguments,
        lambda: memory[0],
    )


@row
def an_offset_that_is_asked_for():
    starts = [0]
    return World(
        lambda t, v: v * 2 + v.storage_offset(),
        lambda: starts.__setitem__(0, 3),
        lambda: starts.__setitem__(0, 0),
        lambda: (ramp(), ramp(10)[starts[0] : starts[0] + 4]),
    )


@row
def an_absolute_as_strided():
    starts = [0]
    return World(
        lambda t, v: torch.as_strided(v, (2,), (1,), 1) * 2,
        lambda: starts.__setitem__(0, 3),
        lambda: starts.__setitem__(0, 0),
        lambda: (ramp(), ramp(10)[starts[0] : starts[0] + 4]),
    )


@row
def a_tensor_in_a_list_is_replaced():
    held = [ramp(), ramp()]
    first = held[0]
    return World(
        lambda t: held[0] + held[1],
        lambda: held.__setitem__(0, ramp(1)),
        lambda: held.__setitem__(0, first),
    )


@row
def a_tensor_becomes_a_number():
    box = [ramp()]
    first = box[0]
    return World(
        lambda t, v: t * v,
        lambda: box.__setitem__(0, 5),
        lambda: box.__setitem__(0, first),
        lambda: (ramp(), box[0]),
    )


@row
def the_value_of_a_tensor_decides():
    box = [torch.tensor(1.0)]
    return World(
        lambda t, v: t * 2 if v > 0 else t * 3,
        lambda: box.__setitem__(0, torch.tensor(-1.0)),
        lambda: box.__setitem__(0, torch.tensor(1.0)),
        lambda: (ramp(), box[0]),
    )


@row
def a_number_in_a_tensor():
    held = torch.tensor(2)
    return World(
        lambda t: t[: int(held)] * held.item(), lambda: held.fill_(1), lambda: held.fill_(2)
    )


@row
def a_tensor_as_index():
    held = torch.tensor([0, 1])
    return World(
        lambda t: t[held],
        lambda: held.copy_(torch.tensor([2, 0])),
        lambda: held.copy_(torch.tensor([0, 1])),
    )


@row
def a_generator_of_random_numbers():
    generator = torch.Generator().manual_seed(3)
    return World(
        lambda t: t + torch.rand(3, generator=generator),
        lambda: generator.manual_seed(4),
        state=lambda: generator.initial_seed(),
    )


@row
def an_array_that_shares_memory():
    array = __import__("numpy").ones(3, dtype="float32")
    return World(
        lambda t: t * torch.from_numpy(array), lambda: array.fill(5), lambda: array.fill(1)
    )


@row
def the_hooks_of_a_tensor():
    held = ramp().requires_grad_()
    held.register_hook(lambda g: g * 2)
    return World(lambda t: held * 2, lambda: held.register_hook(lambda g: g * 5))
