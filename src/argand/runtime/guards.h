// Guard programs: what they are made of, and what frames.c needs of them.
#ifndef ARGAND_GUARDS_H
#define ARGAND_GUARDS_H

#include "tables.h"
#include "tensors.h"

// The world of a frame that has not run its first instruction yet.
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
    OP_QUOTIENT, OP_KEYED, OP_MADE, OP_COUNT
};

// The numbers of guards.GuardKind.
enum Kind {
    TYPE_IS, ID_IS, EQUALS, LENGTH, DICT_KEYS, HAS_ATTR, NO_ATTR, DICT_CONTAINS, DICT_MISSING,
    TENSOR, NOT_ALIASED, SAME_OBJECT, GLOBAL_STATE, WEAK_ALIVE, RELATION, NO_OVERLAP, MISSING,
    COMPARED, TABLES, HOLDS, OBJECT_KEYS, KIND_COUNT
};

// Small on purpose: a big model has thousands of them, and they are read at every call.
typedef struct {
    int32_t parent;      /* -1: a root */
    int32_t live;        /* the node after the stable leaves that follow this one */
    int32_t first, last; /* its checks */
    int32_t index;       /* operand, when it is a number */
    uint8_t op;
    uint8_t versioned; /* its items (or class attributes) are wanted, or it has such checks */
    uint8_t lasting;   /* it has checks that an unchanged version does not answer */
    PyObject *operand; /* operand, when it is an object; owned unless op is OP_CONST */
    Py_hash_t hash;    /* of the operand, for dicts */
} Node;

typedef struct {
    int32_t node;       /* -1: of no single node */
    int32_t guard;      /* the row it came from */
    uint8_t kind;
    uint8_t versioned;  /* holds as long as the version of its node's dict does */
    PyObject *expected; /* owned, except for TYPE_IS and ID_IS */
    union {
        Py_ssize_t number;         /* of LENGTH */
        ArgandTensorCheck *tensor; /* of TENSOR */
    };
} Check;

typedef struct {
    PyObject **value;
    uint64_t *version; /* under which all was well */
    uint64_t *seen;    /* in this run */
    char *matched; /* in this run the version was the one under which all was well */
    char *is_dict; /* the value is a dict whose version matters */
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
    PyObject *tables;  /* borrowed from its check, or NULL */
    Py_ssize_t tables_guard;
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

// 1: all guards hold and collected[0..n) has new references. 0: they do not, *failed says which
// row (-1: a collected source has no value). Never raises: a source that raises has no value.
int argand_program_run(ArgandProgram *program, const ArgandWorld *world, PyObject **collected,
                       Py_ssize_t *failed);

// The world of a frame view; its locals must be freed with PyMem_Free. 0, or -1 and an exception.
int argand_world_of_view(PyObject *view, ArgandWorld *world);

int argand_state_init(State *state, Py_ssize_t nodes);
void argand_state_free(State *state);

// Whether rows are what guards.c takes them for (validate.c).
int argand_operand_fits(int op, PyObject *operand, int32_t index);
int argand_expected_fits(int kind, PyObject *expected, Py_ssize_t nodes);

#endif
