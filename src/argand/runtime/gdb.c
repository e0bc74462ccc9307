// argand.runtime._native: machine code that gdb can name. Its interface for JIT compilers: a list of symbol files in memory,
// and a function that gdb puts a breakpoint on and that is called whenever the list has changed.
#include "native.h"
#include <stdint.h>

enum { REGISTER = 1, UNREGISTER = 2 };

typedef struct Entry {
    struct Entry *next, *before;
    const char *file;
    uint64_t size;
} Entry;

// Names, fields and their order are gdb's; it looks for both by name in every library of the process.
#if defined(__GNUC__) && !defined(_WIN32)
#define SEEN __attribute__((visibility("default"), used))
#else
#define SEEN
#endif
struct {
    uint32_t version, action;
    Entry *changed, *first;
} __jit_debug_descriptor SEEN = {1, 0, NULL, NULL};

SEEN __attribute__((noinline)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }

static void tell(Entry *entry, uint32_t action) {
    __jit_debug_descriptor.changed = entry;
    __jit_debug_descriptor.action = action;
    __jit_debug_register_code();
    __jit_debug_descriptor.action = 0;
}

static void forget(PyObject *capsule) {
    Entry *entry = PyCapsule_GetPointer(capsule, NULL);
    if (entry->before)
        entry->before->next = entry->next;
    else
        __jit_debug_descriptor.first = entry->next;
    if (entry->next)
        entry->next->before = entry->before;
    tell(entry, UNREGISTER);
    PyMem_Free((char *)entry->file);
    PyMem_Free(entry);
}

// The list is changed with the GIL held.
static PyObject *tell_gdb(PyObject *module, PyObject *args) {
    const char *bytes;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y#", &bytes, &size)) return NULL;
    Entry *entry = PyMem_Calloc(1, sizeof *entry);
    char *file = PyMem_Malloc((size_t)size);
    PyObject *capsule = entry && file ? PyCapsule_New(entry, NULL, forget) : NULL;
    if (capsule == NULL) {
        PyMem_Free(entry);
        PyMem_Free(file);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    memcpy(file, bytes, (size_t)size);
    *entry = (Entry){.next = __jit_debug_descriptor.first, .file = file, .size = (uint64_t)size};
    if (entry->next)
        entry->next->before = entry;
    __jit_debug_descriptor.first = entry;
    tell(entry, REGISTER);
    return capsule;
}

static PyMethodDef functions[] = {
    {"tell_gdb", tell_gdb, METH_VARARGS, "tell_gdb(elf): a symbol file for gdb, as long as the result lives"}, {NULL}};

int argand_add_gdb(PyObject *module) { return PyModule_AddFunctions(module, functions); }
