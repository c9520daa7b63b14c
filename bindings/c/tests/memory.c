/* Opens, uses, fails and closes over and over: memory.c ROUNDS. Resident memory may not grow after the first tenth. */
#include <unistd.h>

#include "check.h"

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void errors(esker_db *db, esker_kvs *kvs, long count) {
    for (long n = 0; n < count; n++) {
        esker_value value;
        esker_slice key;
        bool found;
        FAILS(ESKER_INVALID, esker_put(kvs, "k", (size_t)-1, "", 0, 0));
        FAILS(ESKER_INVALID, esker_sync((void *)kvs));
        FAILS(ESKER_NOT_FOUND, esker_kvs_open(db, "b", &kvs));
        OK(esker_get(kvs, "key", 3, &value));
        esker_value_free(&value);
        esker_iter *iter;
        OK(esker_iter_new(kvs, NULL, &iter));
        OK(esker_iter_next(iter, &key, NULL, &found));
        esker_iter_free(iter);
        esker_txn *txn;
        OK(esker_txn_begin(db, &txn));
        OK(esker_txn_put(txn, kvs, "t", 1, "v", 1));
        esker_txn_free(txn);
    }
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100, before = 0;
    CHECK(rounds >= 10);
    for (long n = 0; n < rounds; n++) {
        if (n == rounds / 10) {
            before = resident_kib();
        }
        esker_kvs *kvs;
        esker_db *db = open_db(&kvs);
        put(kvs, "key", "value");
        errors(db, kvs, 1000);
        esker_kvs_free(kvs);
        if (n % 2) {
            OK(esker_close(db));
        }
        esker_db_free(db);
    }
    long after = resident_kib();
    printf("%ld openings, %ld rounds of errors: %ld KiB resident before, %ld after\n", rounds, rounds * 1000, before,
           after);
    CHECK(after < before + 4096);
    return 0;
}
