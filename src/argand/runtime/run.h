// One call of a plan in progress, shared by launch.c (its steps) and buffers.c (its tensors).
#ifndef ARGAND_RUN_H
#define ARGAND_RUN_H
#include "plan.h"

// Words that kernels may write: when an index of the user's is out of range, 1 + its mark (runtime/marks.py) into the
// first, the index and the size of its dimension into the last two; checked kernels write 1 + the buffer, the element
// and the number of the kernel into the others when they would leave a buffer.
enum { MARK_INDEX, MARK_BUFFER, MARK_ELEMENT, MARK_KERNEL, MARK_VALUE, MARK_SIZE, MARKS };

typedef struct {
    const Plan *plan;
    const TorchLink *torch;
    void **pointers;    /* by buffer id; NULL until known */
    PyObject **objects; /* by buffer id; owned; NULL where no Python object exists (yet) */
    void **table;       /* the pointers of the running kernel */
    Arena *arena;
    int64_t *numbers; /* the plan's numbers, computed from the inputs */
    int64_t *sizes;   /* the symbolic sizes of the running kernel */
    int recorded;     /* torch.profiler wants to see each step */
    int64_t *times;   /* nanoseconds per step, when the run is profiled */
    struct Generation *kept; /* what this call uses of the plan's kept memory */
    int64_t marks[MARKS]; /* what kernels of this call found wrong, all 0 when nothing is */
} Run;

// Store a new reference and the data pointer of a tensor object under a buffer id.
int argand_set_object(Run *run, int id, PyObject *object);

// The Python object of a buffer, made now if it does not exist yet (borrowed).
PyObject *argand_object_of(Run *run, int id);

// An error for a buffer whose tensor has elements and no memory (zero tensors, wrappers): a kernel would read NULL.
int argand_refuse_missing_memory(Run *run, int id);

// Numbers, arena and constants of a run whose inputs are there.
int argand_prepare_run(Run *run);

// All steps of a run, and what its kernels found wrong.
int argand_run_steps(Run *run);

// Make sure that the pointers of buffers exist. Only tensors without elements have none.
int argand_resolve_pointers(Run *run, const int *ids, Py_ssize_t count);

// A condition or a loop.
int argand_run_nested(Run *run, const Step *step);
// Steps first..last-1, none of which needs Python.
int argand_run_stretch(Run *run, Py_ssize_t first, Py_ssize_t last);

// Kept memory of a plan with a STEP_KEEP of so many watched buffers; NULL with an exception.
Kept *argand_kept_new(int64_t bytes, Py_ssize_t watched, int frozen);
void argand_kept_free(Kept *kept);
// Give the run its kept memory; the steps after the STEP_KEEP at `place` run first if they must.
int argand_run_keep(Run *run, Py_ssize_t place);
void argand_kept_release(Run *run);

// The plan's numbers, from the inputs.
int argand_compute_numbers(Run *run);

#endif
