/* Threads that allocate, resize and free at random, and know all content: allocations THREADS. Prints a checksum. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 24000, STEPS = 26000, MOST_THREADS = 16 };

struct worker {
    uint64_t seed, sum;
    pthread_t thread;
};

struct piece {
    uint64_t *words;
    size_t count;
    uint64_t key;
};

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fail(const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static void fill(struct piece *piece, size_t from) {
    for (size_t i = from; i < piece->count; i++)
        piece->words[i] = piece->key + i * 0x9E3779B97F4A7C15u;
}

static uint64_t check(const struct piece *piece) {
    uint64_t sum = 0;
    for (size_t i = 0; i < piece->count; i++) {
        if (piece->words[i] != piece->key + i * 0x9E3779B97F4A7C15u)
            fail("a word is not as it was written");
        sum += piece->words[i];
    }
    return sum;
}

/* Mostly small, some of several pages, few of half a MiB. */
static size_t count_of(uint64_t *state) {
    uint64_t kind = next(state) % 256;
    if (kind == 0)
        return 1 + next(state) % 65536;
    return 1 + next(state) % (kind < 40 ? 2048 : 128);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct piece *pieces = calloc(SLOTS, sizeof *pieces);
    if (pieces == NULL)
        fail("no memory");
    for (int step = 0; step < STEPS; step++) {
        struct piece *piece = &pieces[step < SLOTS ? (uint64_t)step : next(&worker->seed) % SLOTS];
        worker->sum += check(piece);
        size_t kept = 0, count = count_of(&worker->seed);
        if (piece->words != NULL && step % 3 == 0) {
            kept = count < piece->count ? count : piece->count;
        } else {
            free(piece->words);
            piece->words = NULL;
            piece->key = next(&worker->seed);
        }
        piece->words = realloc(piece->words, count * sizeof *piece->words);
        if (piece->words == NULL)
            fail("no memory");
        piece->count = count;
        fill(piece, kept);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        worker->sum += check(&pieces[slot]);
        free(pieces[slot].words);
    }
    free(pieces);
    return NULL;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 1;
    struct worker workers[MOST_THREADS] = {0};
    if (threads < 1 || threads > MOST_THREADS)
        fail("between 1 and 16 threads");
    for (int i = 0; i < threads; i++) {
        workers[i].seed = 0x1234567 + (uint64_t)i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            fail("a thread cannot be started");
    }
    uint64_t sum = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        sum += workers[i].sum;
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
