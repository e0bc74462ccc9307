// argand.runtime._native: regions, the tables of compiled entries.
//
// Every compiled object has a region: the callback that compiles, and per code object the entries
// made so far. Code objects are held weakly: rows of dead ones are dropped when the table grows.
// An entry whose guarded objects died has lost its target already and is dropped when met.
#include "regions.h"

#include <structmember.h>

// ---- entries ----

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *program, *target;
    if (!PyArg_ParseTuple(args, "O!O", &ArgandProgram_Type, &program, &target)) return NULL;
    if (((ArgandProgram *)program)->clears != NULL) {
        PyErr_SetString(PyExc_ValueError, "the guard program belongs to another entry");
        return NULL;
    }
    ArgandEntry *entry = (ArgandEntry *)type->tp_alloc(type, 0);
    if (entry == NULL) return NULL;
    entry->program = (ArgandProgram *)Py_NewRef(program);
    entry->target = Py_NewRef(target);
    entry->program->clears = &entry->target;
    return (PyObject *)entry;
}

static int entry_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((ArgandEntry *)self)->program);
    Py_VISIT(((ArgandEntry *)self)->target);
    return 0;
}

static int entry_clear(PyObject *self) {
    ArgandEntry *entry = (ArgandEntry *)self;
    if (entry->program != NULL) entry->program->clears = NULL;
    Py_CLEAR(entry->target);
    Py_CLEAR(entry->program);
    return 0;
}

static void entry_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    entry_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMemberDef entry_members[] = {
    {"program", T_OBJECT, offsetof(ArgandEntry, program), READONLY, "its guards"},
    {"target", T_OBJECT, offsetof(ArgandEntry, target), READONLY, "what a hit calls; None: dead"},
    {"hits", T_ULONGLONG, offsetof(ArgandEntry, hits), READONLY, "how often its guards held"},
    {NULL}};

PyTypeObject ArgandEntry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Entry",
    .tp_doc = "Entry(program, target): call target with the collected values when guards hold.",
    .tp_basicsize = sizeof(ArgandEntry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    .tp_traverse = entry_traverse,
    .tp_clear = entry_clear,
    .tp_dealloc = entry_dealloc,
    .tp_members = entry_members,
};

// ---- rows ----

static size_t slot_of(const ArgandRegion *region, const PyCodeObject *code) {
    return ((uintptr_t)code >> 5) & ((size_t)region->slots - 1);
}

static ArgandRow *probe(const ArgandRegion *region, const PyCodeObject *code) {
    size_t slot = slot_of(region, code);
    while (region->rows[slot].code != NULL && region->rows[slot].code != code)
        slot = (slot + 1) & ((size_t)region->slots - 1);
    return &region->rows[slot];
}

static int is_alive(const ArgandRow *row) {
    return PyWeakref_GET_OBJECT(row->reference) == (PyObject *)row->code;
}

ArgandRow *argand_region_find(ArgandRegion *region, PyCodeObject *code) {
    if (region->slots == 0) return NULL;
    ArgandRow *row = probe(region, code);
    return row->code != NULL && is_alive(row) ? row : NULL;
}

// The row must be out of the table: dropping entries runs code.
static void drop_row(ArgandRow *row) {
    for (Py_ssize_t i = 0; i < row->count; i++) Py_DECREF(row->entries[i]);
    PyMem_Free(row->entries);
    Py_XDECREF(row->reference);
}

// A table with room for one more row; rows of dead code objects are left behind.
static int grow(ArgandRegion *region) {
    if (2 * (region->used + 1) <= region->slots) return 0;
    ArgandRow *old = region->rows;
    Py_ssize_t old_slots = region->slots, alive = 0;
    for (Py_ssize_t i = 0; i < old_slots; i++) alive += old[i].code != NULL && is_alive(&old[i]);
    Py_ssize_t slots = 8;
    while (slots < 4 * (alive + 1)) slots *= 2;
    ArgandRow *rows = PyMem_Calloc(slots, sizeof *rows);
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    region->rows = rows;
    region->slots = slots;
    region->used = alive;
    region->generation++;
    for (Py_ssize_t i = 0; i < old_slots; i++) {
        if (old[i].code == NULL || !is_alive(&old[i])) continue;
        *probe(region, old[i].code) = old[i];
        old[i] = (ArgandRow){0};
    }
    for (Py_ssize_t i = 0; i < old_slots; i++) drop_row(&old[i]);
    PyMem_Free(old);
    return 0;
}

static ArgandRow *find_or_make(ArgandRegion *region, PyCodeObject *code) {
    if (grow(region) < 0) return NULL;
    ArgandRow *row = probe(region, code);
    if (row->code != NULL && is_alive(row)) return row;
    PyObject *reference = PyWeakref_NewRef((PyObject *)code, NULL);
    if (reference == NULL) return NULL;
    ArgandRow stale = *row;
    *row = (ArgandRow){.code = code, .reference = reference};
    region->used += stale.code == NULL;
    region->generation++;
    unsigned long long generation = region->generation;
    drop_row(&stale);
    return region->generation == generation ? row : argand_region_find(region, code);
}

static void remove_at(ArgandRegion *region, ArgandRow *row, Py_ssize_t i) {
    ArgandEntry *entry = row->entries[i];
    memmove(row->entries + i, row->entries + i + 1, (row->count - i - 1) * sizeof entry);
    row->count--;
    region->generation++;
    Py_DECREF(entry);
}

int argand_region_add(ArgandRegion *region, PyCodeObject *code, ArgandEntry *entry) {
    ArgandRow *row = find_or_make(region, code);
    if (row == NULL) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < row->count; i++)
        if (row->entries[i] == entry) return 0; /* another thread was faster */
    ArgandEntry **entries = PyMem_Realloc(row->entries, (row->count + 1) * sizeof *entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memmove(entries + 1, entries, row->count * sizeof *entries);
    entries[0] = (ArgandEntry *)Py_NewRef(entry);
    row->entries = entries;
    row->count++;
    region->generation++;
    return 0;
}

int argand_region_skip(ArgandRegion *region, PyCodeObject *code) {
    ArgandRow *row = find_or_make(region, code);
    if (row == NULL) return -1;
    row->skipped = 1;
    return 0;
}

static void move_to_front(ArgandRow *row, Py_ssize_t i) {
    ArgandEntry *entry = row->entries[i];
    memmove(row->entries + 1, row->entries, i * sizeof entry);
    row->entries[0] = entry;
}

ArgandEntry *argand_region_match(ArgandRegion *region, PyCodeObject *code,
                                 const ArgandWorld *world, PyObject ***collected,
                                 Py_ssize_t room) {
    ArgandRow *row = argand_region_find(region, code);
    PyObject **given = *collected;
    for (Py_ssize_t i = 0; row != NULL && i < row->count;) {
        ArgandEntry *entry = row->entries[i];
        if (entry->target == NULL || entry->program->dead) {
            remove_at(region, row, i);
            row = argand_region_find(region, code);
            continue;
        }
        Py_ssize_t wanted = entry->program->collect_count, failed;
        if (wanted > room) {
            if (*collected != given) PyMem_Free(*collected);
            *collected = PyMem_Malloc(wanted * sizeof **collected);
            if (*collected == NULL) break;
            room = wanted;
        }
        unsigned long long generation = region->generation;
        Py_INCREF(entry); /* a program may run Python code, and that anything */
        int hit = argand_program_run(entry->program, world, *collected, &failed);
        int moved = region->generation != generation;
        if (hit && entry->target != NULL) {
            if (!moved && i > 0) move_to_front(row, i);
            entry->hits++;
            return entry;
        }
        if (hit)
            for (Py_ssize_t j = 0; j < wanted; j++) Py_DECREF((*collected)[j]);
        Py_DECREF(entry);
        if (moved) row = argand_region_find(region, code);
        i++;
    }
    if (*collected != given) PyMem_Free(*collected);
    *collected = given;
    return NULL;
}

// ---- the region as a Python object ----

static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *callback;
    if (!PyArg_ParseTuple(args, "O", &callback)) return NULL;
    ArgandRegion *region = (ArgandRegion *)type->tp_alloc(type, 0);
    if (region != NULL) region->callback = Py_NewRef(callback);
    return (PyObject *)region;
}

static int region_traverse(PyObject *self, visitproc visit, void *arg) {
    ArgandRegion *region = (ArgandRegion *)self;
    Py_VISIT(region->callback);
    for (Py_ssize_t i = 0; i < region->slots; i++)
        for (Py_ssize_t j = 0; j < region->rows[i].count; j++) Py_VISIT(region->rows[i].entries[j]);
    return 0;
}

static void drop_rows(ArgandRegion *region) {
    ArgandRow *rows = region->rows;
    Py_ssize_t slots = region->slots;
    region->rows = NULL;
    region->slots = region->used = 0;
    region->generation++;
    for (Py_ssize_t i = 0; i < slots; i++) drop_row(&rows[i]);
    PyMem_Free(rows);
}

static int region_tp_clear(PyObject *self) {
    drop_rows((ArgandRegion *)self);
    Py_CLEAR(((ArgandRegion *)self)->callback);
    return 0;
}

static void region_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (((ArgandRegion *)self)->weakrefs != NULL) PyObject_ClearWeakRefs(self);
    region_tp_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyCodeObject *as_code(PyObject *object) {
    if (PyCode_Check(object)) return (PyCodeObject *)object;
    PyErr_SetString(PyExc_TypeError, "a code object is expected");
    return NULL;
}

static PyObject *region_entries(PyObject *self, PyObject *argument) {
    PyCodeObject *code = as_code(argument);
    if (code == NULL) return NULL;
    PyObject *list = PyList_New(0);
    ArgandRow *row = argand_region_find((ArgandRegion *)self, code);
    for (Py_ssize_t i = 0; list != NULL && row != NULL && i < row->count; i++)
        if (row->entries[i]->target != NULL && PyList_Append(list, (PyObject *)row->entries[i]) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *region_codes(PyObject *self, PyObject *ignored) {
    ArgandRegion *region = (ArgandRegion *)self;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < region->slots; i++)
        if (region->rows[i].code != NULL && is_alive(&region->rows[i]) &&
            PyList_Append(list, (PyObject *)region->rows[i].code) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *region_find(PyObject *self, PyObject *view) {
    ArgandWorld world;
    if (argand_world_of_view(view, &world) < 0) return NULL;
    PyCodeObject *code = (PyCodeObject *)PyStructSequence_GET_ITEM(view, 0);
    PyObject **collected = NULL;
    ArgandEntry *entry =
        argand_region_match((ArgandRegion *)self, code, &world, &collected, 0);
    if (entry != NULL) {
        for (Py_ssize_t i = 0; i < entry->program->collect_count; i++) Py_DECREF(collected[i]);
        PyMem_Free(collected);
        entry->hits--;
    }
    PyMem_Free((void *)world.locals);
    return entry == NULL ? Py_NewRef(Py_None) : (PyObject *)entry;
}

static PyObject *region_add(PyObject *self, PyObject *args) {
    PyObject *code, *entry;
    if (!PyArg_ParseTuple(args, "O!O!", &PyCode_Type, &code, &ArgandEntry_Type, &entry)) return NULL;
    if (argand_region_add((ArgandRegion *)self, (PyCodeObject *)code, (ArgandEntry *)entry) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *region_skip(PyObject *self, PyObject *argument) {
    PyCodeObject *code = as_code(argument);
    if (code == NULL || argand_region_skip((ArgandRegion *)self, code) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *region_close(PyObject *self, PyObject *argument) {
    PyCodeObject *code = as_code(argument);
    ArgandRow *row = code == NULL ? NULL : find_or_make((ArgandRegion *)self, code);
    if (row == NULL) return NULL;
    row->closed = 1;
    Py_RETURN_NONE;
}

static PyObject *region_clear(PyObject *self, PyObject *ignored) {
    drop_rows((ArgandRegion *)self);
    Py_RETURN_NONE;
}

static PyMethodDef region_methods[] = {
    {"entries", region_entries, METH_O, "entries(code) -> list, most recently used first"},
    {"codes", region_codes, METH_NOARGS, "codes() -> code objects with entries or marks"},
    {"find", region_find, METH_O, "find(view) -> the entry whose guards hold, or None"},
    {"add", region_add, METH_VARARGS, "add(code, entry): the newest entry of a code"},
    {"skip", region_skip, METH_O, "skip(code): never ask the callback about it again"},
    {"close", region_close, METH_O, "close(code): no new entries; a miss runs the frame"},
    {"clear", region_clear, METH_NOARGS, "clear(): forget all entries and marks"},
    {NULL}};

static PyMemberDef region_members[] = {
    {"callback", T_OBJECT, offsetof(ArgandRegion, callback), READONLY, "asked on a miss"}, {NULL}};

PyTypeObject ArgandRegion_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Region",
    .tp_doc = "Region(callback): the compiled entries of one compiled object.",
    .tp_basicsize = sizeof(ArgandRegion),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = region_new,
    .tp_traverse = region_traverse,
    .tp_clear = region_tp_clear,
    .tp_dealloc = region_dealloc,
    .tp_methods = region_methods,
    .tp_members = region_members,
    .tp_weaklistoffset = offsetof(ArgandRegion, weakrefs),
};

int argand_add_regions(PyObject *module) {
    if (PyType_Ready(&ArgandEntry_Type) < 0 || PyType_Ready(&ArgandRegion_Type) < 0) return -1;
    if (PyModule_AddObjectRef(module, "Entry", (PyObject *)&ArgandEntry_Type) < 0) return -1;
    return PyModule_AddObjectRef(module, "Region", (PyObject *)&ArgandRegion_Type);
}
