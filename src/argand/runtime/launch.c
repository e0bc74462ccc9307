/* argand.runtime._native.Plan: runs one compiled graph.
 *
 * A plan is a table of buffers and a list of steps, built once from plain Python data
 * (runtime/launch.py) and then called with a list of inputs. Buffers are inputs, fresh tensors,
 * slots of the arena, constants, tensors made by calls, or views of other buffers; steps are
 * machine-code kernels, matrix products, calls of Python functions, and releases.
 *
 * Nothing is shared between two calls of one plan but the read-only tables, so any number of
 * threads may run it; the GIL is released around long stretches of steps that need no Python. */
#include "launch.h"
#include "plan.h"
#include <structmember.h>
#include <time.h>

enum { STACK_WORDS = 512, DEVICE_CPU = 0 };

/* One call in progress. */
typedef struct {
    const Plan *plan;
    const TorchLink *torch;
    void **pointers;    /* by buffer id; NULL until known */
    PyObject **objects; /* by buffer id; owned; NULL where no Python object exists (yet) */
    void **table;       /* the pointers of the running kernel */
    Arena *arena;
    int64_t *numbers; /* the plan's numbers, computed from the inputs */
    int64_t *sizes;   /* the symbolic sizes of the running kernel */
    int64_t *times;   /* nanoseconds per step, when the run is profiled */
} Run;

static Py_ssize_t buffer_count(const Plan *plan) { return plan->n_inputs + plan->n_buffers; }

static const Buffer *buffer_of(const Run *run, int id)
{
    return id < run->plan->n_inputs ? NULL : &run->plan->buffers[id - run->plan->n_inputs];
}

/* The buffer with its symbols resolved, in `scratch` and `memory` if it has any. */
static const Buffer *concrete(const Run *run, const Buffer *buffer, Buffer *scratch,
                              int64_t memory[2 * MOST_DIMENSIONS])
{
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

static int torch_failed(const char *what)
{
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_RuntimeError, "argand: torch failed to %s", what);
    return -1;
}

/* The compiler believed in certain strides; torch's op may have chosen others. A copy mends that. */
static int restride(const TorchLink *torch, const Buffer *expected, PyObject **object)
{
    int64_t *sizes, *strides, ndim;
    Handle actual = argand_handle(*object), mended;
    if (torch->get_dim(actual, &ndim) || torch->get_sizes(actual, &sizes)
        || torch->get_strides(actual, &strides))
        return torch_failed("read the shape of a result");
    int same = ndim == expected->ndim, alike = 1;
    for (int64_t i = 0; same && i < ndim; i++) {
        same = sizes[i] == expected->sizes[i];
        alike = alike && (strides[i] == expected->strides[i] || sizes[i] <= 1);
    }
    if (!same) {
        PyErr_SetString(PyExc_RuntimeError, "argand: a torch operator returned another shape than "
                                            "the compiler inferred");
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

/* Store a new reference and the data pointer of a tensor object under a buffer id. */
static int set_object(Run *run, int id, PyObject *object)
{
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

static int set_handle(Run *run, int id, Handle handle)
{
    PyObject *object = run->torch->wrap(handle);
    run->torch->delete_tensor(handle);
    return object ? set_object(run, id, object) : -1;
}

static int make_fresh(Run *run, int id, const Buffer *buffer)
{
    Handle handle;
    if (run->torch->empty_strided(buffer->ndim, buffer->sizes, buffer->strides, buffer->dtype,
                                  DEVICE_CPU, 0, &handle))
        return torch_failed("allocate a tensor");
    return set_handle(run, id, handle);
}

/* A tensor over arena memory: valid for this call only. */
static int make_slot_tensor(Run *run, int id, const Buffer *buffer)
{
    Handle handle;
    if (run->torch->from_blob(run->pointers[id], buffer->ndim, buffer->sizes, buffer->strides, 0,
                              buffer->dtype, DEVICE_CPU, 0, &handle))
        return torch_failed("wrap arena memory");
    return set_handle(run, id, handle);
}

static PyObject *object_of(Run *run, int id); /* borrowed */

static int make_view(Run *run, int id, const Buffer *buffer)
{
    PyObject *base = object_of(run, buffer->base);
    if (!base)
        return -1;
    Handle handle;
    if (run->torch->reinterpret(argand_handle(base), buffer->ndim, buffer->sizes, buffer->strides,
                                buffer->offset, &handle))
        return torch_failed("view a tensor");
    return set_handle(run, id, handle);
}

/* The Python object of a buffer, made now if it does not exist yet (borrowed). */
static PyObject *object_of(Run *run, int id)
{
    if (run->objects[id])
        return run->objects[id];
    const Buffer *buffer = buffer_of(run, id);
    Buffer scratch;
    int64_t memory[2 * MOST_DIMENSIONS];
    int failed = -1;
    if (buffer)
        buffer = concrete(run, buffer, &scratch, memory);
    if (buffer && buffer->kind == BUFFER_FRESH)
        failed = make_fresh(run, id, buffer);
    else if (buffer && buffer->kind == BUFFER_SLOT)
        failed = make_slot_tensor(run, id, buffer);
    else if (buffer && buffer->kind == BUFFER_VIEW)
        failed = make_view(run, id, buffer);
    else if (buffer && buffer->kind == BUFFER_INTEGER)
        failed = !(run->objects[id] = PyLong_FromLongLong(buffer->offset));
    else
        PyErr_Format(PyExc_RuntimeError, "argand: buffer %d is used before it exists", id);
    return failed ? NULL : run->objects[id];
}

/* Make sure that the pointers of a step's buffers exist. */
static int resolve_pointers(Run *run, const int *ids, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (!run->pointers[ids[i]] && !run->objects[ids[i]] && !object_of(run, ids[i]))
            return -1;
    return 0;
}

/* ---- kernels ---- */

typedef struct {
    const Step *step;
    void **table;
    const int64_t *sizes;
} KernelRange;

static void run_range(int64_t begin, int64_t end, void *context)
{
    const KernelRange *range = context;
    range->step->kernel(range->table, range->sizes, begin, end);
}

static void run_kernel(Run *run, const Step *step)
{
    void **table = run->table;
    for (Py_ssize_t i = 0; i < step->n_ids; i++)
        table[i] = run->pointers[step->ids[i]];
    int64_t total = resolve(step->total, run->numbers);
    const int64_t *sizes = step->sizes;
    if (step->symbolic) {
        for (Py_ssize_t i = 0; i < step->n_sizes; i++)
            run->sizes[i] = resolve(step->sizes[i], run->numbers);
        sizes = run->sizes;
    }
    if (total < 2 * step->grain || run->torch->get_num_threads() == 1) {
        step->kernel(table, sizes, 0, total);
        return;
    }
    KernelRange range = {step, table, sizes};
    run->torch->parallel_for(0, total, step->grain, run_range, &range);
}

/* ---- calls of Python functions ---- */

static PyObject *build_argument(Run *run, const Argument *argument) /* new reference */
{
    if (argument->kind == ARGUMENT_OBJECT)
        return Py_NewRef(argument->object);
    if (argument->kind == ARGUMENT_BUFFER)
        return Py_XNewRef(object_of(run, argument->id));
    if (argument->kind == ARGUMENT_NUMBER)
        return PyLong_FromLongLong(run->numbers[argument->id]);
    PyObject *list = PyList_New(argument->count);
    for (Py_ssize_t i = 0; list && i < argument->count; i++) {
        PyObject *item = build_argument(run, &argument->items[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static int store_results(Run *run, const Step *step, PyObject *result) /* steals result */
{
    int failed = 0;
    if (step->n_ids == 1 && !PyTuple_Check(result) && !PyList_Check(result))
        return step->ids[0] < 0 ? (Py_DECREF(result), 0) : set_object(run, step->ids[0], result);
    if (step->n_ids > 0 && (!(PyTuple_Check(result) || PyList_Check(result))
                            || PySequence_Fast_GET_SIZE(result) != step->n_ids)) {
        PyErr_Format(PyExc_RuntimeError, "argand: call returned %R, not %zd results",
                     (PyObject *)Py_TYPE(result), step->n_ids);
        failed = -1;
    }
    for (Py_ssize_t i = 0; !failed && i < step->n_ids; i++)
        if (step->ids[i] >= 0)
            failed = set_object(run, step->ids[i],
                                Py_NewRef(PySequence_Fast_GET_ITEM(result, i)));
    Py_DECREF(result);
    return failed;
}

static int run_call(Run *run, const Step *step)
{
    PyObject *small[17], **vector = small;
    if (step->n_arguments > 16
        && !(vector = PyMem_New(PyObject *, step->n_arguments + 1))) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t made = 0;
    PyObject *result = NULL;
    while (made < step->n_arguments
           && (vector[made + 1] = build_argument(run, &step->arguments[made])))
        made++;
    if (made == step->n_arguments) {
        size_t positional = step->n_arguments - (step->names ? PyTuple_GET_SIZE(step->names) : 0);
        result = PyObject_Vectorcall(step->function, vector + 1,
                                     positional | PY_VECTORCALL_ARGUMENTS_OFFSET, step->names);
    }
    while (made > 0)
        Py_DECREF(vector[made--]);
    if (vector != small)
        PyMem_Free(vector);
    return result ? store_results(run, step, result) : -1;
}

/* ---- the run ---- */

static void run_free(Run *run, const Step *step)
{
    for (Py_ssize_t i = 0; i < step->n_ids; i++) {
        Py_CLEAR(run->objects[step->ids[i]]);
        run->pointers[step->ids[i]] = NULL;
    }
}

static int needs_python(const Step *step)
{
    return step->kind == STEP_CALL || step->kind == STEP_FREE;
}

/* Steps first..last-1 need no Python. The fresh tensors they use are made before they start. */
static int run_stretch(Run *run, Py_ssize_t first, Py_ssize_t last)
{
    int64_t work = 0;
    for (Py_ssize_t i = first; i < last; i++) {
        const Step *step = &run->plan->steps[i];
        if (resolve_pointers(run, step->ids, step->n_ids))
            return -1;
        work += step->is_long;
    }
    PyThreadState *state = work ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t i = first; i < last; i++) {
        const Step *step = &run->plan->steps[i];
        if (step->kind == STEP_KERNEL)
            run_kernel(run, step);
        else
            argand_run_product(run->torch, step, run->pointers, run->numbers);
    }
    if (state)
        PyEval_RestoreThread(state);
    return 0;
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int run_steps(Run *run)
{
    const Plan *plan = run->plan;
    for (Py_ssize_t i = 0, last; i < plan->n_steps; i = last) {
        const Step *step = &plan->steps[i];
        int64_t start = run->times ? nanoseconds() : 0;
        int failed = 0;
        last = i + 1;
        if (step->kind == STEP_CALL) {
            failed = run_call(run, step);
        } else if (step->kind == STEP_FREE) {
            run_free(run, step);
        } else {
            while (!run->times && last < plan->n_steps && !needs_python(&plan->steps[last]))
                last++;
            failed = run_stretch(run, i, last);
        }
        if (failed)
            return -1;
        if (run->times)
            run->times[i] = nanoseconds() - start;
    }
    return 0;
}

static PyObject *collect_returns(Run *run)
{
    PyObject *results = PyTuple_New(run->plan->n_returns);
    for (Py_ssize_t i = 0; results && i < run->plan->n_returns; i++) {
        PyObject *object = object_of(run, run->plan->returns[i]);
        if (!object)
            Py_CLEAR(results);
        else
            PyTuple_SET_ITEM(results, i, Py_NewRef(object));
    }
    return results;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int read_input(Run *run, const Number *number, int64_t *result)
{
    PyObject *input = run->objects[number->left];
    int64_t *row, ndim;
    if (number->kind == NUMBER_INPUT) {
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

static int compute_numbers(Run *run)
{
    for (Py_ssize_t i = 0; i < run->plan->n_numbers; i++) {
        const Number *number = &run->plan->numbers[i];
        int64_t *result = &run->numbers[i];
        if (number->kind <= NUMBER_INPUT) {
            if (read_input(run, number, result))
                return -1;
            continue;
        }
        int64_t a = resolve(number->left, run->numbers), b = resolve(number->right, run->numbers);
        int divides = number->kind == NUMBER_FLOOR_DIVIDE || number->kind == NUMBER_MODULO;
        if (divides && b == 0) {
            PyErr_SetString(PyExc_ZeroDivisionError, "argand: a size is divided by zero");
            return -1;
        }
        *result = number->kind == NUMBER_ADD ? a + b
                  : number->kind == NUMBER_SUBTRACT ? a - b
                  : number->kind == NUMBER_MULTIPLY ? a * b
                  : number->kind == NUMBER_FLOOR_DIVIDE ? floor_divide(a, b)
                  : number->kind == NUMBER_MODULO ? a - b * floor_divide(a, b)
                  : number->kind == NUMBER_MINIMUM ? (a < b ? a : b)
                                                   : (a > b ? a : b);
    }
    return 0;
}

static int start_run(Run *run, PyObject *inputs)
{
    const Plan *plan = run->plan;
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++)
        if (set_object(run, (int)i, Py_NewRef(PyList_GET_ITEM(inputs, i))))
            return -1;
    if (plan->consumes && PyList_SetSlice(inputs, 0, plan->n_inputs, NULL))
        return -1;
    if (plan->n_numbers && compute_numbers(run))
        return -1;
    int64_t arena_bytes = resolve(plan->arena_bytes, run->numbers);
    if (arena_bytes && !(run->arena = argand_arena_take(arena_bytes)))
        return -1;
    char *base = run->arena ? argand_arena_base(run->arena) : NULL;
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++) {
        const Buffer *buffer = &plan->buffers[i];
        Py_ssize_t id = plan->n_inputs + i;
        if (buffer->kind == BUFFER_SLOT) {
            run->pointers[id] = base + resolve(buffer->offset, run->numbers);
        } else if (buffer->kind == BUFFER_OBJECT) {
            run->pointers[id] = buffer->pointer;
            run->objects[id] = Py_NewRef(buffer->object);
        }
    }
    return 0;
}

static PyObject *run_plan(const Plan *plan, PyObject *inputs, int64_t *times)
{
    const TorchLink *torch = argand_torch_link();
    if (!torch)
        return NULL;
    Py_ssize_t count = buffer_count(plan);
    Py_ssize_t words = 2 * count + plan->most_ids + plan->n_numbers + plan->most_sizes;
    void *small[STACK_WORDS];
    void **memory = small;
    if (words > STACK_WORDS && !(memory = PyMem_New(void *, words)))
        return PyErr_NoMemory();
    memset(memory, 0, 2 * count * sizeof *memory);
    int64_t *numbers = (int64_t *)(memory + 2 * count + plan->most_ids);
    Run run = {plan, torch, memory, (PyObject **)memory + count, memory + 2 * count, NULL, numbers,
               numbers + plan->n_numbers, times};
    PyObject *results = NULL;
    /* Differentiation happened ahead of time; parameters among the inputs must not start it again. */
    _Bool grad_mode = torch->grad_mode();
    if (grad_mode)
        torch->set_grad_mode(0);
    if (!start_run(&run, inputs) && !run_steps(&run))
        results = collect_returns(&run);
    if (grad_mode)
        torch->set_grad_mode(1);
    for (Py_ssize_t i = 0; i < count; i++)
        Py_XDECREF(run.objects[i]);
    if (run.arena)
        argand_arena_give(run.arena);
    if (memory != small)
        PyMem_Free(memory);
    return results;
}

static int check_inputs(const Plan *plan, PyObject *inputs)
{
    if (!PyList_Check(inputs)) {
        PyErr_SetString(PyExc_TypeError, "a Plan is called with one list of inputs");
        return -1;
    }
    if (PyList_GET_SIZE(inputs) != plan->n_inputs) {
        PyErr_Format(PyExc_TypeError, "this Plan takes %zd inputs, not %zd", plan->n_inputs,
                     PyList_GET_SIZE(inputs));
        return -1;
    }
    return 0;
}

static PyObject *plan_vectorcall(PyObject *self, PyObject *const *args, size_t flags,
                                 PyObject *names)
{
    if (PyVectorcall_NARGS(flags) != 1 || names) {
        PyErr_SetString(PyExc_TypeError, "a Plan is called with one list of inputs");
        return NULL;
    }
    return check_inputs((Plan *)self, args[0]) ? NULL : run_plan((Plan *)self, args[0], NULL);
}

static PyObject *plan_profile(PyObject *self, PyObject *inputs)
{
    Plan *plan = (Plan *)self;
    if (check_inputs(plan, inputs))
        return NULL;
    int64_t *times = PyMem_Calloc(plan->n_steps + 1, sizeof *times);
    PyObject *results = times ? run_plan(plan, inputs, times) : PyErr_NoMemory();
    PyObject *list = results ? PyList_New(plan->n_steps) : NULL;
    for (Py_ssize_t i = 0; list && i < plan->n_steps; i++) {
        PyObject *item = PyLong_FromLongLong(times[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    PyMem_Free(times);
    PyObject *both = list ? PyTuple_Pack(2, results, list) : NULL;
    Py_XDECREF(results);
    Py_XDECREF(list);
    return both;
}

static PyMethodDef plan_methods[] = {
    {"profile", plan_profile, METH_O, "Run; (outputs, nanoseconds of each step)."},
    {NULL},
};

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Plan *plan = (Plan *)type->tp_alloc(type, 0);
    if (!plan)
        return NULL;
    plan->vectorcall = plan_vectorcall;
    const TorchLink *torch = argand_torch_link();
    if (!torch || argand_plan_parse(plan, torch, args, kwargs)) {
        Py_DECREF(plan);
        return NULL;
    }
    return (PyObject *)plan;
}

static void plan_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    argand_plan_clear((Plan *)self);
    Py_TYPE(self)->tp_free(self);
}

static int plan_traverse(PyObject *self, visitproc visit, void *arg)
{
    return argand_plan_traverse((Plan *)self, visit, arg);
}

static int plan_clear(PyObject *self)
{
    argand_plan_clear((Plan *)self);
    return 0;
}

static PyMemberDef plan_members[] = {
    {"inputs", T_PYSSIZET, offsetof(Plan, n_inputs), READONLY, "how many inputs a call takes"},
    {"arena_bytes", T_LONGLONG, offsetof(Plan, arena_bytes), READONLY, "scratch bytes per call"},
    {"consumes", T_BOOL, offsetof(Plan, consumes), 0, "clear the list of inputs at the start"},
    {"keep", T_OBJECT, offsetof(Plan, keep), READONLY, "what must live as long as the plan"},
    {NULL},
};

static PyTypeObject plan_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "argand.runtime._native.Plan",
    .tp_doc = "A compiled graph: call it with a list of inputs, get a tuple of outputs.",
    .tp_basicsize = sizeof(Plan),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Plan, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = plan_new,
    .tp_dealloc = plan_dealloc,
    .tp_traverse = plan_traverse,
    .tp_clear = plan_clear,
    .tp_members = plan_members,
    .tp_methods = plan_methods,
};

static PyMethodDef functions[] = {
    {"release_arenas", argand_arena_release, METH_NOARGS, "Free idle scratch memory; its size."},
    {"arena_statistics", argand_arena_statistics, METH_NOARGS, "Scratch memory held, as a dict."},
    {NULL},
};

int argand_add_launch(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions))
        return -1;
    return PyModule_AddType(module, &plan_type);
}
