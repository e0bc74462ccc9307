"""capture.record.apart: where to break for a value that somebody outside watches (hooks, kept gradients).

In: the graph so far, a value of it, the instruction being run. Out: the number of an instruction. Gradients of what was made of
the value before flow inside of its graph, where nobody who watches the value sees them: then the value is to be a result
of which no other result of its graph is made.
"""

from __future__ import annotations

import torch

from argand.capture.record.recorder import Recorder


def apart_at(recorder: Recorder, tensor: torch.Tensor, now: int) -> int:
    """This instruction while nothing was made of the value; the one that made it after that."""
    node = recorder.nodes[id(tensor)]
    if not node.users:
        return now
    while node not in recorder.made_at:  # an item
        node = node.all_input_nodes[0]
    return recorder.made_at[node]
