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
#define _GNU_SOURCE
#include "watch.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PAGE = 4096, LEAST_TRACKED = 4 * PAGE };

#ifdef __linux__
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// From the kernel's headers, which may be older here than the kernel.
typedef struct {
    uint64_t api, features, ioctls;
} UffdApi;
typedef struct {
    uint64_t start, length, mode, ioctls;
} UffdRegister;
typedef struct {
    uint64_t start, length, mode;
} UffdProtect;
typedef struct {
    uint64_t start, end, categories;
} PageRegion;
typedef struct {
    uint64_t size, flags, start, end, walk_end, regions, n_regions, most_pages;
    uint64_t inverted, all_of, any_of, returned;
} PageScan;

#define UFFD_USER_MODE_ONLY 1
#define UFFD_API 0xAAull
#define UFFD_WP_UNPOPULATED (1ull << 13)
#define UFFD_WP_ASYNC (1ull << 15)
#define UFFD_IOCTL_API _IOWR(0xAA, 0x3F, UffdApi)
#define UFFD_IOCTL_REGISTER _IOWR(0xAA, 0x00, UffdRegister)
#define UFFD_IOCTL_PROTECT _IOWR(0xAA, 0x06, UffdProtect)
#define UFFD_REGISTER_WRITES 2
#define PAGES_SCAN _IOWR('f', 16, PageScan)
enum { PAGE_WRITTEN = 1 << 1, PAGE_OF_FILE = 1 << 2, PAGE_PRESENT = 1 << 3 };

static int faults = -1, pages = -1; /* descriptors; -2: this kernel cannot */

static int faults_open(void) { return faults >= 0; }

static void close_descriptors(void) {
    if (faults >= 0)
        close(faults);
    if (pages >= 0)
        close(pages);
    faults = pages = -1;
}

// With the lock held, as all that follows.
static int open_descriptors(void) {
    if (faults == -1) {
        UffdApi api = {UFFD_API, UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED, 0};
        faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
        pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        PageScan probe = {.size = sizeof probe, .all_of = PAGE_WRITTEN};
        int works = faults >= 0 && pages >= 0 && getpagesize() == PAGE && !ioctl(faults, UFFD_IOCTL_API, &api)
                    && (api.features & UFFD_WP_ASYNC) && ioctl(pages, PAGES_SCAN, &probe) >= 0;
        if (!works) {
            close_descriptors();
            faults = -2;
        }
    }
    return faults >= 0;
}

// Whether some page of the range was written, or nobody protected it.
static int any_written(uintptr_t start, uintptr_t end) {
    PageRegion found;
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)&found, .n_regions = 1,
                     .most_pages = 1, .all_of = PAGE_WRITTEN, .returned = PAGE_WRITTEN};
    return ioctl(pages, PAGES_SCAN, &scan);
}

// Whether no page is known to be a file's, or not to be there.
static int none_strange(uintptr_t start, uintptr_t end) {
    PageRegion found;
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)&found, .n_regions = 1,
                     .most_pages = 1, .inverted = PAGE_PRESENT, .any_of = PAGE_OF_FILE | PAGE_PRESENT,
                     .returned = PAGE_OF_FILE | PAGE_PRESENT};
    return ioctl(pages, PAGES_SCAN, &scan) == 0;
}

// Whether all pages are memory of this process alone. Only a page that is there tells: each is read first.
static int all_private(uintptr_t start, uintptr_t end) {
    for (uintptr_t page = start; page < end; page += PAGE)
        (void)*(volatile const char *)page;
    return none_strange(start, end);
}

// The stretches of pages that were written, or that nobody protected; how many, or -1 where there are more than `most`. (The
// kernel is several times faster at this question than at any other.)
static int written_stretches(uintptr_t start, uintptr_t end, PageRegion *found, Py_ssize_t most) {
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)found, .n_regions = (uint64_t)most,
                     .all_of = PAGE_WRITTEN, .returned = PAGE_WRITTEN};
    int count = ioctl(pages, PAGES_SCAN, &scan);
    return scan.walk_end == end ? count : -1;
}

static int register_range(uintptr_t start, uintptr_t end) {
    UffdRegister range = {start, end - start, UFFD_REGISTER_WRITES, 0};
    return ioctl(faults, UFFD_IOCTL_REGISTER, &range);
}

// Note writes into these pages from now on. Neighbours of the same heap are registered as well, which notes nothing while they
// are not protected: each border of what is registered is one mapping more, and a scan walks over mappings.
static int protect(uintptr_t start, uintptr_t end) {
    enum { AROUND = 1 << 18 };
    uintptr_t before = start & ~(uintptr_t)(AROUND - 1), after = (end + AROUND - 1) & ~(uintptr_t)(AROUND - 1);
    UffdProtect all = {start, end - start, 1};
    int failed = !none_strange(before, after) || register_range(before, after);
    if (failed && register_range(start, end))
        return -1;
    return ioctl(faults, UFFD_IOCTL_PROTECT, &all) ? -1 : 0;
}
#else
static int faults_open(void) { return 0; }
static void close_descriptors(void) {}
static int open_descriptors(void) { return 0; }
static int any_written(uintptr_t start, uintptr_t end) { return -1; }
static int all_private(uintptr_t start, uintptr_t end) { return 0; }
static int protect(uintptr_t start, uintptr_t end) { return -1; }
typedef struct {
    uint64_t start, end, categories;
} PageRegion;
static int written_stretches(uintptr_t start, uintptr_t end, PageRegion *found, Py_ssize_t most) { return -1; }
#endif

static atomic_int forks;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the descriptors and of all tracked pieces */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
    atomic_fetch_add(&forks, 1);
    close_descriptors();
    pthread_mutex_unlock(&lock);
}

static void register_fork(void) { pthread_atfork(before_fork, in_parent, in_child); }

int argand_fork_count(void) {
    pthread_once(&registered, register_fork);
    return atomic_load(&forks);
}

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
    PageRegion *found;    /* room for what a scan finds */
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
    pthread_mutex_lock(&lock);
    watch->after = all;
    if (all)
        all->before = watch;
    all = watch;
    pthread_mutex_unlock(&lock);
    return watch;
}

void argand_watch_free(Watch *watch) {
    if (!watch)
        return;
    pthread_mutex_lock(&lock);
    if (watch->before)
        watch->before->after = watch->after;
    else
        all = watch->after;
    if (watch->after)
        watch->after->before = watch->before;
    pthread_mutex_unlock(&lock);
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
    if (!all_private(range.start, range.end))
        return 0;
    if (!any_written(range.start, range.end))
        return 1;
    tell_others(pages, range);
    return !protect(range.start, range.end);
}

static int is_written(Range range) { return range.start < range.end && any_written(range.start, range.end); }

// Whether pages are as they were; if not, or if nobody watched them, they are protected from now on, if that is `wanted`.
static int pages_unwritten(Pages *pages, Range first, Range second, int wanted) {
    pthread_mutex_lock(&lock);
    int unwritten = pages->tracked && !pages->doubted;
    pages->doubted = 0;
    if (!wanted || !open_descriptors())
        unwritten = pages->tracked = 0;
    else if (!unwritten || is_written(first) || is_written(second)) {
        unwritten = 0;
        pages->stirred++;
        pages->tracked = 0; /* until all of it is */
        pages->tracked = start_tracking(pages, first) && start_tracking(pages, second);
    }
    pthread_mutex_unlock(&lock);
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
static int is_clear(const PageRegion *region, const PageRegion *last, Range range) {
    while (region < last && region->end <= range.start)
        region++;
    return region == last || region->start >= range.end;
}

// Pieces `first` to `next` of the order are calm where no page of theirs was written.
static void mark_calm(Watch *watch, Py_ssize_t first, Py_ssize_t next, int count) {
    const PageRegion *region = watch->found, *last = region + count;
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
    pthread_mutex_lock(&lock);
    for (Py_ssize_t i = 0, next; i < watch->count && faults_open(); i = next) {
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
        int count = written_stretches(range.start, range.end, watch->found, (Py_ssize_t)room_for(watch->count));
        if (count >= 0)
            mark_calm(watch, i, next, count);
    }
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    *piece = (Piece){.data = data, .bytes = bytes, .hash = piece->hash, .edges = piece->edges};
    watch->sorted = 0;
    pthread_mutex_unlock(&lock);
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
