/* Calls that a program should not make: an error or a clean end, never a crash, and nothing acknowledged is lost. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

static void null_is_refused_everywhere(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    esker_value value;
    esker_slice key, row;
    bool flag;
    size_t size;
    void *none = nothing();
    FAILS(ESKER_INVALID, esker_open(none, NULL, &db));
    FAILS(ESKER_INVALID, esker_open("", NULL, &db));
    FAILS(ESKER_INVALID, esker_open("db", NULL, none));
    FAILS(ESKER_INVALID, esker_close(none));
    FAILS(ESKER_INVALID, esker_sync(none));
    FAILS(ESKER_INVALID, esker_write(none, none, 0));
    FAILS(ESKER_INVALID, esker_write(db, none, 0));
    FAILS(ESKER_INVALID, esker_kvs_open(db, none, &kvs));
    FAILS(ESKER_INVALID, esker_kvs_open(db, "a", none));
    FAILS(ESKER_INVALID, esker_kvs_open(none, "a", &kvs));
    FAILS(ESKER_INVALID, esker_kvs_open(db, "\xff", &kvs));
    FAILS(ESKER_INVALID, esker_kvs_create(none, "b", NULL, &kvs));
    FAILS(ESKER_INVALID, esker_kvs_drop(db, none));
    FAILS(ESKER_INVALID, esker_kvs_names(db, none));
    FAILS(ESKER_INVALID, esker_put(none, "k", 1, "v", 1, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, none, 1, "v", 1, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, "k", 1, none, 1, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, "k", 1, "v", 1, 2));
    FAILS(ESKER_INVALID, esker_get(none, "k", 1, &value));
    FAILS(ESKER_INVALID, esker_get(kvs, none, 1, &value));
    FAILS(ESKER_INVALID, esker_get(kvs, "k", 1, none));
    FAILS(ESKER_INVALID, esker_get_into(kvs, "k", 1, none, 1, &size, &flag));
    FAILS(ESKER_INVALID, esker_get_into(kvs, "k", 1, none, 0, none, &flag));
    FAILS(ESKER_INVALID, esker_get_into(kvs, "k", 1, none, 0, &size, none));
    FAILS(ESKER_INVALID, esker_get_many(kvs, none, 1, &value));
    FAILS(ESKER_INVALID, esker_contains(kvs, "k", 1, none));
    FAILS(ESKER_INVALID, esker_delete(kvs, none, 1));
    FAILS(ESKER_INVALID, esker_delete_prefix(kvs, none, 0));
    FAILS(ESKER_INVALID, esker_delete_range(none, NULL));
    FAILS(ESKER_INVALID, esker_compare_and_set(kvs, "k", 1, NULL, NULL, none, NULL));
    FAILS(ESKER_INVALID, esker_iter_new(kvs, NULL, none));
    FAILS(ESKER_INVALID, esker_iter_new(none, NULL, none));
    FAILS(ESKER_INVALID, esker_iter_next(none, &key, &row, &flag));
    FAILS(ESKER_INVALID, esker_iter_seek(none, "k", 1));
    FAILS(ESKER_INVALID, esker_iter_seek_to_first(none));
    FAILS(ESKER_INVALID, esker_batch_put(none, kvs, "k", 1, "v", 1));
    FAILS(ESKER_INVALID, esker_batch_clear(none));
    FAILS(ESKER_INVALID, esker_snapshot_new(db, none));
    FAILS(ESKER_INVALID, esker_snapshot_get(none, kvs, "k", 1, &value));
    FAILS(ESKER_INVALID, esker_txn_begin(none, none));
    FAILS(ESKER_INVALID, esker_txn_commit(none, 0));
    FAILS(ESKER_INVALID, esker_txn_get(none, kvs, "k", 1, &value));
    FAILS(ESKER_INVALID, esker_stats(db, none));
    FAILS(ESKER_INVALID, esker_stats(none, &value));
    FAILS(ESKER_INVALID, esker_backup(db, none, NULL, NULL));
    FAILS(ESKER_INVALID, esker_check(none, NULL, NULL, NULL));
    FAILS(ESKER_INVALID, esker_repair("db", NULL, none, NULL, NULL));
    FAILS(ESKER_INVALID, esker_destroy(none, NULL));
    FAILS(ESKER_INVALID, esker_kvs_set_policy(kvs, none));
    esker_range range = {{9, slice("")}, {0, slice("")}};
    FAILS(ESKER_INVALID, esker_delete_range(kvs, &range));
    CHECK(!esker_kvs_name(none) && esker_batch_size(none) == 0 && esker_list_size(none) == 0 && !esker_list_at(none, 0));
    CHECK(esker_format_version(none) == 0 && esker_error_system(none) == 0);
    CHECK(esker_error_code(none) == ESKER_OK && !strcmp(esker_error_message(none), "no error"));
    esker_error_free(none), esker_value_free(none), esker_values_free(none, 3), esker_list_free(none);
    esker_kvs_free(none), esker_iter_free(none), esker_batch_free(none), esker_snapshot_free(none);
    esker_txn_free(none), esker_db_free(none), esker_options_free(none);
    put(kvs, "key", "value");
    CHECK(has(kvs, "key", "value"));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void handle_of_another_type_is_refused(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    esker_batch *batch = esker_batch_new();
    esker_options *options = esker_options_new();
    esker_value value;
    void *pointers[] = {db, batch, options, (char *)kvs + 1};
    for (size_t at = 0; at < 4; at++) {
        FAILS(ESKER_INVALID, esker_put(pointers[at], "k", 1, "v", 1, 0));
        FAILS(ESKER_INVALID, esker_get(pointers[at], "k", 1, &value));
        esker_kvs_free(pointers[at]);
    }
    FAILS(ESKER_INVALID, esker_sync((void *)kvs));
    FAILS(ESKER_INVALID, esker_write((void *)kvs, batch, 0));
    FAILS(ESKER_INVALID, esker_write(db, (void *)kvs, 0));
    FAILS(ESKER_INVALID, esker_open("other", (void *)kvs, &db));
    /* That freed nothing. */
    put(kvs, "key", "value");
    OK(esker_write(db, batch, 0));
    esker_batch_free(batch);
    esker_options_free(options);
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void children_answer_closed_after_a_close_and_are_freed_in_any_order(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    put(kvs, "key", "value");
    esker_iter *iter;
    esker_snapshot *snapshot;
    esker_txn *txn;
    esker_batch *batch = esker_batch_new();
    OK(esker_iter_new(kvs, NULL, &iter));
    OK(esker_snapshot_new(db, &snapshot));
    OK(esker_txn_begin(db, &txn));
    OK(esker_txn_put(txn, kvs, "k", 1, "v", 1));
    OK(esker_batch_put(batch, kvs, "k", 1, "v", 1));
    OK(esker_close(db));
    OK(esker_close(db));
    esker_slice key;
    esker_value value;
    bool found;
    FAILS(ESKER_CLOSED, esker_put(kvs, "k", 1, "v", 1, 0));
    FAILS(ESKER_CLOSED, esker_get(kvs, "key", 3, &value));
    FAILS(ESKER_CLOSED, esker_iter_next(iter, &key, NULL, &found));
    FAILS(ESKER_CLOSED, esker_iter_seek_to_first(iter));
    FAILS(ESKER_CLOSED, esker_snapshot_get(snapshot, kvs, "key", 3, &value));
    FAILS(ESKER_CLOSED, esker_txn_commit(txn, 0));
    FAILS(ESKER_CLOSED, esker_write(db, batch, 0));
    FAILS(ESKER_CLOSED, esker_sync(db));
    FAILS(ESKER_CLOSED, esker_kvs_open(db, "a", &kvs));
    FAILS(ESKER_CLOSED, esker_backup(db, "copy", NULL, NULL));
    FAILS(ESKER_CLOSED, esker_compact(db, ESKER_COMPACT_FULL, 0, NULL));
    FAILS(ESKER_CLOSED, esker_ingest(db));
    FAILS(ESKER_CLOSED, esker_upgrade(db));
    FAILS(ESKER_CLOSED, esker_add_staging(db, NULL));
    FAILS(ESKER_CLOSED, esker_remove_staging(db));
    FAILS(ESKER_CLOSED, esker_kvs_drop(db, "a"));
    FAILS(ESKER_CLOSED, esker_kvs_create(db, "b", NULL, &kvs));
    FAILS(ESKER_CLOSED, esker_kvs_set_ttl_ms(kvs, 9));
    FAILS(ESKER_CLOSED, esker_kvs_metadata(kvs, &value));
    FAILS(ESKER_CLOSED, esker_compare_and_set(kvs, "k", 1, NULL, NULL, &found, NULL));
    FAILS(ESKER_CLOSED, esker_delete_range(kvs, NULL));
    esker_list *names;
    OK(esker_kvs_names(db, &names));
    esker_list_free(names);
    OK(esker_stats(db, &value));
    esker_value_free(&value);
    /* The KVDB first, what is of it later. */
    esker_db_free(db);
    esker_iter_free(iter);
    esker_txn_free(txn);
    esker_snapshot_free(snapshot);
    FAILS(ESKER_CLOSED, esker_put(kvs, "k", 1, "v", 1, 0));
    esker_kvs_free(kvs);
    esker_batch_free(batch);
    db = open_db(&kvs);
    CHECK(has(kvs, "key", "value") && absent(kvs, "k"));
    esker_kvs_free(kvs);
    esker_db_free(db);
}

typedef struct {
    esker_kvs *kvs;
    atomic_int rows;
    int code;
} scan;

static void *scans(void *context) {
    scan *it = context;
    for (;;) {
        esker_iter *iter = nothing();
        esker_error *error = esker_iter_new(it->kvs, NULL, &iter);
        esker_slice key, value;
        bool found = true;
        while (!error && found) {
            error = esker_iter_next(iter, &key, &value, &found);
            if (!error && found) {
                CHECK(key.size == 8 && value.size == 1000 && ((const char *)value.data)[999] == 'v');
                atomic_fetch_add(&it->rows, 1);
            }
        }
        esker_iter_free(iter);
        if (error) {
            it->code = esker_error_code(error);
            esker_error_free(error);
            return NULL;
        }
    }
}

static void close_during_scans_of_other_threads_ends_them_with_closed(void) {
    for (int round = 0; round < 5; round++) {
        esker_kvs *kvs;
        esker_db *db = open_db(&kvs);
        char value[1000];
        memset(value, 'v', sizeof value);
        for (uint64_t n = 0; n < 5000; n++) {
            OK(esker_put(kvs, &n, sizeof n, value, sizeof value, 0));
        }
        OK(esker_ingest(db));
        scan of[3];
        pthread_t threads[3];
        for (int at = 0; at < 3; at++) {
            of[at] = (scan){kvs, 0, 0};
            CHECK(!pthread_create(&threads[at], NULL, scans, &of[at]));
        }
        while (atomic_load(&of[0].rows) < 1000 || atomic_load(&of[2].rows) < 1000) {
            usleep(100);
        }
        OK(esker_close(db));
        for (int at = 0; at < 3; at++) {
            CHECK(!pthread_join(threads[at], NULL));
            CHECK(of[at].code == ESKER_CLOSED);
        }
        esker_kvs_free(kvs);
        esker_db_free(db);
    }
}

typedef struct {
    esker_kvs *kvs;
    atomic_long acknowledged;
    long id;
    int code;
} writer;

static void *writes(void *context) {
    writer *it = context;
    for (long n = 0;; n++) {
        char key[32];
        snprintf(key, sizeof key, "%ld-%ld", it->id, n);
        esker_error *error = esker_put(it->kvs, key, strlen(key), key, strlen(key), 0);
        if (error) {
            it->code = esker_error_code(error);
            esker_error_free(error);
            return NULL;
        }
        atomic_store(&it->acknowledged, n + 1);
    }
}

static void close_beside_writers_loses_no_acknowledged_write(void) {
    for (int round = 0; round < 3; round++) {
        esker_kvs *kvs;
        esker_db *db = open_db(&kvs);
        OK(esker_delete_range(kvs, NULL));
        writer of[3];
        pthread_t threads[3];
        for (int at = 0; at < 3; at++) {
            of[at] = (writer){kvs, 0, at, 0};
            CHECK(!pthread_create(&threads[at], NULL, writes, &of[at]));
        }
        usleep(50000);
        OK(esker_close(db));
        for (int at = 0; at < 3; at++) {
            CHECK(!pthread_join(threads[at], NULL));
            CHECK(of[at].code == ESKER_CLOSED && of[at].acknowledged > 0);
        }
        esker_kvs_free(kvs);
        esker_db_free(db);
        db = open_db(&kvs);
        for (int at = 0; at < 3; at++) {
            for (long n = 0; n < of[at].acknowledged; n++) {
                char key[32];
                snprintf(key, sizeof key, "%d-%ld", at, n);
                CHECK(has(kvs, key, key));
            }
        }
        esker_kvs_free(kvs);
        esker_db_free(db);
    }
}

typedef struct {
    esker_batch *batch;
    esker_kvs *kvs;
    pthread_barrier_t *begin;
    int added, refused;
} adder;

static void *adds(void *context) {
    adder *it = context;
    pthread_barrier_wait(it->begin);
    for (int n = 0; n < 20000; n++) {
        esker_error *error = esker_batch_put(it->batch, it->kvs, "k", 1, "v", 1);
        CHECK(!error || esker_error_code(error) == ESKER_BUSY);
        error ? it->refused++ : it->added++;
        esker_error_free(error);
    }
    return NULL;
}

static void second_thread_in_a_batch_is_told_busy(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    esker_batch *batch = esker_batch_new();
    pthread_barrier_t begin;
    CHECK(!pthread_barrier_init(&begin, NULL, 2));
    adder of[2] = {{batch, kvs, &begin, 0, 0}, {batch, kvs, &begin, 0, 0}};
    /* On one processor they may take turns for long. */
    for (int round = 0; round < 500 && !(of[0].refused + of[1].refused); round++) {
        pthread_t threads[2];
        for (int at = 0; at < 2; at++) {
            CHECK(!pthread_create(&threads[at], NULL, adds, &of[at]));
        }
        for (int at = 0; at < 2; at++) {
            CHECK(!pthread_join(threads[at], NULL));
        }
    }
    CHECK(of[0].refused + of[1].refused > 0);
    CHECK(esker_batch_size(batch) == (size_t)(of[0].added + of[1].added));
    pthread_barrier_destroy(&begin);
    esker_batch_free(batch);
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void oversize_is_refused_and_changes_nothing(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    static char big[ESKER_VALUE_MAX + 1];
    OK(esker_put(kvs, big, ESKER_KEY_MAX, big, ESKER_VALUE_MAX, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, big, ESKER_KEY_MAX + 1, "", 0, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, "k", 1, big, sizeof big, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, "k", SIZE_MAX, "", 0, 0));
    FAILS(ESKER_INVALID, esker_put(kvs, "k", 1, "", SIZE_MAX / 2 + 1, 0));
    FAILS(ESKER_INVALID, esker_delete(kvs, "k", SIZE_MAX));
    esker_slice key = {"k", 1};
    esker_value value;
    FAILS(ESKER_INVALID, esker_get_many(kvs, &key, SIZE_MAX / 2, &value));
    key.size = SIZE_MAX;
    FAILS(ESKER_INVALID, esker_get_many(kvs, &key, 1, &value));
    FAILS(ESKER_INVALID, esker_kvs_set_metadata(kvs, big, ESKER_METADATA_MAX + 1));
    char name[ESKER_KVS_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    esker_kvs *other;
    FAILS(ESKER_INVALID, esker_kvs_create(db, name, NULL, &other));
    OK(esker_get(kvs, big, ESKER_KEY_MAX, &value));
    CHECK(value.size == ESKER_VALUE_MAX);
    esker_value_free(&value);
    CHECK(absent(kvs, "k"));
    /* A transaction that is too large. */
    esker_txn *txn;
    OK(esker_txn_begin(db, &txn));
    esker_error *error = nothing();
    for (int n = 0; n < 100 && !error; n++) {
        error = esker_txn_put(txn, kvs, &n, sizeof n, big, ESKER_VALUE_MAX);
    }
    CHECK(esker_error_code(error) == ESKER_INVALID);
    esker_error_free(error);
    esker_txn_free(txn);
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void handles_of_another_kvdb_are_refused(void) {
    esker_kvs *a, *foreign;
    esker_db *db = open_db(&a), *other;
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 32 << 20);
    OK(esker_create("other", options, &other));
    esker_options_free(options);
    OK(esker_kvs_create(other, "a", NULL, &foreign));
    esker_batch *batch = esker_batch_new();
    OK(esker_batch_put(batch, a, "k", 1, "v", 1));
    OK(esker_batch_put(batch, foreign, "k", 1, "v", 1));
    FAILS(ESKER_INVALID, esker_write(db, batch, 0));
    CHECK(absent(a, "k") && absent(foreign, "k"));
    esker_txn *txn;
    OK(esker_txn_begin(db, &txn));
    FAILS(ESKER_INVALID, esker_txn_put(txn, foreign, "k", 1, "v", 1));
    esker_txn_free(txn);
    esker_snapshot *snapshot;
    esker_value value;
    OK(esker_snapshot_new(db, &snapshot));
    FAILS(ESKER_INVALID, esker_snapshot_get(snapshot, foreign, "k", 1, &value));
    esker_snapshot_free(snapshot);
    esker_batch_free(batch);
    esker_kvs_free(a), esker_kvs_free(foreign);
    OK(esker_close(db));
    OK(esker_close(other));
    esker_db_free(db), esker_db_free(other);
}

static void second_opening_is_told_that_it_is_in_use(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs), *again = nothing();
    FAILS(ESKER_IN_USE, esker_open("db", NULL, &again));
    FAILS(ESKER_IN_USE, esker_create("db", NULL, &again));
    CHECK(!again);
    FAILS(ESKER_NOT_FOUND, esker_open("nowhere", NULL, &again));
    esker_error *error = esker_create("/proc/nothing", NULL, &again);
    CHECK(error && esker_error_system(error) > 0);
    esker_error_free(error);
    put(kvs, "k", "v");
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void opening_and_failing_often_takes_no_memory(void) {
    for (int n = 0; n < 30; n++) {
        esker_kvs *kvs;
        esker_db *db = open_db(&kvs), *none;
        put(kvs, "key", "value");
        for (int m = 0; m < 100; m++) {
            FAILS(ESKER_INVALID, esker_put(kvs, "k", SIZE_MAX, "", 0, 0));
            FAILS(ESKER_NOT_FOUND, esker_open("nowhere", NULL, &none));
        }
        esker_kvs_free(kvs);
        if (n % 2) {
            OK(esker_close(db));
        }
        esker_db_free(db);
    }
}

static const check_case cases[] = {
    {"null_is_refused_everywhere", null_is_refused_everywhere},
    {"handle_of_another_type_is_refused", handle_of_another_type_is_refused},
    {"children_answer_closed_after_a_close_and_are_freed_in_any_order",
     children_answer_closed_after_a_close_and_are_freed_in_any_order},
    {"close_during_scans_of_other_threads_ends_them_with_closed",
     close_during_scans_of_other_threads_ends_them_with_closed},
    {"close_beside_writers_loses_no_acknowledged_write", close_beside_writers_loses_no_acknowledged_write},
    {"second_thread_in_a_batch_is_told_busy", second_thread_in_a_batch_is_told_busy},
    {"oversize_is_refused_and_changes_nothing", oversize_is_refused_and_changes_nothing},
    {"handles_of_another_kvdb_are_refused", handles_of_another_kvdb_are_refused},
    {"second_opening_is_told_that_it_is_in_use", second_opening_is_told_that_it_is_in_use},
    {"opening_and_failing_often_takes_no_memory", opening_and_failing_often_takes_no_memory},
};

MAIN(cases)
