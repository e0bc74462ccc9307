// The tables of a Plan, shared by launch.c (runs them) and plan.c (builds them).
#ifndef ARGAND_PLAN_H
#define ARGAND_PLAN_H
#include "launch.h"

typedef void (*KernelFunction)(void **buffers, const int64_t *sizes, int64_t begin, int64_t end);

// Where a table holds SYMBOL + k, number k of the call is meant: a size known only at run time.
#define SYMBOL INT64_MIN
enum { MOST_SYMBOLS = 1 << 20, MOST_DIMENSIONS = 64, MOST_INPUTS = 1 << 28 };

static inline int is_symbol(int64_t number) { return number < SYMBOL + MOST_SYMBOLS; }

static inline int64_t resolve(int64_t number, const int64_t *numbers) {
    return is_symbol(number) ? numbers[number - SYMBOL] : number;
}

typedef enum {
    NUMBER_SIZE, /* of input `left`, dimension `right` */
    NUMBER_STRIDE,
    NUMBER_INPUT, /* input `left` is an integer */
    NUMBER_ADD,
    NUMBER_SUBTRACT,
    NUMBER_MULTIPLY,
    NUMBER_FLOOR_DIVIDE,
    NUMBER_MODULO,
    NUMBER_MINIMUM,
    NUMBER_MAXIMUM,
} NumberKind;

typedef struct {
    NumberKind kind;
    int64_t left, right;
} Number;

typedef enum {
    BUFFER_FRESH,
    BUFFER_SLOT,
    BUFFER_OBJECT, /* a constant tensor or any other Python value */
    BUFFER_MADE,
    BUFFER_VIEW,
    BUFFER_INTEGER, /* a number of the call as a Python int */
    BUFFER_MARKS,   /* words of this call, 0 at its start, in which kernels note what is wrong */
    BUFFER_KEPT,    /* `offset` bytes into the memory that a plan keeps from call to call */
} BufferKind;

typedef struct {
    BufferKind kind;
    char symbolic; /* offset, sizes or strides hold symbols */
    int32_t dtype;
    int base;       /* VIEW */
    int64_t offset; /* SLOT: bytes into the arena; VIEW: elements from the base's first */
    int64_t ndim; /* -1: a MADE tensor of unknown shape */
    int64_t *sizes;   /* owned, with strides behind */
    int64_t *strides; /* points into sizes */
    PyObject *object; /* OBJECT, owned */
    void *pointer;    /* OBJECT: data pointer of a constant tensor */
} Buffer;

typedef enum {
    STEP_KERNEL,
    STEP_PRODUCT,
    STEP_CALL,
    STEP_FREE,
    STEP_NESTED,
    STEP_KEEP, /* the next `total` steps make what is kept: they run if one of `ids`, of `sizes` bytes each, has changed */
} StepKind;

typedef enum { ARGUMENT_OBJECT, ARGUMENT_BUFFER, ARGUMENT_LIST, ARGUMENT_NUMBER } ArgumentKind;

typedef struct Argument {
    ArgumentKind kind;
    int id;
    Py_ssize_t count;
    PyObject *object;       /* owned */
    struct Argument *items; /* owned */
} Argument;

// C[i,j] = alpha * A[i,j] @ B[i,j] + beta * C[i,j] over a batch of two dimensions, C row-major; a
// fourth buffer, the bias, fills C first. Steps count elements from one of a batch to the next.
typedef struct {
    double alpha, beta;
    int64_t batch[2], step_a[2], step_b[2], step_c[2], step_bias[2];
    int64_t bias_row, bias_column; /* strides of the bias */
    int64_t m, n, k, lda, ldb, ldc;
    char trans_a, trans_b, is_double;
} Product;

typedef enum { NESTED_COND, NESTED_LOOP, NESTED_WHILE } NestedKind;

typedef enum {
    PLACE_BUFFER, /* of buffer `id`, `start` bytes from its first and `step` more in each round */
    PLACE_CARRY,  /* carry `id` */
    PLACE_NUMBER, /* the integer `start` */
    PLACE_ROUND,  /* the number of the round */
} PlaceKind;

typedef struct {
    PlaceKind kind;
    int id;
    int64_t start, step, bytes; /* bytes: of a result */
} Place;

typedef struct {
    int first, last; /* buffers of the carry before the first round and after the last */
    int64_t bytes;
} Carry;

// A condition or a loop: plans that run on memory of the plan around them (nested.c).
typedef struct {
    NestedKind kind;
    int condition; /* COND: the buffer that decides */
    int64_t count; /* LOOP: how many rounds */
    Py_ssize_t n_plans, n_inputs, n_outputs, n_carries;
    PyObject **plans; /* owned; COND: of true and false, LOOP: of a round, WHILE: of the condition and of a round */
    Place *inputs, *outputs;
    Carry *carries;
} Nested;

typedef struct {
    StepKind kind;
    char is_long;  /* worth giving up the GIL */
    char symbolic; /* its numbers hold symbols */
    Py_ssize_t n_ids;
    int *ids; /* owned: operands, or results of a call, or what is freed */
    KernelFunction kernel;
    int64_t total, grain;
    Py_ssize_t n_sizes;
    int64_t *sizes; /* owned */
    Product product;
    PyObject *function, *names; /* owned */
    Py_ssize_t n_arguments;
    Argument *arguments; /* owned */
    PyObject *label;     /* owned; what a profile shows, or NULL */
    Nested *nested;      /* owned */
} Step;

typedef struct Kept Kept; /* kept.c */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t n_inputs, n_buffers, n_steps, n_returns;
    int64_t arena_bytes;
    Py_ssize_t most_ids, most_sizes; /* of any step */
    Py_ssize_t n_numbers;
    Number *numbers; /* what is computed before the first step, in order */
    Buffer *buffers;
    Step *steps;
    int *returns;
    Buffer *given; /* what inputs look like that come as pointers; NULL: they come as tensors */
    PyObject *keep;
    char consumes;
    Kept *kept; /* NULL: it keeps nothing */
    int64_t *spent; /* while plans are measured: nanoseconds of all steps so far, by step; NULL: never */
    int64_t calls;  /* how many calls that were */
} Plan;

// Needs no GIL; all pointers of the step's buffers are set.
void argand_run_product(const TorchLink *torch, const Step *step, void *const *pointers,
                        const int64_t *numbers);

int argand_plan_parse(Plan *plan, const TorchLink *torch, PyObject *args, PyObject *kwargs);
int argand_parse_nested(Plan *plan, PyObject *row, Step *step);
void argand_clear_nested(Nested *nested);
int argand_traverse_nested(const Nested *nested, visitproc visit, void *arg);
int argand_plan_clear(PyObject *self);
int argand_plan_traverse(PyObject *self, visitproc visit, void *arg);

#endif
