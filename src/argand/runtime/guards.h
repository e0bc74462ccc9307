/* Guard programs: what they are made of, and what frames.c needs of them. */
#ifndef ARGAND_GUARDS_H
#define ARGAND_GUARDS_H

#include "tensors.h"

/* The world of a frame that has not run its first instruction yet. */
typedef struct {
    PyObject *const *locals; /* fast locals; cells are not made yet, arguments lie there bare */
    Py_ssize_t local_count;
    PyObject *globals;
    PyObject *builtins;
    PyObject *function;
} ArgandWorld;

enum Op {
    OP_LOCAL, OP_GLOBALS, OP_BUILTINS, OP_FUNCTION, OP_CONST, OP_ATTR, OP_DICT_OF, OP_ITEM,
    OP_CLOSURE_CELL, OP_CONTENTS, OP_DEFAULTS, OP_KW_DEFAULTS, OP_TYPE_OF, OP_TYPE_ATTR, OP_SIZE_OF,
    OP_COUNT
};

/* The numbers of guards.GuardKind. */
enum Kind {
    TYPE_IS, ID_IS, EQUALS, LENGTH, DICT_KEYS, HAS_ATTR, NO_ATTR, DICT_CONTAINS, DICT_MISSING,
    TENSOR, NOT_ALIASED, SAME_OBJECT, GLOBAL_STATE, WEAK_ALIVE, RELATION, NO_OVERLAP, MISSING,
    KIND_COUNT
};

typedef struct {
    int op;
    int versioned;        /* its items (or class attributes) are wanted, or it has such checks */
    Py_ssize_t parent;    /* -1: a root */
    Py_ssize_t live;      /* the node after the stable leaves that follow this one */
    Py_ssize_t index;     /* operand, when it is a number */
    PyObject *operand;    /* operand, when it is an object; owned unless op is OP_CONST */
    Py_hash_t hash;       /* of the operand, for dicts */
    Py_ssize_t first, last; /* its checks */
} Node;

typedef struct {
    int kind;
    int versioned;      /* holds as long as the version of its node's dict does */
    Py_ssize_t node;    /* -1: of no single node */
    Py_ssize_t guard;   /* the row it came from */
    PyObject *expected; /* owned, except for TYPE_IS and ID_IS */
    Py_ssize_t number;
    ArgandTensorCheck *tensor;
} Check;

typedef struct {
    PyObject **value;
    uint64_t *version; /* under which all was well */
    uint64_t *seen;    /* in this run */
    char *matched;
    Py_ssize_t *changed; /* nodes met under a new version in this run */
    Py_ssize_t changed_count;
    PyObject **owned;
    Py_ssize_t owned_count;
} State;

typedef struct {
    PyObject_HEAD
    Node *nodes;
    Py_ssize_t node_count;
    Check *checks;
    Py_ssize_t check_count;
    Py_ssize_t first_global; /* checks from here on are of no single node */
    Py_ssize_t *collect;
    Py_ssize_t collect_count;
    PyObject *held;    /* list of objects kept alive: constants, expected values */
    PyObject *watched; /* list of weak references; the death of one ends the program */
    PyObject *reaper;
    PyObject *weakrefs;
    PyObject **clears; /* a slot of the entry, cleared when the program dies */
    int owning;
    int dead;
    int running;
    State state;
} ArgandProgram;

extern PyTypeObject ArgandProgram_Type;
extern PyTypeObject ArgandView_Type; /* code, function, globals, builtins, localsplus */
extern PyObject *argand_null;        /* stands for an unset local in a frame view */

/* 1: all guards hold and collected[0..n) has new references. 0: they do not, *failed says which
 * row (-1: a collected source leads nowhere). Never raises: a source that raises leads nowhere. */
int argand_program_run(ArgandProgram *program, const ArgandWorld *world, PyObject **collected,
                       Py_ssize_t *failed);

/* The world of a frame view; its locals must be freed with PyMem_Free. 0, or -1 and an exception. */
int argand_world_of_view(PyObject *view, ArgandWorld *world);

int argand_state_init(State *state, Py_ssize_t nodes);
void argand_state_free(State *state);

#endif
