// Random system calls that change memory, against a table of what every page holds: calls STEPS SEED [alone].
//
// The calls go to the kernel directly, so no preloaded library sees them. Children are forked, verify, write and
// end, unless there is a third argument. Prints the
// number of pages that were compared; any page with other content is an error.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SPAN = 4096, REGIONS = 6, MOST = 1024 };

// A piece of address space of SPAN pages, which stays reserved, and what its pages hold: 0 is zeroes, -1 no access.
struct region {
    char *base;
    int64_t held[SPAN];
};

static struct region regions[REGIONS];
static uint64_t state, compared, stamp = 1;
static char *heap;
static long heap_pages;
static int64_t heap_held[SPAN], scratch[2 * MOST];

static uint64_t rnd(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % below;
}

static void die(const char *what, const void *at, int64_t want, int64_t got) {
    fprintf(stderr, "%s at %p: %lld instead of %lld (errno %d)\n", what, at, (long long)got, (long long)want, errno);
    exit(1);
}

static char *map(void *at, size_t size, int access, int flags) {
    return (char *)syscall(SYS_mmap, at, size, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0L);
}

static void compare(const char *at, int64_t want) {
    if (want < 0)
        return;
    // The first and the last word of a page, and one that the stamp tells.
    const int64_t *words = (const int64_t *)at;
    size_t other = (size_t)want % 512;
    if (words[0] != want || words[511] != want)
        die("content", at, want, words[0] != want ? words[0] : words[511]);
    if (other != 0 && other != 511 && words[other] != want)
        die("content inside", at, want, words[other]);
    compared++;
}

static void put(char *at, int64_t *held) {
    if (*held < 0)
        return;
    *held = (int64_t)stamp++;
    int64_t *words = (int64_t *)at;
    words[0] = words[511] = *held;
    words[(size_t)*held % 512] = *held;
    if (*held % 512 != 0)
        words[0] = *held;
}

static void compare_all(void) {
    for (int r = 0; r < REGIONS; r++)
        for (int n = 0; n < SPAN; n++)
            compare(regions[r].base + (size_t)n * PAGE, regions[r].held[n]);
    for (long n = 0; n < heap_pages; n++)
        compare(heap + n * PAGE, heap_held[n]);
}

static void set(struct region *it, int first, int count, int64_t value) {
    for (int n = 0; n < count; n++)
        it->held[first + n] = value;
}

static void expect(long result, const char *what, const void *at) {
    if (result != 0)
        die(what, at, 0, result);
}

static void step(int may_fork) {
    struct region *it = &regions[rnd(REGIONS)];
    int first = (int)rnd(SPAN), count = 1 + (int)rnd(rnd(4) ? 64 : MOST);
    if (count > SPAN - first)
        count = SPAN - first;
    char *at = it->base + (size_t)first * PAGE;
    size_t size = (size_t)count * PAGE;
    switch (rnd(14)) {
    case 0: // New memory in place of old.
        if (map(at, size, PROT_READ | PROT_WRITE, MAP_FIXED | (rnd(2) ? MAP_NORESERVE : 0) | (rnd(4) ? 0 : MAP_POPULATE)) != at)
            die("mmap", at, 0, 0);
        set(it, first, count, 0);
        break;
    case 1: // A reservation in place of old memory.
        if (map(at, size, PROT_NONE, MAP_FIXED | MAP_NORESERVE) != at)
            die("mmap of a reservation", at, 0, 0);
        set(it, first, count, -1);
        break;
    case 2: // A reservation becomes memory. What was there already stays.
        expect(syscall(SYS_mprotect, at, size, PROT_READ | PROT_WRITE), "mprotect", at);
        for (int n = 0; n < count; n++)
            if (it->held[first + n] < 0)
                it->held[first + n] = 0;
        break;
    case 3: // Without access for a moment.
        for (int n = 0; n < count; n++)
            if (it->held[first + n] < 0)
                return;
        expect(syscall(SYS_mprotect, at, size, rnd(2) ? PROT_NONE : PROT_READ), "mprotect", at);
        for (int n = 0; n < 40; n++)
            (void)rnd(2);
        expect(syscall(SYS_mprotect, at, size, PROT_READ | PROT_WRITE), "mprotect back", at);
        break;
    case 4: // Unmapped, and mapped or reserved again.
        expect(syscall(SYS_munmap, at, size), "munmap", at);
        if (rnd(2)) {
            int access = rnd(2) ? PROT_NONE : PROT_READ | PROT_WRITE;
            if (map(at, size, access, MAP_FIXED_NOREPLACE) != at)
                die("mmap where nothing is", at, 0, 0);
            if (access == PROT_NONE)
                expect(syscall(SYS_mprotect, at, size, PROT_READ | PROT_WRITE), "mprotect", at);
            set(it, first, count, 0);
        } else {
            if (map(at, size, PROT_NONE, MAP_FIXED | MAP_NORESERVE) != at)
                die("mmap after munmap", at, 0, 0);
            set(it, first, count, -1);
        }
        break;
    case 5: // Dropped.
        expect(syscall(SYS_madvise, at, size, MADV_DONTNEED), "madvise", at);
        for (int n = 0; n < count; n++)
            if (it->held[first + n] > 0)
                it->held[first + n] = 0;
        break;
    case 6: { // A mapping of its own that grows, moves, shrinks, and replaces a part of a region.
        char *own = map(0, size, PROT_READ | PROT_WRITE, rnd(4) ? 0 : MAP_32BIT);
        if (own == MAP_FAILED)
            die("mmap anywhere", 0, 0, 0);
        memset(scratch, 0, sizeof scratch);
        for (int n = 0; n < count; n++)
            put(own + (size_t)n * PAGE, &scratch[n]);
        int more = count + (int)rnd((uint64_t)count);
        own = (char *)syscall(SYS_mremap, own, size, (size_t)more * PAGE, MREMAP_MAYMOVE, 0);
        if (own == MAP_FAILED)
            die("mremap", own, 0, 0);
        for (int n = 0; n < more; n++) {
            compare(own + (size_t)n * PAGE, scratch[n]);
            if (rnd(2))
                put(own + (size_t)n * PAGE, &scratch[n]);
        }
        if ((char *)syscall(SYS_mremap, own, (size_t)more * PAGE, size, 0, 0) != own)
            die("mremap to shrink", own, 0, 0);
        if ((char *)syscall(SYS_mremap, own, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at)
            die("mremap to a place", at, 0, 0);
        memcpy(it->held + first, scratch, (size_t)count * sizeof *scratch);
        break;
    }
    case 7: { // The heap.
        long want = rnd(2) ? heap_pages + (long)rnd(200) : (long)rnd((uint64_t)heap_pages + 1);
        if (want > SPAN)
            want = SPAN;
        char *end = (char *)syscall(SYS_brk, heap + want * PAGE);
        if (end != heap + want * PAGE)
            die("brk", end, want, (end - heap) / PAGE);
        for (long n = heap_pages; n < want; n++)
            heap_held[n] = 0;
        heap_pages = want;
        for (long n = 0; n < heap_pages; n += 1 + (long)rnd(8))
            put(heap + n * PAGE, &heap_held[n]);
        break;
    }
    case 8: { // The kernel reads and writes the memory.
        int ends[2];
        if (count > 8)
            count = 8;
        if (pipe(ends))
            die("pipe", 0, 0, 0);
        for (int n = 0; n < count; n++) {
            char *page = at + (size_t)n * PAGE;
            if (it->held[first + n] < 0)
                continue;
            put(page, &it->held[first + n]);
            if (write(ends[1], page, PAGE) != PAGE || read(ends[0], page, PAGE) != PAGE)
                die("write and read", page, 0, 0);
            compare(page, it->held[first + n]);
        }
        close(ends[0]), close(ends[1]);
        break;
    }
    case 9:
        if (may_fork && rnd(6) == 0) {
            fflush(0);
            pid_t child = fork();
            if (child == 0) {
                for (int n = 0; n < 40; n++)
                    step(0);
                compare_all();
                _exit(0);
            }
            for (int n = 0; n < 40; n++)
                step(0);
            int status = -1;
            if (child < 0 || waitpid(child, &status, 0) != child || status)
                die("the child", 0, 0, status);
        }
        break;
    case 10:
    case 11: // Writes.
        for (int n = 0; n < count; n++)
            put(at + (size_t)n * PAGE, &it->held[first + n]);
        break;
    default: // Reads.
        for (int n = 0; n < count; n++)
            compare(at + (size_t)n * PAGE, it->held[first + n]);
    }
}

int main(int count, char **args) {
    if (count < 3)
        return 2;
    long steps = atol(args[1]);
    state = (uint64_t)atol(args[2]) * 0x9e3779b97f4a7c15 + 1;
    // The C library takes no memory from here on: the heap is the test's.
    static char output[256];
    setvbuf(stdout, output, _IOFBF, sizeof output);
    for (int r = 0; r < REGIONS; r++) {
        regions[r].base = map(0, (size_t)SPAN * PAGE, PROT_NONE, MAP_NORESERVE);
        set(&regions[r], 0, SPAN, -1);
    }
    heap = (char *)(((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) / PAGE * PAGE);
    for (long n = 0; n < steps; n++)
        step(count == 3);
    compare_all();
    printf("%llu pages compared\n", (unsigned long long)compared);
    return 0;
}
