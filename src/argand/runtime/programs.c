// argand.runtime._native: the Python side of guard programs: made from rows, asked about views.
//
// Program(nodes, checks, collect, held, watched, owning)
//    nodes:   (op, parent, live, versioned, operand) in walking order
//    checks:  (kind, node, guard, versioned, expected), by node, those of no single node last
//    collect: node numbers of the values the compiled code takes
//    held:    objects kept alive; watched: objects held weakly, whose death ends the program
#include "guards.h"

#include <structmember.h>

PyObject *argand_null = NULL;
PyTypeObject ArgandView_Type;

// ---- the end of a program ----

typedef struct {
    PyObject_HEAD
    ArgandProgram *program; /* NULL when the program went first */
} Reaper;

static PyObject *reap(PyObject *self, PyObject *args, PyObject *keywords) {
    ArgandProgram *program = ((Reaper *)self)->program;
    if (program != NULL) {
        program->dead = 1;
        if (program->clears != NULL) Py_CLEAR(*program->clears);
    }
    Py_RETURN_NONE;
}

static PyTypeObject Reaper_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Reaper",
    .tp_basicsize = sizeof(Reaper),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = reap,
};

static int watch(ArgandProgram *program, PyObject *objects) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        PyObject *object = PyList_GET_ITEM(objects, i);
        PyObject *list = program->watched, *item;
        if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)))
            item = PyWeakref_NewRef(object, program->reaper);
        else {
            list = program->held;
            item = Py_NewRef(object);
        }
        int status = item == NULL ? -1 : PyList_Append(list, item);
        Py_XDECREF(item);
        if (status < 0) return -1;
    }
    return 0;
}

// ---- making ----

static int read_node(ArgandProgram *program, Py_ssize_t i, PyObject *row) {
    Node *node = &program->nodes[i];
    PyObject *operand;
    int op, parent, live, versioned;
    if (!PyArg_ParseTuple(row, "iiipO", &op, &parent, &live, &versioned, &operand)) return -1;
    if (op < 0 || op >= OP_COUNT || parent >= i || live <= i || live > program->node_count ||
        (parent < 0) != (op <= OP_CONST)) {
        PyErr_Format(PyExc_ValueError, "node %zd of a guard program is malformed", i);
        return -1;
    }
    *node = (Node){.op = op, .parent = parent, .live = live, .versioned = versioned};
    node->index = -1;
    if (node->op == OP_CONST) { /* in held or watched, like the expected object of ID_IS */
        node->operand = operand;
        return 0;
    }
    node->operand = Py_NewRef(operand);
    if (PyLong_Check(operand)) {
        long index = PyLong_AsLong(operand);
        PyErr_Clear(); /* a huge key of a dict is no index */
        if (index == (int32_t)index) node->index = (int32_t)index;
    }
    if (!argand_operand_fits(op, operand, node->index)) {
        PyErr_Format(PyExc_ValueError, "node %zd of a guard program has a wrong operand", i);
        return -1;
    }
    if (node->op == OP_ITEM || node->op == OP_KEYED) {
        node->hash = PyObject_Hash(operand); /* a weak reference has the hash of what it leads to */
        if (node->hash == -1) return -1;
    }
    return 0;
}

static int read_check(ArgandProgram *program, Py_ssize_t i, PyObject *row) {
    Check *check = &program->checks[i];
    PyObject *expected;
    int kind, node_number, guard, versioned;
    if (!PyArg_ParseTuple(row, "iiipO", &kind, &node_number, &guard, &versioned, &expected))
        return -1;
    if (kind < 0 || kind >= KIND_COUNT || node_number >= program->node_count ||
        !argand_expected_fits(kind, expected, program->node_count)) {
        PyErr_Format(PyExc_ValueError, "check %zd of a guard program is malformed", i);
        return -1;
    }
    *check = (Check){.kind = kind, .node = node_number, .guard = guard, .versioned = versioned};
    check->expected = expected;
    if (check->kind != TYPE_IS && check->kind != ID_IS) Py_INCREF(expected);
    if (check->kind == LENGTH) {
        check->number = PyLong_AsSsize_t(expected);
        if (check->number == -1 && PyErr_Occurred()) return -1;
    }
    if (check->kind == TABLES) {
        if (program->tables != NULL || !Py_IS_TYPE(expected, &ArgandTables_Type)) {
            PyErr_SetString(PyExc_ValueError, "a guard program has one row of tables");
            return -1;
        }
        program->tables = expected;
        program->tables_guard = guard;
    }
    if (check->kind == TENSOR) {
        check->tensor = argand_tensor_check_new(expected);
        if (check->tensor == NULL) return -1;
        program->owning |= !argand_tensors_are_fast();
    }
    if (check->node >= 0) {
        Node *node = &program->nodes[check->node];
        if (node->first == node->last) node->first = node->last = (int32_t)i;
        if (node->last != i) {
            PyErr_SetString(PyExc_ValueError, "checks of a guard program are not in order");
            return -1;
        }
        node->last = (int32_t)i + 1;
        node->lasting |= !versioned || kind == DICT_KEYS;
        program->first_global = i + 1;
    }
    return 0;
}

static int read_rows(ArgandProgram *program, PyObject *nodes, PyObject *checks,
                     PyObject *collect) {
    Py_ssize_t node_count = PyList_GET_SIZE(nodes), check_count = PyList_GET_SIZE(checks);
    Py_ssize_t collect_count = PyList_GET_SIZE(collect);
    program->nodes = PyMem_Calloc(node_count + 1, sizeof(Node));
    program->checks = PyMem_Calloc(check_count + 1, sizeof(Check));
    program->collect = PyMem_Calloc(collect_count + 1, sizeof(Py_ssize_t));
    if (!program->nodes || !program->checks || !program->collect ||
        argand_state_init(&program->state, node_count) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    program->node_count = node_count;
    for (Py_ssize_t i = 0; i < node_count; i++)
        if (read_node(program, i, PyList_GET_ITEM(nodes, i)) < 0) return -1;
    program->check_count = check_count;
    for (Py_ssize_t i = 0; i < check_count; i++)
        if (read_check(program, i, PyList_GET_ITEM(checks, i)) < 0) return -1;
    for (Py_ssize_t i = 0; i < collect_count; i++) {
        Py_ssize_t node = PyLong_AsSsize_t(PyList_GET_ITEM(collect, i));
        if (node < 0 || node >= node_count) {
            PyErr_SetString(PyExc_ValueError, "a collected node does not exist");
            return -1;
        }
        program->collect[i] = node;
    }
    program->collect_count = collect_count;
    return 0;
}

static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *nodes, *checks, *collect, *held, *watched;
    int owning;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!p", &PyList_Type, &nodes, &PyList_Type, &checks,
                          &PyList_Type, &collect, &PyList_Type, &held, &PyList_Type, &watched,
                          &owning))
        return NULL;
    ArgandProgram *program = (ArgandProgram *)type->tp_alloc(type, 0);
    if (program == NULL) return NULL;
    program->owning = owning;
    program->held = PyList_GetSlice(held, 0, PyList_GET_SIZE(held));
    program->watched = PyList_New(0);
    program->reaper = (PyObject *)PyObject_New(Reaper, &Reaper_Type);
    if (program->reaper != NULL) ((Reaper *)program->reaper)->program = program;
    if (!program->held || !program->watched || !program->reaper ||
        watch(program, watched) < 0 || read_rows(program, nodes, checks, collect) < 0)
        Py_CLEAR(program);
    return (PyObject *)program;
}

static int program_traverse(PyObject *self, visitproc visit, void *arg) {
    ArgandProgram *program = (ArgandProgram *)self;
    for (Py_ssize_t i = 0; i < program->check_count; i++)
        if (program->checks[i].kind != TYPE_IS && program->checks[i].kind != ID_IS)
            Py_VISIT(program->checks[i].expected);
    Py_VISIT(program->held);
    Py_VISIT(program->watched);
    return 0;
}

static int program_clear(PyObject *self) {
    ArgandProgram *program = (ArgandProgram *)self;
    program->dead = 1; /* what its rows point to may go now */
    if (program->reaper != NULL) ((Reaper *)program->reaper)->program = NULL;
    Py_CLEAR(program->held);
    Py_CLEAR(program->watched);
    return 0;
}

static void program_dealloc(PyObject *self) {
    ArgandProgram *program = (ArgandProgram *)self;
    PyObject_GC_UnTrack(self);
    if (program->weakrefs != NULL) PyObject_ClearWeakRefs(self);
    program_clear(self);
    for (Py_ssize_t i = 0; i < program->node_count; i++)
        if (program->nodes[i].op != OP_CONST) Py_XDECREF(program->nodes[i].operand);
    for (Py_ssize_t i = 0; i < program->check_count; i++) {
        Check *check = &program->checks[i];
        if (check->kind != TYPE_IS && check->kind != ID_IS) Py_XDECREF(check->expected);
        if (check->kind == TENSOR && check->tensor != NULL) argand_tensor_check_free(check->tensor);
    }
    Py_CLEAR(program->reaper);
    PyMem_Free(program->nodes);
    PyMem_Free(program->checks);
    PyMem_Free(program->collect);
    argand_state_free(&program->state);
    Py_TYPE(self)->tp_free(self);
}

// ---- asking ----

int argand_world_of_view(PyObject *view, ArgandWorld *world) {
    if (!Py_IS_TYPE(view, &ArgandView_Type)) {
        PyErr_SetString(PyExc_TypeError, "a frame view is expected");
        return -1;
    }
    PyObject *bare = PyStructSequence_GET_ITEM(view, 4);
    Py_ssize_t count = PyTuple_GET_SIZE(bare);
    PyObject **locals = PyMem_Calloc(count + 1, sizeof *locals);
    if (locals == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyTuple_GET_ITEM(bare, i) != argand_null) locals[i] = PyTuple_GET_ITEM(bare, i);
    *world = (ArgandWorld){.locals = locals, .local_count = count,
                           .function = PyStructSequence_GET_ITEM(view, 1),
                           .globals = PyStructSequence_GET_ITEM(view, 2),
                           .builtins = PyStructSequence_GET_ITEM(view, 3)};
    return 0;
}

PyDoc_STRVAR(check_doc, "check(view) -> tuple of collected values, or the number of the failed guard");

static PyObject *program_check(PyObject *self, PyObject *view) {
    ArgandProgram *program = (ArgandProgram *)self;
    PyObject *values = PyTuple_New(program->collect_count);
    if (values == NULL) return NULL;
    ArgandWorld world;
    if (argand_world_of_view(view, &world) < 0) {
        Py_DECREF(values);
        return NULL;
    }
    Py_ssize_t failed;
    int hit = argand_program_run(program, &world, ((PyTupleObject *)values)->ob_item, &failed);
    PyMem_Free((void *)world.locals);
    if (hit) return values;
    memset(((PyTupleObject *)values)->ob_item, 0, program->collect_count * sizeof(PyObject *));
    Py_DECREF(values);
    return PyLong_FromSsize_t(failed);
}

static PyMethodDef program_methods[] = {{"check", program_check, METH_O, check_doc},
                                        {NULL}};

static PyMemberDef program_members[] = {
    {"dead", T_INT, offsetof(ArgandProgram, dead), READONLY, "one of its objects is gone"},
    {"owning", T_INT, offsetof(ArgandProgram, owning), READONLY, "checking may run Python code"},
    {NULL}};

PyTypeObject ArgandProgram_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Program",
    .tp_doc = "A compiled set of guards.",
    .tp_basicsize = sizeof(ArgandProgram),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = program_new,
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_dealloc = program_dealloc,
    .tp_methods = program_methods,
    .tp_members = program_members,
    .tp_weaklistoffset = offsetof(ArgandProgram, weakrefs),
};

static PyStructSequence_Field view_fields[] = {
    {"code", "the code object"},
    {"function", "the function being called"},
    {"globals", "its globals"},
    {"builtins", "its builtins"},
    {"localsplus", "values of locals, cells and free variables before the first instruction"},
    {NULL}};
static PyStructSequence_Desc view_description = {
    "argand.runtime._native.FrameView", "A frame that has not started.", view_fields, 5};

static PyTypeObject Null_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Null",
    .tp_doc = "Type of NULL, which stands for an unset variable.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

int argand_add_guards(PyObject *module) {
    if (PyType_Ready(&Reaper_Type) < 0 || PyType_Ready(&Null_Type) < 0) return -1;
    if (PyStructSequence_InitType2(&ArgandView_Type, &view_description) < 0) return -1;
    argand_null = (PyObject *)PyObject_New(PyObject, &Null_Type);
    if (argand_null == NULL || PyModule_AddObjectRef(module, "NULL", argand_null) < 0) return -1;
    if (PyModule_AddObjectRef(module, "FrameView", (PyObject *)&ArgandView_Type) < 0) return -1;
    if (PyType_Ready(&ArgandProgram_Type) < 0) return -1;
    return PyModule_AddObjectRef(module, "Program", (PyObject *)&ArgandProgram_Type);
}
