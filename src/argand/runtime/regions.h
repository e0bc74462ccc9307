// Compiled entries of code objects, per region.
#ifndef ARGAND_REGIONS_H
#define ARGAND_REGIONS_H

#include "guards.h"

// Guards and what to call when they hold.
typedef struct {
    PyObject_HEAD
    ArgandProgram *program;
    PyObject *target; /* NULL once an object the program watches is gone */
    unsigned long long hits;
} ArgandEntry;

// What a region knows of one code object.
typedef struct {
    PyCodeObject *code; /* the key; only an address, the weak reference says whether it lives */
    PyObject *reference;
    int skipped; /* run it, look at nothing */
    int closed;  /* no more entries: a miss runs the frame */
    ArgandEntry **entries; /* most recently used first */
    Py_ssize_t count;
} ArgandRow;

// One per compiled object: callback, and a hash table of rows by code object.
typedef struct {
    PyObject_HEAD
    PyObject *callback;
    ArgandRow *rows;
    Py_ssize_t slots, used; /* slots is a power of two, or 0 */
    unsigned long long generation; /* changes whenever rows or entries move */
    PyObject *weakrefs;
} ArgandRegion;

extern PyTypeObject ArgandEntry_Type;
extern PyTypeObject ArgandRegion_Type;

// The row of a code object, or NULL.
ArgandRow *argand_region_find(ArgandRegion *region, PyCodeObject *code);

// The entry whose guards hold, as a new reference and now the first of its row, or NULL.
// collected points to room for its values, or to memory to be freed when it was too small.
ArgandEntry *argand_region_match(ArgandRegion *region, PyCodeObject *code,
                                 const ArgandWorld *world, PyObject ***collected,
                                 Py_ssize_t room);

// Put an entry first in its row. 0, or -1 with an exception set.
int argand_region_add(ArgandRegion *region, PyCodeObject *code, ArgandEntry *entry);
int argand_region_skip(ArgandRegion *region, PyCodeObject *code);

int argand_add_regions(PyObject *module);

#endif
