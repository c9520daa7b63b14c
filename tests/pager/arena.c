/* Fills and reads slow memory of four times the budget, in both modes: arena DEVICE. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "esker.h"

int main(int argc, char **argv) {
    char why[200];
    if (argc < 2 || esker_arena_open("does-not-exist", 8 << 20, 1 << 20, 0, 0, why, sizeof why)) return 1;
    printf("%s\n", why);
    if (esker_arena_open(NULL, 8 << 20, 1 << 20, 0, 0, why, sizeof why) || !strstr(why, "NULL")) return 1;
    if (esker_arena_open(NULL, 8 << 20, 1 << 20, 0, 0, NULL, sizeof why)) return 1;
    if (esker_arena_open(argv[1], 8 << 20, SIZE_MAX, 0, 0, why, sizeof why)) return 1;
    printf("%s\n", why);
    esker_arena_close(NULL);
    if (esker_alloc_slow(NULL, 1, 1) || esker_alloc_fast(NULL, 1, 1) || esker_free(NULL, NULL)) return 1;
    if (!esker_free(NULL, why) || esker_usable_size(NULL, why) || !esker_discard(NULL, why, 1)) return 1;
    /* All of it may be in memory: a budget that is larger changes nothing. */
    esker_arena *roomy = esker_arena_open(argv[1], SIZE_MAX, 64 << 20, 1 << 20, ESKER_HANDLER, why, sizeof why);
    if (!roomy) {
        printf("%s\n", why);
        return 1;
    }
    esker_arena_close(roomy);
    for (int mode = ESKER_HANDLER; mode <= ESKER_SIGNAL; mode++) {
        esker_arena *arena = esker_arena_open(argv[1], 8 << 20, 64 << 20, 1 << 20, mode, why, sizeof why);
        if (!arena) {
            printf("%s\n", why);
            return 1;
        }
        size_t size = 32 << 20;
        unsigned char *slow = esker_alloc_slow(arena, size, 4096);
        unsigned *fast = esker_alloc_fast(arena, size / 4096 * sizeof(unsigned), 64);
        if (!slow || !fast || esker_alloc_slow(arena, 33 << 20, 64)) return 1;
        for (size_t page = 0; page < size / 4096; page++) {
            memset(slow + page * 4096, (int)(page % 251), 4096);
            fast[page] = page % 251;
        }
        if (esker_discard(arena, slow, 4096)) return 1;
        for (size_t page = 1; page < size / 4096; page++)
            if (slow[page * 4096 + 7] != fast[page]) return 1;
        if (slow[7] != 0 || esker_usable_size(arena, slow) != size) return 1;
        if (esker_free(arena, slow) || esker_free(arena, fast) || !esker_free(arena, slow)) return 1;
        esker_arena_close(arena);
    }
    puts("both modes are right");
    return 0;
}
