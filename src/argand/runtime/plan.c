// argand.runtime._native, building a Plan from the rows that runtime/launch.py writes.
//
// Every id is checked here, once, so that launch.c may index its tables without asking.
#include "run.h"

static int refuse(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

// What a damaged file may hold in place of a row is no error of ours.
static int is_row(PyObject *row) { return PyTuple_Check(row) || refuse("a row is a tuple") == 0; }

// Zeros, and one more than asked for, so that none is not NULL.
static void *zeros(Py_ssize_t count, size_t size) {
    void *memory = PyMem_Calloc(count + 1, size);
    return memory ? memory : PyErr_NoMemory();
}

static int64_t *parse_integers(PyObject *tuple, Py_ssize_t room) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    int64_t *values = zeros(room > count ? room : count, sizeof *values);
    for (Py_ssize_t i = 0; values && i < count; i++) {
        values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (values[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(values);
            return NULL;
        }
    }
    return values;
}

static int any_symbol(const int64_t *numbers, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (is_symbol(numbers[i]))
            return 1;
    return 0;
}

// Symbols must be among the first `limit` numbers of the plan.
static int check_symbols(const int64_t *numbers, Py_ssize_t count, Py_ssize_t limit) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (is_symbol(numbers[i]) && numbers[i] - SYMBOL >= limit) {
            PyErr_Format(PyExc_ValueError, "this plan has no number %lld",
                         (long long)(numbers[i] - SYMBOL));
            return -1;
        }
    return 0;
}

static int check_id(const Plan *plan, int64_t id) {
    if (id >= 0 && id < plan->n_inputs + plan->n_buffers)
        return 0;
    PyErr_Format(PyExc_ValueError, "this plan has no buffer %lld", (long long)id);
    return -1;
}

// Ids as ints; lowest is 0, or -1 where "no buffer" is meant.
static int *parse_ids(const Plan *plan, PyObject *tuple, int lowest) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    int64_t *wide = parse_integers(tuple, 0);
    int *ids = wide ? zeros(count, sizeof *ids) : NULL;
    for (Py_ssize_t i = 0; ids && i < count; i++) {
        int is_none = lowest < 0 && wide[i] == lowest;
        if (!is_none && check_id(plan, wide[i])) {
            PyMem_Free(ids);
            ids = NULL;
        } else {
            ids[i] = (int)wide[i];
        }
    }
    PyMem_Free(wide);
    return ids;
}

// `own` is the id of the buffer.
static int parse_buffer(const Plan *plan, const TorchLink *torch, PyObject *row, Py_ssize_t own,
                        Buffer *buffer) {
    PyObject *sizes, *strides, *object;
    long long offset;
    int kind, dtype, base;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iiiLO!O!O", &kind, &dtype, &base, &offset, &PyTuple_Type, &sizes,
                          &PyTuple_Type, &strides, &object))
        return -1;
    Py_ssize_t ndim = PyTuple_GET_SIZE(sizes);
    if (kind < BUFFER_FRESH || kind > BUFFER_KEPT || PyTuple_GET_SIZE(strides) != ndim
        || ndim > MOST_DIMENSIONS)
        return refuse("malformed buffer row");
    if (kind == BUFFER_VIEW && (check_id(plan, base) || base >= own))
        return PyErr_Occurred() ? -1 : refuse("a view comes after what it is a view of");
    *buffer = (Buffer){kind, 0, dtype, base, offset, kind == BUFFER_MADE && !offset ? -1 : ndim};
    int64_t *behind = parse_integers(strides, 0);
    buffer->sizes = behind ? parse_integers(sizes, 2 * ndim) : NULL;
    if (!buffer->sizes) {
        PyMem_Free(behind);
        return -1;
    }
    buffer->strides = buffer->sizes + ndim;
    memcpy(buffer->strides, behind, ndim * sizeof *behind);
    PyMem_Free(behind);
    buffer->symbolic = is_symbol(offset) || any_symbol(buffer->sizes, 2 * ndim);
    if (check_symbols(&buffer->offset, 1, plan->n_numbers)
        || check_symbols(buffer->sizes, 2 * ndim, plan->n_numbers))
        return -1;
    if (kind == BUFFER_OBJECT) {
        buffer->object = Py_NewRef(object);
        if (PyObject_TypeCheck(object, torch->tensor_type))
            torch->get_data_ptr(argand_handle(object), &buffer->pointer);
    }
    return 0;
}

static int parse_argument(const Plan *plan, PyObject *row, Argument *argument) {
    PyObject *value;
    int kind;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iO", &kind, &value))
        return -1;
    argument->kind = kind;
    if (kind == ARGUMENT_OBJECT) {
        argument->object = Py_NewRef(value);
        return 0;
    }
    if (kind == ARGUMENT_BUFFER) {
        argument->id = (int)PyLong_AsLong(value);
        return PyErr_Occurred() ? -1 : check_id(plan, argument->id);
    }
    if (kind == ARGUMENT_NUMBER) {
        int64_t number = PyLong_AsLongLong(value);
        if (!PyErr_Occurred() && !is_symbol(number))
            PyErr_SetString(PyExc_ValueError, "malformed argument row");
        argument->id = is_symbol(number) ? (int)(number - SYMBOL) : 0;
        return PyErr_Occurred() ? -1 : check_symbols(&number, 1, plan->n_numbers);
    }
    if (kind != ARGUMENT_LIST || !PyTuple_Check(value))
        return refuse("malformed argument row");
    Py_ssize_t count = PyTuple_GET_SIZE(value);
    argument->items = zeros(count, sizeof *argument->items);
    if (!argument->items)
        return -1;
    argument->count = count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse_argument(plan, PyTuple_GET_ITEM(value, i), &argument->items[i]))
            return -1;
    return 0;
}

static int parse_kernel(Plan *plan, PyObject *row, Step *step) {
    PyObject *ids, *sizes;
    unsigned long long pointer;
    long long total, grain;
    int kind, is_long;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iO!KLLO!p", &kind, &PyTuple_Type, &ids, &pointer, &total, &grain,
                          &PyTuple_Type, &sizes, &is_long))
        return -1;
    step->kernel = (KernelFunction)(uintptr_t)pointer;
    step->total = total;
    step->grain = grain < 1 ? 1 : grain > INT32_MAX ? INT32_MAX : grain;
    step->is_long = (char)is_long;
    step->sizes = parse_integers(sizes, 0);
    if (!step->sizes)
        return -1;
    step->n_sizes = PyTuple_GET_SIZE(sizes);
    if (step->n_sizes > plan->most_sizes)
        plan->most_sizes = step->n_sizes;
    step->symbolic = is_symbol(total) || any_symbol(step->sizes, step->n_sizes);
    return check_symbols(&step->total, 1, plan->n_numbers)
                   || check_symbols(step->sizes, step->n_sizes, plan->n_numbers)
               ? -1
               : 0;
}

static int parse_product(const Plan *plan, PyObject *row, Step *step) {
    enum { NUMBERS = 18 };
    PyObject *ids, *table;
    Product *p = &step->product;
    int kind, trans_a, trans_b, is_double, is_long;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iO!ddO!pppp", &kind, &PyTuple_Type, &ids, &p->alpha, &p->beta,
                          &PyTuple_Type, &table, &trans_a, &trans_b, &is_double, &is_long))
        return -1;
    if ((PyTuple_GET_SIZE(ids) != 3 && PyTuple_GET_SIZE(ids) != 4)
        || PyTuple_GET_SIZE(table) != NUMBERS)
        return refuse("malformed row of a product");
    int64_t *numbers = parse_integers(table, 0);
    if (!numbers)
        return -1;
    memcpy(p->batch, numbers, NUMBERS * sizeof *numbers); /* all fields from batch to ldc */
    PyMem_Free(numbers);
    p->trans_a = trans_a ? 'T' : 'N', p->trans_b = trans_b ? 'T' : 'N';
    p->is_double = (char)is_double;
    step->is_long = (char)is_long;
    step->symbolic = (char)any_symbol(p->batch, NUMBERS);
    return check_symbols(p->batch, NUMBERS, plan->n_numbers);
}

static int parse_call(const Plan *plan, PyObject *row, Step *step) {
    PyObject *ids, *function, *arguments, *names;
    int kind;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iO!OO!O!", &kind, &PyTuple_Type, &ids, &function, &PyTuple_Type,
                          &arguments, &PyTuple_Type, &names))
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(arguments);
    step->function = Py_NewRef(function);
    step->names = PyTuple_GET_SIZE(names) ? Py_NewRef(names) : NULL;
    step->arguments = zeros(count, sizeof *step->arguments);
    if (!step->arguments)
        return -1;
    step->n_arguments = count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse_argument(plan, PyTuple_GET_ITEM(arguments, i), &step->arguments[i]))
            return -1;
    return 0;
}

// (kind, watched ids, bytes of each, how many steps make what is kept, bytes kept, frozen); the first step of a plan that has one.
static int parse_keep(Plan *plan, PyObject *row, Step *step) {
    PyObject *ids, *sizes;
    long long total, bytes;
    int kind, frozen;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iO!O!LLp", &kind, &PyTuple_Type, &ids, &PyTuple_Type, &sizes, &total,
                                          &bytes, &frozen))
        return -1;
    Py_ssize_t place = step - plan->steps;
    if (plan->kept || PyTuple_GET_SIZE(sizes) != step->n_ids || total < 0 || bytes < 0
        || place + total >= plan->n_steps)
        return refuse("malformed row of what is kept");
    step->total = total;
    step->sizes = parse_integers(sizes, 0);
    if (!step->sizes)
        return -1;
    for (Py_ssize_t i = 0; i < step->n_ids; i++)
        if (step->sizes[i] < 0)
            return refuse("malformed row of what is kept");
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++) {
        const Buffer *buffer = &plan->buffers[i];
        if (buffer->kind == BUFFER_KEPT && (buffer->symbolic || buffer->offset < 0 || buffer->offset > bytes))
            return refuse("a buffer outside of what is kept");
    }
    plan->kept = argand_kept_new(bytes, step->n_ids, frozen);
    return plan->kept ? 0 : -1;
}

static int parse_step(Plan *plan, PyObject *row, Step *step) {
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) < 2
        || !PyTuple_Check(PyTuple_GET_ITEM(row, 1)))
        return refuse("malformed step row");
    PyObject *ids = PyTuple_GET_ITEM(row, 1);
    step->kind = (StepKind)PyLong_AsLong(PyTuple_GET_ITEM(row, 0));
    step->ids = parse_ids(plan, ids, step->kind == STEP_CALL ? -1 : 0);
    if (!step->ids)
        return -1;
    step->n_ids = PyTuple_GET_SIZE(ids);
    if (step->n_ids > plan->most_ids)
        plan->most_ids = step->n_ids;
    switch (step->kind) {
    case STEP_KERNEL:
        return parse_kernel(plan, row, step);
    case STEP_PRODUCT:
        return parse_product(plan, row, step);
    case STEP_CALL:
        return parse_call(plan, row, step);
    case STEP_FREE:
        return 0;
    case STEP_NESTED:
        return argand_parse_nested(plan, row, step);
    case STEP_KEEP:
        return parse_keep(plan, row, step);
    }
    return refuse("unknown kind of step");
}

static int parse_number(const Plan *plan, PyObject *row, Py_ssize_t place, Number *number) {
    int kind;
    long long left, right;
    if (!is_row(row) || !PyArg_ParseTuple(row, "iLL", &kind, &left, &right))
        return -1;
    *number = (Number){kind, left, right};
    int reads_input = kind <= NUMBER_INPUT;
    if (kind < 0 || kind > NUMBER_MAXIMUM || (reads_input && (left < 0 || left >= plan->n_inputs || right < 0)))
        return refuse("malformed number row");
    return check_symbols(&number->left, 1, place) || check_symbols(&number->right, 1, place) ? -1
                                                                                             : 0;
}

static int parse_given(Plan *plan, const TorchLink *torch, PyObject *rows) {
    if (PyTuple_GET_SIZE(rows) != plan->n_inputs)
        return refuse("a row for each input");
    plan->given = zeros(plan->n_inputs, sizeof *plan->given);
    for (Py_ssize_t i = 0; plan->given && i < plan->n_inputs; i++)
        if (parse_buffer(plan, torch, PyTuple_GET_ITEM(rows, i), i, &plan->given[i]))
            return -1;
    return plan->given ? 0 : -1;
}

int argand_plan_parse(Plan *plan, const TorchLink *torch, PyObject *args, PyObject *kwargs) {
    PyObject *buffers, *steps, *returns, *keep, *numbers, *labels = NULL, *given = NULL;
    long long arena_bytes;
    if ((kwargs && PyDict_GET_SIZE(kwargs))
        || !PyArg_ParseTuple(args, "nO!O!O!LOO!|O!O!", &plan->n_inputs, &PyTuple_Type, &buffers,
                             &PyTuple_Type, &steps, &PyTuple_Type, &returns, &arena_bytes, &keep,
                             &PyTuple_Type, &numbers, &PyTuple_Type, &labels, &PyTuple_Type, &given)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "Plan takes no keywords");
        return -1;
    }
    plan->keep = Py_NewRef(keep);
    if (plan->n_inputs < 0 || plan->n_inputs > MOST_INPUTS) {
        plan->n_inputs = 0;
        return refuse("a plan has from none to very many inputs");
    }
    plan->arena_bytes = arena_bytes;
    Py_ssize_t n_numbers = PyTuple_GET_SIZE(numbers);
    plan->numbers = zeros(n_numbers, sizeof *plan->numbers);
    if (!plan->numbers)
        return -1;
    if (n_numbers > MOST_SYMBOLS)
        return refuse("a plan has too many numbers");
    for (Py_ssize_t i = 0; i < n_numbers; i++)
        if (parse_number(plan, PyTuple_GET_ITEM(numbers, i), i, &plan->numbers[i]))
            return -1;
    plan->n_numbers = n_numbers;
    if (check_symbols(&plan->arena_bytes, 1, n_numbers))
        return -1;
    Py_ssize_t n_buffers = PyTuple_GET_SIZE(buffers), n_steps = PyTuple_GET_SIZE(steps);
    plan->buffers = zeros(n_buffers, sizeof *plan->buffers);
    plan->steps = zeros(n_steps, sizeof *plan->steps);
    if (!plan->buffers || !plan->steps)
        return -1;
    plan->n_buffers = n_buffers;
    for (Py_ssize_t i = 0; i < n_buffers; i++)
        if (parse_buffer(plan, torch, PyTuple_GET_ITEM(buffers, i), plan->n_inputs + i, &plan->buffers[i]))
            return -1;
    if (given && parse_given(plan, torch, given))
        return -1;
    plan->n_steps = n_steps;
    for (Py_ssize_t i = 0; i < n_steps; i++)
        if (parse_step(plan, PyTuple_GET_ITEM(steps, i), &plan->steps[i]))
            return -1;
    for (Py_ssize_t i = 0; i < n_steps; i++)
        for (Py_ssize_t k = 1; plan->steps[i].kind == STEP_KEEP && k <= plan->steps[i].total; k++)
            if (plan->steps[i + k].kind > STEP_PRODUCT)
                return refuse("what is kept is made without Python");
    for (Py_ssize_t i = 0; labels && i < n_steps && i < PyTuple_GET_SIZE(labels); i++)
        if (PyUnicode_Check(PyTuple_GET_ITEM(labels, i)))
            plan->steps[i].label = Py_NewRef(PyTuple_GET_ITEM(labels, i));
    plan->n_returns = PyTuple_GET_SIZE(returns);
    plan->returns = parse_ids(plan, returns, 0);
    return plan->returns ? 0 : -1;
}

static void clear_arguments(Argument *arguments, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_CLEAR(arguments[i].object);
        clear_arguments(arguments[i].items, arguments[i].count);
    }
    PyMem_Free(arguments);
}

int argand_plan_clear(PyObject *self) {
    Plan *plan = (Plan *)self;
    Py_ssize_t n_buffers = plan->n_buffers, n_steps = plan->n_steps;
    plan->n_buffers = plan->n_steps = plan->n_returns = 0;
    for (Py_ssize_t i = 0; i < n_buffers; i++) {
        Py_CLEAR(plan->buffers[i].object);
        PyMem_Free(plan->buffers[i].sizes);
    }
    for (Py_ssize_t i = 0; plan->given && i < plan->n_inputs; i++) {
        Py_CLEAR(plan->given[i].object);
        PyMem_Free(plan->given[i].sizes);
    }
    PyMem_Free(plan->given);
    plan->given = NULL;
    for (Py_ssize_t i = 0; i < n_steps; i++) {
        Step *step = &plan->steps[i];
        Py_CLEAR(step->function);
        Py_CLEAR(step->names);
        Py_CLEAR(step->label);
        clear_arguments(step->arguments, step->n_arguments);
        argand_clear_nested(step->nested);
        PyMem_Free(step->ids);
        PyMem_Free(step->sizes);
    }
    PyMem_Free(plan->buffers);
    PyMem_Free(plan->steps);
    PyMem_Free(plan->returns);
    PyMem_Free(plan->numbers);
    PyMem_Free(plan->spent);
    plan->spent = NULL;
    argand_kept_free(plan->kept);
    plan->kept = NULL;
    plan->numbers = NULL;
    plan->buffers = NULL;
    plan->steps = NULL;
    plan->returns = NULL;
    Py_CLEAR(plan->keep);
    return 0;
}

static int traverse_arguments(const Argument *arguments, Py_ssize_t count, visitproc visit,
                              void *arg) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_VISIT(arguments[i].object);
        int found = traverse_arguments(arguments[i].items, arguments[i].count, visit, arg);
        if (found)
            return found;
    }
    return 0;
}

int argand_plan_traverse(PyObject *self, visitproc visit, void *arg) {
    const Plan *plan = (Plan *)self;
    Py_VISIT(plan->keep);
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++)
        Py_VISIT(plan->buffers[i].object);
    for (Py_ssize_t i = 0; i < plan->n_steps; i++) {
        Py_VISIT(plan->steps[i].function);
        int inner = argand_traverse_nested(plan->steps[i].nested, visit, arg);
        if (inner)
            return inner;
        int found = traverse_arguments(plan->steps[i].arguments, plan->steps[i].n_arguments,
                                       visit, arg);
        if (found)
            return found;
    }
    return 0;
}
