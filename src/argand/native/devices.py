"""native.devices: a graph becomes a plan on a device, with Triton's kernels.

In: an aten graph, example inputs, options. Out: a callable that takes one list; ``None`` when the graph is a CPU's. What has
no Triton source, or steps that devices do not have, is run op by op by torch on the device, and counted with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from argand.native.build import Interpreted
from argand.native.choice import Choices, measure
from argand.native.codegen.triton.source import Refused
from argand.native.lower.importer import import_graph, is_functional
from argand.native.passes.table import Setting, run_passes
from argand.native.plan import rows_of
from argand.native.target import GPUS
from argand.protocol import PLAIN, Boxed, GraphContext
from argand.runtime.devices.graphs import GraphedPlan
from argand.runtime.devices.kernels import has_triton, launchers_of
from argand.runtime.devices.plan import DevicePlan, NoDevicePlan
from argand.runtime.devices.table import DEVICES, DeviceRow
from argand.support import events
from argand.support.errors import InternalError, OptionError
from argand.support.options import Options

INTERPRETED: Final = "interpreter"  # words of Options.target
RECORDED: Final = "graphs"
PATIENT: Final = 3  # the opt_level of modes that measure blocks


def device_of(inputs: Sequence[Any], options: Options) -> str:
    """The row of ``DEVICES`` that a graph runs on; empty: the CPU."""
    if options.target == INTERPRETED:
        return INTERPRETED
    if options.target not in ("", RECORDED):
        raise OptionError(
            f"unknown target {options.target!r}", hint=f"valid targets: {INTERPRETED}, {RECORDED}"
        )
    kinds = {x.device.type for x in inputs if isinstance(x, torch.Tensor)}
    return "cuda" if "cuda" in kinds and has_triton() else ""


def build_for(
    name: str,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    options: Options,
    context: GraphContext = PLAIN,
) -> Boxed:
    """The graph on a device."""
    device = DEVICES[name]
    try:
        if not is_functional(module, device.kind):
            raise NoDevicePlan("it is not functional, or has tensors elsewhere")
        return _plan(module, inputs, options, context, device)
    except NoDevicePlan as refused:
        events.count("native.device_refused", detail=str(refused))
    except InternalError as error:
        if not isinstance(error.__cause__, Refused):
            raise
        events.count("native.device_refused", detail=str(error.__cause__))
    return Interpreted(module)


def _plan(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    options: Options,
    context: GraphContext,
    device: DeviceRow,
) -> Boxed:
    target = GPUS.get(device.target())
    if target is None:
        raise NoDevicePlan(f"no description of {device.target()}; there are {', '.join(GPUS)}")
    graph = import_graph(module, inputs, options, context, packs=False)
    launch = run_passes(graph, Setting(options, target))
    choose = (
        _chooser(options, device) if options.opt_level >= PATIENT and device.has_graphs else None
    )
    launchers = launchers_of(launch.module.text, launch.module.functions, choose)
    plan = DevicePlan(rows_of(launch.plan), launchers, device)
    return GraphedPlan(plan, device) if options.target == RECORDED and device.has_graphs else plan


def _chooser(
    options: Options, device: DeviceRow
) -> Callable[[str, Mapping[str, Callable[[], object]]], str]:
    """Blocks by measurement: from the cache, or by trying them in turn on the device."""
    choices = Choices(options)

    def choose(question: str, ways: Mapping[str, Callable[[], object]]) -> str:
        def timed(way: Callable[[], object]) -> Callable[[], object]:
            return lambda: (way(), device.synchronize())

        question = f"{device.target()} {question}"
        times = choices.times("block", question)
        if not ways.keys() <= times.keys():
            times = measure(
                "block", question, {label: timed(way) for label, way in ways.items()}, options
            )
        return min(ways, key=times.__getitem__)

    return choose
