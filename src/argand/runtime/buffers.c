// argand.runtime._native, buffers of a running plan: their tensors, pointers and sizes.
#include "run.h"
#include "platform.h"

enum { DEVICE_CPU = 0, LARGE = 4 << 20, MANY = LARGE / 16 };

static const Buffer *buffer_of(const Run *run, int id) {
    return id < run->plan->n_inputs ? NULL : &run->plan->buffers[id - run->plan->n_inputs];
}

// The buffer with its symbols resolved, in `scratch` and `memory` if it has any.
static const Buffer *concrete(const Run *run, const Buffer *buffer, Buffer *scratch,
                              int64_t memory[2 * MOST_DIMENSIONS]) {
    if (!buffer->symbolic)
        return buffer;
    *scratch = *buffer;
    scratch->offset = resolve(buffer->offset, run->numbers);
    scratch->sizes = memory;
    scratch->strides = memory + buffer->ndim;
    for (int64_t i = 0; i < 2 * buffer->ndim; i++)
        memory[i] = resolve(buffer->sizes[i], run->numbers);
    return scratch;
}

static int torch_failed(const char *what) {
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_RuntimeError, "argand: torch failed to %s", what);
    return -1;
}

// The compiler believed in certain strides; torch's op may have chosen others. A copy mends that.
static int restride(const TorchLink *torch, const Buffer *expected, PyObject **object) {
    int64_t *sizes, *strides, ndim;
    int32_t dtype;
    Handle actual = argand_handle(*object), mended;
    if (torch->get_dim(actual, &ndim) || torch->get_dtype(actual, &dtype) || torch->get_sizes(actual, &sizes)
        || torch->get_strides(actual, &strides))
        return torch_failed("read the shape of a result");
    int same = ndim == expected->ndim && dtype == expected->dtype, alike = 1;
    for (int64_t i = 0; same && i < ndim; i++) {
        same = sizes[i] == expected->sizes[i];
        alike = alike && (strides[i] == expected->strides[i] || sizes[i] <= 1);
    }
    if (!same) {
        PyErr_SetString(PyExc_RuntimeError, "argand: a torch operator returned another shape or "
                                            "type than the compiler inferred");
        return -1;
    }
    if (alike)
        return 0;
    if (torch->empty_strided(ndim, expected->sizes, expected->strides, expected->dtype, DEVICE_CPU,
                             0, &mended))
        return torch_failed("allocate a tensor");
    int failed = torch->copy(mended, actual, 0);
    PyObject *wrapped = failed ? NULL : torch->wrap(mended);
    torch->delete_tensor(mended);
    if (!wrapped)
        return torch_failed("copy a result");
    Py_SETREF(*object, wrapped);
    return 0;
}

// Store a new reference and the data pointer of a tensor object under a buffer id.
int argand_set_object(Run *run, int id, PyObject *object) {
    Py_XSETREF(run->objects[id], object);
    run->pointers[id] = NULL;
    if (!PyObject_TypeCheck(object, run->torch->tensor_type))
        return 0;
    const Buffer *buffer = buffer_of(run, id);
    Buffer scratch;
    int64_t memory[2 * MOST_DIMENSIONS];
    if (buffer && buffer->kind == BUFFER_MADE && buffer->ndim >= 0
        && restride(run->torch, concrete(run, buffer, &scratch, memory), &run->objects[id]))
        return -1;
    if (run->torch->get_data_ptr(argand_handle(run->objects[id]), &run->pointers[id]))
        return torch_failed("read a data pointer");
    return 0;
}

static int set_handle(Run *run, int id, Handle handle) {
    PyObject *object = run->torch->wrap(handle);
    run->torch->delete_tensor(handle);
    return object ? argand_set_object(run, id, object) : -1;
}

// Whether a tensor may be worth asking how large it is.
static int has_many_elements(const Buffer *buffer) {
    int64_t elements = 1;
    for (int64_t i = 0; i < buffer->ndim && elements < MANY; i++)
        elements *= buffer->sizes[i] < MANY ? buffer->sizes[i] : MANY;
    return elements >= MANY;
}

static int make_fresh(Run *run, int id, const Buffer *buffer) {
    Handle handle;
    if (run->torch->empty_strided(buffer->ndim, buffer->sizes, buffer->strides, buffer->dtype,
                                  DEVICE_CPU, 0, &handle))
        return torch_failed("allocate a tensor");
    if (set_handle(run, id, handle))
        return -1;
    int64_t bytes = 0;
    if (has_many_elements(buffer)
        && !run->torch->get_storage_size(argand_handle(run->objects[id]), &bytes) && bytes >= LARGE)
        argand_advise(run->pointers[id], (size_t)bytes);
    return 0;
}

// Whether a tensor of at least a byte an element fits into so many bytes; torch would end the process.
static int fits(const Buffer *buffer, int64_t bytes) {
    int64_t last = 0, reach;
    for (int64_t i = 0; i < buffer->ndim; i++) {
        if (buffer->sizes[i] < 0 || buffer->strides[i] < 0)
            return 0;
        if (buffer->sizes[i] > 1
            && (__builtin_mul_overflow(buffer->sizes[i] - 1, buffer->strides[i], &reach)
                || __builtin_add_overflow(last, reach, &last)))
            return 0;
    }
    for (int64_t i = 0; i < buffer->ndim; i++)
        if (buffer->sizes[i] == 0)
            return 1;
    return last < bytes;
}

// A tensor over arena memory, or over what the plan keeps: valid for this call only.
static int make_slot_tensor(Run *run, int id, const Buffer *buffer) {
    Handle handle;
    if (buffer->kind == BUFFER_SLOT && !fits(buffer, resolve(run->plan->arena_bytes, run->numbers) - buffer->offset)) {
        PyErr_SetString(PyExc_ValueError, "argand: a buffer lies outside of the arena");
        return -1;
    }
    if (run->torch->from_blob(run->pointers[id], buffer->ndim, buffer->sizes, buffer->strides, 0,
                              buffer->dtype, DEVICE_CPU, 0, &handle))
        return torch_failed("wrap arena memory");
    return set_handle(run, id, handle);
}

// A tensor over memory that a plan around this one has given: valid for this round only.
static int make_given_tensor(Run *run, int id, const Buffer *buffer) {
    Handle handle;
    if (run->torch->from_blob(run->pointers[id], buffer->ndim, buffer->sizes, buffer->strides, 0, buffer->dtype,
                              DEVICE_CPU, 0, &handle))
        return torch_failed("wrap memory");
    return set_handle(run, id, handle);
}

static int make_view(Run *run, int id, const Buffer *buffer) {
    PyObject *base = argand_object_of(run, buffer->base);
    if (!base)
        return -1;
    if (!PyObject_TypeCheck(base, run->torch->tensor_type)) {
        PyErr_Format(PyExc_TypeError, "argand: buffer %d is no tensor to be viewed", buffer->base);
        return -1;
    }
    Handle handle;
    if (run->torch->reinterpret(argand_handle(base), buffer->ndim, buffer->sizes, buffer->strides,
                                buffer->offset, &handle))
        return torch_failed("view a tensor");
    return set_handle(run, id, handle);
}

// The Python object of a buffer, made now if it does not exist yet (borrowed).
PyObject *argand_object_of(Run *run, int id) {
    if (run->objects[id])
        return run->objects[id];
    const Buffer *buffer = buffer_of(run, id);
    Buffer scratch;
    int64_t memory[2 * MOST_DIMENSIONS];
    int failed = -1;
    if (!buffer && run->plan->given)
        buffer = &run->plan->given[id];
    if (buffer)
        buffer = concrete(run, buffer, &scratch, memory);
    if (buffer && buffer->kind == BUFFER_FRESH && run->pointers[id])
        failed = make_given_tensor(run, id, buffer);
    else if (buffer && buffer->kind == BUFFER_FRESH)
        failed = make_fresh(run, id, buffer);
    else if (buffer && (buffer->kind == BUFFER_SLOT || (buffer->kind == BUFFER_KEPT && run->kept)))
        failed = make_slot_tensor(run, id, buffer);
    else if (buffer && buffer->kind == BUFFER_VIEW)
        failed = make_view(run, id, buffer);
    else if (buffer && buffer->kind == BUFFER_INTEGER)
        failed = !(run->objects[id] = PyLong_FromLongLong(buffer->offset));
    else
        PyErr_Format(PyExc_RuntimeError, "argand: buffer %d is used before it exists", id);
    return failed ? NULL : run->objects[id];
}

int argand_refuse_missing_memory(Run *run, int id) {
    PyObject *object = run->objects[id];
    int64_t *sizes, ndim, elements = 1;
    if (!PyObject_TypeCheck(object, run->torch->tensor_type)) {
        PyErr_Format(PyExc_TypeError, "argand: buffer %d is no tensor but %R", id, (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (run->torch->get_dim(argand_handle(object), &ndim)
        || run->torch->get_sizes(argand_handle(object), &sizes))
        return torch_failed("read a shape");
    for (int64_t i = 0; i < ndim; i++)
        elements *= sizes[i];
    if (!elements)
        return 0;
    PyErr_Format(PyExc_RuntimeError, "argand: buffer %d is a tensor without memory that a kernel can read", id);
    return -1;
}

static int64_t floor_modulo(int64_t a, int64_t b) {
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int64_t floor_divide(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int read_input(Run *run, const Number *number, int64_t *result) {
    PyObject *input = run->objects[number->left];
    int64_t *row, ndim;
    if (!input) {
        PyErr_SetString(PyExc_ValueError, "argand: a branch has its sizes from integers");
        return -1;
    }
    if (number->kind == NUMBER_INPUT) {
        if (PyFloat_CheckExact(input)) { /* its bits */
            double number = PyFloat_AS_DOUBLE(input);
            memcpy(result, &number, sizeof number);
            return 0;
        }
        *result = PyLong_AsLongLong(input);
        return *result == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (!PyObject_TypeCheck(input, run->torch->tensor_type)
        || run->torch->get_dim(argand_handle(input), &ndim) || number->right >= ndim) {
        PyErr_Format(PyExc_TypeError, "argand: input %lld has no dimension %lld",
                     (long long)number->left, (long long)number->right);
        return -1;
    }
    if (number->kind == NUMBER_SIZE ? run->torch->get_sizes(argand_handle(input), &row)
                                    : run->torch->get_strides(argand_handle(input), &row))
        return torch_failed("read a shape");
    *result = row[number->right];
    return 0;
}

// One operation of Python's integers on machine integers; -1 with an exception where they differ.
static int compute(int kind, int64_t a, int64_t b, int64_t *result) {
    int divides = kind == NUMBER_FLOOR_DIVIDE || kind == NUMBER_MODULO;
    if (divides && b == 0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "argand: a size is divided by zero");
        return -1;
    }
    int overflows = 0;
    switch (kind) {
    case NUMBER_ADD: overflows = __builtin_add_overflow(a, b, result); break;
    case NUMBER_SUBTRACT: overflows = __builtin_sub_overflow(a, b, result); break;
    case NUMBER_MULTIPLY: overflows = __builtin_mul_overflow(a, b, result); break;
    case NUMBER_FLOOR_DIVIDE:
        overflows = b == -1 && a == INT64_MIN;
        *result = overflows ? 0 : floor_divide(a, b);
        break;
    case NUMBER_MODULO: *result = b == -1 ? 0 : floor_modulo(a, b); break;
    case NUMBER_MINIMUM: *result = a < b ? a : b; break;
    default: *result = a > b ? a : b;
    }
    if (overflows)
        PyErr_SetString(PyExc_OverflowError, "int too big to convert");
    return overflows ? -1 : 0;
}

int argand_compute_numbers(Run *run) {
    for (Py_ssize_t i = 0; i < run->plan->n_numbers; i++) {
        const Number *number = &run->plan->numbers[i];
        int64_t *result = &run->numbers[i];
        if (number->kind <= NUMBER_INPUT) {
            if (read_input(run, number, result))
                return -1;
            continue;
        }
        int64_t a = resolve(number->left, run->numbers), b = resolve(number->right, run->numbers);
        if (compute(number->kind, a, b, result))
            return -1;
    }
    return 0;
}
