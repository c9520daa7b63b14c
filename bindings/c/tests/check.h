/* Parts that the tests in C share: each case runs in a process of its own, in an empty directory. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "esker.h"

#define CHECK(holds)                                                                    \
    do {                                                                                \
        if (!(holds)) {                                                                 \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds);   \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

/* The call succeeds. */
#define OK(call) check_ok((call), __FILE__, __LINE__)
/* The call fails with that number, and says why. */
#define FAILS(code, call) check_fails((code), (call), __FILE__, __LINE__)

static inline void check_ok(esker_error *error, const char *file, int line) {
    if (error) {
        fprintf(stderr, "%s:%d: error %d: %s\n", file, line, esker_error_code(error), esker_error_message(error));
        exit(1);
    }
}

static inline void check_fails(int code, esker_error *error, const char *file, int line) {
    if (esker_error_code(error) != code) {
        fprintf(stderr, "%s:%d: error %d, not %d: %s\n", file, line, esker_error_code(error), code,
                esker_error_message(error));
        exit(1);
    }
    if (code != ESKER_OK && strlen(esker_error_message(error)) < 10) {
        fprintf(stderr, "%s:%d: the message says nothing: %s\n", file, line, esker_error_message(error));
        exit(1);
    }
    esker_error_free(error);
}

static inline void *nothing(void) {
    return NULL;
}

/* A KVDB in `db`, with the KVS `a`. */
static inline esker_db *open_db(esker_kvs **kvs) {
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, 32 << 20);
    esker_db *db = NULL;
    OK(esker_open_or_create("db", options, &db));
    esker_options_free(options);
    OK(esker_kvs_open_or_create(db, "a", NULL, kvs));
    return db;
}

static inline void put(const esker_kvs *kvs, const char *key, const char *value) {
    OK(esker_put(kvs, key, strlen(key), value, strlen(value), 0));
}

static inline int has(const esker_kvs *kvs, const char *key, const char *value) {
    esker_value found;
    OK(esker_get(kvs, key, strlen(key), &found));
    int same = found.data && found.size == strlen(value) && !memcmp(found.data, value, found.size);
    esker_value_free(&found);
    return same;
}

static inline int absent(const esker_kvs *kvs, const char *key) {
    bool found = true;
    OK(esker_contains(kvs, key, strlen(key), &found));
    return !found;
}

static inline esker_slice slice(const char *text) {
    esker_slice made = {text, strlen(text)};
    return made;
}

typedef struct {
    const char *name;
    void (*run)(void);
} check_case;

/* PROGRAM lists the cases, PROGRAM CASE runs one. */
static inline int run_cases(const check_case *cases, size_t count, int argc, char **argv) {
    for (size_t at = 0; at < count; at++) {
        if (argc < 2) {
            puts(cases[at].name);
        } else if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    }
    if (argc >= 2) {
        fprintf(stderr, "there is no case %s\n", argv[1]);
        return 2;
    }
    return 0;
}

#define MAIN(cases)                                                      \
    int main(int argc, char **argv) {                                    \
        return run_cases(cases, sizeof cases / sizeof *cases, argc, argv); \
    }

#endif
