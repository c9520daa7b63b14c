/* Stores and reads: cc start.c $(pkg-config --cflags --libs esker) -o start && ./start DIRECTORY */
#include <esker.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the message of an error. */
static void check(esker_error *error) {
    if (error) {
        fprintf(stderr, "%s\n", esker_error_message(error));
        exit(1);
    }
}

int main(int argc, char **argv) {
    esker_db *db;
    esker_kvs *users, *names;
    check(esker_open_or_create(argc > 1 ? argv[1] : "db", NULL, &db));
    check(esker_kvs_open_or_create(db, "users", NULL, &users));
    check(esker_kvs_open_or_create(db, "names", NULL, &names));

    esker_batch *batch = esker_batch_new(); /* all or nothing, across KVSs */
    check(esker_batch_put(batch, users, "42", 2, "Ada", 3));
    check(esker_batch_put(batch, names, "Ada", 3, "42", 2));
    check(esker_write(db, batch, ESKER_DURABLE));
    esker_batch_free(batch);

    esker_value name;
    check(esker_get(users, "42", 2, &name));
    printf("42 is %.*s\n", (int)name.size, (const char *)name.data);
    esker_value_free(&name);

    esker_iter_settings range = {.range = {{ESKER_INCLUDED, {"40", 2}}, {ESKER_EXCLUDED, {"50", 2}}}};
    esker_iter *rows;
    check(esker_iter_new(users, &range, &rows));
    for (;;) {
        esker_slice key, value;
        bool found;
        check(esker_iter_next(rows, &key, &value, &found));
        if (!found) {
            break;
        }
        printf("%.*s = %.*s\n", (int)key.size, (const char *)key.data, (int)value.size, (const char *)value.data);
    }
    esker_iter_free(rows);

    esker_kvs_free(users);
    esker_kvs_free(names);
    check(esker_close(db)); /* all is durable, or the error says why not */
    esker_db_free(db);
    return 0;
}
