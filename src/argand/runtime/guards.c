// argand.runtime._native: guard programs.
//
// A program is a tree of sources, flattened in the order they are walked (parents first), with
// checks hanging on its nodes; runtime/guard_programs.py makes it. Walking a node gives its value:
// nothing (NULL) if the source has no value, and then every check but MISSING fails.
//
// The shortcut that makes big models cheap: every change of a dict gives it a version no other
// dict ever had, and every change of a class or of its bases gives it a new version tag. A node
// remembers the version under which all its checks held; under the same version its items are the
// same objects as last time, so they are not looked up again, and those of them that are leaves
// with checks of unchangeable things ("stable", placed first) are not visited at all. What can
// change behind an unchanged dict (tensor metadata, nested dicts, classes of objects) is always
// checked.
//
// Invariant: version[i] != 0  =>  value[] of the item children of node i are what the dict (class)
// of that version holds. So a run that fails forgets the versions it was about to replace.
//
// Values are borrowed: no other code runs while a program does, the collector neither (the dict of an
// object may be made only when it is asked for). A program with sources that may run Python code
// ("owning") holds references during the run instead.
#include "cpython.h"
#include "guards.h"
#include "versions.h"

// ---- values ----

static PyObject *instance_dict(PyObject *object) {
    PyObject *managed = argand_managed_dict(object);
    if (managed != NULL) return managed;
    PyObject **slot = _PyObject_GetDictPtr(object); /* makes the dict of an object that has none yet */
    if (slot == NULL) PyErr_Clear();
    else if (*slot == NULL && Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        PyObject *made = PyObject_GenericGetDict(object, NULL);
        if (made == NULL) PyErr_Clear();
        Py_XDECREF(made);
    }
    return slot == NULL ? NULL : *slot;
}

static PyObject *item_of(PyObject *container, const Node *node) {
    if (PyDict_Check(container)) {
        PyObject *value = _PyDict_GetItem_KnownHash(container, node->operand, node->hash);
        if (value == NULL) PyErr_Clear();
        return value;
    }
    Py_ssize_t i = node->index;
    if (PyTuple_Check(container)) {
        if (i < 0) i += PyTuple_GET_SIZE(container);
        return i >= 0 && i < PyTuple_GET_SIZE(container) ? PyTuple_GET_ITEM(container, i) : NULL;
    }
    if (PyList_Check(container)) {
        if (i < 0) i += PyList_GET_SIZE(container);
        return i >= 0 && i < PyList_GET_SIZE(container) ? PyList_GET_ITEM(container, i) : NULL;
    }
    return NULL;
}

// The item of a dict whose key is an object that only a weak reference leads to.
static PyObject *keyed_item(PyObject *container, const Node *node) {
    PyObject *key = PyWeakref_GET_OBJECT(node->operand);
    if (key == Py_None || !PyDict_Check(container)) return NULL;
    Py_INCREF(key);
    PyObject *value = _PyDict_GetItem_KnownHash(container, key, node->hash);
    if (value == NULL) PyErr_Clear();
    Py_DECREF(key);
    return value;
}

static PyObject *tuple_item(PyObject *tuple, Py_ssize_t i) {
    if (tuple == NULL || !PyTuple_Check(tuple) || i >= PyTuple_GET_SIZE(tuple)) return NULL;
    return PyTuple_GET_ITEM(tuple, i);
}

static PyObject *own(State *state, PyObject *fresh) {
    if (fresh == NULL) PyErr_Clear();
    else state->owned[state->owned_count++] = fresh;
    return fresh;
}

static PyObject *root_value(const Node *node, const ArgandWorld *world) {
    switch (node->op) {
    case OP_LOCAL: return node->index < world->local_count ? world->locals[node->index] : NULL;
    case OP_GLOBALS: return world->globals;
    case OP_BUILTINS: return world->builtins;
    case OP_FUNCTION: return world->function;
    default: return node->operand;
    }
}

static PyObject *step_value(const Node *node, PyObject *base, State *state) {
    switch (node->op) {
    case OP_ATTR: return own(state, PyObject_GetAttr(base, node->operand));
    case OP_DICT_OF: return instance_dict(base);
    case OP_ITEM: return item_of(base, node);
    case OP_KEYED: return keyed_item(base, node);
    case OP_CLOSURE_CELL:
        return PyFunction_Check(base) ? tuple_item(PyFunction_GET_CLOSURE(base), node->index) : NULL;
    case OP_CONTENTS: return PyCell_Check(base) ? PyCell_GET(base) : NULL;
    case OP_DEFAULTS:
        return PyFunction_Check(base) ? tuple_item(PyFunction_GET_DEFAULTS(base), node->index) : NULL;
    case OP_KW_DEFAULTS: return PyFunction_Check(base) ? PyFunction_GET_KW_DEFAULTS(base) : NULL;
    case OP_TYPE_OF: return (PyObject *)Py_TYPE(base);
    case OP_TYPE_ATTR:
        return PyType_Check(base) ? _PyType_Lookup((PyTypeObject *)base, node->operand) : NULL;
    case OP_SIZE_OF: return own(state, argand_tensor_size(base, node->index));
    case OP_QUOTIENT:
        return PyLong_CheckExact(base) ? own(state, PyNumber_FloorDivide(base, node->operand)) : NULL;
    case OP_MADE: return own(state, PyObject_CallOneArg(node->operand, base));
    default: return NULL;
    }
}

static uint64_t version_of(PyObject *value) {
    if (PyDict_Check(value)) return argand_dict_version(value);
    return PyType_Check(value) ? argand_type_version(value) : 0;
}

// ---- checks ----

// -1: it has none, or asking would run Python code in a program that cannot bear it.
static Py_ssize_t length_of(PyObject *value, int owning) {
    if (PyDict_Check(value)) return PyDict_GET_SIZE(value);
    if (PyList_Check(value) || PyTuple_Check(value)) return Py_SIZE(value);
    if (!owning && Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE) return -1;
    Py_ssize_t length = PyObject_Size(value);
    if (length < 0) PyErr_Clear();
    return length;
}

static int has_keys(PyObject *dict, PyObject *keys) {
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return 0;
    Py_ssize_t position = 0, i = 0;
    PyObject *key;
    if (PyODict_Check(dict)) { /* has an order of its own; its iterator, not a subclass's */
        PyObject *keys_now = PyODict_Type.tp_iter(dict);
        int same = keys_now != NULL;
        while (same && (key = PyIter_Next(keys_now)) != NULL) {
            same = argand_equals(PyTuple_GET_ITEM(keys, i++), key);
            Py_DECREF(key);
        }
        Py_XDECREF(keys_now);
        PyErr_Clear();
        return same;
    }
    while (PyDict_Next(dict, &position, &key, NULL))
        if (!argand_equals(PyTuple_GET_ITEM(keys, i++), key)) return 0;
    return 1;
}

// As has_keys; a weak reference among the expected ones stands for what it leads to.
static int has_object_keys(PyObject *dict, PyObject *keys) {
    if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return 0;
    Py_ssize_t position = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &position, &key, NULL)) {
        PyObject *expected = PyTuple_GET_ITEM(keys, i++);
        int same = PyWeakref_CheckRef(expected) ? PyWeakref_GET_OBJECT(expected) == key
                                                : argand_equals(expected, key);
        if (!same) return 0;
    }
    return 1;
}

static int contains(PyObject *container, PyObject *key) {
    int answer = PyDict_Check(container)     ? PyDict_Contains(container, key)
                 : PyAnySet_Check(container) ? PySet_Contains(container, key)
                                             : -1;
    if (answer < 0) PyErr_Clear();
    return answer;
}

static int has_attribute(PyObject *value, PyObject *name) {
    PyObject *found;
    int answer = argand_lookup_attribute(value, name, &found);
    if (answer < 0) PyErr_Clear();
    Py_XDECREF(found);
    return answer;
}

static int holds(const Check *check, PyObject *value, int owning) {
    if (value == NULL) return check->kind == MISSING;
    switch (check->kind) {
    case TYPE_IS: return (PyObject *)Py_TYPE(value) == check->expected;
    case ID_IS: return value == check->expected;
    case EQUALS: return argand_equals(check->expected, value);
    case LENGTH: return length_of(value, owning) == check->number;
    case DICT_KEYS: return has_keys(value, check->expected);
    case OBJECT_KEYS: return has_object_keys(value, check->expected);
    case HAS_ATTR: return has_attribute(value, check->expected) == 1;
    case NO_ATTR: return has_attribute(value, check->expected) == 0;
    case DICT_CONTAINS: return contains(value, check->expected) == 1;
    case DICT_MISSING: return contains(value, check->expected) == 0;
    case TENSOR: {
        int answer = argand_tensor_matches(check->tensor, value);
        if (answer < 0) PyErr_Clear();
        return answer == 1;
    }
    case WEAK_ALIVE: return 1;
    case HOLDS: return argand_holds(check->expected, value);
    case COMPARED: { /* no identity shortcut: nan is not equal to itself */
        if (!PyFloat_CheckExact(value)) return 0;
        long comparison = PyLong_AsLong(PyTuple_GET_ITEM(check->expected, 0));
        PyObject *now = PyFloat_Type.tp_richcompare(value, PyTuple_GET_ITEM(check->expected, 1), (int)comparison);
        int same = now == PyTuple_GET_ITEM(check->expected, 2);
        Py_XDECREF(now);
        return same;
    }
    default: return 0;
    }
}

// Calls a C function without arguments as directly as can be.
static PyObject *call_reader(PyObject *reader) {
    if (PyCFunction_CheckExact(reader) && PyCFunction_GET_FLAGS(reader) == METH_NOARGS)
        return PyCFunction_GET_FUNCTION(reader)(PyCFunction_GET_SELF(reader), NULL);
    return PyObject_CallNoArgs(reader);
}

// expected: (reader, value, reader, value, ...)
static int state_is(PyObject *expected) {
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(expected); i += 2) {
        PyObject *now = call_reader(PyTuple_GET_ITEM(expected, i));
        int same = now != NULL && argand_equals(PyTuple_GET_ITEM(expected, i + 1), now);
        Py_XDECREF(now);
        if (!same) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

// expected: a tuple of node numbers. All different objects, or tensors of different storages.
static int all_different(PyObject *expected, PyObject **value, int by_storage) {
    Py_ssize_t count = PyTuple_GET_SIZE(expected), slots = 8;
    while (slots < 2 * count) slots *= 2;
    const void *small[256];
    const void **table = slots <= 256 ? small : PyMem_Malloc(slots * sizeof *table);
    if (table == NULL) return 0;
    memset(table, 0, slots * sizeof *table);
    int different = 1;
    for (Py_ssize_t i = 0; different && i < count; i++) {
        PyObject *object = value[PyLong_AsSsize_t(PyTuple_GET_ITEM(expected, i))];
        if (object == NULL) continue;
        const void *identity = by_storage ? argand_tensor_storage(object) : object;
        if (identity == NULL) continue;
        size_t slot = ((uintptr_t)identity >> 4) & (slots - 1);
        while (table[slot] != NULL && table[slot] != identity) slot = (slot + 1) & (slots - 1);
        different = table[slot] != identity;
        table[slot] = identity;
    }
    if (table != small) PyMem_Free(table);
    return different;
}

static long long side_value(PyObject *side, PyObject **value, int *fails);

// factor: (0 for //, 1 for %, 2 for min, 3 for max, side, side), as Python computes it
static long long applied(PyObject *factor, PyObject **value, int *fails) {
    long left_wins, operation = PyLong_AsLong(PyTuple_GET_ITEM(factor, 0));
    long long left = side_value(PyTuple_GET_ITEM(factor, 1), value, fails);
    long long right = side_value(PyTuple_GET_ITEM(factor, 2), value, fails);
    if (operation >= 2) {
        left_wins = operation == 2 ? left < right : left > right;
        return left_wins ? left : right;
    }
    if (*fails || right == 0 || right == -1) { /* -1: may overflow; no size needs it */
        *fails = 1;
        return 0;
    }
    long long quotient = left / right, rest = left % right;
    if (rest != 0 && (rest < 0) != (right < 0)) quotient--, rest += right;
    return operation == 0 ? quotient : rest;
}

// side: ((coefficient, (factor, ...)), ...), a factor is a node or see `applied`; 0 and *fails set when a value is no machine integer.
static long long side_value(PyObject *side, PyObject **value, int *fails) {
    long long sum = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(side); i++) {
        PyObject *term = PyTuple_GET_ITEM(side, i);
        PyObject *factors = PyTuple_GET_ITEM(term, 1);
        long long product = PyLong_AsLongLong(PyTuple_GET_ITEM(term, 0));
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(factors); j++) {
            PyObject *factor = PyTuple_GET_ITEM(factors, j);
            int overflow = 0;
            if (PyTuple_Check(factor)) {
                *fails |= __builtin_mul_overflow(product, applied(factor, value, fails), &product);
                continue;
            }
            factor = value[PyLong_AsSsize_t(factor)];
            if (factor == NULL || !PyLong_CheckExact(factor)) *fails = 1;
            else {
                long long number = PyLong_AsLongLongAndOverflow(factor, &overflow);
                *fails |= overflow || __builtin_mul_overflow(product, number, &product);
            }
        }
        *fails |= __builtin_add_overflow(sum, product, &sum);
    }
    return sum;
}

// expected: (operator, left, right)
static int relation_holds(PyObject *expected, PyObject **value) {
    int fails = 0;
    long long left = side_value(PyTuple_GET_ITEM(expected, 1), value, &fails);
    long long right = side_value(PyTuple_GET_ITEM(expected, 2), value, &fails);
    if (fails) return 0;
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(expected, 0));
    if (strcmp(name, "==") == 0) return left == right;
    if (strcmp(name, "!=") == 0) return left != right;
    if (strcmp(name, "<") == 0) return left < right;
    if (strcmp(name, "<=") == 0) return left <= right;
    if (strcmp(name, ">") == 0) return left > right;
    if (strcmp(name, ">=") == 0) return left >= right;
    return left != 0 && right % left == 0; /* divides */
}

static int global_holds(const Check *check, PyObject **value) {
    switch (check->kind) {
    case GLOBAL_STATE: return state_is(check->expected);
    case NOT_ALIASED: return all_different(check->expected, value, 0);
    case NO_OVERLAP: return all_different(check->expected, value, 1);
    case SAME_OBJECT: {
        PyObject *first = value[PyLong_AsSsize_t(PyTuple_GET_ITEM(check->expected, 0))];
        return first != NULL &&
               first == value[PyLong_AsSsize_t(PyTuple_GET_ITEM(check->expected, 1))];
    }
    case RELATION: return relation_holds(check->expected, value);
    case TABLES: return 1; /* asked before the walk */
    default: return 0;
    }
}

// ---- running ----

// The checks of one node; the failing row, or -1.
static Py_ssize_t check_node(const ArgandProgram *program, const Node *node, PyObject *value,
                             int matched) {
    for (Py_ssize_t i = node->first; i < node->last; i++) {
        const Check *check = &program->checks[i];
        if (matched && check->versioned &&
            (check->kind != DICT_KEYS || !PyODict_Check(value)))
            continue;
        if (!holds(check, value, program->owning)) return check->guard;
    }
    return -1;
}

// The failing row, or -1.
static Py_ssize_t walk(const ArgandProgram *program, const ArgandWorld *world, State *state) {
    for (Py_ssize_t i = 0; i < program->node_count;) {
        const Node *node = &program->nodes[i];
        PyObject *value;
        Py_ssize_t owned = state->owned_count;
        if (node->parent < 0) value = root_value(node, world);
        else if (state->matched[node->parent] && (node->op == OP_ITEM || node->op == OP_KEYED || node->op == OP_TYPE_ATTR)) {
            value = state->value[i];
            // Most nodes of a model are dicts below unchanged dicts: they end here.
            if (state->is_dict[i] && !node->lasting && !program->owning &&
                argand_dict_version(value) == state->version[i]) {
                state->matched[i] = 1;
                i = node->live;
                continue;
            }
        } else {
            PyObject *base = state->value[node->parent];
            value = base == NULL ? NULL : step_value(node, base, state);
            state->is_dict[i] = node->versioned && value != NULL && PyDict_Check(value);
        }
        if (program->owning && value != NULL && state->owned_count == owned)
            state->owned[state->owned_count++] = Py_NewRef(value);
        state->value[i] = value;
        int matched = 0;
        if (node->versioned && value != NULL) {
            uint64_t version = version_of(value);
            matched = version != 0 && version == state->version[i];
            if (!matched) {
                state->seen[i] = version;
                state->changed[state->changed_count++] = i;
            }
        }
        state->matched[i] = (char)matched;
        if (node->first < node->last) {
            Py_ssize_t failed = check_node(program, node, value, matched);
            if (failed >= 0) return failed;
        }
        i = matched ? node->live : i + 1;
    }
    for (Py_ssize_t i = program->first_global; i < program->check_count; i++)
        if (!global_holds(&program->checks[i], state->value)) return program->checks[i].guard;
    return -1;
}

void argand_state_free(State *state) {
    PyMem_Free(state->value);
    PyMem_Free(state->version);
    PyMem_Free(state->seen);
    PyMem_Free(state->matched);
    PyMem_Free(state->is_dict);
    PyMem_Free(state->changed);
    PyMem_Free(state->owned);
    *state = (State){0};
}

int argand_state_init(State *state, Py_ssize_t nodes) {
    size_t count = (size_t)nodes + 1;
    *state = (State){.value = PyMem_Calloc(count, sizeof(PyObject *)),
                     .version = PyMem_Calloc(count, sizeof(uint64_t)),
                     .seen = PyMem_Calloc(count, sizeof(uint64_t)),
                     .matched = PyMem_Calloc(count, 1),
                     .is_dict = PyMem_Calloc(count, 1),
                     .changed = PyMem_Calloc(count, sizeof(Py_ssize_t)),
                     .owned = PyMem_Calloc(count, sizeof(PyObject *))};
    if (state->value && state->version && state->seen && state->matched && state->is_dict &&
        state->changed && state->owned)
        return 0;
    argand_state_free(state);
    return -1;
}

static int gather(const ArgandProgram *program, const State *state, PyObject **collected,
                  Py_ssize_t *failed) {
    for (Py_ssize_t i = 0; i < program->collect_count; i++) {
        PyObject *value = state->value[program->collect[i]];
        if (value == NULL) {
            while (i-- > 0) Py_DECREF(collected[i]);
            *failed = -1;
            return 0;
        }
        collected[i] = Py_NewRef(value);
    }
    return 1;
}

static int run_in(ArgandProgram *program, const ArgandWorld *world, State *state,
                  PyObject **collected, Py_ssize_t *failed) {
    state->changed_count = state->owned_count = 0;
    *failed = walk(program, world, state);
    int hit = *failed < 0;
    for (Py_ssize_t i = 0; i < state->changed_count; i++) {
        Py_ssize_t node = state->changed[i];
        state->version[node] = hit ? state->seen[node] : 0;
    }
    if (hit && collected != NULL) hit = gather(program, state, collected, failed);
    return hit;
}

static void release_owned(State *state) {
    Py_ssize_t count = state->owned_count;
    state->owned_count = 0;
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(state->owned[i]);
}

int argand_program_run(ArgandProgram *program, const ArgandWorld *world, PyObject **collected,
                       Py_ssize_t *failed) {
    *failed = -1;
    if (program->dead) return 0;
    if (program->tables != NULL && !argand_tables_hold(program->tables)) {
        *failed = program->tables_guard;
        return 0;
    }
    if (program->dead) return 0; /* asking may run Python code */
    if (!program->owning) {
        int held = argand_hold_collector(), answer = run_in(program, world, &program->state, collected, failed);
        argand_let_collector_go(held);
        return answer;
    }
    // Python code may run inside, and come here again: the inner run has a memory of its own.
    int again = program->running, hit = 0;
    State fresh, *state = &program->state;
    if (again) {
        if (argand_state_init(&fresh, program->node_count) < 0) return 0;
        state = &fresh;
    }
    Py_INCREF(program);
    program->running = 1;
    hit = run_in(program, world, state, collected, failed);
    release_owned(state);
    if (again) argand_state_free(&fresh);
    program->running = again;
    Py_DECREF(program);
    return hit;
}
