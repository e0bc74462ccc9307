"""customops.by_name: the methods of an operator as functions of its name.

``impl_fake("ns::op", function)`` is ``get_op("ns::op").impl_fake(function)``; each works on operators defined
here and on those somebody defined with torch.library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from argand.customops.definition import CustomOp, get_op


def _by_name(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(op: str | CustomOp, *args: Any, **kwargs: Any) -> Any:
        return method(op if isinstance(op, CustomOp) else get_op(op), *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


impl = register_kernel = _by_name(CustomOp.impl)
impl_factory = _by_name(CustomOp.impl_factory)
impl_c = _by_name(CustomOp.impl_c)
impl_fake = impl_abstract = register_fake = _by_name(CustomOp.impl_fake)
impl_save_for_backward = _by_name(CustomOp.impl_save_for_backward)
impl_backward = _by_name(CustomOp.impl_backward)
register_autograd = _by_name(CustomOp.register_autograd)
impl_vmap = register_vmap = _by_name(CustomOp.impl_vmap)
impl_autocast = register_autocast = _by_name(CustomOp.impl_autocast)
