// argand.runtime._native.Plan: runs one compiled graph.
//
// A plan is a table of buffers and a list of steps, built once from plain Python data
// (runtime/launch.py) and then called with a list of inputs. Buffers are inputs, fresh tensors,
// slots of the arena, constants, tensors made by calls, or views of other buffers; steps are
// machine-code kernels, matrix products, calls of Python functions, and releases.
//
// Nothing is shared between two calls of one plan but the read-only tables, so any number of
// threads may run it; the GIL is released around long stretches of steps that need no Python.
#include "run.h"
#include "platform.h"
#include <structmember.h>

enum { STACK_WORDS = 512 };

static int measured = 0; /* calls of plans add up the times of their steps; under the GIL */

static Py_ssize_t buffer_count(const Plan *plan) { return plan->n_inputs + plan->n_buffers; }

int argand_resolve_pointers(Run *run, const int *ids, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (run->pointers[ids[i]])
            continue;
        if (!run->objects[ids[i]] && !argand_object_of(run, ids[i]))
            return -1;
        if (!run->pointers[ids[i]] && argand_refuse_missing_memory(run, ids[i]))
            return -1;
    }
    return 0;
}

// ---- kernels ----

typedef struct {
    const Step *step;
    void **table;
    const int64_t *sizes;
} KernelRange;

static void run_range(int64_t begin, int64_t end, void *context) {
    const KernelRange *range = context;
    range->step->kernel(range->table, range->sizes, begin, end);
}

static void run_kernel(Run *run, const Step *step) {
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

// ---- calls of Python functions ----

// A new reference.
static PyObject *build_argument(Run *run, const Argument *argument) {
    if (argument->kind == ARGUMENT_OBJECT)
        return Py_NewRef(argument->object);
    if (argument->kind == ARGUMENT_BUFFER)
        return Py_XNewRef(argand_object_of(run, argument->id));
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

// Steals the result.
static int store_results(Run *run, const Step *step, PyObject *result) {
    int failed = 0;
    if (step->n_ids == 1 && !PyTuple_Check(result) && !PyList_Check(result))
        return step->ids[0] < 0 ? (Py_DECREF(result), 0) : argand_set_object(run, step->ids[0], result);
    if (step->n_ids > 0 && (!(PyTuple_Check(result) || PyList_Check(result))
                            || PySequence_Fast_GET_SIZE(result) != step->n_ids)) {
        PyErr_Format(PyExc_RuntimeError, "argand: call returned %R, not %zd results",
                     (PyObject *)Py_TYPE(result), step->n_ids);
        failed = -1;
    }
    for (Py_ssize_t i = 0; !failed && i < step->n_ids; i++)
        if (step->ids[i] >= 0)
            failed = argand_set_object(run, step->ids[i],
                                Py_NewRef(PySequence_Fast_GET_ITEM(result, i)));
    Py_DECREF(result);
    return failed;
}

static int run_call(Run *run, const Step *step) {
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

// ---- the run ----

static void run_free(Run *run, const Step *step) {
    for (Py_ssize_t i = 0; i < step->n_ids; i++) {
        Py_CLEAR(run->objects[step->ids[i]]);
        run->pointers[step->ids[i]] = NULL;
    }
}

static int needs_python(const Step *step) {
    return step->kind != STEP_KERNEL && step->kind != STEP_PRODUCT;
}

// Steps first..last-1 need no Python. The fresh tensors they use are made before they start.
int argand_run_stretch(Run *run, Py_ssize_t first, Py_ssize_t last) {
    int64_t work = 0;
    for (Py_ssize_t i = first; i < last; i++) {
        const Step *step = &run->plan->steps[i];
        if (argand_resolve_pointers(run, step->ids, step->n_ids))
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

static int run_steps(Run *run) {
    const Plan *plan = run->plan;
    int single = run->times || run->recorded; /* one step at a time */
    for (Py_ssize_t i = 0, last; i < plan->n_steps; i = last) {
        const Step *step = &plan->steps[i];
        int64_t start = run->times ? argand_nanoseconds() : 0;
        int failed = 0;
        last = i + 1;
        Handle record = NULL;
        if (run->recorded && step->label)
            record = argand_record_start(run->torch, PyUnicode_AsUTF8(step->label));
        if (step->kind == STEP_CALL) {
            failed = run_call(run, step);
        } else if (step->kind == STEP_NESTED) {
            failed = argand_run_nested(run, step);
        } else if (step->kind == STEP_FREE) {
            run_free(run, step);
        } else if (step->kind == STEP_KEEP) {
            failed = argand_run_keep(run, i);
            last = i + 1 + step->total;
        } else {
            while (!single && last < plan->n_steps && !needs_python(&plan->steps[last]))
                last++;
            failed = argand_run_stretch(run, i, last);
        }
        argand_record_end(run->torch, record);
        if (failed)
            return -1;
        if (run->times)
            run->times[i] = argand_nanoseconds() - start;
    }
    return 0;
}

// Eager's error for an index out of range; the rows of runtime/marks.py.
static void raise_out_of_range(const int64_t *marks) {
    enum { OF_SELF, OF_INDEX, OF_GATHER, OF_TARGET, OF_AXIS };
    int64_t kind = (marks[MARK_INDEX] - 1) / 64, dim = (marks[MARK_INDEX] - 1) % 64;
    long long index = (long long)marks[MARK_VALUE], size = (long long)marks[MARK_SIZE];
    if (kind == OF_INDEX && index < 0)
        index -= size; /* it had been counted from the end */
    if (kind == OF_INDEX || kind == OF_GATHER)
        PyErr_Format(kind == OF_INDEX ? PyExc_IndexError : PyExc_RuntimeError,
                     "index %lld is out of bounds for dimension %lld with size %lld", index, (long long)dim, size);
    else if (kind == OF_TARGET)
        PyErr_Format(PyExc_IndexError, "Target %lld is out of bounds.", index);
    else if (kind == OF_AXIS)
        PyErr_Format(PyExc_RuntimeError, "INDICES element is out of DATA bounds, id=%lld axis_dim=%lld", index, size);
    else
        PyErr_SetString(PyExc_IndexError, "index out of range in self");
}

// What kernels noted becomes an error of this call.
static int check_marks(const Run *run) {
    const int64_t *marks = run->marks;
    if (marks[MARK_BUFFER])
        PyErr_Format(PyExc_RuntimeError, "argand: kernel%lld leaves its buffer b%lld: element %lld",
                     (long long)marks[MARK_KERNEL], (long long)marks[MARK_BUFFER] - 1,
                     (long long)marks[MARK_ELEMENT]);
    else if (marks[MARK_INDEX])
        raise_out_of_range(marks);
    else
        return 0;
    return -1;
}

int argand_run_steps(Run *run) { return run_steps(run) || check_marks(run) ? -1 : 0; }

static PyObject *collect_returns(Run *run) {
    PyObject *results = PyTuple_New(run->plan->n_returns);
    for (Py_ssize_t i = 0; results && i < run->plan->n_returns; i++) {
        PyObject *object = argand_object_of(run, run->plan->returns[i]);
        if (!object)
            Py_CLEAR(results);
        else
            PyTuple_SET_ITEM(results, i, Py_NewRef(object));
    }
    return results;
}

static int start_run(Run *run, PyObject *inputs) {
    const Plan *plan = run->plan;
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++)
        if (argand_set_object(run, (int)i, Py_NewRef(PyList_GET_ITEM(inputs, i))))
            return -1;
    if (plan->consumes && PyList_SetSlice(inputs, 0, plan->n_inputs, NULL))
        return -1;
    return argand_prepare_run(run);
}

int argand_prepare_run(Run *run) {
    const Plan *plan = run->plan;
    if (plan->n_numbers && argand_compute_numbers(run))
        return -1;
    int64_t arena_bytes = resolve(plan->arena_bytes, run->numbers);
    if (arena_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "argand: an arena of less than nothing");
        return -1;
    }
    if (arena_bytes && !(run->arena = argand_arena_take(arena_bytes)))
        return -1;
    char *base = run->arena ? argand_arena_base(run->arena) : NULL;
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++) {
        const Buffer *buffer = &plan->buffers[i];
        Py_ssize_t id = plan->n_inputs + i;
        if (buffer->kind == BUFFER_SLOT) {
            int64_t offset = resolve(buffer->offset, run->numbers);
            if (offset < 0 || offset > arena_bytes) {
                PyErr_SetString(PyExc_ValueError, "argand: a buffer lies outside of the arena");
                return -1;
            }
            run->pointers[id] = base ? base + offset : NULL;
        } else if (buffer->kind == BUFFER_OBJECT) {
            run->pointers[id] = buffer->pointer;
            run->objects[id] = Py_NewRef(buffer->object);
        } else if (buffer->kind == BUFFER_MARKS) {
            run->pointers[id] = run->marks;
        }
    }
    return 0;
}

static PyObject *run_plan(const Plan *plan, PyObject *inputs, int64_t *times) {
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
    Run run = {.plan = plan,
               .torch = torch,
               .pointers = memory,
               .objects = (PyObject **)memory + count,
               .table = memory + 2 * count,
               .numbers = numbers,
               .sizes = numbers + plan->n_numbers,
               .recorded = torch->has_callbacks(),
               .times = times};
    PyObject *results = NULL;
    // Differentiation happened ahead of time; parameters among the inputs must not start it again.
    _Bool grad_mode = torch->grad_mode();
    if (grad_mode)
        torch->set_grad_mode(0);
    if (!start_run(&run, inputs) && !argand_run_steps(&run))
        results = collect_returns(&run);
    if (grad_mode)
        torch->set_grad_mode(1);
    for (Py_ssize_t i = 0; i < count; i++)
        Py_XDECREF(run.objects[i]);
    if (run.arena)
        argand_arena_give(run.arena);
    argand_kept_release(&run);
    if (memory != small)
        PyMem_Free(memory);
    return results;
}

static int check_inputs(const Plan *plan, PyObject *inputs) {
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

// Runs, and adds the times of the steps to those of the calls before.
static PyObject *run_measured(Plan *plan, PyObject *inputs) {
    if (!plan->spent && !(plan->spent = PyMem_Calloc(plan->n_steps + 1, sizeof *plan->spent)))
        return PyErr_NoMemory();
    int64_t *times = PyMem_Calloc(plan->n_steps + 1, sizeof *times);
    if (!times)
        return PyErr_NoMemory();
    PyObject *results = run_plan(plan, inputs, times);
    for (Py_ssize_t i = 0; results && i < plan->n_steps; i++)
        plan->spent[i] += times[i];
    plan->calls += results != NULL;
    PyMem_Free(times);
    return results;
}

static PyObject *plan_vectorcall(PyObject *self, PyObject *const *args, size_t flags,
                                 PyObject *names) {
    if (PyVectorcall_NARGS(flags) != 1 || names) {
        PyErr_SetString(PyExc_TypeError, "a Plan is called with one list of inputs");
        return NULL;
    }
    if (check_inputs((Plan *)self, args[0]))
        return NULL;
    return measured ? run_measured((Plan *)self, args[0]) : run_plan((Plan *)self, args[0], NULL);
}

static PyObject *list_of(const int64_t *numbers, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(numbers ? numbers[i] : 0);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *plan_spent(PyObject *self, PyObject *ignored) {
    Plan *plan = (Plan *)self;
    PyObject *list = list_of(plan->spent, plan->n_steps);
    return list ? Py_BuildValue("LN", (long long)plan->calls, list) : NULL;
}

static PyObject *measure_plans(PyObject *module, PyObject *flag) {
    int value = PyObject_IsTrue(flag), before = measured;
    if (value < 0)
        return NULL;
    measured = value;
    return PyBool_FromLong(before);
}

static PyObject *plan_profile(PyObject *self, PyObject *inputs) {
    Plan *plan = (Plan *)self;
    if (check_inputs(plan, inputs))
        return NULL;
    int64_t *times = PyMem_Calloc(plan->n_steps + 1, sizeof *times);
    PyObject *results = times ? run_plan(plan, inputs, times) : PyErr_NoMemory();
    PyObject *list = results ? list_of(times, plan->n_steps) : NULL;
    PyMem_Free(times);
    PyObject *both = list ? PyTuple_Pack(2, results, list) : NULL;
    Py_XDECREF(results);
    Py_XDECREF(list);
    return both;
}

static PyMethodDef plan_methods[] = {
    {"profile", plan_profile, METH_O, "Run; (outputs, nanoseconds of each step)."},
    {"spent", plan_spent, METH_NOARGS, "(calls, nanoseconds of each step in all of them) while plans were measured."},
    {NULL},
};

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
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

static void plan_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    argand_plan_clear(self);
    Py_TYPE(self)->tp_free(self);
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
    .tp_traverse = argand_plan_traverse,
    .tp_clear = argand_plan_clear,
    .tp_members = plan_members,
    .tp_methods = plan_methods,
};

static PyMethodDef functions[] = {
    {"release_arenas", argand_arena_release, METH_NOARGS, "Free idle scratch memory; its size."},
    {"arena_statistics", argand_arena_statistics, METH_NOARGS, "Scratch memory held, as a dict."},
    {"measure_plans", measure_plans, METH_O, "Whether calls of plans add up their times from now on; whether they did."},
    {"fingerprint", (PyCFunction)(void (*)(void))argand_fingerprint, METH_FASTCALL,
     "64 bits of the contents of a dense tensor of so many bytes."},
    {NULL},
};

int argand_add_launch(PyObject *module) {
    if (PyModule_AddFunctions(module, functions))
        return -1;
    return PyModule_AddType(module, &plan_type);
}
