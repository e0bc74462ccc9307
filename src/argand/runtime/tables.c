// argand.runtime._native: facts about tables that rarely change.
//
// Tables(dicts, classes, functions, questions): what a trace found in the dicts of modules and in
// classes, the functions it went through, and which classes count as subclasses of which.
//    dicts:     (dict, ((name, how, expected), ...))
//    classes:   (class, own, ((name, how, expected), ...)), own: its own dict only, not its bases'
//    functions: (function, defaults, keyword defaults), with NULL for each default that is not a constant
//    questions: (class, abstract class, answer)
// how: 0 nothing is there, 1 this object, 2 an object of this class, 3 an equal value of this type.
//
// A program has one of these, for all it relies on of that kind: at each call a dict and a class
// cost one comparison of versions, a function three of pointers. Only after a change are the names
// looked up again, so the facts may be many. Expected objects are held weakly where they can be, and
// classes and functions always: a trace keeps no class of the user's alive. Of a function or class
// that is gone nothing is asked: whoever led to it has a guard.
#include "tables.h"

#include "guards.h"
#include "versions.h"

#include <structmember.h>

enum How { ABSENT, THE_OBJECT, OF_CLASS, EQUAL, HOW_COUNT };

typedef struct {
    PyObject *holder; /* a dict, or a weak reference to a class */
    PyObject *names;  /* tuple of rows */
    PyObject *bases;  /* of a class: weak references to its __mro__ */
    uint64_t version; /* under which all was well */
    char is_class, own;
} Table;

typedef struct {
    PyObject *function; /* a weak reference */
    PyObject *code, *defaults, *keywords; /* the latter two may be NULL */
    uint64_t version;   /* of the dict of keyword defaults */
} Callee;

typedef struct {
    PyObject_HEAD
    Table *tables;
    Py_ssize_t table_count;
    Callee *callees;
    Py_ssize_t callee_count;
    PyObject *questions; /* tuple of (weak reference, weak reference, answer) */
    PyObject *token;     /* of the registries of abstract classes, when they were asked */
    PyObject *token_reader;
} Tables;

// ---- asking ----

static PyObject *referent(PyObject *reference) {
    PyObject *object = PyWeakref_GET_OBJECT(reference);
    return object == Py_None ? NULL : object;
}

// row: (name, how, expected); an expected object may be behind a weak reference (see `row_of`)
static int row_holds(PyObject *row, PyObject *found) {
    PyObject *expected = PyTuple_GET_ITEM(row, 2);
    switch (PyLong_AsLong(PyTuple_GET_ITEM(row, 1))) {
    case ABSENT: return found == NULL;
    case THE_OBJECT:
        if (PyTuple_GET_SIZE(row) > 3) expected = referent(PyTuple_GET_ITEM(row, 3));
        return found != NULL && found == expected;
    case OF_CLASS: return found != NULL && (PyObject *)Py_TYPE(found) == referent(expected);
    default: return found != NULL && argand_equals(expected, found);
    }
}

static PyObject *found_in(const Table *table, PyObject *holder, PyObject *name) {
    PyObject *found;
    if (table->is_class && !table->own) return _PyType_Lookup((PyTypeObject *)holder, name);
    found = PyDict_GetItemWithError(table->is_class ? argand_type_dict(holder) : holder, name);
    if (found == NULL) PyErr_Clear();
    return found;
}

static int same_bases(PyObject *type, PyObject *bases) {
    PyObject *now = ((PyTypeObject *)type)->tp_mro; /* none yet while its `mro` runs */
    if (now == NULL) return PyTuple_GET_SIZE(bases) == 0;
    if (PyTuple_GET_SIZE(now) != PyTuple_GET_SIZE(bases)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); i++)
        if (PyTuple_GET_ITEM(now, i) != referent(PyTuple_GET_ITEM(bases, i))) return 0;
    return 1;
}

static uint64_t version_of(const Table *table, PyObject *holder) {
    return table->is_class ? argand_type_version(holder) : argand_dict_version(holder);
}

// The number of the first row that does not hold; -1: all hold; -2: the class has other bases.
static Py_ssize_t failing_row(Table *table) {
    PyObject *holder = table->is_class ? referent(table->holder) : table->holder;
    if (holder == NULL) return -1;
    uint64_t version = version_of(table, holder);
    if (version != 0 && version == table->version) return -1;
    if (table->is_class && !same_bases(holder, table->bases)) return -2;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(table->names); i++) {
        PyObject *row = PyTuple_GET_ITEM(table->names, i);
        if (!row_holds(row, found_in(table, holder, PyTuple_GET_ITEM(row, 0)))) return i;
    }
    table->version = version_of(table, holder); /* looking things up gives a class its version */
    return -1;
}

static int same_defaults(PyObject *expected, PyObject *now) {
    if (expected == now) return 1;
    if (expected == NULL || now == NULL || PyTuple_GET_SIZE(expected) != PyTuple_GET_SIZE(now)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); i++) {
        PyObject *item = PyTuple_GET_ITEM(expected, i);
        if (item != argand_null && !argand_equals(item, PyTuple_GET_ITEM(now, i))) return 0;
    }
    return 1;
}

static int same_keywords(Callee *callee, PyObject *now) {
    if (callee->keywords == NULL || now == NULL) return callee->keywords == now;
    uint64_t version = argand_dict_version(now);
    if (version != 0 && version == callee->version) return 1;
    if (PyDict_GET_SIZE(callee->keywords) != PyDict_GET_SIZE(now)) return 0;
    Py_ssize_t i = 0;
    PyObject *key, *item;
    while (PyDict_Next(callee->keywords, &i, &key, &item)) {
        PyObject *found = PyDict_GetItemWithError(now, key);
        if (found == NULL || (item != argand_null && !argand_equals(item, found))) {
            PyErr_Clear();
            return 0;
        }
    }
    callee->version = version;
    return 1;
}

static int callee_holds(Callee *callee) {
    PyFunctionObject *function = (PyFunctionObject *)referent(callee->function);
    if (function == NULL) return 1;
    return function->func_code == callee->code &&
           same_defaults(callee->defaults, function->func_defaults) &&
           same_keywords(callee, function->func_kwdefaults);
}

// Classes register with abstract ones behind everybody's back; one counter tells that any did.
static int answers_hold(Tables *self) {
    PyObject *token = PyObject_CallNoArgs(self->token_reader);
    if (token == NULL) PyErr_Clear();
    else if (argand_equals(token, self->token)) {
        Py_DECREF(token);
        return 1;
    }
    PyObject *questions = Py_NewRef(self->questions);
    int same = 1;
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(questions); i++) {
        PyObject *row = PyTuple_GET_ITEM(questions, i);
        PyObject *kind = Py_XNewRef(referent(PyTuple_GET_ITEM(row, 0)));
        PyObject *abstract = Py_XNewRef(referent(PyTuple_GET_ITEM(row, 1)));
        int answer = kind && abstract ? PyObject_IsSubclass(kind, abstract) : -1;
        if (PyErr_Occurred()) PyErr_Clear();
        same = answer == (PyTuple_GET_ITEM(row, 2) == Py_True);
        Py_XDECREF(kind);
        Py_XDECREF(abstract);
    }
    Py_DECREF(questions);
    if (same && token != NULL) Py_XSETREF(self->token, Py_NewRef(token));
    Py_XDECREF(token);
    return same;
}

int argand_tables_hold(PyObject *object) {
    Tables *self = (Tables *)object;
    for (Py_ssize_t i = 0; i < self->table_count; i++)
        if (failing_row(&self->tables[i]) != -1) return 0;
    for (Py_ssize_t i = 0; i < self->callee_count; i++)
        if (!callee_holds(&self->callees[i])) return 0;
    if (self->questions == NULL || PyTuple_GET_SIZE(self->questions) == 0) return 1;
    Py_INCREF(self);
    int same = answers_hold(self);
    Py_DECREF(self);
    return same;
}

PyDoc_STRVAR(changed_doc, "changed() -> the text of what does not hold any more, or None");

static PyObject *changed(PyObject *object, PyObject *unused) {
    Tables *self = (Tables *)object;
    for (Py_ssize_t i = 0; i < self->table_count; i++) {
        Table *table = &self->tables[i];
        Py_ssize_t row = failing_row(table);
        if (row == -1) continue;
        PyObject *holder = table->is_class ? referent(table->holder) : table->holder;
        PyObject *name = table->is_class ? PyObject_GetAttrString(holder, "__qualname__")
                                         : Py_XNewRef(PyDict_GetItemString(holder, "__name__"));
        PyErr_Clear();
        PyObject *text = row == -2 ? PyUnicode_FromFormat("`%S` has other bases", name ? name : Py_None)
                                   : PyUnicode_FromFormat("`%S.%U` was replaced", name ? name : Py_None,
                                                          PyTuple_GET_ITEM(PyTuple_GET_ITEM(table->names, row), 0));
        Py_XDECREF(name);
        return text;
    }
    for (Py_ssize_t i = 0; i < self->callee_count; i++)
        if (!callee_holds(&self->callees[i]))
            return PyUnicode_FromFormat("the function `%U` has new code or defaults",
                                        ((PyFunctionObject *)referent(self->callees[i].function))->func_qualname);
    if (!argand_tables_hold(object)) return PyUnicode_FromString("a class was registered with an abstract one");
    Py_RETURN_NONE;
}

// ---- making ----

// (name, how, expected): the objects behind weak references where they allow it.
static PyObject *row_of(PyObject *row) {
    PyObject *name, *expected;
    int how;
    if (!PyArg_ParseTuple(row, "UiO", &name, &how, &expected)) return NULL;
    if (how < 0 || how >= HOW_COUNT || (how == OF_CLASS && !PyType_Check(expected))) {
        PyErr_SetString(PyExc_ValueError, "a fact about a table is malformed");
        return NULL;
    }
    if (how == OF_CLASS || (how == THE_OBJECT && PyType_SUPPORTS_WEAKREFS(Py_TYPE(expected)))) {
        PyObject *weak = PyWeakref_NewRef(expected, NULL);
        if (weak == NULL) return NULL;
        return how == OF_CLASS ? Py_BuildValue("OiN", name, how, weak) : Py_BuildValue("OiON", name, how, Py_None, weak);
    }
    return Py_NewRef(row);
}

static PyObject *rows_of(PyObject *rows) {
    PyObject *made = PyTuple_New(PyTuple_GET_SIZE(rows));
    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = row_of(PyTuple_GET_ITEM(rows, i));
        if (row == NULL) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, i, row);
    }
    return made;
}

static PyObject *weak_bases(PyObject *type) {
    PyObject *mro = ((PyTypeObject *)type)->tp_mro;
    PyObject *made = PyTuple_New(mro == NULL ? 0 : PyTuple_GET_SIZE(mro));
    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_GET_SIZE(made); i++) {
        PyObject *weak = PyWeakref_NewRef(PyTuple_GET_ITEM(mro, i), NULL);
        if (weak == NULL) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, i, weak);
    }
    return made;
}

static int add_dicts(Tables *self, PyObject *dicts) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dicts); i++) {
        PyObject *dict, *names;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(dicts, i), "O!O!", &PyDict_Type, &dict, &PyTuple_Type, &names)) return -1;
        Table *table = &self->tables[self->table_count++];
        table->holder = Py_NewRef(dict);
        table->names = rows_of(names);
        if (table->names == NULL) return -1;
    }
    return 0;
}

static int add_classes(Tables *self, PyObject *classes) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); i++) {
        PyObject *kind, *names;
        int own;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(classes, i), "O!pO!", &PyType_Type, &kind, &own, &PyTuple_Type, &names))
            return -1;
        Table *table = &self->tables[self->table_count++];
        table->is_class = 1;
        table->own = (char)own;
        table->holder = PyWeakref_NewRef(kind, NULL);
        table->names = rows_of(names);
        table->bases = weak_bases(kind);
        if (table->holder == NULL || table->names == NULL || table->bases == NULL) return -1;
    }
    return 0;
}

static int add_functions(Tables *self, PyObject *functions) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(functions); i++) {
        PyObject *function, *defaults, *keywords;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(functions, i), "O!OO", &PyFunction_Type, &function, &defaults, &keywords))
            return -1;
        if ((defaults != Py_None && !PyTuple_Check(defaults)) || (keywords != Py_None && !PyDict_Check(keywords))) {
            PyErr_SetString(PyExc_ValueError, "a fact about a function is malformed");
            return -1;
        }
        Callee *callee = &self->callees[self->callee_count++];
        callee->function = PyWeakref_NewRef(function, NULL);
        callee->code = Py_NewRef(((PyFunctionObject *)function)->func_code);
        callee->defaults = defaults == Py_None ? NULL : Py_NewRef(defaults);
        callee->keywords = keywords == Py_None ? NULL : Py_NewRef(keywords);
        if (callee->function == NULL) return -1;
    }
    return 0;
}

static int add_questions(Tables *self, PyObject *questions) {
    PyObject *module = PyImport_ImportModule("_abc");
    self->token_reader = module == NULL ? NULL : PyObject_GetAttrString(module, "get_cache_token");
    Py_XDECREF(module);
    if (self->token_reader == NULL) return -1;
    self->token = PyObject_CallNoArgs(self->token_reader);
    self->questions = PyTuple_New(PyTuple_GET_SIZE(questions));
    if (self->token == NULL || self->questions == NULL) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(questions); i++) {
        PyObject *kind, *abstract;
        int answer;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(questions, i), "O!O!p", &PyType_Type, &kind, &PyType_Type, &abstract,
                              &answer))
            return -1;
        PyObject *row = Py_BuildValue("NNO", PyWeakref_NewRef(kind, NULL), PyWeakref_NewRef(abstract, NULL),
                                      answer ? Py_True : Py_False);
        if (row == NULL) return -1;
        PyTuple_SET_ITEM(self->questions, i, row);
    }
    return 0;
}

static PyObject *tables_new(PyTypeObject *type, PyObject *args, PyObject *unused) {
    PyObject *dicts, *classes, *functions, *questions;
    if (!PyArg_ParseTuple(args, "O!O!O!O!", &PyTuple_Type, &dicts, &PyTuple_Type, &classes, &PyTuple_Type, &functions,
                          &PyTuple_Type, &questions))
        return NULL;
    Tables *self = (Tables *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->tables = PyMem_Calloc(PyTuple_GET_SIZE(dicts) + PyTuple_GET_SIZE(classes) + 1, sizeof(Table));
    self->callees = PyMem_Calloc(PyTuple_GET_SIZE(functions) + 1, sizeof(Callee));
    if (self->tables == NULL || self->callees == NULL) PyErr_NoMemory();
    else if (add_dicts(self, dicts) == 0 && add_classes(self, classes) == 0 && add_functions(self, functions) == 0 &&
             (PyTuple_GET_SIZE(questions) == 0 || add_questions(self, questions) == 0))
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int tables_traverse(PyObject *object, visitproc visit, void *arg) {
    Tables *self = (Tables *)object;
    for (Py_ssize_t i = 0; i < self->table_count; i++) {
        Py_VISIT(self->tables[i].holder);
        Py_VISIT(self->tables[i].names);
    }
    for (Py_ssize_t i = 0; i < self->callee_count; i++) {
        Py_VISIT(self->callees[i].defaults);
        Py_VISIT(self->callees[i].keywords);
    }
    return 0;
}

static int tables_clear(PyObject *object) {
    Tables *self = (Tables *)object;
    Py_ssize_t tables = self->table_count, callees = self->callee_count;
    self->table_count = self->callee_count = 0;
    for (Py_ssize_t i = 0; i < tables; i++) {
        Py_CLEAR(self->tables[i].holder);
        Py_CLEAR(self->tables[i].names);
        Py_CLEAR(self->tables[i].bases);
    }
    for (Py_ssize_t i = 0; i < callees; i++) {
        Py_CLEAR(self->callees[i].function);
        Py_CLEAR(self->callees[i].code);
        Py_CLEAR(self->callees[i].defaults);
        Py_CLEAR(self->callees[i].keywords);
    }
    Py_CLEAR(self->questions);
    Py_CLEAR(self->token);
    Py_CLEAR(self->token_reader);
    return 0;
}

static void tables_dealloc(PyObject *object) {
    Tables *self = (Tables *)object;
    PyObject_GC_UnTrack(object);
    tables_clear(object);
    PyMem_Free(self->tables);
    PyMem_Free(self->callees);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *tables_repr(PyObject *object) {
    Tables *self = (Tables *)object;
    Py_ssize_t dicts = 0, asked = self->questions == NULL ? 0 : PyTuple_GET_SIZE(self->questions);
    for (Py_ssize_t i = 0; i < self->table_count; i++) dicts += !self->tables[i].is_class;
    return PyUnicode_FromFormat("of %zd modules, %zd classes, %zd functions, %zd questions", dicts,
                                self->table_count - dicts, self->callee_count, asked);
}

static PyMethodDef methods[] = {{"changed", changed, METH_NOARGS, changed_doc}, {NULL}};

PyTypeObject ArgandTables_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Tables",
    .tp_doc = "Facts about dicts of modules, classes and functions.",
    .tp_basicsize = sizeof(Tables),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = tables_new,
    .tp_traverse = tables_traverse,
    .tp_clear = tables_clear,
    .tp_dealloc = tables_dealloc,
    .tp_methods = methods,
    .tp_repr = tables_repr,
};

int argand_add_tables(PyObject *module) {
    if (PyType_Ready(&ArgandTables_Type) < 0) return -1;
    return PyModule_AddObjectRef(module, "Tables", (PyObject *)&ArgandTables_Type);
}
