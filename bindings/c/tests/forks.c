/* Forks beside threads that are in calls of the library: ESKER_FORKS says how many. Each child is told that the parent's
   handles are not its own, frees them, uses a KVDB of its own and exits; one that hangs is killed by its alarm. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { PATIENCE = 20, THREADS = 8, KEYS = 500 };

static esker_db *db;
static esker_kvs *kvs;
static esker_iter *shared_iter;
static esker_txn *shared_txn;
static esker_snapshot *shared_snapshot;
static esker_batch *shared_batch;
static atomic_bool stop;

static long forks(void) {
    const char *said = getenv("ESKER_FORKS");
    return said ? atol(said) : 60;
}

static esker_db *open_small(const char *path) {
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 16 << 20);
    esker_db *opened;
    OK(esker_open_or_create(path, options, &opened));
    esker_options_free(options);
    return opened;
}

static void write_rows(int seed) {
    static char value[2000];
    for (int n = 0; n < KEYS && !stop; n++) {
        int key[2] = {seed, n};
        OK(esker_put(kvs, key, sizeof key, value, sizeof value, n % 50 ? 0 : ESKER_DURABLE));
    }
}

static void read_rows(void) {
    for (int n = 0; n < KEYS && !stop; n++) {
        int key[2] = {n % 3, n};
        esker_value value;
        OK(esker_get(kvs, key, sizeof key, &value));
        esker_value_free(&value);
    }
}

static void walk(void) {
    esker_iter *iter;
    esker_slice key, value;
    bool found = true;
    OK(esker_iter_new(kvs, NULL, &iter));
    for (int n = 0; n < 200 && found; n++) {
        OK(esker_iter_next(iter, &key, &value, &found));
    }
    esker_iter_free(iter);
    /* These are most often in use when the process forks. */
    for (int n = 0; n < 50; n++) {
        OK(esker_iter_seek_to_first(shared_iter));
        OK(esker_iter_next(shared_iter, &key, &value, &found));
        OK(esker_batch_put(shared_batch, kvs, "b", 1, "v", 1));
        esker_error_free(esker_txn_put(shared_txn, kvs, &n, sizeof n, "v", 1)); /* It expires. */
    }
    OK(esker_batch_clear(shared_batch));
}

static void open_and_close(int seed) {
    char path[32];
    snprintf(path, sizeof path, "beside-%d", seed);
    esker_db *own = open_small(path);
    esker_kvs *map;
    OK(esker_kvs_open_or_create(own, "a", NULL, &map));
    put(map, "key", "value");
    esker_kvs_free(map);
    OK(esker_close(own));
    esker_db_free(own);
}

static void transact(int seed) {
    esker_txn *txn;
    esker_snapshot *snapshot;
    esker_value json;
    OK(esker_txn_begin(db, &txn));
    esker_error_free(esker_txn_put(txn, kvs, &seed, sizeof seed, "v", 1));
    esker_error_free(esker_txn_commit(txn, 0)); /* It expires. */
    esker_txn_free(txn);
    OK(esker_snapshot_new(db, &snapshot));
    esker_snapshot_free(snapshot);
    OK(esker_stats(db, &json));
    esker_value_free(&json);
    OK(esker_ingest(db));
}

static void *hammer(void *argument) {
    int seed = (int)(intptr_t)argument;
    while (!stop) {
        switch (seed) {
        case 0: case 1: case 2: write_rows(seed); break;
        case 3: read_rows(); break;
        case 4: walk(); break;
        case 5: transact(seed); break;
        default: open_and_close(seed);
        }
    }
    return NULL;
}

static void refused(void) {
    esker_value value;
    esker_slice key;
    esker_iter *iter;
    esker_txn *txn;
    esker_snapshot *snapshot;
    esker_list *list;
    bool found;
    FAILS(ESKER_CLOSED, esker_put(kvs, "k", 1, "v", 1, 0));
    FAILS(ESKER_CLOSED, esker_get(kvs, "k", 1, &value));
    FAILS(ESKER_CLOSED, esker_delete(kvs, "k", 1));
    FAILS(ESKER_CLOSED, esker_contains(kvs, "k", 1, &found));
    FAILS(ESKER_CLOSED, esker_iter_new(kvs, NULL, &iter));
    FAILS(ESKER_CLOSED, esker_iter_next(shared_iter, &key, NULL, &found));
    FAILS(ESKER_CLOSED, esker_iter_seek_to_first(shared_iter));
    FAILS(ESKER_CLOSED, esker_txn_put(shared_txn, kvs, "k", 1, "v", 1));
    FAILS(ESKER_CLOSED, esker_txn_get(shared_txn, kvs, "k", 1, &value));
    FAILS(ESKER_CLOSED, esker_txn_commit(shared_txn, 0));
    FAILS(ESKER_CLOSED, esker_snapshot_get(shared_snapshot, kvs, "k", 1, &value));
    FAILS(ESKER_CLOSED, esker_txn_begin(db, &txn));
    FAILS(ESKER_CLOSED, esker_snapshot_new(db, &snapshot));
    FAILS(ESKER_CLOSED, esker_kvs_names(db, &list));
    FAILS(ESKER_CLOSED, esker_stats(db, &value));
    FAILS(ESKER_CLOSED, esker_remarks(db, &list));
    FAILS(ESKER_CLOSED, esker_sync(db));
    FAILS(ESKER_CLOSED, esker_ingest(db));
    FAILS(ESKER_CLOSED, esker_compact(db, ESKER_COMPACT_FULL, 0, NULL));
    FAILS(ESKER_CLOSED, esker_cancel_compact(db));
    FAILS(ESKER_CLOSED, esker_close(db));
}

static void child(long number) {
    alarm(PATIENCE);
    refused();
    if (number % 2) {
        esker_iter_free(shared_iter);
        esker_txn_free(shared_txn);
        esker_snapshot_free(shared_snapshot);
        esker_kvs_free(kvs);
        esker_db_free(db);
    }
    esker_db *own = open_small("of-the-child");
    esker_kvs *map;
    OK(esker_kvs_create(own, "a", NULL, &map));
    static char value[1000];
    for (int n = 0; n < 300; n++) {
        OK(esker_put(map, &n, sizeof n, value, sizeof value, n % 100 ? 0 : ESKER_DURABLE));
    }
    esker_iter *iter;
    esker_slice key, seen;
    bool found = true;
    int rows = 0;
    OK(esker_iter_new(map, NULL, &iter));
    for (;; rows++) {
        OK(esker_iter_next(iter, &key, &seen, &found));
        if (!found) {
            break;
        }
    }
    CHECK(rows == 300);
    esker_iter_free(iter);
    OK(esker_ingest(own));
    int last = 299;
    OK(esker_contains(map, &last, sizeof last, &found));
    CHECK(found);
    esker_kvs_free(map);
    if (number % 3) {
        OK(esker_close(own));
        esker_db_free(own);
        OK(esker_destroy("of-the-child", NULL));
    }
    exit(0); /* With all that a program does at its end. */
}

static void child_beside_busy_threads_never_hangs(void) {
    db = open_db(&kvs);
    put(kvs, "key", "value");
    OK(esker_iter_new(kvs, NULL, &shared_iter));
    OK(esker_txn_begin(db, &shared_txn));
    OK(esker_snapshot_new(db, &shared_snapshot));
    shared_batch = esker_batch_new();
    pthread_t threads[THREADS];
    for (intptr_t n = 0; n < THREADS; n++) {
        CHECK(!pthread_create(&threads[n], NULL, hammer, (void *)n));
    }
    long hung = 0, failed = 0;
    for (long n = 0; n < forks(); n++) {
        usleep((unsigned)(n * 37 % 5000));
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(n);
        }
        int status = 0;
        while (waitpid(pid, &status, 0) < 0) {
            CHECK(errno == EINTR);
        }
        hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        if (status != 0) {
            failed++;
            fprintf(stderr, "child %ld ended with status %#x\n", n, (unsigned)status);
        }
        /* What a child left that did not close it. */
        esker_error_free(esker_destroy("of-the-child", NULL));
    }
    fprintf(stderr, "%ld forks: %ld children hung, %ld failed in all\n", forks(), hung, failed);
    stop = true;
    for (int n = 0; n < THREADS; n++) {
        pthread_join(threads[n], NULL);
    }
    CHECK(has(kvs, "key", "value") && failed == 0);
    esker_batch_free(shared_batch);
    esker_snapshot_free(shared_snapshot);
    esker_txn_free(shared_txn);
    esker_iter_free(shared_iter);
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static const check_case cases[] = {
    {"child_beside_busy_threads_never_hangs", child_beside_busy_threads_never_hangs},
};

MAIN(cases)
