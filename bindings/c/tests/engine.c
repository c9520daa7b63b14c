/* The engine's behaviour, through the interface in C. */
#include <stdint.h>
#include <unistd.h>

#include "check.h"

static void puts_gets_and_deletes(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    CHECK(!strcmp(esker_kvs_name(kvs), "a"));
    CHECK(!strncmp(esker_version(), "0.", 2));
    put(kvs, "key", "value");
    OK(esker_put(kvs, "", 0, NULL, 0, ESKER_DURABLE));
    CHECK(has(kvs, "key", "value") && has(kvs, "", "") && absent(kvs, "other"));
    esker_value value;
    OK(esker_get(kvs, "other", 5, &value));
    CHECK(!value.data && !value.size);
    esker_value_free(&value);
    /* The buffer is shorter, as long, and not there. */
    char buffer[8] = "-------";
    size_t size;
    bool found;
    OK(esker_get_into(kvs, "key", 3, buffer, 3, &size, &found));
    CHECK(found && size == 5 && !memcmp(buffer, "val----", 7));
    OK(esker_get_into(kvs, "key", 3, buffer, 5, &size, &found));
    CHECK(found && size == 5 && !memcmp(buffer, "value--", 7));
    OK(esker_get_into(kvs, "key", 3, NULL, 0, &size, &found));
    CHECK(found && size == 5);
    OK(esker_get_into(kvs, "other", 5, buffer, sizeof buffer, &size, &found));
    CHECK(!found && size == 0);
    OK(esker_delete(kvs, "key", 3));
    OK(esker_delete(kvs, "never there", 11));
    CHECK(absent(kvs, "key"));
    put(kvs, "p/1", "");
    put(kvs, "p/2", "");
    put(kvs, "q/1", "");
    put(kvs, "r/1", "");
    OK(esker_delete_prefix(kvs, "p/", 2));
    CHECK(absent(kvs, "p/1") && absent(kvs, "p/2") && !absent(kvs, "q/1"));
    esker_range range = {{ESKER_INCLUDED, slice("q")}, {ESKER_EXCLUDED, slice("r/1")}};
    OK(esker_delete_range(kvs, &range));
    CHECK(absent(kvs, "q/1") && !absent(kvs, "r/1"));
    OK(esker_delete_range(kvs, NULL));
    CHECK(absent(kvs, "r/1"));
    bool swapped;
    esker_slice one = slice("1"), two = slice("2");
    OK(esker_compare_and_set(kvs, "c", 1, NULL, &one, &swapped, &value));
    CHECK(swapped && !value.data && has(kvs, "c", "1"));
    OK(esker_compare_and_set(kvs, "c", 1, &two, &two, &swapped, &value));
    CHECK(!swapped && value.size == 1 && value.data[0] == '1');
    esker_value_free(&value);
    OK(esker_compare_and_set(kvs, "c", 1, &one, NULL, &swapped, NULL));
    CHECK(swapped && absent(kvs, "c"));
    OK(esker_sync(db));
    OK(esker_close(db));
    esker_kvs_free(kvs);
    esker_db_free(db);
}

static void data_is_there_when_it_is_opened_again(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    put(kvs, "key", "value");
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
    db = nothing();
    OK(esker_open("db", NULL, &db));
    OK(esker_kvs_open(db, "a", &kvs));
    CHECK(has(kvs, "key", "value"));
    esker_kvs_free(kvs);
    /* Freed without a close, which closes it. */
    esker_db_free(db);
    OK(esker_open_read_only("db", NULL, &db));
    OK(esker_kvs_open(db, "a", &kvs));
    CHECK(has(kvs, "key", "value"));
    FAILS(ESKER_READ_ONLY, esker_put(kvs, "k", 1, "v", 1, 0));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void batch_happens_all_or_not_at_all(void) {
    esker_kvs *a, *b;
    esker_db *db = open_db(&a);
    OK(esker_kvs_create(db, "b", NULL, &b));
    put(a, "old", "1");
    put(a, "x/1", "1");
    put(a, "y", "1");
    esker_batch *batch = esker_batch_new();
    OK(esker_batch_put(batch, a, "k", 1, "v", 1));
    OK(esker_batch_put(batch, b, "k", 1, "w", 1));
    OK(esker_batch_delete(batch, a, "old", 3));
    OK(esker_batch_delete_prefix(batch, a, "x/", 2));
    esker_range range = {{ESKER_INCLUDED, slice("y")}, {ESKER_INCLUDED, slice("y")}};
    OK(esker_batch_delete_range(batch, a, &range));
    CHECK(esker_batch_size(batch) == 5);
    CHECK(absent(a, "k"));
    OK(esker_write(db, batch, ESKER_DURABLE));
    CHECK(has(a, "k", "v") && has(b, "k", "w") && absent(a, "old") && absent(a, "x/1") && absent(a, "y"));
    OK(esker_batch_clear(batch));
    CHECK(esker_batch_size(batch) == 0);
    /* One write of it cannot be. */
    static char big[ESKER_VALUE_MAX + 1];
    OK(esker_batch_put(batch, a, "new", 3, "", 0));
    OK(esker_batch_put(batch, a, "big", 3, big, sizeof big));
    FAILS(ESKER_INVALID, esker_write(db, batch, 0));
    CHECK(absent(a, "new"));
    esker_batch_free(batch);
    esker_kvs_free(a);
    esker_kvs_free(b);
    OK(esker_close(db));
    esker_db_free(db);
}

static void many_values_are_read_at_once(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    put(kvs, "1", "one");
    put(kvs, "3", "");
    esker_slice keys[] = {slice("1"), slice("2"), slice("3")};
    esker_value values[3];
    OK(esker_get_many(kvs, keys, 3, values));
    CHECK(values[0].size == 3 && !memcmp(values[0].data, "one", 3));
    CHECK(!values[1].data);
    CHECK(values[2].data && values[2].size == 0);
    esker_values_free(values, 3);
    esker_values_free(values, 3); /* They are not there any more. */
    OK(esker_get_many(kvs, NULL, 0, NULL));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

/* The keys of a walk, one after the other. */
static void walk(esker_iter *iter, bool forward, char *keys) {
    *keys = 0;
    for (;;) {
        esker_slice key, value;
        bool found;
        OK(forward ? esker_iter_next(iter, &key, &value, &found) : esker_iter_prev(iter, &key, &value, &found));
        if (!found) {
            return;
        }
        strncat(keys, key.data, key.size);
    }
}

static void iterators_go_both_ways_within_bounds(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    const char *keys[] = {"a", "b", "c", "ca", "cb", "d"};
    for (size_t at = 0; at < 6; at++) {
        put(kvs, keys[at], "value");
    }
    char seen[64];
    esker_iter *iter;
    OK(esker_iter_new(kvs, NULL, &iter));
    put(kvs, "later", "");
    walk(iter, true, seen);
    CHECK(!strcmp(seen, "abccacbd"));
    walk(iter, false, seen);
    CHECK(!strcmp(seen, "dcbcacba"));
    OK(esker_iter_seek(iter, "bb", 2));
    esker_slice key, value;
    bool found;
    OK(esker_iter_next(iter, &key, &value, &found));
    CHECK(found && key.size == 1 && *(const char *)key.data == 'c');
    CHECK(value.size == 5 && !memcmp(value.data, "value", 5));
    OK(esker_iter_prev(iter, &key, NULL, &found));
    CHECK(found && *(const char *)key.data == 'c');
    OK(esker_iter_seek_to_last(iter));
    OK(esker_iter_prev(iter, &key, &value, &found));
    CHECK(found && *(const char *)key.data == 'd');
    OK(esker_iter_seek_to_first(iter));
    OK(esker_iter_next(iter, &key, &value, &found));
    CHECK(found && *(const char *)key.data == 'a');
    esker_iter_free(iter);

    esker_iter_settings settings = {0};
    settings.prefix = slice("c");
    settings.keys_only = true;
    settings.expected_rows = 3;
    OK(esker_iter_new(kvs, &settings, &iter));
    OK(esker_iter_next(iter, &key, &value, &found));
    CHECK(found && value.size == 0);
    OK(esker_iter_seek_to_first(iter));
    walk(iter, true, seen);
    CHECK(!strcmp(seen, "ccacb"));
    esker_iter_free(iter);

    esker_range range = {{ESKER_EXCLUDED, slice("b")}, {ESKER_INCLUDED, slice("ca")}};
    esker_iter_settings within = {0};
    within.range = range;
    OK(esker_iter_new(kvs, &within, &iter));
    walk(iter, true, seen);
    CHECK(!strcmp(seen, "cca"));
    esker_iter_free(iter);
    within.prefix = slice("c");
    FAILS(ESKER_INVALID, esker_iter_new(kvs, &within, &iter));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void snapshot_stands_still(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    put(kvs, "key", "before");
    esker_snapshot *snapshot;
    OK(esker_snapshot_new(db, &snapshot));
    put(kvs, "key", "after");
    put(kvs, "new", "");
    esker_value value;
    OK(esker_snapshot_get(snapshot, kvs, "key", 3, &value));
    CHECK(value.size == 6 && !memcmp(value.data, "before", 6));
    esker_value_free(&value);
    char buffer[8];
    size_t size;
    bool found;
    OK(esker_snapshot_get_into(snapshot, kvs, "key", 3, buffer, sizeof buffer, &size, &found));
    CHECK(found && size == 6);
    OK(esker_snapshot_contains(snapshot, kvs, "new", 3, &found));
    CHECK(!found);
    esker_slice keys[] = {slice("key"), slice("new")};
    esker_value values[2];
    OK(esker_snapshot_get_many(snapshot, kvs, keys, 2, values));
    CHECK(values[0].size == 6 && !values[1].data);
    esker_values_free(values, 2);
    esker_iter *iter;
    OK(esker_snapshot_iter(snapshot, kvs, NULL, &iter));
    esker_snapshot_free(snapshot);
    char seen[16];
    walk(iter, true, seen);
    CHECK(!strcmp(seen, "key"));
    esker_iter_free(iter);
    CHECK(has(kvs, "key", "after"));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static void transaction_commits_conflicts_and_is_forgotten(void) {
    esker_kvs *kvs;
    esker_db *db = open_db(&kvs);
    put(kvs, "n", "1");
    put(kvs, "x/1", "");
    esker_txn *txn, *other;
    OK(esker_txn_begin(db, &txn));
    OK(esker_txn_begin(db, &other));
    esker_value value;
    OK(esker_txn_get_for_update(txn, kvs, "n", 1, &value));
    CHECK(value.size == 1 && value.data[0] == '1');
    esker_value_free(&value);
    OK(esker_txn_put(txn, kvs, "n", 1, "2", 1));
    OK(esker_txn_delete_prefix(txn, kvs, "x/", 2));
    OK(esker_txn_put(txn, kvs, "y", 1, "", 0));
    OK(esker_txn_delete(txn, kvs, "y", 1));
    OK(esker_txn_put(txn, kvs, "z", 1, "", 0));
    esker_range range = {{ESKER_INCLUDED, slice("z")}, {ESKER_UNBOUNDED, slice("")}};
    OK(esker_txn_delete_range(txn, kvs, &range));
    OK(esker_txn_get(txn, kvs, "n", 1, &value));
    CHECK(value.data[0] == '2');
    esker_value_free(&value);
    char buffer[4];
    size_t size;
    bool found;
    OK(esker_txn_get_into(txn, kvs, "n", 1, buffer, sizeof buffer, &size, &found));
    CHECK(found && size == 1 && buffer[0] == '2');
    OK(esker_txn_contains(txn, kvs, "z", 1, &found));
    CHECK(!found);
    esker_slice keys[] = {slice("n"), slice("y")};
    esker_value values[2];
    OK(esker_txn_get_many(txn, kvs, keys, 2, values));
    CHECK(values[0].size == 1 && !values[1].data);
    esker_values_free(values, 2);
    esker_iter *iter;
    OK(esker_txn_iter(txn, kvs, NULL, &iter));
    char seen[16];
    walk(iter, true, seen);
    CHECK(!strcmp(seen, "n"));
    esker_iter_free(iter);
    CHECK(has(kvs, "n", "1"));
    OK(esker_txn_commit(txn, ESKER_DURABLE));
    FAILS(ESKER_CLOSED, esker_txn_commit(txn, 0));
    FAILS(ESKER_CLOSED, esker_txn_put(txn, kvs, "n", 1, "3", 1));
    esker_txn_free(txn);
    CHECK(has(kvs, "n", "2") && absent(kvs, "x/1") && absent(kvs, "z"));

    bool changed;
    OK(esker_txn_is_changed(other, kvs, "n", 1, &changed));
    CHECK(changed);
    OK(esker_txn_put(other, kvs, "n", 1, "9", 1));
    FAILS(ESKER_TRANSACTION_CONFLICT, esker_txn_commit(other, 0));
    esker_txn_free(other);
    OK(esker_txn_begin(db, &txn));
    OK(esker_txn_put(txn, kvs, "n", 1, "8", 1));
    esker_txn_free(txn);
    CHECK(has(kvs, "n", "2"));
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
}

static int contains(const esker_value *text, const char *part) {
    CHECK(text->data && text->data[text->size] == 0 && strlen((const char *)text->data) == text->size);
    return strstr((const char *)text->data, part) != NULL;
}

static void kvss_have_settings_names_and_metadata(void) {
    esker_kvs *a, *b;
    esker_db *db = open_db(&a);
    esker_kvs_settings settings = {"capacity-only", "lz4", 3600000};
    OK(esker_kvs_create(db, "b", &settings, &b));
    FAILS(ESKER_EXISTS, esker_kvs_create(db, "b", &settings, &b));
    esker_value json;
    OK(esker_kvs_options(b, &json));
    CHECK(contains(&json, "\"version\":1") && contains(&json, "3600000"));
    esker_value_free(&json);
    OK(esker_kvs_set_policy(b, "auto"));
    OK(esker_kvs_set_compression(b, "none"));
    OK(esker_kvs_set_ttl_ms(b, 1));
    put(b, "k", "v");
    usleep(20000);
    CHECK(absent(b, "k"));
    OK(esker_kvs_set_ttl_ms(b, 0));
    put(b, "k", "v");
    OK(esker_kvs_set_metadata(b, "mine", 4));
    OK(esker_kvs_metadata(b, &json));
    CHECK(json.size == 4 && !memcmp(json.data, "mine", 4));
    esker_value_free(&json);
    settings.policy = "no policy";
    esker_kvs *wrong = nothing();
    FAILS(ESKER_INVALID, esker_kvs_create(db, "c", &settings, &wrong));
    FAILS(ESKER_INVALID, esker_kvs_create(db, "a name", NULL, &wrong));
    FAILS(ESKER_NOT_FOUND, esker_kvs_open(db, "c", &wrong));
    FAILS(ESKER_INVALID, esker_kvs_set_compression(b, "zip"));
    CHECK(!wrong);
    esker_list *names;
    OK(esker_kvs_names(db, &names));
    CHECK(esker_list_size(names) == 2 && !strcmp(esker_list_at(names, 1), "b") && !esker_list_at(names, 2));
    esker_list_free(names);
    OK(esker_kvs_drop(db, "b"));
    FAILS(ESKER_NOT_FOUND, esker_kvs_drop(db, "b"));
    FAILS(ESKER_CLOSED, esker_put(b, "k", 1, "v", 1, 0));
    esker_kvs_free(a);
    esker_kvs_free(b);
    OK(esker_close(db));
    esker_db_free(db);
}

typedef struct {
    int calls;
    int most;
} watch;

static bool observe(void *context, const char *phase, uint64_t done, uint64_t total) {
    watch *seen = context;
    CHECK(strlen(phase) > 3);
    (void)done, (void)total;
    seen->calls++;
    return seen->calls < seen->most;
}

static void maintenance_reports_and_can_be_called_off(void) {
    watch seen = {0, 1 << 30};
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 32 << 20);
    esker_options_set_staging(options, NULL);
    esker_options_set_on_progress(options, observe, &seen);
    esker_db *db;
    esker_kvs *kvs;
    OK(esker_create("db", options, &db));
    OK(esker_kvs_create(db, "a", NULL, &kvs));
    static char value[4000];
    for (int n = 0; n < 4000; n++) {
        char key[32];
        snprintf(key, sizeof key, "key-%d", n * 7919 % 4000);
        OK(esker_put(kvs, key, strlen(key), value, sizeof value, 0));
    }
    OK(esker_ingest(db));
    OK(esker_settle(db));
    esker_value json;
    OK(esker_compact(db, ESKER_COMPACT_FULL, 0, &json));
    CHECK(contains(&json, "\"version\":1") && contains(&json, "\"cancelled\":false") && seen.calls > 0);
    esker_value_free(&json);
    OK(esker_compact(db, ESKER_COMPACT_SPACE, 1.5, NULL));
    OK(esker_compact(db, ESKER_COMPACT_SCRUB, 0, NULL));
    FAILS(ESKER_INVALID, esker_compact(db, ESKER_COMPACT_SPACE, 0.5, NULL));
    FAILS(ESKER_INVALID, esker_compact(db, 77, 0, NULL));
    OK(esker_cancel_compact(db));
    OK(esker_compact_status(db, &json));
    CHECK(contains(&json, "space_amplification"));
    esker_value_free(&json);
    OK(esker_stats(db, &json));
    CHECK(contains(&json, "{\"version\":1,\"stats\":{") && contains(&json, "\"puts\":4000"));
    esker_value_free(&json);
    esker_list *remarks;
    OK(esker_remarks(db, &remarks));
    esker_list_free(remarks);
    CHECK(esker_format_version(db) >= 1);
    OK(esker_upgrade(db));
    CHECK(esker_format_version(db) >= 2);
    OK(esker_backup(db, "copy", NULL, &json));
    CHECK(contains(&json, "copied_bytes"));
    esker_value_free(&json);
    FAILS(ESKER_EXISTS, esker_backup(db, "copy", NULL, NULL));
    OK(esker_remove_staging(db));
    FAILS(ESKER_NOT_FOUND, esker_remove_staging(db));
    OK(esker_add_staging(db, NULL));
    FAILS(ESKER_EXISTS, esker_add_staging(db, NULL));
    bool worked;
    OK(esker_step(db, &worked));
    FAILS(ESKER_IN_USE, esker_check("db", NULL, NULL, NULL));
    /* Called off: the observer refuses to go on. */
    OK(esker_delete_range(kvs, NULL));
    seen.most = 0;
    esker_error *error = esker_compact(db, ESKER_COMPACT_FULL, 0, &json);
    if (!error) {
        CHECK(contains(&json, "\"cancelled\":true"));
        esker_value_free(&json);
    }
    esker_error_free(error);
    esker_kvs_free(kvs);
    OK(esker_close(db));
    esker_db_free(db);
    esker_options_free(options);

    bool sound = false;
    OK(esker_check("copy", NULL, &sound, &json));
    CHECK(sound && contains(&json, "\"entries\":4000"));
    esker_value_free(&json);
    OK(esker_repair("copy", NULL, "repaired", NULL, &json));
    CHECK(contains(&json, "\"recovered\":4000"));
    esker_value_free(&json);
    OK(esker_destroy("copy", NULL));
    FAILS(ESKER_NOT_FOUND, esker_open("copy", NULL, &db));
}

static void receive(void *context, const char *remark, size_t size) {
    int *count = context;
    CHECK(strlen(remark) == size && size > 10);
    ++*count;
}

static void options_that_cannot_be_are_refused_when_they_are_used(void) {
    esker_db *db = nothing();
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 1);
    FAILS(ESKER_INVALID, esker_create("db", options, &db));
    esker_options_set_memory(options, 64 << 20);
    esker_options_set_durability(options, 50, 1 << 20);
    esker_options_set_transaction_ms(options, 1000);
    esker_options_set_space_amplification(options, 2);
    esker_options_set_manual(options, true);
    esker_options_set_tuning(options, "memtable_bytes", 1 << 20);
    int remarks = 0;
    esker_options_set_on_remark(options, receive, &remarks);
    OK(esker_create("db", options, &db));
    OK(esker_close(db));
    esker_db_free(db);
    esker_options_set_tuning(options, "speed", 9);
    FAILS(ESKER_INVALID, esker_open("db", options, &db));
    esker_options_free(options);
    options = esker_options_new();
    esker_options_set_capacity(options, "");
    FAILS(ESKER_INVALID, esker_create("other", options, &db));
    esker_options_free(options);
    esker_options_free(NULL);
    esker_options_set_memory(NULL, 1);
}

static const check_case cases[] = {
    {"puts_gets_and_deletes", puts_gets_and_deletes},
    {"data_is_there_when_it_is_opened_again", data_is_there_when_it_is_opened_again},
    {"batch_happens_all_or_not_at_all", batch_happens_all_or_not_at_all},
    {"many_values_are_read_at_once", many_values_are_read_at_once},
    {"iterators_go_both_ways_within_bounds", iterators_go_both_ways_within_bounds},
    {"snapshot_stands_still", snapshot_stands_still},
    {"transaction_commits_conflicts_and_is_forgotten", transaction_commits_conflicts_and_is_forgotten},
    {"kvss_have_settings_names_and_metadata", kvss_have_settings_names_and_metadata},
    {"maintenance_reports_and_can_be_called_off", maintenance_reports_and_can_be_called_off},
    {"options_that_cannot_be_are_refused_when_they_are_used", options_that_cannot_be_are_refused_when_they_are_used},
};

MAIN(cases)
