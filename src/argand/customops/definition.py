"""customops.definition: the operator object and its decorator.

In: an annotated Python function under ``@custom_op("ns::name")``. Out: an operator in torch's dispatcher
(``torch.ops.ns.name``) and a ``CustomOp`` that calls it and takes further implementations. Every rule of
a definition has its error (customops.errors).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn, final

import torch
from typing_extensions import override

from argand.customops import fakes, gradients, kernels, pointers, registry
from argand.customops.errors import NoImplementation, RegistrationError, SchemaError
from argand.customops.operator import Function, Operator
from argand.customops.schema import check_same_parameters, infer_schema
from argand.support.locks import make_lock

DEVICE_KEYS: Final = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "hpu": "HPU"}


@final
class CustomOp(Operator):
    """An operator defined by a user; call it like the function it was made from."""

    def __init__(self, qualname: str, overload: Any, library: Any, where: Any) -> None:
        super().__init__(qualname, overload, where)
        self._call = overload._op  # the dispatcher's own entry: one Python frame less
        self._library = library
        self._lock = make_lock()
        self._formula: Function | None = None
        self._save: Function | None = None
        self._backward: tuple[Function, tuple[bool, ...]] | None = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator."""
        return self._call(*args, **kwargs)

    @override
    def __repr__(self) -> str:
        return f'<CustomOp(op="{self.qualname}")>'

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return get_op, (self.qualname,)

    # --- implementations -------------------------------------------------------------------------

    def impl(
        self, device_types: str | Iterable[str] = ("cpu", "cuda"), function: Function | None = None
    ) -> Any:
        """Register an implementation for devices, as a decorator or directly."""
        if function is None:
            return functools.partial(self.impl, device_types)
        devices = [device_types] if isinstance(device_types, str) else list(device_types)
        for device in devices:
            if device not in DEVICE_KEYS:
                raise RegistrationError(
                    f"device {device!r} is not supported",
                    where=registry.location_of(function),
                    hint=f"supported: {', '.join(DEVICE_KEYS)}",
                )
            self._claim(device, function)
            self._define(kernels.checked_kernel(self, function), DEVICE_KEYS[device])
        return function

    register_kernel = impl

    def impl_factory(self, function: Function | None = None) -> Any:
        """Register the implementation of an operator without tensor arguments."""
        if function is None:
            return self.impl_factory
        self._claim("factory", function)
        self._define(kernels.checked_kernel(self, function), "BackendSelect")
        return function

    def impl_c(
        self,
        function: Any,
        *,
        dtypes: torch.dtype | Sequence[torch.dtype],
        grain: int | None = None,
    ) -> None:
        """Register a C function for tensor arguments of these dtypes (customops.pointers)."""
        with self._lock:
            made = pointers.make_function(self, function, dtypes, grain)
            self.c_functions[made.dtypes] = made
            self.needs_care = True

    @override
    def choose(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
        """What runs for these arguments: a C function, or ``function`` with its results checked."""
        values = self.complete_arguments(args, kwargs)
        machine = pointers.find_function(self, values)
        if machine and all(t.device.type == "cpu" for t in kernels.flat_tensors(values)):
            return lambda *args, **kwargs: pointers.call_function(self, machine, args, kwargs)
        return (
            functools.partial(fakes.call_verified, self, function) if self.found_out else function
        )

    def impl_fake(self, function: Function | None = None) -> Any:
        """Register what the operator does on tensors without data: shapes and dtypes only."""
        if function is None:
            return self.impl_fake
        if self.fake is not None:
            self._refuse("a fake", function, self.fake)
        if (self.has_kernel("Meta") and not self._ours("Meta")) or self.has_kernel(
            "CompositeImplicitAutograd"
        ):
            self._refuse("a Meta implementation, or is made of others that have", function)
        self.fake = function
        if not self._ours("Meta"):
            self._define(self._run_fake, "Meta")
            self.implementations["meta"] = registry.location_of(function)
        return function

    def _run_fake(self, *args: Any, **kwargs: Any) -> Any:
        return fakes.run_fake(self, args, kwargs)

    impl_abstract = impl_fake
    register_fake = impl_fake

    def _ours(self, key: str) -> bool:
        return key.lower() in self.implementations

    def _claim(self, device: str, function: Function) -> None:
        with self._lock:
            if device in self.implementations:
                self._refuse(f"an implementation for {device}", function, self.functions[device])
            if any(
                map(
                    self.has_kernel,
                    (DEVICE_KEYS.get(device, "BackendSelect"), "CompositeImplicitAutograd"),
                )
            ):
                self._refuse(f"an implementation for {device}, not made here", function)
            self.implementations[device] = registry.location_of(function)
            self.functions[device] = function
            registry.kernels.update(filter(None, [getattr(function, "__code__", None)]))

    def _refuse(self, what: str, second: Any, first: Any = None) -> NoReturn:
        at = "" if first is None else f", at {registry.location_of(first)}"
        text = f"{self.qualname} already has {what}{at}"
        raise RegistrationError(text, where=registry.location_of(second))

    def _define(self, kernel: Function, key: str) -> None:
        self._library.impl(self.name, kernel, key)

    # --- autograd --------------------------------------------------------------------------------

    def register_autograd(
        self, backward: Function, /, *, setup_context: Function | None = None
    ) -> None:
        """Give a gradient formula: ``backward(ctx, *grads)`` returns one gradient per argument."""
        gradients.refuse_unless_functional(self, backward)
        self._set_formula(gradients.formula_by_position(self, backward, setup_context), backward)

    def impl_save_for_backward(self, function: Function | None = None) -> Any:
        """What the backward needs: ``function(inputs, output)``, inputs by argument name."""
        if function is None:
            return self.impl_save_for_backward
        gradients.refuse_unless_functional(self, function)
        if self._save is not None:
            self._refuse("a save_for_backward", function, self._save)
        self._save = function
        self._complete_pair()
        return function

    def impl_backward(
        self,
        function: Function | None = None,
        *,
        output_differentiability: Sequence[bool] | None = None,
    ) -> Any:
        """The gradients by argument name: ``function(ctx, saved, *grads)`` returns a dict."""
        count = len(self.schema.returns)
        wanted = [True] * count if output_differentiability is None else output_differentiability
        if (
            not isinstance(wanted, list | tuple)
            or len(wanted) != count
            or not all(isinstance(item, bool) for item in wanted)
            or (
                output_differentiability
                and any(
                    w and "Tensor" not in str(r.type)
                    for w, r in zip(wanted, self.schema.returns, strict=True)
                )
            )
        ):
            raise RegistrationError(
                f"output_differentiability must be {count} bools, True for tensors only, got {output_differentiability!r}",
                where=self.where,
            )
        if function is None:
            return functools.partial(
                self.impl_backward, output_differentiability=output_differentiability
            )
        gradients.refuse_unless_functional(self, function)
        if self._backward is not None:
            self._refuse("a backward", function, self._backward[0])
        self._backward = (function, tuple(wanted))
        self._complete_pair()
        return function

    def _complete_pair(self) -> None:
        if self._save is None or self._backward is None:
            self.install_autograd_kernel()
            return
        backward, differentiable = self._backward
        self._set_formula(
            gradients.formula_by_name(self, self._save, backward, differentiable), backward
        )

    def _set_formula(self, formula: gradients.GradientFormula, written: Function) -> None:
        with self._lock:
            if self._formula is not None:
                self._refuse("a gradient formula", written)
            self._formula = gradients.make_function(self, formula)
        self.install_autograd_kernel()

    @override
    def install_autograd_kernel(self) -> None:
        """Register the kernel for the Autograd key, once.

        An operator without a formula gets it only when it first meets a gradient, so that operators
        used without gradients never pay for it.
        """
        with self._lock:
            if not self.wants_autograd_kernel:
                return
            self.wants_autograd_kernel = False
            self._library.impl(self.name, self._autograd_kernel, "Autograd", with_keyset=True)

    def _autograd_kernel(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or not self.meets_gradient(args, kwargs):
            return self.overload.redispatch(
                keyset & torch._C._after_autograd_keyset, *args, **kwargs
            )
        formula = self._formula
        if formula is None:
            self._refuse_half_pair()
            if self.mutated_positions or not self.schema.returns:
                return self.overload.redispatch(
                    keyset & torch._C._after_autograd_keyset, *args, **kwargs
                )
            formula = gradients.make_function(self, self._refusing_formula())
        return formula(args, kwargs)

    def _refuse_half_pair(self) -> None:
        names = ("impl_save_for_backward", "impl_backward")
        function = self._save or (self._backward and self._backward[0])
        if function is None:
            return
        found, missing = names if self._save is not None else names[::-1]
        raise RegistrationError(
            f"{self.qualname} has {found} (at {registry.location_of(function)}) but no {missing}",
            where=self.where,
            hint=f"register {missing} too",
        )

    def _refusing_formula(self) -> gradients.GradientFormula:
        def refuse(ctx: Any, *grads: Any) -> Any:
            raise NoImplementation(
                f"{self.qualname} has no gradient formula",
                where=self.where,
                hint="give one with op.register_autograd(backward, setup_context=...), or call the"
                " operator under torch.no_grad()",
            )

        return gradients.formula_by_position(self, refuse, None)

    # --- transforms ------------------------------------------------------------------------------

    def impl_vmap(self, function: Function | None = None) -> Any:
        """How the operator acts under ``torch.vmap``."""
        if function is None:
            return self.impl_vmap
        torch.library.register_vmap(self.overload, function, lib=self._library)
        return function

    register_vmap = impl_vmap

    def impl_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """The dtype floating inputs are cast to under autocast."""
        torch.library.register_autocast(self.qualname, device_type, cast_inputs, lib=self._library)

    register_autocast = impl_autocast

    def destroy(self) -> None:
        """Remove the operator from the dispatcher and the registry; its name is free again."""
        registry.forget(self.qualname)
        self._library._destroy()


def custom_op(
    qualname: str,
    function: Function | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Sequence[Any] = (),
    version: str | None = None,
) -> Any:
    """Define an operator from a function, which is its implementation on every device.

    With a ``version``, compiled graphs that call it are kept on disk until the version changes.
    """
    if function is None:
        names: Any = {
            "mutates_args": mutates_args,
            "device_types": device_types,
            "tags": tags,
            "version": version,
        }
        return functools.partial(custom_op, qualname, schema=schema, **names)
    op = _declare(qualname, function, schema, mutates_args, tags)
    op.version = version
    registry.remember(op)
    if op._tensor_positions:
        op.impl(tuple(DEVICE_KEYS) if device_types is None else device_types, function)
        # Backends without a kernel of their own fall through to this one.
        op._define(kernels.missing_kernel(op), "CompositeExplicitAutograd")
    else:  # no tensor to choose a device by
        op.impl_factory(function)
    op._define(op._run_fake, "Meta")
    op.implementations["meta"] = op.where
    return op


def pointwise(
    qualname: str, function: Function | None = None, /, *, schema: str | None = None
) -> Any:
    """Define an operator by a formula over scalars, written with torch operations on its arguments.

    The dispatcher takes it apart wherever it is met, so gradients come by themselves and a compiler
    fuses the formula into its kernels. Refused when the formula is not elementwise.
    """
    if function is None:
        return functools.partial(pointwise, qualname, schema=schema)
    op = _declare(qualname, function, schema)
    try:
        _refuse_unless_elementwise(op, function)
        registry.remember(op)
    except (SchemaError, RegistrationError):
        op._library._destroy()
        raise
    op._define(function, "CompositeImplicitAutograd")
    op.implementations["formula"] = op.where
    op.wants_autograd_kernel, op.differentiates_itself = False, True
    return op


def _declare(
    qualname: str,
    function: Function,
    schema: str | None,
    mutates_args: str | Iterable[str] = (),
    tags: Sequence[Any] = (),
) -> CustomOp:
    """A new operator without implementations; refused where torch refuses its schema, or the name is taken."""
    if not inspect.isfunction(function):
        raise SchemaError(f"expected a Python function, got {type(function).__name__} {function!r}")
    where = registry.location_of(function)
    namespace, name = registry.parse_name(qualname, where)
    text = schema if schema is not None else infer_schema(function, mutates_args=mutates_args)
    registry.refuse_second(qualname, where)
    library = torch.library.Library(namespace, "FRAGMENT")
    try:
        library.define(name + text, tags=tuple(tags))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise SchemaError(
            f"torch refuses the schema {name}{text}: {reason}", where=where
        ) from error
    op = CustomOp(qualname, getattr(getattr(torch.ops, namespace), name).default, library, where)
    functools.update_wrapper(op, function)
    _check_definition(op, function, None if schema is None else mutates_args)
    return op


def _refuse_unless_elementwise(op: CustomOp, function: Function) -> None:
    """A result on (2, 3) must be the result on each element; scalars other than tensors are 0.5 or 2."""
    values: list[Any] = []
    for number, argument in enumerate(op.schema.arguments):
        kind = str(argument.type)
        if kind == "Tensor":
            values.append(torch.linspace(0.1, 0.9, 6).reshape(2, 3) + number)
        elif argument.has_default_value():
            values.append(argument.default_value)
        else:
            values.append({"float": 0.5, "int": 2, "SymInt": 2, "bool": True}.get(kind, 2))
    tensors = [index for index, value in enumerate(values) if isinstance(value, torch.Tensor)]
    whole = function(*values)
    single = [value[1, 2] if isinstance(value, torch.Tensor) else value for value in values]
    good = (
        bool(tensors)
        and isinstance(whole, torch.Tensor)
        and whole.shape == (2, 3)
        and torch.allclose(whole[1, 2].double(), function(*single).double(), rtol=1e-4)
    )
    if not good:
        raise SchemaError(
            f"the formula of {op.qualname} is not elementwise: one element of the result is not the"
            " result of one element",
            where=op.where,
            hint="use custom_op for operators that look at more than one element",
        )


def _check_definition(op: CustomOp, function: Function, given: str | Iterable[str] | None) -> None:
    """What can be wrong with a schema torch accepts; the operator is removed again if it is."""
    try:
        if given is not None:
            check_same_parameters(function, op.schema, given)
        for result in op.schema.returns:
            if result.alias_info is not None:
                raise SchemaError(
                    f"{op.qualname} returns a view of an argument",
                    where=op.where,
                    hint="operators return new tensors; mutate an argument and return nothing instead",
                )
    except SchemaError:
        op._library._destroy()
        raise


def get_op(qualname: str) -> CustomOp:
    """The operator of a name: one defined here, or any operator of torch.library wrapped."""
    found = registry.find(qualname)
    if isinstance(found, CustomOp):  # all are, but the registry is below
        return found
    overload = registry.existing_overload(qualname)
    namespace = qualname.split("::")[0]
    op = CustomOp(qualname, overload, torch.library.Library(namespace, "FRAGMENT"), None)
    op.wants_autograd_kernel = not op.differentiates_itself
    registry.remember(op)
    return op
