// argand.runtime._native, pages: writes that the kernel notes (platform.h), by Linux 6.7 and later; no other system can.
//
// Pages are write-protected through userfaultfd in its asynchronous mode, in which a write is let through and noted, and
// the ioctl PAGEMAP_SCAN tells which pages were written. Who asks and why: watch.c.
#define _GNU_SOURCE
#include "platform.h"

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

int argand_pages_is_open(void) { return faults >= 0; }

void argand_pages_close(void) {
    if (faults >= 0)
        close(faults);
    if (pages >= 0)
        close(pages);
    faults = pages = -1;
}

int argand_pages_open(void) {
    if (faults == -1) {
        UffdApi api = {UFFD_API, UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED, 0};
        faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
        pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        PageScan probe = {.size = sizeof probe, .all_of = PAGE_WRITTEN};
        int works = faults >= 0 && pages >= 0 && getpagesize() == ARGAND_PAGE && !ioctl(faults, UFFD_IOCTL_API, &api)
                    && (api.features & UFFD_WP_ASYNC) && ioctl(pages, PAGES_SCAN, &probe) >= 0;
        if (!works) {
            argand_pages_close();
            faults = -2;
        }
    }
    return faults >= 0;
}

// Whether some page of the range was written, or nobody protected it.
int argand_pages_written(uintptr_t start, uintptr_t end) {
    ArgandPages found;
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)&found, .n_regions = 1,
                     .most_pages = 1, .all_of = PAGE_WRITTEN, .returned = PAGE_WRITTEN};
    return ioctl(pages, PAGES_SCAN, &scan);
}

// Whether no page is known to be a file's, or not to be there.
static int none_strange(uintptr_t start, uintptr_t end) {
    ArgandPages found;
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)&found, .n_regions = 1,
                     .most_pages = 1, .inverted = PAGE_PRESENT, .any_of = PAGE_OF_FILE | PAGE_PRESENT,
                     .returned = PAGE_OF_FILE | PAGE_PRESENT};
    return ioctl(pages, PAGES_SCAN, &scan) == 0;
}

// Whether all pages are memory of this process alone. Only a page that is there tells: each is read first.
int argand_pages_private(uintptr_t start, uintptr_t end) {
    for (uintptr_t page = start; page < end; page += ARGAND_PAGE)
        (void)*(volatile const char *)page;
    return none_strange(start, end);
}

// The stretches of pages that were written, or that nobody protected; how many, or -1 where there are more than `most`. (The
// kernel is several times faster at this question than at any other.)
int argand_pages_stretches(uintptr_t start, uintptr_t end, ArgandPages *found, ptrdiff_t most) {
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
int argand_pages_protect(uintptr_t start, uintptr_t end) {
    enum { AROUND = 1 << 18 };
    uintptr_t before = start & ~(uintptr_t)(AROUND - 1), after = (end + AROUND - 1) & ~(uintptr_t)(AROUND - 1);
    UffdProtect all = {start, end - start, 1};
    int failed = !none_strange(before, after) || register_range(before, after);
    if (failed && register_range(start, end))
        return -1;
    return ioctl(faults, UFFD_IOCTL_PROTECT, &all) ? -1 : 0;
}
#else
int argand_pages_open(void) { return 0; }
int argand_pages_is_open(void) { return 0; }
void argand_pages_close(void) {}
int argand_pages_written(uintptr_t start, uintptr_t end) { return -1; }
int argand_pages_private(uintptr_t start, uintptr_t end) { return 0; }
int argand_pages_protect(uintptr_t start, uintptr_t end) { return -1; }
int argand_pages_stretches(uintptr_t start, uintptr_t end, ArgandPages *found, ptrdiff_t most) { return -1; }
#endif
