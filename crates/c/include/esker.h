/* Paged memory: an arena has a fast part, which is never paged, and a slow one, which is paged to a device.
 * Link with -lesker. docs/memory.md says what is not safe. */
#ifndef ESKER_H
#define ESKER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct esker_arena esker_arena;

/* Who serves faults: a thread of the arena, or the thread that faults (faster; system calls on pages that are
 * not in memory fail with EFAULT, no thread may block SIGBUS, children have no slow part). */
enum { ESKER_HANDLER = 0, ESKER_SIGNAL = 1 };

/* Opens an arena over a device specification, which must be there and is overwritten. `budget` is the memory for
 * the slow part, `slow` the most of it that can be reserved, `fast` the size of the fast part, all in bytes.
 * NULL when it fails; then `why` holds the reason, cut to `why_size` bytes. */
esker_arena *esker_arena_open(const char *device, size_t budget, size_t slow, size_t fast, int mode,
                              char *why, size_t why_size);

/* Closes an arena. Nobody may use its memory any more. */
void esker_arena_close(esker_arena *arena);

/* Memory of either part, aligned to `alignment`, a power of two of at most 4096. NULL when the part is used up. */
void *esker_alloc_slow(esker_arena *arena, size_t size, size_t alignment);
void *esker_alloc_fast(esker_arena *arena, size_t size, size_t alignment);

/* Frees memory of either part. 0, or -1 when it is none of the arena's. NULL is fine. */
int esker_free(esker_arena *arena, void *memory);

/* How many bytes can be used; 0 when the memory is none of the arena's. */
size_t esker_usable_size(esker_arena *arena, void *memory);

/* Makes whole pages of slow memory read as zeroes. 0, or -1 when they are not in the slow part. */
int esker_discard(esker_arena *arena, void *memory, size_t size);

#ifdef __cplusplus
}
#endif

#endif
