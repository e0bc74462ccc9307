// argand.runtime._native, what a plan keeps from call to call: packed weights and all else that follows from watched inputs alone.
//
// A call that finds the inputs changed makes the memory anew, in place if no other call is using it. Nobody waits for the lock
// with the GIL held: its holder may be waiting for the GIL.
#include "run.h"
#include "platform.h"
#include "watch.h"
#include <stdatomic.h>
#include <stdlib.h>

enum { ALIGNMENT = 64, PATIENCE = 4 };

typedef struct Generation {
    atomic_int users; /* the plan itself is one */
    char *memory;
} Generation;

struct Kept {
    int64_t bytes;
    Watch *watch;
    PyThread_type_lock lock;
    Generation *now;
    int forks, frozen;
    int known; /* what is kept was made of the contents that the watch saw last */
    int64_t calls, changes;
};

Kept *argand_kept_new(int64_t bytes, Py_ssize_t watched, int frozen) {
    Kept *kept = PyMem_Calloc(1, sizeof *kept);
    if (!kept)
        return (Kept *)PyErr_NoMemory();
    *kept = (Kept){.bytes = bytes, .forks = argand_fork_count(), .frozen = frozen};
    kept->watch = argand_watch_new(watched);
    kept->lock = PyThread_allocate_lock();
    if (kept->watch && kept->lock)
        return kept;
    argand_kept_free(kept);
    return (Kept *)PyErr_NoMemory();
}

static void drop(Generation *generation) {
    if (generation && atomic_fetch_sub(&generation->users, 1) == 1) {
        argand_free_aligned(generation->memory);
        free(generation);
    }
}

void argand_kept_free(Kept *kept) {
    if (!kept)
        return;
    drop(kept->now);
    argand_watch_free(kept->watch);
    if (kept->lock)
        PyThread_free_lock(kept->lock);
    PyMem_Free(kept);
}

void argand_kept_release(Run *run) {
    drop(run->kept);
    run->kept = NULL;
}

static Generation *new_generation(int64_t bytes) {
    Generation *made = malloc(sizeof *made);
    size_t whole = ((size_t)bytes + ALIGNMENT) & ~(size_t)(ALIGNMENT - 1);
    char *memory = made ? argand_allocate_aligned(ALIGNMENT, whole) : NULL;
    if (!memory) {
        free(made);
        return NULL;
    }
    atomic_init(&made->users, 1);
    made->memory = memory;
    return made;
}

// Whether what is kept must be made again. Weights that change at every other call are not looked at any more.
static int is_stale(Run *run, const Step *step, Kept *kept) {
    if (kept->changes > PATIENCE && kept->changes * 2 > kept->calls && !kept->frozen) {
        kept->known = 0;
        return 1;
    }
    for (Py_ssize_t i = 0; i < step->n_ids; i++)
        run->table[i] = run->pointers[step->ids[i]];
    int changed = argand_watch_changed(kept->watch, run->torch, run->table, step->sizes, kept->frozen);
    kept->changes += changed && kept->known;
    int stale = changed || !kept->known || !kept->now;
    kept->known = 1;
    return stale;
}

static void point(Run *run, const Generation *generation) {
    const Plan *plan = run->plan;
    for (Py_ssize_t i = 0; i < plan->n_buffers; i++)
        if (plan->buffers[i].kind == BUFFER_KEPT)
            run->pointers[plan->n_inputs + i] = generation->memory + plan->buffers[i].offset;
}

// With the lock held.
static int refresh(Run *run, Py_ssize_t place, Kept *kept) {
    const Step *step = &run->plan->steps[place];
    kept->calls++;
    if (is_stale(run, step, kept)) {
        Generation *made = kept->now;
        if (!made || atomic_load(&made->users) > 1)
            made = new_generation(kept->bytes);
        if (!made) {
            PyErr_NoMemory();
            return -1;
        }
        if (made != kept->now)
            drop(kept->now);
        kept->now = NULL; /* not to be used if it is left half made */
        run->kept = made;
        point(run, made);
        if (argand_run_stretch(run, place + 1, place + 1 + step->total))
            return -1;
        if (kept->known && !kept->frozen) /* or another thread wrote while this was made */
            kept->known = argand_watch_stayed(kept->watch, run->torch);
        kept->now = made;
    }
    atomic_fetch_add(&kept->now->users, 1);
    run->kept = kept->now;
    point(run, kept->now);
    return 0;
}

int argand_run_keep(Run *run, Py_ssize_t place) {
    Kept *kept = run->plan->kept;
    const Step *step = &run->plan->steps[place];
    for (Py_ssize_t i = 0; i < step->n_ids; i++)
        if (!run->pointers[step->ids[i]]) {
            PyErr_Format(PyExc_RuntimeError, "argand: buffer %d has no memory to watch", step->ids[i]);
            return -1;
        }
    if (kept->forks != argand_fork_count()) { /* who held the lock is not in this process */
        PyThread_type_lock lock = PyThread_allocate_lock();
        if (!lock) {
            PyErr_NoMemory();
            return -1;
        }
        kept->lock = lock;
        kept->forks = argand_fork_count();
    }
    if (!PyThread_acquire_lock(kept->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(kept->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    int failed = refresh(run, place, kept);
    PyThread_release_lock(kept->lock);
    return failed;
}
