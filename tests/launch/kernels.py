"""A small machine-code kernel for the tests: out[i] = in[i] + sizes[0] (or 1), float32."""

import functools

import llvmlite.binding as llvm

SOURCE = """
define void @increment(ptr %buffers, ptr %sizes, i64 %begin, i64 %end) {
entry:
  %from = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %to = load ptr, ptr %second
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %body]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %p = getelementptr float, ptr %from, i64 %i
  %x = load float, ptr %p
  %y = fadd float %x, 1.0
  %q = getelementptr float, ptr %to, i64 %i
  store float %y, ptr %q
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
define void @add_size(ptr %buffers, ptr %sizes, i64 %begin, i64 %end) {
  %from = load ptr, ptr %buffers
  %size = load i64, ptr %sizes
  %x = load float, ptr %from
  %d = sitofp i64 %size to float
  %y = fadd float %x, %d
  store float %y, ptr %from
  ret void
}
"""


@functools.cache
def engine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    built = llvm.create_mcjit_compiler(llvm.parse_assembly(SOURCE), machine)
    built.finalize_object()
    return built


def address(name="increment"):
    return engine().get_function_address(name)
