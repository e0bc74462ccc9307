// argand.runtime._native, steps that run other plans: conditions and loops.
//
// The plan of a branch is run on pointers: its inputs are buffers of the plan around it, or places in
// them that move from round to round, and its results are written where the caller wants them. No
// tensor exists in between unless a step of the branch calls Python.
#include "run.h"

// What a branch works with, kept from round to round.
typedef struct {
    Run run;
    void **memory;
    char started;
} Inner;

static int open_inner(Inner *inner, const Run *outer, const Plan *plan) {
    Py_ssize_t count = plan->n_inputs + plan->n_buffers;
    Py_ssize_t words = 2 * count + plan->most_ids + plan->n_numbers + plan->most_sizes;
    inner->memory = PyMem_Calloc(words + 1, sizeof *inner->memory);
    if (!inner->memory) {
        PyErr_NoMemory();
        return -1;
    }
    int64_t *numbers = (int64_t *)(inner->memory + 2 * count + plan->most_ids);
    inner->run = (Run){.plan = plan,
                       .torch = outer->torch,
                       .pointers = inner->memory,
                       .objects = (PyObject **)inner->memory + count,
                       .table = inner->memory + 2 * count,
                       .numbers = numbers,
                       .sizes = numbers + plan->n_numbers};
    return 0;
}

static void close_inner(Inner *inner) {
    if (!inner->memory)
        return;
    Py_ssize_t count = inner->run.plan->n_inputs + inner->run.plan->n_buffers;
    for (Py_ssize_t i = 0; i < count; i++)
        Py_XDECREF(inner->run.objects[i]);
    if (inner->run.arena)
        argand_arena_give(inner->run.arena);
    PyMem_Free(inner->memory);
    inner->memory = NULL;
}

// Tensors and pointers of the round before are of no use in the next one.
static void forget_round(Inner *inner) {
    Run *run = &inner->run;
    const Plan *plan = run->plan;
    for (Py_ssize_t i = 0; i < plan->n_inputs; i++)
        if (run->pointers[i] || (run->objects[i] && !PyLong_CheckExact(run->objects[i]))) {
            Py_CLEAR(run->objects[i]);
            run->pointers[i] = NULL;
        }
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++) {
        BufferKind kind = plan->buffers[i].kind;
        if (kind == BUFFER_FRESH || kind == BUFFER_MADE || kind == BUFFER_VIEW) {
            Py_CLEAR(run->objects[plan->n_inputs + i]);
            run->pointers[plan->n_inputs + i] = NULL;
        }
    }
}

// One place of an input or a result in a round: a pointer, or an integer.
static char *moved(const Run *outer, const Place *place, int64_t round) {
    char *base = outer->pointers[place->id];
    return base + resolve(place->start, outer->numbers) + round * resolve(place->step, outer->numbers);
}

static int give_inputs(Inner *inner, const Run *outer, const Nested *nested, void *const *carries, int64_t round) {
    for (Py_ssize_t i = 0; i < nested->n_inputs; i++) {
        const Place *place = &nested->inputs[i];
        if (place->kind == PLACE_BUFFER) {
            inner->run.pointers[i] = moved(outer, place, round);
        } else if (place->kind == PLACE_CARRY) {
            inner->run.pointers[i] = carries[place->id];
        } else if (!inner->started || place->kind == PLACE_ROUND) {
            int64_t number = place->kind == PLACE_ROUND ? round : resolve(place->start, outer->numbers);
            Py_XSETREF(inner->run.objects[i], PyLong_FromLongLong(number));
            if (!inner->run.objects[i])
                return -1;
        }
    }
    if (inner->started)
        return 0;
    inner->started = 1;
    return argand_prepare_run(&inner->run);
}

// Run a branch; result i goes to results[i], of so many bytes.
static int run_inner(Inner *inner, char *const *results, const int64_t *bytes) {
    Run *run = &inner->run;
    const Plan *plan = run->plan;
    for (Py_ssize_t i = 0; i < plan->n_returns; i++) {
        int id = plan->returns[i];
        if (id >= plan->n_inputs && plan->buffers[id - plan->n_inputs].kind == BUFFER_FRESH && !run->pointers[id])
            run->pointers[id] = results[i];
    }
    if (argand_run_steps(run))
        return -1;
    for (Py_ssize_t i = 0; i < plan->n_returns; i++) {
        int id = plan->returns[i];
        if (bytes[i] && !run->pointers[id] && !argand_object_of(run, id))
            return -1;
        if (bytes[i] && run->pointers[id] != results[i]) {
            if (!run->pointers[id] && argand_refuse_missing_memory(run, id))
                return -1;
            memcpy(results[i], run->pointers[id], (size_t)bytes[i]);
        }
    }
    return 0;
}

typedef struct {
    void **now;      /* what this round reads */
    char **ours;     /* memory of carries besides that of the results */
    char **results;  /* of this round */
    int64_t *bytes;
} Rounds;

static void close_rounds(Rounds *rounds, const Nested *nested) {
    for (Py_ssize_t i = 0; rounds->ours && i < nested->n_carries; i++)
        PyMem_RawFree(rounds->ours[i]);
    PyMem_Free(rounds->now);
    PyMem_Free(rounds->ours);
    PyMem_Free(rounds->results);
    PyMem_Free(rounds->bytes);
}

static int open_rounds(Rounds *rounds, const Run *outer, const Nested *nested) {
    rounds->now = PyMem_Calloc(nested->n_carries + 1, sizeof(void *));
    rounds->ours = PyMem_Calloc(nested->n_carries + 1, sizeof(char *));
    rounds->results = PyMem_Calloc(nested->n_outputs + 1, sizeof(char *));
    rounds->bytes = PyMem_Calloc(nested->n_outputs + 1, sizeof(int64_t));
    if (!rounds->now || !rounds->ours || !rounds->results || !rounds->bytes)
        goto failed;
    for (Py_ssize_t i = 0; i < nested->n_outputs; i++)
        rounds->bytes[i] = resolve(nested->outputs[i].bytes, outer->numbers);
    for (Py_ssize_t i = 0; i < nested->n_carries; i++) {
        rounds->now[i] = outer->pointers[nested->carries[i].first];
        rounds->ours[i] = PyMem_RawMalloc((size_t)resolve(nested->carries[i].bytes, outer->numbers) + 64);
        if (!rounds->ours[i])
            goto failed;
    }
    return 0;
failed:
    PyErr_NoMemory();
    return -1;
}

// Where a round writes. A carry never goes where it is read from.
static void aim_results(Rounds *rounds, const Run *outer, const Nested *nested, int64_t round) {
    for (Py_ssize_t i = 0; i < nested->n_outputs; i++) {
        const Place *place = &nested->outputs[i];
        if (place->kind == PLACE_BUFFER) {
            rounds->results[i] = moved(outer, place, round);
        } else {
            char *last = outer->pointers[nested->carries[place->id].last];
            rounds->results[i] = rounds->now[place->id] == last ? rounds->ours[place->id] : last;
        }
    }
}

static void take_carries(Rounds *rounds, const Nested *nested) {
    for (Py_ssize_t i = 0; i < nested->n_outputs; i++)
        if (nested->outputs[i].kind == PLACE_CARRY)
            rounds->now[nested->outputs[i].id] = rounds->results[i];
}

static void settle_carries(const Rounds *rounds, const Run *outer, const Nested *nested) {
    for (Py_ssize_t i = 0; i < nested->n_carries; i++) {
        char *last = outer->pointers[nested->carries[i].last];
        if (last && rounds->now[i] != last)
            memcpy(last, rounds->now[i], (size_t)resolve(nested->carries[i].bytes, outer->numbers));
    }
}

static int one_round(Inner *inner, Rounds *rounds, const Run *outer, const Nested *nested, int64_t round) {
    if (inner->started)
        forget_round(inner);
    if (give_inputs(inner, outer, nested, rounds->now, round))
        return -1;
    aim_results(rounds, outer, nested, round);
    if (run_inner(inner, rounds->results, rounds->bytes))
        return -1;
    take_carries(rounds, nested);
    return 0;
}

// Whether a loop has another round; -1 with an exception.
static int holds(Inner *test, const Rounds *rounds, const Run *outer, const Nested *nested, int64_t round) {
    char answer = 0, *result = &answer;
    int64_t bytes = 1;
    if (test->started)
        forget_round(test);
    if (give_inputs(test, outer, nested, rounds->now, round) || run_inner(test, &result, &bytes))
        return -1;
    return answer != 0;
}

static int run_rounds(Inner *inner, Rounds *rounds, const Run *outer, const Nested *nested) {
    const Plan *const *plans = (const Plan *const *)nested->plans;
    if (nested->kind == NESTED_COND) {
        const char *condition = outer->pointers[nested->condition];
        return open_inner(&inner[0], outer, plans[*condition ? 0 : 1]) || one_round(&inner[0], rounds, outer, nested, 0);
    }
    if (open_inner(&inner[0], outer, plans[nested->n_plans - 1]))
        return -1;
    if (nested->kind == NESTED_LOOP) {
        int64_t count = resolve(nested->count, outer->numbers);
        for (int64_t round = 0; round < count; round++)
            if (one_round(&inner[0], rounds, outer, nested, round) || (round % 64 == 63 && PyErr_CheckSignals()))
                return -1;
        return 0;
    }
    if (open_inner(&inner[1], outer, plans[0]))
        return -1;
    for (int64_t round = 0;; round++) {
        int more = holds(&inner[1], rounds, outer, nested, round);
        if (more <= 0)
            return more;
        if (one_round(&inner[0], rounds, outer, nested, round) || (round % 64 == 63 && PyErr_CheckSignals()))
            return -1;
    }
}

int argand_run_nested(Run *outer, const Step *step) {
    const Nested *nested = step->nested;
    Inner inner[2] = {{.memory = NULL}, {.memory = NULL}};
    Rounds rounds = {0};
    if (argand_resolve_pointers(outer, step->ids, step->n_ids))
        return -1;
    int failed = open_rounds(&rounds, outer, nested) || run_rounds(inner, &rounds, outer, nested);
    if (!failed)
        settle_carries(&rounds, outer, nested);
    close_inner(&inner[0]);
    close_inner(&inner[1]);
    close_rounds(&rounds, nested);
    return failed ? -1 : 0;
}

// ---- rows ----

static int refuse(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

static int is_number(const Plan *plan, int64_t number) {
    return !is_symbol(number) || number - SYMBOL < plan->n_numbers;
}

static int parse_place(const Plan *plan, const Nested *nested, PyObject *row, Place *place) {
    long long id, start, step, bytes;
    int kind;
    if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "iLLLL", &kind, &id, &start, &step, &bytes))
        return PyErr_Occurred() ? -1 : refuse("a row is a tuple");
    int64_t limit = kind == PLACE_BUFFER ? plan->n_inputs + plan->n_buffers : kind == PLACE_CARRY ? nested->n_carries : 1;
    if (kind < PLACE_BUFFER || kind > PLACE_ROUND || id < 0 || id >= limit || !is_number(plan, start)
        || !is_number(plan, step) || !is_number(plan, bytes))
        return refuse("malformed place of a branch");
    *place = (Place){kind, (int)id, start, step, bytes};
    return 0;
}

static Place *parse_places(const Plan *plan, const Nested *nested, PyObject *rows, Py_ssize_t *count) {
    Py_ssize_t n = PyTuple_GET_SIZE(rows);
    Place *places = PyMem_Calloc(n + 1, sizeof *places);
    for (Py_ssize_t i = 0; places && i < n; i++)
        if (parse_place(plan, nested, PyTuple_GET_ITEM(rows, i), &places[i])) {
            PyMem_Free(places);
            return NULL;
        }
    *count = n;
    return places ? places : (Place *)PyErr_NoMemory();
}

static int parse_carries(const Plan *plan, PyObject *rows, Nested *nested) {
    Py_ssize_t n = PyTuple_GET_SIZE(rows);
    int64_t limit = plan->n_inputs + plan->n_buffers;
    nested->carries = PyMem_Calloc(n + 1, sizeof *nested->carries);
    if (!nested->carries) {
        PyErr_NoMemory();
        return -1;
    }
    nested->n_carries = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        long long first, last, bytes;
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "LLL", &first, &last, &bytes))
            return PyErr_Occurred() ? -1 : refuse("a row is a tuple");
        if (first < 0 || first >= limit || last < 0 || last >= limit || !is_number(plan, bytes))
            return refuse("malformed carry");
        nested->carries[i] = (Carry){(int)first, (int)last, bytes};
    }
    return 0;
}

// Results of a branch lie dense in memory that can be handed over or copied.
static int check_plan(PyObject *object, PyTypeObject *type, const Nested *nested, Py_ssize_t results) {
    if (Py_TYPE(object) != type)
        return refuse("a branch is a plan");
    const Plan *plan = (const Plan *)object;
    if (plan->n_inputs != nested->n_inputs || !plan->given || plan->n_returns != results)
        return refuse("a branch takes and gives what its step says");
    for (Py_ssize_t i = 0; i < plan->n_returns; i++) {
        int id = plan->returns[i];
        BufferKind kind = id < plan->n_inputs ? BUFFER_FRESH : plan->buffers[id - plan->n_inputs].kind;
        if (kind != BUFFER_FRESH && kind != BUFFER_MADE && kind != BUFFER_OBJECT)
            return refuse("a result of a branch is a view");
    }
    return 0;
}

int argand_parse_nested(Plan *plan, PyObject *row, Step *step) {
    PyObject *ids, *plans, *inputs, *outputs, *carries;
    long long condition, count;
    int kind, what;
    if (!PyArg_ParseTuple(row, "iO!iO!O!O!O!LL", &kind, &PyTuple_Type, &ids, &what, &PyTuple_Type, &plans, &PyTuple_Type,
                          &inputs, &PyTuple_Type, &outputs, &PyTuple_Type, &carries, &condition, &count))
        return -1;
    Nested *nested = step->nested = PyMem_Calloc(1, sizeof *nested);
    if (!nested) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t wanted = what == NESTED_LOOP ? 1 : 2;
    if (what < NESTED_COND || what > NESTED_WHILE || PyTuple_GET_SIZE(plans) != wanted || !is_number(plan, count)
        || condition < 0 || condition >= plan->n_inputs + plan->n_buffers)
        return refuse("malformed step of branches");
    nested->kind = what, nested->condition = (int)condition, nested->count = count;
    if (parse_carries(plan, carries, nested)
        || !(nested->inputs = parse_places(plan, nested, inputs, &nested->n_inputs))
        || !(nested->outputs = parse_places(plan, nested, outputs, &nested->n_outputs)))
        return -1;
    for (Py_ssize_t i = 0; i < nested->n_outputs; i++)
        if (nested->outputs[i].kind > PLACE_CARRY)
            return refuse("malformed result of a branch");
    nested->plans = PyMem_Calloc(wanted, sizeof *nested->plans);
    if (!nested->plans) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < wanted; i++) {
        Py_ssize_t results = what == NESTED_WHILE && i == 0 ? 1 : nested->n_outputs;
        if (check_plan(PyTuple_GET_ITEM(plans, i), Py_TYPE(plan), nested, results))
            return -1;
        nested->plans[nested->n_plans++] = Py_NewRef(PyTuple_GET_ITEM(plans, i));
    }
    return 0;
}

void argand_clear_nested(Nested *nested) {
    if (!nested)
        return;
    for (Py_ssize_t i = 0; i < nested->n_plans; i++)
        Py_CLEAR(nested->plans[i]);
    PyMem_Free(nested->plans);
    PyMem_Free(nested->inputs);
    PyMem_Free(nested->outputs);
    PyMem_Free(nested->carries);
    PyMem_Free(nested);
}

int argand_traverse_nested(const Nested *nested, visitproc visit, void *arg) {
    for (Py_ssize_t i = 0; nested && i < nested->n_plans; i++)
        Py_VISIT(nested->plans[i]);
    return 0;
}
