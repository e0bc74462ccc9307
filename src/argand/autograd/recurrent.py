"""autograd.recurrent: recurrent layers as loops: a step is traced once and runs as often as the sequence is long.

In: a call of ``torch.gru``, ``rnn_tanh``, ``rnn_relu`` or ``lstm`` on fakes, while a recorder watches. Out: fakes, and a scan
for each layer and direction. torch takes these layers apart step by step: its graph grows with the sequence and fits
one length alone. A loop costs the compile time of one step, its length stays open, and its gradient is a loop again
(autograd.scans). An LSTM for which oneDNN has a kernel stays torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import linear

from argand.autograd.bodies import RunBody
from argand.autograd.recorder import AtenRecorder
from argand.autograd.scans import Lengths, apply_scan
from argand.runtime.levels import dual_level

_FEW: Final = 4  # shorter sequences are torch's: their steps are fused with each other


@final
class _Cell(NamedTuple):
    """A kind of step. ``step``: (what the input gives, what the state gives, states) -> the next states."""

    name: str
    gates: int
    states: int
    step: Callable[[Tensor, Tensor, Sequence[Tensor]], list[Tensor]]


@final
class _Call(NamedTuple):
    """The arguments of a recurrent layer, in torch's order, the states as a list."""

    input: Tensor
    states: Sequence[Tensor]
    weights: Sequence[Tensor]
    has_biases: bool
    layers: int
    dropout: float
    training: bool
    bidirectional: bool
    batch_first: bool

    @property
    def directions(self) -> int:
        """One, or two."""
        return 2 if self.bidirectional else 1

    def weights_of(self, which: int) -> Sequence[Tensor]:
        """The weights of one layer in one direction: input, state, biases of both, and of LSTMs perhaps a projection."""
        count = len(self.weights) // (self.layers * self.directions)
        return self.weights[which * count : (which + 1) * count]


# -- steps: rounded where torch's are ----------------------------------------------------------


def _gru(given: Tensor, recalled: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    reset, update, new = given.chunk(3, -1)
    old_reset, old_update, old_new = recalled.chunk(3, -1)
    keep = torch.sigmoid(old_update + update)
    candidate = torch.tanh(new + old_new * torch.sigmoid(old_reset + reset))
    return [(states[0] - candidate) * keep + candidate]


def _lstm(given: Tensor, recalled: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    take, keep, new, show = (recalled + given).chunk(4, -1)
    cell = torch.sigmoid(keep) * states[1] + torch.sigmoid(take) * torch.tanh(new)
    return [torch.sigmoid(show) * torch.tanh(cell), cell]


def _tanh(given: Tensor, recalled: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    return [torch.tanh(recalled + given)]


def _relu(given: Tensor, recalled: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    return [torch.relu(recalled + given)]


CELLS: Final[Mapping[Any, _Cell]] = {
    torch.gru: _Cell("gru", 3, 1, _gru),
    torch.lstm: _Cell("lstm", 4, 2, _lstm),
    torch.rnn_tanh: _Cell("rnn_tanh", 1, 1, _tanh),
    torch.rnn_relu: _Cell("rnn_relu", 1, 1, _relu),
}


# -- layers ------------------------------------------------------------------------------------


def as_loop(
    recorder: AtenRecorder, run: RunBody, target: Any, args: Sequence[Any]
) -> tuple[Tensor, ...] | None:
    """The results of a recurrent layer, computed by loops; None where torch's own steps are to be taken."""
    cell = CELLS[target]
    call = _read_call(cell, args)
    if call is None or not _is_plain(cell, call):
        return None
    values = call.input.transpose(0, 1) if call.batch_first else call.input
    lasts: list[Sequence[Tensor]] = []
    for layer in range(call.layers):
        sides = []
        for side in range(call.directions):
            which = layer * call.directions + side
            starts = [state[which] for state in call.states]
            weights = call.weights_of(which)
            made, last = _direction(recorder, run, cell, call, values, starts, weights, side == 1)
            sides.append(made)
            lasts.append(last)
        values = torch.cat(sides, -1) if call.bidirectional else sides[0]
        if call.dropout and call.training and layer < call.layers - 1:
            values = torch.dropout(values, call.dropout, True)
    if (
        call.batch_first
    ):  # in torch the result of an LSTM is a view, that of others is turned over itself
        values = values.transpose(0, 1) if cell.name == "lstm" else values.transpose_(0, 1)
    return (values, *(torch.stack(list(states)) for states in zip(*lasts, strict=True)))


def _direction(
    recorder: AtenRecorder,
    run: RunBody,
    cell: _Cell,
    call: _Call,
    values: Tensor,
    starts: Sequence[Tensor],
    weights: Sequence[Tensor],
    backwards: bool,
) -> tuple[Tensor, Sequence[Tensor]]:
    """What one layer gives in one direction, for all steps, and its last states."""
    of_input, of_state, *others = weights
    bias, *others = others if call.has_biases else (None, *others)
    given = linear(values, of_input, bias)  # for all steps at once, as torch does

    def once(_: AtenRecorder, taken: list[Any]) -> Sequence[Any]:
        states, row, weight = taken[: cell.states], taken[cell.states], taken[cell.states + 1]
        rest = taken[cell.states + 2 :]
        bias, *projection = rest if call.has_biases else (None, *rest)
        made = cell.step(row, linear(states[0], weight, bias), states)
        if projection:
            made[0] = linear(made[0], projection[0])
        return [*made, made[0]]

    over = given.flip([0]) if backwards else given
    lengths = Lengths(cell.states, 1, 1 + len(others))
    made = apply_scan(recorder, run, once, lengths, [*starts, over, of_state, *others])
    rows = made[cell.states]
    return rows.flip([0]) if backwards else rows, made[: cell.states]


# -- which calls are taken -----------------------------------------------------------------------


def _read_call(cell: _Cell, args: Sequence[Any]) -> _Call | None:
    """The arguments by name; None for packed sequences, which have batch sizes among them."""
    if len(args) != len(_Call._fields) or not isinstance(args[3], bool):
        return None
    first, states, *rest = args
    return _Call(first, [states] if cell.states == 1 else list(states), *rest)


def _is_plain(cell: _Cell, call: _Call) -> bool:
    """Whether a call is one that torch takes without complaint, on tensors with nothing behind them, and long enough."""
    tensors = [call.input, *call.states, *call.weights]
    if torch.is_autocast_enabled("cpu") or dual_level() >= 0 or not all(map(_is_tensor, tensors)):
        return False
    dtype, wide = call.input.dtype, 2 + 2 * call.has_biases
    each = len(call.weights) // max(call.layers * call.directions, 1)
    projects = each == wide + 1
    if (
        any(tensor.dtype is not dtype for tensor in tensors)
        or not dtype.is_floating_point
        or len(call.states) != cell.states
        or len(call.weights) != each * call.layers * call.directions
        or not (each == wide or (projects and cell.name == "lstm"))
        or (cell.name == "lstm" and not projects and dtype is not torch.float64)
    ):
        return False
    return _has_shapes(cell, call, projects)


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def _has_shapes(cell: _Cell, call: _Call, projects: bool) -> bool:
    """Whether all shapes fit; where one does not, torch says what is wrong."""
    if call.input.dim() != 3 or any(state.dim() != 3 for state in call.states):
        return False
    steps, batch = call.input.shape[:2][:: -1 if call.batch_first else 1]
    hidden, shown = call.states[-1].shape[2], call.states[0].shape[2]
    rows, count = cell.gates * hidden, call.layers * call.directions
    expected = [(count, batch, shown), (count, batch, hidden)]
    if steps < _FEW or any(
        tuple(state.shape) != shape
        for state, shape in zip(call.states, expected[-cell.states :], strict=True)
    ):
        return False
    for which in range(count):
        below = call.input.shape[2] if which < call.directions else shown * call.directions
        biases = [(rows,), (rows,)] if call.has_biases else []
        wanted = [(rows, below), (rows, shown), *biases, *([(shown, hidden)] if projects else [])]
        if [tuple(weight.shape) for weight in call.weights_of(which)] != wanted:
            return False
    return True
