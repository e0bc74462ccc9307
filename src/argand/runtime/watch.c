// argand.runtime._native, watched memory: has anything been written into these weights since they were packed?
//
// Torch's version counters miss writes through .data, numpy and DLPack, and a hash of all contents reads them all at each
// call (decision 0022). So the kernel is asked: pages are write-protected through userfaultfd in its asynchronous mode
// (Linux 6.7), in which a write is let through and noted, and the ioctl PAGEMAP_SCAN tells which pages were written. No signal handler,
// no thread, no system call that fails on protected memory. A written page means: hash, compare, protect again; so a stray write
// costs time, never a wrong answer. Pages that are not wholly ours (the ends of weights, vectors of batch norm) are protected as
// well, and if others write to them often, our bytes on them are hashed at each call.
//
// A page has one note for all who watch it: whoever finds it written and protects it anew tells the others (`doubted`).
//
// Not so where pages are shared with files or other processes (their writes are not noted here), nor on older kernels: contents
// are hashed at each call there. After a fork the child starts anew: descriptors and protection are its parent's.
#include "watch.h"
#include "platform.h"
#include <stdlib.h>

enum { PAGE = ARGAND_PAGE, LEAST_TRACKED = 4 * PAGE };

typedef struct {
    uintptr_t start, end;
} Range;

typedef struct {
    int64_t stirred; /* how often they were found written */
    char tracked;
    char doubted; /* another watch found one of them written, and protected it again */
    char calm;    /* seen in this call: they were not written */
} Pages;

typedef struct {
    const char *data;
    size_t bytes;
    uint64_t hash, edges; /* of all bytes; of those on shared pages, all bytes of a small piece */
    Pages own, shared;    /* pages wholly inside a large piece; those at its ends, all of a small one */
} Piece;

struct Watch {
    Watch *before, *after; /* the list of all */
    Py_ssize_t count;
    int64_t calls;
    int forks;
    char filled;
    char sorted;          /* `order` is by address */
    ArgandPages *found;    /* room for what a scan finds */
    Piece **order;
    Piece pieces[];
};

static Watch *all;

static size_t room_for(Py_ssize_t count) { return 4 * (size_t)count + 64; }

Watch *argand_watch_new(Py_ssize_t count) {
    Watch *watch = PyMem_RawCalloc(1, sizeof *watch + count * sizeof *watch->pieces);
    if (!watch) {
        PyErr_NoMemory();
        return NULL;
    }
    watch->count = count;
    watch->forks = argand_fork_count();
    watch->order = PyMem_RawCalloc((size_t)count + 1, sizeof *watch->order);
    watch->found = PyMem_RawCalloc(room_for(count), sizeof *watch->found);
    if (!watch->order || !watch->found) {
        PyMem_RawFree(watch->order);
        PyMem_RawFree(watch->found);
        PyMem_RawFree(watch);
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        watch->order[i] = &watch->pieces[i];
    argand_lock_pages();
    watch->after = all;
    if (all)
        all->before = watch;
    all = watch;
    argand_unlock_pages();
    return watch;
}

void argand_watch_free(Watch *watch) {
    if (!watch)
        return;
    argand_lock_pages();
    if (watch->before)
        watch->before->after = watch->after;
    else
        all = watch->after;
    if (watch->after)
        watch->after->before = watch->before;
    argand_unlock_pages();
    PyMem_RawFree(watch->order);
    PyMem_RawFree(watch->found);
    PyMem_RawFree(watch);
}

static uintptr_t page_before(uintptr_t address) { return address & ~(uintptr_t)(PAGE - 1); }
static uintptr_t page_after(uintptr_t address) { return page_before(address + PAGE - 1); }

// All pages on which a piece has a byte.
static Range outer(const Piece *piece) {
    uintptr_t data = (uintptr_t)piece->data;
    return (Range){page_before(data), page_after(data + piece->bytes)};
}

// The pages that are wholly inside; none, after all others, of a small piece.
static Range inner(const Piece *piece) {
    uintptr_t data = (uintptr_t)piece->data, end = outer(piece).end;
    if (piece->bytes < LEAST_TRACKED)
        return (Range){end, end};
    return (Range){page_after(data), page_before(data + piece->bytes)};
}

static Range head(const Piece *piece) { return (Range){outer(piece).start, inner(piece).start}; }
static Range tail(const Piece *piece) { return (Range){inner(piece).end, outer(piece).end}; }

static uint64_t hash_edges(const TorchLink *torch, const Piece *piece) {
    if (piece->bytes < LEAST_TRACKED)
        return argand_hash_bytes(torch, piece->data, piece->bytes);
    Range whole = inner(piece);
    size_t before = whole.start - (uintptr_t)piece->data;
    size_t after = (uintptr_t)piece->data + piece->bytes - whole.end;
    uint64_t hash = argand_hash_bytes(torch, piece->data, before);
    return hash * 31 + argand_hash_bytes(torch, (const char *)whole.end, after);
}

static int meet(Range left, Range right) { return left.start < right.end && right.start < left.end; }

static void tell_others(const Pages *pages, Range range) {
    for (Watch *watch = all; watch; watch = watch->after)
        for (Py_ssize_t i = 0; i < watch->count; i++) {
            Piece *other = &watch->pieces[i];
            if (!meet(outer(other), range))
                continue;
            if (&other->own != pages && other->own.tracked && meet(inner(other), range))
                other->own.doubted = 1;
            if (&other->shared != pages && other->shared.tracked
                && (meet(head(other), range) || meet(tail(other), range)))
                other->shared.doubted = 1;
        }
}

// With the lock held: note writes into a range from now on; whether that is possible.
static int start_tracking(const Pages *pages, Range range) {
    if (range.start == range.end)
        return 1;
    if (!argand_pages_private(range.start, range.end))
        return 0;
    if (!argand_pages_written(range.start, range.end))
        return 1;
    tell_others(pages, range);
    return !argand_pages_protect(range.start, range.end);
}

static int is_written(Range range) { return range.start < range.end && argand_pages_written(range.start, range.end); }

// Whether pages are as they were; if not, or if nobody watched them, they are protected from now on, if that is `wanted`.
static int pages_unwritten(Pages *pages, Range first, Range second, int wanted) {
    argand_lock_pages();
    int unwritten = pages->tracked && !pages->doubted;
    pages->doubted = 0;
    if (!wanted || !argand_pages_open())
        unwritten = pages->tracked = 0;
    else if (!unwritten || is_written(first) || is_written(second)) {
        unwritten = 0;
        pages->stirred++;
        pages->tracked = 0; /* until all of it is */
        pages->tracked = start_tracking(pages, first) && start_tracking(pages, second);
    }
    argand_unlock_pages();
    return unwritten;
}

static int own_unwritten(Piece *piece) { return pages_unwritten(&piece->own, inner(piece), (Range){0, 0}, 1); }

// Of pages that others write to often it is not worth asking, nor in the first calls.
static int shared_unwritten(const Watch *watch, Piece *piece) {
    enum { FIRST_CALLS = 2, PATIENCE = 4, RARELY = 16 };
    int wanted = watch->calls > FIRST_CALLS && piece->shared.stirred <= PATIENCE + watch->calls / RARELY;
    return pages_unwritten(&piece->shared, head(piece), tail(piece), wanted);
}

static int by_address(const void *left, const void *right) {
    const Piece *a = *(Piece *const *)left, *b = *(Piece *const *)right;
    return (a->data > b->data) - (a->data < b->data);
}

static int is_tracked(const Piece *piece) { return piece->own.tracked || piece->shared.tracked; }

// Whether no stretch of those from `region` on, which are sorted, meets the range.
static int is_clear(const ArgandPages *region, const ArgandPages *last, Range range) {
    while (region < last && region->end <= range.start)
        region++;
    return region == last || region->start >= range.end;
}

// Pieces `first` to `next` of the order are calm where no page of theirs was written.
static void mark_calm(Watch *watch, Py_ssize_t first, Py_ssize_t next, int count) {
    const ArgandPages *region = watch->found, *last = region + count;
    for (Py_ssize_t k = first; k < next; k++) {
        Piece *piece = watch->order[k];
        while (region < last && region->end <= outer(piece).start)
            region++;
        Pages *own = &piece->own, *shared = &piece->shared;
        own->calm = own->tracked && !own->doubted && is_clear(region, last, inner(piece));
        shared->calm = shared->tracked && !shared->doubted && is_clear(region, last, head(piece))
                       && is_clear(region, last, tail(piece));
    }
}

// One question to the kernel for all pieces that lie near each other, in place of one for each.
static void find_calm(Watch *watch) {
    enum { NEAR = 1 << 18 };
    if (!watch->sorted)
        qsort(watch->order, (size_t)watch->count, sizeof *watch->order, by_address);
    watch->sorted = 1;
    argand_lock_pages();
    for (Py_ssize_t i = 0, next; i < watch->count && argand_pages_is_open(); i = next) {
        next = i + 1;
        if (!is_tracked(watch->order[i]))
            continue;
        Range range = outer(watch->order[i]);
        for (; next < watch->count; next++) {
            const Piece *piece = watch->order[next];
            if (is_tracked(piece) && outer(piece).start > range.end + NEAR)
                break;
            if (is_tracked(piece) && outer(piece).end > range.end)
                range.end = outer(piece).end;
        }
        int count = argand_pages_stretches(range.start, range.end, watch->found, (Py_ssize_t)room_for(watch->count));
        if (count >= 0)
            mark_calm(watch, i, next, count);
    }
    argand_unlock_pages();
}

// Protected first, hashed then: a write in between is noted, and found at the next call.
static int piece_changed(const Watch *watch, const TorchLink *torch, Piece *piece) {
    int large = piece->bytes >= LEAST_TRACKED;
    int same = !large || piece->own.calm || own_unwritten(piece);
    int same_edges = piece->shared.calm || shared_unwritten(watch, piece);
    if (same && (same_edges || hash_edges(torch, piece) == piece->edges))
        return 0;
    uint64_t before = piece->hash;
    piece->hash = argand_hash_bytes(torch, piece->data, piece->bytes);
    piece->edges = large ? hash_edges(torch, piece) : piece->hash;
    return piece->hash != before;
}

static void place(Watch *watch, Piece *piece, const char *data, size_t bytes) {
    argand_lock_pages();
    *piece = (Piece){.data = data, .bytes = bytes, .hash = piece->hash, .edges = piece->edges};
    watch->sorted = 0;
    argand_unlock_pages();
}

int argand_watch_changed(Watch *watch, const TorchLink *torch, void *const *data, const int64_t *bytes, int frozen) {
    int changed = !watch->filled, forked = watch->forks != argand_fork_count();
    watch->calls++;
    for (Py_ssize_t i = 0; i < watch->count; i++)
        watch->pieces[i].own.calm = watch->pieces[i].shared.calm = 0;
    int placed = watch->filled && !forked;
    for (Py_ssize_t i = 0; placed && i < watch->count; i++)
        placed = watch->pieces[i].data == data[i];
    if (placed && !frozen)
        find_calm(watch);
    for (Py_ssize_t i = 0; i < watch->count; i++) {
        Piece *piece = &watch->pieces[i];
        int moved = !watch->filled || piece->data != data[i] || piece->bytes != (size_t)bytes[i];
        if (moved || forked)
            place(watch, piece, data[i], (size_t)bytes[i]);
        changed |= moved;
        if (!frozen)
            changed |= piece_changed(watch, torch, piece);
    }
    watch->filled = 1;
    watch->forks = argand_fork_count();
    return changed;
}

// Where the kernel notes writes, it knows; elsewhere the bytes are hashed again.
static int piece_stayed(const TorchLink *torch, const Piece *piece) {
    argand_lock_pages();
    int tracked = piece->own.tracked && argand_pages_is_open();
    int written = tracked && (piece->own.doubted || is_written(inner(piece)));
    argand_unlock_pages();
    if (written)
        return 0;
    if (piece->bytes >= LEAST_TRACKED && !tracked && argand_hash_bytes(torch, piece->data, piece->bytes) != piece->hash)
        return 0;
    return hash_edges(torch, piece) == piece->edges;
}

int argand_watch_stayed(const Watch *watch, const TorchLink *torch) {
    if (watch->forks != argand_fork_count())
        return 0;
    for (Py_ssize_t i = 0; i < watch->count; i++)
        if (!piece_stayed(torch, &watch->pieces[i]))
            return 0;
    return 1;
}
