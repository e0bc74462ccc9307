// What the extension asks of the operating system: the only header that names one, with platform.c and pages.c.
//
// Linux is what is tested. macOS and Windows are written, compile (`make platforms`) and were never run.
#ifndef ARGAND_PLATFORM_H
#define ARGAND_PLATFORM_H
#include <stddef.h>
#include <stdint.h>

// ---- memory ----

enum { ARGAND_PAGE = 4096, ARGAND_HUGE_PAGE = 2 << 20 };

// Zeroed memory of its own that begins at a huge page where the system has those; NULL when there is none.
char *argand_map(size_t bytes);
void argand_unmap(char *memory, size_t bytes);

// `bytes` is a multiple of the alignment; freed by argand_free_aligned alone.
void *argand_allocate_aligned(size_t alignment, size_t bytes);
void argand_free_aligned(void *memory);

// A new tensor of this size has come from the system, page by page: ask for large pages. Writing it
// then takes one fault for 2 MB in place of 512. The memory is the system's again when it is freed.
void argand_advise(void *memory, size_t bytes);

// ---- time ----

int64_t argand_nanoseconds(void);
int64_t argand_coarse_seconds(void); /* cheaper, right to some milliseconds */

// ---- libraries, threads, signals ----

// A function of a library that the process has loaded ("torch_cpu"); NULL when there is none.
void *argand_loaded_symbol(const char *library, const char *symbol);

// The stack of this thread; 0 when it cannot be known.
int argand_stack_bounds(char **lowest, char **highest);

// What the system's side of a signal is set to (flags, mask), to be put back after Python has set its handler.
typedef struct ArgandAction ArgandAction;
ArgandAction *argand_action_of(int number); /* NULL when it cannot be known */
void argand_put_back_action(int number, ArgandAction *action, int wanted); /* frees it */

// One lock for notes of writes and those who read them; held while the process forks, and free in both afterwards.
void argand_lock_pages(void);
void argand_unlock_pages(void);

// Counts the forks between the first process and this one: locks and watches of an earlier one are not ours.
int argand_fork_count(void);

// ---- pages: does the kernel note who writes to memory? With the lock held. ----

typedef struct {
    uint64_t start, end, categories;
} ArgandPages;

int argand_pages_open(void);    /* opened, or open already; 0: this kernel cannot */
int argand_pages_is_open(void); /* without trying */
void argand_pages_close(void);
int argand_pages_written(uintptr_t start, uintptr_t end); /* some page was written, or nobody protected it */
int argand_pages_private(uintptr_t start, uintptr_t end); /* all pages are memory of this process alone */
int argand_pages_protect(uintptr_t start, uintptr_t end); /* note writes from now on; -1: not possible */

// The stretches of pages that were written, or that nobody protected; how many, or -1 where there are more than `most`.
int argand_pages_stretches(uintptr_t start, uintptr_t end, ArgandPages *found, ptrdiff_t most);

#endif
