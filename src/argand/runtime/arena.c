// argand.runtime._native, arenas: scratch memory for the intermediates of a graph.
//
// One pool for the process, guarded by the GIL. A call takes a block, and gives it back when it
// ends, so two threads in one plan have two blocks and plans that run one after the other share
// one. Blocks idle for IDLE_SECONDS are freed when some later call gives its block back. Large blocks
// are mappings of their own, so that the process's heap is as it would be without us.
#include "launch.h"
#include "platform.h"
#include <stdlib.h>

enum { ALIGNMENT = 64, PAGE = ARGAND_PAGE, HUGE_PAGE = ARGAND_HUGE_PAGE, IDLE_SECONDS = 30, CHECK_EVERY = 64 };

struct Arena {
    struct Arena *next;
    char *base;
    size_t bytes;
    int is_mapped; /* else allocated */
    int64_t last_used;
};

// Free blocks, most recently used first: their pages are the likeliest to be in cache.
static Arena *free_blocks;
static size_t bytes_held, bytes_peak;
static unsigned gives;

static void destroy(Arena *arena) {
    bytes_held -= arena->bytes;
    if (arena->is_mapped)
        argand_unmap(arena->base, arena->bytes);
    else
        argand_free_aligned(arena->base);
    free(arena);
}

static Arena *create(size_t bytes) {
    int huge = bytes >= 2 * (size_t)HUGE_PAGE;
    size_t alignment = huge ? HUGE_PAGE : bytes >= PAGE ? PAGE : ALIGNMENT;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    Arena *arena = malloc(sizeof *arena);
    char *base = !arena ? NULL : huge ? argand_map(bytes) : argand_allocate_aligned(alignment, bytes);
    if (!base) {
        free(arena);
        PyErr_NoMemory();
        return NULL;
    }
    *arena = (Arena){.base = base, .bytes = bytes, .is_mapped = huge};
    bytes_held += bytes;
    if (bytes_held > bytes_peak)
        bytes_peak = bytes_held;
    return arena;
}

Arena *argand_arena_take(size_t bytes) {
    if (bytes == 0)
        bytes = ALIGNMENT;
    if (bytes > PTRDIFF_MAX - 2 * (size_t)HUGE_PAGE) {
        PyErr_NoMemory();
        return NULL;
    }
    Arena **best = NULL, **widest = NULL;
    for (Arena **link = &free_blocks; *link; link = &(*link)->next) {
        if (!widest || (*link)->bytes > (*widest)->bytes)
            widest = link;
        if ((*link)->bytes >= bytes && (!best || (*link)->bytes < (*best)->bytes))
            best = link;
    }
    if (best) {
        Arena *arena = *best;
        *best = arena->next;
        return arena;
    }
    if (widest) {
        // No free block is large enough: replace the largest, so that the pool converges to one
        // block per concurrent call, as large as the largest plan.
        Arena *arena = *widest;
        *widest = arena->next;
        destroy(arena);
    }
    return create(bytes);
}

void argand_arena_give(Arena *arena) {
    arena->next = free_blocks;
    free_blocks = arena;
    if (++gives % CHECK_EVERY)
        return;
    int64_t now = argand_coarse_seconds();
    arena->last_used = now;
    for (Arena **link = &arena->next; *link;) {
        Arena *other = *link;
        if (now - other->last_used > IDLE_SECONDS && other->last_used) {
            *link = other->next;
            destroy(other);
        } else {
            if (!other->last_used)
                other->last_used = now;
            link = &other->next;
        }
    }
}

char *argand_arena_base(Arena *arena) {
    arena->last_used = 0;
    return arena->base;
}

PyObject *argand_arena_release(PyObject *self, PyObject *ignored) {
    size_t before = bytes_held;
    while (free_blocks) {
        Arena *arena = free_blocks;
        free_blocks = arena->next;
        destroy(arena);
    }
    return PyLong_FromSize_t(before - bytes_held);
}

PyObject *argand_arena_statistics(PyObject *self, PyObject *ignored) {
    Py_ssize_t blocks = 0;
    for (Arena *arena = free_blocks; arena; arena = arena->next)
        blocks++;
    return Py_BuildValue("{s:n,s:n,s:n}", "bytes_held", (Py_ssize_t)bytes_held, "bytes_peak",
                         (Py_ssize_t)bytes_peak, "free_blocks", blocks);
}
