"""benchmarks.language.control_flow: torch.cond, while_loop, scan, map and associative_scan, alone and in each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as torch_map

from benchmarks.language.program import Compile, program, rows, scenario, square, two


def sequence() -> tuple[Tensor, Tensor]:
    """A carry and a sequence."""
    return torch.randn(4), torch.randn(6, 4)


WEIGHT = torch.randn(4, 4)
FACTOR = torch.full((4,), 0.5)


@program()
def cond_of_a_sum(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@program(train=True)
def cond_trains(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * x, (x,))


@program()
def cond_reads_globals(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x @ WEIGHT, lambda x: x + FACTOR, (x,))


@program(two, train=True)
def cond_closes_over_an_argument(x: Tensor, y: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x * y, lambda x: x - y, (x,))


@program()
def cond_without_operands(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)


@program()
def cond_of_a_python_bool(x: Tensor) -> Any:
    return torch.cond(x.dim() == 2, lambda x: x + 1, lambda x: x - 1, (x,))


@program(*rows(3, 5, 8), dynamic=True)
def cond_of_a_size(x: Tensor) -> Any:
    return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,))


@program(*rows(3, 5, 8), dynamic=True)
def cond_with_open_sizes(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x - 1, (x,))


@program()
def cond_of_one_element(x: Tensor) -> Any:
    return torch.cond((x.sum() > 0).reshape(1), lambda x: x + 1, lambda x: x - 1, (x,))


@program()
def cond_gives_a_dict(x: Tensor) -> Any:
    return torch.cond(
        x.sum() > 0,
        lambda x: {"a": x + 1, "b": [x * 2]},
        lambda x: {"a": x - 1, "b": [x * 3]},
        (x,),
    )


@program()
def cond_of_nested_operands(x: Tensor) -> Any:
    return torch.cond(
        x.sum() > 0,
        lambda d, t: d["x"] + t[0],
        lambda d, t: d["x"] - t[1],
        ({"x": x}, (x * 2, x * 3)),
    )


@program(train=True)
def cond_in_cond(x: Tensor) -> Any:
    def outer(x: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    return torch.cond(x.sum() > 0, outer, lambda x: x * 2, (x,))


@program()
def a_switch_of_four(x: Tensor) -> Any:
    index = (x > 0).sum() % 4
    first = lambda x: torch.cond(index == 0, lambda x: x + 1, lambda x: x * 2, (x,))  # noqa: E731
    second = lambda x: torch.cond(index == 2, lambda x: x.sin(), lambda x: x.cos(), (x,))  # noqa: E731
    return torch.cond(index < 2, first, second, (x,))


@program()
def two_conds_in_a_row(x: Tensor) -> Any:
    x = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
    return torch.cond(x.mean() > 0, lambda x: x * 2, lambda x: x / 2, (x,))


@program()
def cond_changes_its_own_tensors(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.clone().add_(1), lambda x: x.clone().mul_(2), (x,))


@program()
def cond_with_dropout_off(x: Tensor) -> Any:
    return torch.cond(
        x.sum() > 0,
        lambda x: nn.functional.dropout(x, 0.5, training=False) + 1,
        lambda x: x * 2,
        (x,),
    )


@program()
def cond_of_integers(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.long() + 1, lambda x: x.long() - 1, (x,))


@program()
def cond_gives_two_kinds(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (x + 1, x > 0), lambda x: (x - 1, x < 0), (x,))


@program()
def cond_under_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        return torch.cond(x.sum() > 0, lambda x: x @ WEIGHT, lambda x: x.t().contiguous(), (x,))


class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, self.first, self.second, (x,))


@scenario
def cond_over_modules(compile_: Compile) -> Any:
    torch.manual_seed(0)
    module = _Experts()
    found = []
    for sign in (1, -1):
        out = compile_(module)(sign * torch.ones(2, 4))
        out.sum().backward()
        found.append(out.detach())
    return [*found, *(p.grad for p in module.parameters())]


class _Early(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = torch.cond(
                x.abs().mean() > 0.3,
                lambda x, layer=layer: layer(x).relu(),
                lambda x: x.clone(),
                (x,),
            )
        return x


@scenario
def layers_that_are_skipped(compile_: Compile) -> Any:
    torch.manual_seed(0)
    module = _Early()
    with torch.no_grad():
        return [compile_(module)(torch.full((2, 4), value)) for value in (1.0, 0.1)]


@program(calls=1)
def while_counts(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


@program(calls=1)
def while_depends_on_data(x: Tensor) -> Any:
    return while_loop(lambda x: x.abs().sum() < 1000, lambda x: (x * 2 + 1,), (x,))


@program(calls=1)
def while_never_runs(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


@program(calls=1)
def while_closes_over_tensors(x: Tensor) -> Any:
    return while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x @ WEIGHT + FACTOR), (torch.tensor(0), x)
    )


@program(calls=1)
def while_over_a_dict(x: Tensor) -> Any:
    start = {"i": torch.tensor(0), "x": x}
    return while_loop(
        lambda d: d["i"] < 3, lambda d: ({"i": d["i"] + 1, "x": d["x"].sin()},), (start,)
    )


@program(calls=1)
def while_in_while(x: Tensor) -> Any:
    def inner(i: Tensor, x: Tensor) -> Any:
        _, x = while_loop(lambda j, x: j < 2, lambda j, x: (j + 1, x + 1), (torch.tensor(0), x))
        return i + 1, x * 2

    return while_loop(lambda i, x: i < 3, inner, (torch.tensor(0), x))


@program(calls=1)
def cond_in_while(x: Tensor) -> Any:
    def body(i: Tensor, x: Tensor) -> Any:
        return i + 1, torch.cond(i % 2 == 0, lambda x: x + 1, lambda x: x * 2, (x,))

    return while_loop(lambda i, x: i < 4, body, (torch.tensor(0), x))


@program(*rows(3, 5), calls=1, dynamic=True)
def while_with_open_sizes(x: Tensor) -> Any:
    return while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * x.shape[0]), (torch.tensor(0), x)
    )


@program(calls=1)
def newtons_method(x: Tensor) -> Any:
    a = x.abs() + 1
    return while_loop(
        lambda y: ((y * y - a).abs() > 1e-3).any(), lambda y: ((y + a / y) / 2,), (a,)
    )


@program(sequence)
def scan_adds_up(h: Tensor, xs: Tensor) -> Any:
    return scan(lambda h, x: (h + x, (h + x).clone()), h, xs)


@program(sequence, train=True)
def scan_trains(h: Tensor, xs: Tensor) -> Any:
    last, out = scan(lambda h, x: (torch.tanh(h * x) + x, h * 2), h, xs)
    return last.sum() + out.sum()


@program(sequence, train=True)
def scan_is_a_recurrent_net(h: Tensor, xs: Tensor) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = torch.tanh(h @ WEIGHT + x)
        return h, h.clone()

    return scan(step, h, xs)[1]


@program(sequence)
def scan_from_the_end(h: Tensor, xs: Tensor) -> Any:
    return scan(lambda h, x: (h * 0.5 + x, h.clone()), h, xs, reverse=True)


@program(sequence, train=True)
def scan_along_the_second_dimension(h: Tensor, xs: Tensor) -> Any:
    return scan(lambda h, x: (h * 0.5 + x.sum(), h * x.sum()), h, xs, dim=1)[1]


@program(sequence)
def scan_over_a_dict(h: Tensor, xs: Tensor) -> Any:
    def step(c: Any, x: Any) -> Any:
        return {"h": c["h"] + x["a"]}, {"out": c["h"] * x["b"]}

    return scan(step, {"h": h}, {"a": xs, "b": xs * 2})


@program(sequence)
def scan_with_a_counter(h: Tensor, xs: Tensor) -> Any:
    return scan(
        lambda c, x: ((c[0] + 1, c[1] + x * c[0]), c[1] * 2),
        (torch.zeros((), dtype=torch.long), h),
        xs,
    )


@program(sequence, train=True)
def cond_in_scan(h: Tensor, xs: Tensor) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = torch.cond(x.sum() > 0, lambda h, x: h + x, lambda h, x: h * x, (h, x))
        return h, h.clone()

    return scan(step, h, xs)[1]


@program(lambda: (torch.randn(4), torch.randn(3, 5, 4)), train=True)
def scan_in_scan(h: Tensor, xs: Tensor) -> Any:
    def outer(h: Tensor, x: Tensor) -> Any:
        last, out = scan(lambda h, x: ((h * x).sin(), h + x), h, x)
        return last, out.sum(0)

    return scan(outer, h, xs)[1]


@program(
    lambda: (torch.randn(4), torch.randn(3, 4)),
    lambda: (torch.randn(4), torch.randn(7, 4)),
    lambda: (torch.randn(4), torch.randn(11, 4)),
    dynamic=True,
    train=True,
)
def scan_of_open_length(h: Tensor, xs: Tensor) -> Any:
    return scan(lambda h, x: (torch.tanh(h) + x, h * 2), h, xs)[1]


@program(lambda: (torch.randn(2, 4), torch.randn(100, 2, 4)), train=True)
def scan_of_a_hundred(h: Tensor, xs: Tensor) -> Any:
    return scan(lambda h, x: (h * 0.9 + x, h.clone()), h, xs)[1]


@program(sequence)
def scan_with_softmax(h: Tensor, xs: Tensor) -> Any:
    return scan(lambda h, x: (torch.softmax(h + x, -1), nn.functional.layer_norm(h, (4,))), h, xs)


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, h: Tensor, xs: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            h = self.cell(x, h)
            return h, h.clone()

        return scan(step, h, xs)


@scenario
def scan_over_a_cell(compile_: Compile) -> Any:
    torch.manual_seed(0)
    module = _Cell()
    last, out = compile_(module)(torch.randn(2, 4), torch.randn(5, 2, 4))
    (last.sum() + out.sum()).backward()
    return [last.detach(), out.detach(), *(p.grad for p in module.parameters())]


@program()
def map_of_rows(x: Tensor) -> Any:
    return torch_map(lambda x: x.sin() + 1, x)


@program(two, train=True)
def map_with_another_tensor(x: Tensor, y: Tensor) -> Any:
    return torch_map(lambda x, y: (x * y).sum(0), x, y)


@program(train=True)
def map_gives_several(x: Tensor) -> Any:
    return torch_map(lambda x: (x * 2, x.sum()), x)


@program(two)
def map_of_a_list(x: Tensor, y: Tensor) -> Any:
    return torch_map(lambda xs: [xs[0] + xs[1], xs[0] * xs[1]], [x, y])


@program(train=True)
def map_closes_over_weights(x: Tensor) -> Any:
    return torch_map(lambda x: x @ WEIGHT, x)


@program(lambda: (torch.randn(3, 5, 4),))
def scan_in_map(x: Tensor) -> Any:
    return torch_map(lambda x: scan(lambda h, x: (h + x, h * x), FACTOR, x)[1], x)


@program(*rows(3, 5), dynamic=True)
def map_of_open_length(x: Tensor) -> Any:
    return torch_map(lambda x: x * 2, x)


@program()
def associative_sum(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


@program()
def associative_product_from_the_end(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x, 1, reverse=True, combine_mode="generic")


@program(two)
def associative_pairs(x: Tensor, y: Tensor) -> Any:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    return associative_scan(combine, (x, y), 0, combine_mode="generic")


@program(train=True)
def associative_trains(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic")


@program()
def associative_maximum(x: Tensor) -> Any:
    return associative_scan(torch.maximum, x, 0, combine_mode="generic")


@program(square)
def loops_and_products_together(x: Tensor) -> Any:
    y = torch.cond(x.sum() > 0, lambda x: x @ WEIGHT, lambda x: x.relu() * 2, (x,))
    last, out = scan(lambda h, x: (h * 0.5 + x, h.clone()), y[0], y)
    return torch_map(lambda x: x + last, out).softmax(-1)
