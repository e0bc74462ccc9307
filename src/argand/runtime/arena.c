// argand.runtime._native, arenas: scratch memory for the intermediates of a graph.
//
// One pool for the process, guarded by the GIL. A call takes a block, and gives it back when it
// ends, so two threads in one plan have two blocks and plans that run one after the other share
// one. Blocks idle for IDLE_SECONDS are freed when some later call gives its block back.
#include "launch.h"
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { ALIGNMENT = 64, PAGE = 4096, HUGE_PAGE = 2 << 20, IDLE_SECONDS = 30, CHECK_EVERY = 64 };

struct Arena {
    struct Arena *next;
    char *base;
    size_t bytes;
    time_t last_used;
};

// Free blocks, most recently used first: their pages are the likeliest to be in cache.
static Arena *free_blocks;
static size_t bytes_held, bytes_peak;
static unsigned gives;

static time_t seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec;
}

static void destroy(Arena *arena) {
    bytes_held -= arena->bytes;
    free(arena->base);
    free(arena);
}

static Arena *create(size_t bytes) {
    int huge = bytes >= 2 * (size_t)HUGE_PAGE;
    size_t alignment = huge ? HUGE_PAGE : bytes >= PAGE ? PAGE : ALIGNMENT;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    Arena *arena = malloc(sizeof *arena);
    char *base = arena ? aligned_alloc(alignment, bytes) : NULL;
    if (!base) {
        free(arena);
        PyErr_NoMemory();
        return NULL;
    }
    if (huge)
        madvise(base, bytes, MADV_HUGEPAGE);
    *arena = (Arena){NULL, base, bytes, 0};
    bytes_held += bytes;
    if (bytes_held > bytes_peak)
        bytes_peak = bytes_held;
    return arena;
}

// By default glibc gives large freed blocks back to the system, and the next step of a training
// loop pays a page fault for each of their pages: measured for eight tensors of 4 MB kept and then
// freed, 3.2 ms each instead of 0.37; for one of 32 MB, 25 ms instead of 4.5. Compiled programs
// allocate the same sizes again and again, so freed memory is kept, up to LIMIT at the heap's top;
// argand_arena_release gives it back. A user who tuned malloc in the environment is left alone.
void argand_keep_freed_memory(void) {
#ifdef __GLIBC__
    enum { LIMIT = 0x7fffffff, LARGEST_THRESHOLD = 32 << 20 };
    static const char *const tuned[] = {"GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_",
                                        "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_"};
    for (size_t i = 0; i < sizeof tuned / sizeof *tuned; i++)
        if (getenv(tuned[i]))
            return;
    mallopt(M_TRIM_THRESHOLD, LIMIT);
    mallopt(M_MMAP_THRESHOLD, LARGEST_THRESHOLD);
    mallopt(M_MMAP_MAX, 0);
#endif
}

Arena *argand_arena_take(size_t bytes) {
    if (bytes == 0)
        bytes = ALIGNMENT;
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
    time_t now = seconds();
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
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    return PyLong_FromSize_t(before - bytes_held);
}

PyObject *argand_arena_statistics(PyObject *self, PyObject *ignored) {
    Py_ssize_t blocks = 0;
    for (Arena *arena = free_blocks; arena; arena = arena->next)
        blocks++;
    return Py_BuildValue("{s:n,s:n,s:n}", "bytes_held", (Py_ssize_t)bytes_held, "bytes_peak",
                         (Py_ssize_t)bytes_peak, "free_blocks", blocks);
}
