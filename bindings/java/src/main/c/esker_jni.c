/* The native half of dev.esker.Native, over esker.h.
 *
 * Invariants
 * 1. Java passes live handles alone: dev.esker.Handle counts the calls that use one, and frees it after the last.
 * 2. No call waits while it has an array of Java's pinned: the engine gets copies, or memory outside the heap.
 * 3. After a pending exception, a call frees what it has and returns. */
#include "esker.h"

#include <jni.h>
#include <stdlib.h>
#include <string.h>

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_dev_esker_Native_##name
#define HANDLE(type, value) ((type *)(intptr_t)(value))

/* Values up to this many bytes are copied to the stack. */
#define ROOM 4096

static jclass exception_class;
static jmethodID exception_of;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *machine, void *reserved) {
    (void)reserved;
    JNIEnv *env;
    if ((*machine)->GetEnv(machine, (void **)&env, JNI_VERSION_1_8) != JNI_OK) {
        return JNI_ERR;
    }
    jclass found = (*env)->FindClass(env, "dev/esker/EskerException");
    if (!found) {
        return JNI_ERR;
    }
    exception_class = (*env)->NewGlobalRef(env, found);
    exception_of = (*env)->GetStaticMethodID(env, found, "of", "(II[B)Ldev/esker/EskerException;");
    return exception_class && exception_of ? JNI_VERSION_1_8 : JNI_ERR;
}

static jbyteArray to_java(JNIEnv *env, const void *data, size_t size) {
    if (size > INT32_MAX - 16) {
        size = INT32_MAX; /* Java says that it has no such arrays. */
    }
    jbyteArray array = (*env)->NewByteArray(env, (jsize)size);
    if (array && size) {
        (*env)->SetByteArrayRegion(env, array, 0, (jsize)size, data);
    }
    return array;
}

static void throw_text(JNIEnv *env, int code, int system, const char *text) {
    jbyteArray message = to_java(env, text, strlen(text));
    if (!message) {
        return;
    }
    jobject thrown = (*env)->CallStaticObjectMethod(env, exception_class, exception_of, code, system, message);
    if (!(*env)->ExceptionCheck(env)) {
        (*env)->Throw(env, thrown);
    }
}

/* Whether a call failed; then its exception is pending. */
static bool failed(JNIEnv *env, esker_error *error) {
    if (!error) {
        return false;
    }
    throw_text(env, esker_error_code(error), esker_error_system(error), esker_error_message(error));
    esker_error_free(error);
    return true;
}

static void *out_of_memory(JNIEnv *env) {
    throw_text(env, ESKER_IO, 12, "the C library has no memory left: give the process more, or the heap of Java less");
    return NULL;
}

static void *allocate(JNIEnv *env, size_t size) {
    void *memory = malloc(size ? size : 1);
    return memory ? memory : out_of_memory(env);
}

/* Bytes of a caller: in its direct buffer, or a copy of its array. */
typedef struct {
    esker_slice slice;
    void *heap;
} bytes;

/* Takes `size` bytes at `at` of the array or the direct buffer; of neither, none. False with an exception pending. */
static bool take(JNIEnv *env, bytes *out, jbyteArray array, jobject buffer, jint at, jint size, void *room,
                 size_t room_size) {
    out->heap = NULL;
    out->slice.data = room;
    out->slice.size = (size_t)size;
    if (buffer) {
        out->slice.data = (const char *)(*env)->GetDirectBufferAddress(env, buffer) + at;
        return true;
    }
    if (!array) {
        out->slice.size = 0;
        return true;
    }
    void *to = room;
    if ((size_t)size > room_size) {
        to = out->heap = allocate(env, (size_t)size);
        if (!to) {
            return false;
        }
        out->slice.data = to;
    }
    (*env)->GetByteArrayRegion(env, array, at, size, to);
    if ((*env)->ExceptionCheck(env)) {
        free(out->heap);
        return false;
    }
    return true;
}

static bool take_all(JNIEnv *env, bytes *out, jbyteArray array, void *room, size_t room_size) {
    return take(env, out, array, NULL, 0, array ? (*env)->GetArrayLength(env, array) : 0, room, room_size);
}

/* A text that Java has ended with a zero; NULL for null. The caller frees it. */
static bool take_text(JNIEnv *env, char **text, jbyteArray array) {
    bytes taken;
    *text = NULL;
    if (!array) {
        return true;
    }
    if (!take_all(env, &taken, array, NULL, 0)) {
        return false;
    }
    *text = taken.heap;
    return true;
}

static jbyteArray take_value(JNIEnv *env, esker_value *value) {
    jbyteArray array = value->data ? to_java(env, value->data, value->size) : NULL;
    esker_value_free(value);
    return array;
}

/* Options */

NATIVE(jlong, optionsNew)(JNIEnv *env, jclass class) {
    (void)env, (void)class;
    return (jlong)(intptr_t)esker_options_new();
}

NATIVE(void, optionsFree)(JNIEnv *env, jclass class, jlong options) {
    (void)env, (void)class;
    esker_options_free(HANDLE(esker_options, options));
}

NATIVE(void, optionsNumber)(JNIEnv *env, jclass class, jlong handle, jint what, jlong one, jlong two) {
    (void)env, (void)class;
    esker_options *options = HANDLE(esker_options, handle);
    switch (what) {
    case 0: esker_options_set_memory(options, (uint64_t)one); break;
    case 1: esker_options_set_durability(options, (uint64_t)one, (uint64_t)two); break;
    case 2: esker_options_set_transaction_ms(options, (uint64_t)one); break;
    case 3: esker_options_set_manual(options, one != 0); break;
    }
}

NATIVE(void, optionsSpaceAmplification)(JNIEnv *env, jclass class, jlong options, jdouble ratio) {
    (void)env, (void)class;
    esker_options_set_space_amplification(HANDLE(esker_options, options), ratio);
}

NATIVE(void, optionsClass)(JNIEnv *env, jclass class, jlong options, jboolean staging, jbyteArray place) {
    (void)class;
    char *path;
    if (!take_text(env, &path, place)) {
        return;
    }
    if (staging) {
        esker_options_set_staging(HANDLE(esker_options, options), path);
    } else {
        esker_options_set_capacity(HANDLE(esker_options, options), path);
    }
    free(path);
}

NATIVE(void, optionsTuning)(JNIEnv *env, jclass class, jlong options, jbyteArray name, jlong value) {
    (void)class;
    char *text;
    if (take_text(env, &text, name)) {
        esker_options_set_tuning(HANDLE(esker_options, options), text, (uint64_t)value);
        free(text);
    }
}

/* KVDBs */

NATIVE(jlong, open)(JNIEnv *env, jclass class, jint mode, jbyteArray dir, jlong handle) {
    (void)class;
    char *path;
    if (!take_text(env, &path, dir)) {
        return 0;
    }
    const esker_options *options = HANDLE(esker_options, handle);
    esker_db *db = NULL;
    esker_error *error = mode == 0   ? esker_open_or_create(path, options, &db)
                         : mode == 1 ? esker_open(path, options, &db)
                         : mode == 2 ? esker_create(path, options, &db)
                                     : esker_open_read_only(path, options, &db);
    free(path);
    return failed(env, error) ? 0 : (jlong)(intptr_t)db;
}

NATIVE(void, run)(JNIEnv *env, jclass class, jint what, jlong handle) {
    (void)class;
    const esker_db *db = HANDLE(esker_db, handle);
    esker_error *error = NULL;
    switch (what) {
    case 0: error = esker_close(db); break;
    case 1: error = esker_sync(db); break;
    case 2: error = esker_ingest(db); break;
    case 3: error = esker_settle(db); break;
    case 4: error = esker_cancel_compact(db); break;
    case 5: error = esker_upgrade(db); break;
    case 6: error = esker_remove_staging(db); break;
    }
    failed(env, error);
}

NATIVE(jboolean, step)(JNIEnv *env, jclass class, jlong db) {
    (void)class;
    bool worked = false;
    failed(env, esker_step(HANDLE(esker_db, db), &worked));
    return worked;
}

NATIVE(jint, formatVersion)(JNIEnv *env, jclass class, jlong db) {
    (void)env, (void)class;
    return (jint)esker_format_version(HANDLE(esker_db, db));
}

NATIVE(void, addStaging)(JNIEnv *env, jclass class, jlong db, jbyteArray place) {
    (void)class;
    char *path;
    if (take_text(env, &path, place)) {
        failed(env, esker_add_staging(HANDLE(esker_db, db), path));
        free(path);
    }
}

NATIVE(jbyteArray, text)(JNIEnv *env, jclass class, jint what, jlong handle) {
    (void)class;
    esker_value text = {0};
    esker_error *error = what == 0   ? esker_stats(HANDLE(esker_db, handle), &text)
                         : what == 1 ? esker_compact_status(HANDLE(esker_db, handle), &text)
                         : what == 2 ? esker_kvs_options(HANDLE(esker_kvs, handle), &text)
                                     : esker_kvs_metadata(HANDLE(esker_kvs, handle), &text);
    return failed(env, error) ? NULL : take_value(env, &text);
}

/* Texts, each with a zero behind it. */
NATIVE(jbyteArray, texts)(JNIEnv *env, jclass class, jint what, jlong handle) {
    (void)class;
    esker_list *list = NULL;
    const esker_db *db = HANDLE(esker_db, handle);
    if (failed(env, what == 0 ? esker_kvs_names(db, &list) : esker_remarks(db, &list))) {
        return NULL;
    }
    size_t size = 0;
    for (size_t at = 0; at < esker_list_size(list); at++) {
        size += strlen(esker_list_at(list, at)) + 1;
    }
    jbyteArray all = NULL;
    char *joined = allocate(env, size);
    if (joined) {
        char *to = joined;
        for (size_t at = 0; at < esker_list_size(list); at++) {
            size_t part = strlen(esker_list_at(list, at)) + 1;
            memcpy(to, esker_list_at(list, at), part);
            to += part;
        }
        all = to_java(env, joined, size);
        free(joined);
    }
    esker_list_free(list);
    return all;
}

NATIVE(jbyteArray, compact)(JNIEnv *env, jclass class, jlong db, jint request, jdouble goal) {
    (void)class;
    esker_value status = {0};
    return failed(env, esker_compact(HANDLE(esker_db, db), request, goal, &status)) ? NULL : take_value(env, &status);
}

NATIVE(jbyteArray, backup)(JNIEnv *env, jclass class, jlong db, jbyteArray to, jlong options) {
    (void)class;
    char *path;
    esker_value report = {0};
    if (!take_text(env, &path, to)) {
        return NULL;
    }
    esker_error *error = esker_backup(HANDLE(esker_db, db), path, HANDLE(esker_options, options), &report);
    free(path);
    return failed(env, error) ? NULL : take_value(env, &report);
}

NATIVE(jbyteArray, check)(JNIEnv *env, jclass class, jbyteArray dir, jlong options, jbooleanArray sound) {
    (void)class;
    char *path;
    bool well = false;
    esker_value report = {0};
    if (!take_text(env, &path, dir)) {
        return NULL;
    }
    esker_error *error = esker_check(path, HANDLE(esker_options, options), &well, &report);
    free(path);
    if (failed(env, error)) {
        return NULL;
    }
    jboolean found = well;
    (*env)->SetBooleanArrayRegion(env, sound, 0, 1, &found);
    return take_value(env, &report);
}

NATIVE(jbyteArray, repair)(JNIEnv *env, jclass class, jbyteArray damaged, jlong options, jbyteArray to, jlong to_options) {
    (void)class;
    char *from_path, *to_path;
    esker_value report = {0};
    if (!take_text(env, &from_path, damaged)) {
        return NULL;
    }
    if (!take_text(env, &to_path, to)) {
        free(from_path);
        return NULL;
    }
    esker_error *error =
        esker_repair(from_path, HANDLE(esker_options, options), to_path, HANDLE(esker_options, to_options), &report);
    free(from_path);
    free(to_path);
    return failed(env, error) ? NULL : take_value(env, &report);
}

NATIVE(void, destroy)(JNIEnv *env, jclass class, jbyteArray dir, jlong options) {
    (void)class;
    char *path;
    if (take_text(env, &path, dir)) {
        failed(env, esker_destroy(path, HANDLE(esker_options, options)));
        free(path);
    }
}

/* KVSs */

NATIVE(jlong, kvs)(JNIEnv *env, jclass class, jlong handle, jint mode, jbyteArray name, jbyteArray policy,
                   jbyteArray compression, jlong ttl_ms) {
    (void)class;
    const esker_db *db = HANDLE(esker_db, handle);
    char *text = NULL, *policy_text = NULL, *compression_text = NULL;
    esker_kvs *kvs = NULL;
    if (take_text(env, &text, name) && take_text(env, &policy_text, policy) &&
        take_text(env, &compression_text, compression)) {
        esker_kvs_settings settings = {policy_text, compression_text, (uint64_t)ttl_ms};
        failed(env, mode == 0   ? esker_kvs_open_or_create(db, text, &settings, &kvs)
                    : mode == 1 ? esker_kvs_open(db, text, &kvs)
                                : esker_kvs_create(db, text, &settings, &kvs));
    }
    free(text);
    free(policy_text);
    free(compression_text);
    return (jlong)(intptr_t)kvs;
}

NATIVE(void, drop)(JNIEnv *env, jclass class, jlong db, jbyteArray name) {
    (void)class;
    char *text;
    if (take_text(env, &text, name)) {
        failed(env, esker_kvs_drop(HANDLE(esker_db, db), text));
        free(text);
    }
}

NATIVE(void, setText)(JNIEnv *env, jclass class, jlong kvs, jboolean policy, jbyteArray value) {
    (void)class;
    char *text;
    if (take_text(env, &text, value)) {
        failed(env, policy ? esker_kvs_set_policy(HANDLE(esker_kvs, kvs), text)
                           : esker_kvs_set_compression(HANDLE(esker_kvs, kvs), text));
        free(text);
    }
}

NATIVE(void, setTtl)(JNIEnv *env, jclass class, jlong kvs, jlong ms) {
    (void)class;
    failed(env, esker_kvs_set_ttl_ms(HANDLE(esker_kvs, kvs), (uint64_t)ms));
}

NATIVE(void, setMetadata)(JNIEnv *env, jclass class, jlong kvs, jbyteArray array) {
    (void)class;
    char room[ROOM];
    bytes metadata;
    if (take_all(env, &metadata, array, room, sizeof room)) {
        failed(env, esker_kvs_set_metadata(HANDLE(esker_kvs, kvs), metadata.slice.data, metadata.slice.size));
        free(metadata.heap);
    }
}

/* Writes: within a transaction where there is one. */

NATIVE(void, put)(JNIEnv *env, jclass class, jlong txn, jlong kvs, jbyteArray key_array, jobject key_buffer, jint key_at,
                  jint key_size, jbyteArray array, jobject buffer, jint at, jint size, jint flags) {
    (void)class;
    char key_room[ESKER_KEY_MAX], room[ROOM];
    bytes key, value;
    if (!take(env, &key, key_array, key_buffer, key_at, key_size, key_room, sizeof key_room)) {
        return;
    }
    if (take(env, &value, array, buffer, at, size, room, sizeof room)) {
        esker_slice k = key.slice, v = value.slice;
        failed(env, txn ? esker_txn_put(HANDLE(esker_txn, txn), HANDLE(esker_kvs, kvs), k.data, k.size, v.data, v.size)
                        : esker_put(HANDLE(esker_kvs, kvs), k.data, k.size, v.data, v.size, (uint32_t)flags));
        free(value.heap);
    }
    free(key.heap);
}

static esker_range range_of(int32_t lower_kind, esker_slice lower, int32_t upper_kind, esker_slice upper) {
    esker_range range = {{lower_kind, lower}, {upper_kind, upper}};
    return range;
}

/* Deletes one key, all with a prefix, or all of a range; null is no bound. */
NATIVE(void, delete)(JNIEnv *env, jclass class, jint what, jlong txn_handle, jlong kvs_handle, jbyteArray one,
                     jbyteArray other) {
    (void)class;
    char room[ESKER_KEY_MAX], other_room[ESKER_KEY_MAX];
    bytes key, end;
    esker_txn *txn = HANDLE(esker_txn, txn_handle);
    const esker_kvs *kvs = HANDLE(esker_kvs, kvs_handle);
    if (!take_all(env, &key, one, room, sizeof room)) {
        return;
    }
    if (take_all(env, &end, other, other_room, sizeof other_room)) {
        const void *data = key.slice.data;
        size_t size = key.slice.size;
        esker_range range = range_of(one ? ESKER_INCLUDED : 0, key.slice, other ? ESKER_EXCLUDED : 0, end.slice);
        esker_error *error;
        if (what == 0) {
            error = txn ? esker_txn_delete(txn, kvs, data, size) : esker_delete(kvs, data, size);
        } else if (what == 1) {
            error = txn ? esker_txn_delete_prefix(txn, kvs, data, size) : esker_delete_prefix(kvs, data, size);
        } else {
            error = txn ? esker_txn_delete_range(txn, kvs, &range) : esker_delete_range(kvs, &range);
        }
        failed(env, error);
        free(end.heap);
    }
    free(key.heap);
}

NATIVE(jboolean, compareAndSet)(JNIEnv *env, jclass class, jlong kvs, jbyteArray key_array, jbyteArray old_array,
                                jbyteArray new_array) {
    (void)class;
    char room[ESKER_KEY_MAX], old_room[ROOM], new_room[ROOM];
    bytes key = {{0}, 0}, old_value = {{0}, 0}, new_value = {{0}, 0};
    bool swapped = false;
    if (take_all(env, &key, key_array, room, sizeof room) &&
        take_all(env, &old_value, old_array, old_room, sizeof old_room) &&
        take_all(env, &new_value, new_array, new_room, sizeof new_room)) {
        failed(env, esker_compare_and_set(HANDLE(esker_kvs, kvs), key.slice.data, key.slice.size,
                                          old_array ? &old_value.slice : NULL, new_array ? &new_value.slice : NULL,
                                          &swapped, NULL));
    }
    if (key.heap) free(key.heap);
    if (old_value.heap) free(old_value.heap);
    if (new_value.heap) free(new_value.heap);
    return swapped;
}

/* Reads `size` bytes of a number at `*at`, if they are within `end`. */
static bool number(const char **at, const char *end, int32_t *value) {
    if (end - *at < (ptrdiff_t)sizeof *value) {
        return false;
    }
    memcpy(value, *at, sizeof *value);
    *at += sizeof *value;
    return true;
}

static bool part(const char **at, const char *end, int32_t size, esker_slice *slice) {
    slice->data = *at;
    slice->size = size < 0 ? 0 : (size_t)size;
    if (end - *at < (ptrdiff_t)slice->size) {
        return false;
    }
    *at += slice->size;
    return true;
}

/* Adds the writes that dev.esker.Batch has packed. `*sound` is false where threads garbled them. */
static esker_error *unpack(esker_batch *batch, const jlong *kvss, jsize count, const char *at, const char *end, bool *sound) {
    while (at < end) {
        int32_t what, which, key_size, size;
        esker_slice key, value;
        *sound = number(&at, end, &what) && number(&at, end, &which) && number(&at, end, &key_size) &&
                 number(&at, end, &size) && which >= 0 && which < count && part(&at, end, key_size, &key) &&
                 part(&at, end, size, &value);
        if (!*sound) {
            return NULL;
        }
        const esker_kvs *kvs = HANDLE(esker_kvs, kvss[which]);
        esker_error *error;
        if (what == 0) {
            error = esker_batch_put(batch, kvs, key.data, key.size, value.data, value.size);
        } else if (what == 1) {
            error = esker_batch_delete(batch, kvs, key.data, key.size);
        } else if (what == 2) {
            error = esker_batch_delete_prefix(batch, kvs, key.data, key.size);
        } else {
            esker_range range = range_of(key_size < 0 ? 0 : ESKER_INCLUDED, key, size < 0 ? 0 : ESKER_EXCLUDED, value);
            error = esker_batch_delete_range(batch, kvs, &range);
        }
        if (error) {
            return error;
        }
    }
    return NULL;
}

NATIVE(void, write)(JNIEnv *env, jclass class, jlong db, jlongArray handles, jbyteArray packed, jint size, jint flags) {
    (void)class;
    jsize count = (*env)->GetArrayLength(env, handles);
    jlong *kvss = allocate(env, (size_t)count * sizeof *kvss);
    if (!kvss) {
        return;
    }
    (*env)->GetLongArrayRegion(env, handles, 0, count, kvss);
    esker_batch *batch = esker_batch_new();
    bool sound = true;
    esker_error *error = NULL;
    /* Nothing waits here: a batch is filled in memory. */
    char *data = (*env)->GetPrimitiveArrayCritical(env, packed, NULL);
    if (data) {
        error = unpack(batch, kvss, count, data, data + size, &sound);
        (*env)->ReleasePrimitiveArrayCritical(env, packed, data, JNI_ABORT);
        if (!sound) {
            throw_text(env, ESKER_BUSY, 0, "another thread changed the batch while it was written");
        } else if (!failed(env, error)) {
            failed(env, esker_write(HANDLE(esker_db, db), batch, (uint32_t)flags));
        }
    }
    esker_batch_free(batch);
    free(kvss);
}

/* Reads: of a KVS (0), a snapshot (1), a transaction (2), or a transaction that will write the key (3). */

NATIVE(jbyteArray, get)(JNIEnv *env, jclass class, jint of, jlong reader, jlong kvs_handle, jbyteArray array,
                        jobject buffer, jint at, jint size) {
    (void)class;
    char room[ESKER_KEY_MAX];
    bytes key;
    if (!take(env, &key, array, buffer, at, size, room, sizeof room)) {
        return NULL;
    }
    esker_value value = {0};
    const esker_kvs *kvs = HANDLE(esker_kvs, kvs_handle);
    const void *data = key.slice.data;
    size_t length = key.slice.size;
    esker_error *error = of == 0   ? esker_get(kvs, data, length, &value)
                         : of == 1 ? esker_snapshot_get(HANDLE(esker_snapshot, reader), kvs, data, length, &value)
                         : of == 2 ? esker_txn_get(HANDLE(esker_txn, reader), kvs, data, length, &value)
                                   : esker_txn_get_for_update(HANDLE(esker_txn, reader), kvs, data, length, &value);
    free(key.heap);
    return failed(env, error) ? NULL : take_value(env, &value);
}

/* The size of the value, or -1; its first bytes are in the array or direct buffer. */
NATIVE(jint, getInto)(JNIEnv *env, jclass class, jint of, jlong reader, jlong kvs_handle, jbyteArray array, jobject buffer,
                      jint at, jint size, jbyteArray into_array, jobject into_buffer, jint into_at, jint into_size) {
    (void)class;
    char room[ESKER_KEY_MAX], into_room[ROOM];
    bytes key;
    if (!take(env, &key, array, buffer, at, size, room, sizeof room)) {
        return -1;
    }
    size_t capacity = (size_t)into_size > ESKER_VALUE_MAX ? ESKER_VALUE_MAX : (size_t)into_size;
    void *into = into_room, *heap = NULL;
    if (into_buffer) {
        into = (char *)(*env)->GetDirectBufferAddress(env, into_buffer) + into_at;
    } else if (capacity > sizeof into_room) {
        into = heap = allocate(env, capacity);
    }
    jint answer = -1;
    if (into) {
        size_t found_size = 0;
        bool found = false;
        const esker_kvs *kvs = HANDLE(esker_kvs, kvs_handle);
        const void *data = key.slice.data;
        size_t length = key.slice.size;
        esker_error *error =
            of == 0   ? esker_get_into(kvs, data, length, into, capacity, &found_size, &found)
            : of == 1 ? esker_snapshot_get_into(HANDLE(esker_snapshot, reader), kvs, data, length, into, capacity,
                                                &found_size, &found)
                      : esker_txn_get_into(HANDLE(esker_txn, reader), kvs, data, length, into, capacity, &found_size, &found);
        if (!failed(env, error) && found) {
            answer = (jint)found_size;
            if (into_array) {
                size_t copied = found_size < capacity ? found_size : capacity;
                (*env)->SetByteArrayRegion(env, into_array, into_at, (jsize)copied, into);
            }
        }
    }
    free(heap);
    free(key.heap);
    return answer;
}

/* Keys are packed, each behind its size; so are values, with the size -1 where there is none. */
NATIVE(jbyteArray, getMany)(JNIEnv *env, jclass class, jint of, jlong reader, jlong kvs_handle, jbyteArray packed,
                            jint count) {
    (void)class;
    bytes keys;
    if (!take_all(env, &keys, packed, NULL, 0)) {
        return NULL;
    }
    jbyteArray answer = NULL;
    esker_slice *slices = allocate(env, (size_t)count * sizeof *slices);
    esker_value *values = slices ? allocate(env, (size_t)count * sizeof *values) : NULL;
    if (values) {
        const char *at = keys.slice.data, *end = at + keys.slice.size;
        for (jint n = 0; n < count; n++) {
            int32_t size = 0;
            number(&at, end, &size);
            part(&at, end, size, &slices[n]);
        }
        const esker_kvs *kvs = HANDLE(esker_kvs, kvs_handle);
        size_t many = (size_t)count;
        esker_error *error = of == 0   ? esker_get_many(kvs, slices, many, values)
                             : of == 1 ? esker_snapshot_get_many(HANDLE(esker_snapshot, reader), kvs, slices, many, values)
                                       : esker_txn_get_many(HANDLE(esker_txn, reader), kvs, slices, many, values);
        if (!failed(env, error)) {
            size_t total = many * sizeof(int32_t);
            for (size_t n = 0; n < many; n++) {
                total += values[n].size;
            }
            char *all = allocate(env, total), *to = all;
            for (size_t n = 0; all && n < many; n++) {
                int32_t size = values[n].data ? (int32_t)values[n].size : -1;
                memcpy(to, &size, sizeof size);
                to += sizeof size;
                if (size > 0) {
                    memcpy(to, values[n].data, (size_t)size);
                    to += size;
                }
            }
            esker_values_free(values, many);
            answer = all ? to_java(env, all, total) : NULL;
            free(all);
        }
    }
    free(values);
    free(slices);
    free(keys.heap);
    return answer;
}

/* Whether a key is there (0 to 2, as above), or someone else has written it since the transaction began (3). */
NATIVE(jboolean, contains)(JNIEnv *env, jclass class, jint of, jlong reader, jlong kvs_handle, jbyteArray array) {
    (void)class;
    char room[ESKER_KEY_MAX];
    bytes key;
    bool found = false;
    if (!take_all(env, &key, array, room, sizeof room)) {
        return false;
    }
    const esker_kvs *kvs = HANDLE(esker_kvs, kvs_handle);
    const void *data = key.slice.data;
    size_t size = key.slice.size;
    failed(env, of == 0   ? esker_contains(kvs, data, size, &found)
                : of == 1 ? esker_snapshot_contains(HANDLE(esker_snapshot, reader), kvs, data, size, &found)
                : of == 2 ? esker_txn_contains(HANDLE(esker_txn, reader), kvs, data, size, &found)
                          : esker_txn_is_changed(HANDLE(esker_txn, reader), kvs, data, size, &found));
    free(key.heap);
    return found;
}

/* Snapshots and transactions */

NATIVE(jlong, snapshot)(JNIEnv *env, jclass class, jlong db) {
    (void)class;
    esker_snapshot *snapshot = NULL;
    failed(env, esker_snapshot_new(HANDLE(esker_db, db), &snapshot));
    return (jlong)(intptr_t)snapshot;
}

NATIVE(jlong, begin)(JNIEnv *env, jclass class, jlong db) {
    (void)class;
    esker_txn *txn = NULL;
    failed(env, esker_txn_begin(HANDLE(esker_db, db), &txn));
    return (jlong)(intptr_t)txn;
}

NATIVE(void, commit)(JNIEnv *env, jclass class, jlong txn, jint flags) {
    (void)class;
    failed(env, esker_txn_commit(HANDLE(esker_txn, txn), (uint32_t)flags));
}

/* Iterators */

/* An iterator, and memory in which its rows are packed. One thread at a time has it. */
typedef struct {
    esker_iter *iter;
    char *page;
    size_t room;
} rows;

NATIVE(jlong, iterate)(JNIEnv *env, jclass class, jint of, jlong reader, jlong kvs_handle, jint lower_kind,
                       jbyteArray lower_array, jint upper_kind, jbyteArray upper_array, jbyteArray prefix_array,
                       jboolean keys_only, jboolean at_end, jlong expected) {
    (void)class;
    char lower_room[ESKER_KEY_MAX], upper_room[ESKER_KEY_MAX], prefix_room[ESKER_KEY_MAX];
    bytes lower = {{0}, 0}, upper = {{0}, 0}, prefix = {{0}, 0};
    rows *made = calloc(1, sizeof *made);
    if (!made) {
        out_of_memory(env);
        return 0;
    }
    if (take_all(env, &lower, lower_array, lower_room, sizeof lower_room) &&
        take_all(env, &upper, upper_array, upper_room, sizeof upper_room) &&
        take_all(env, &prefix, prefix_array, prefix_room, sizeof prefix_room)) {
        esker_iter_settings settings = {range_of(lower_kind, lower.slice, upper_kind, upper.slice), prefix.slice,
                                        keys_only, (size_t)expected};
        const esker_kvs *kvs = HANDLE(esker_kvs, kvs_handle);
        esker_error *error =
            of == 0   ? esker_iter_new(kvs, &settings, &made->iter)
            : of == 1 ? esker_snapshot_iter(HANDLE(esker_snapshot, reader), kvs, &settings, &made->iter)
                      : esker_txn_iter(HANDLE(esker_txn, reader), kvs, &settings, &made->iter);
        if (!error && at_end) {
            error = esker_iter_seek_to_last(made->iter);
        }
        failed(env, error);
    }
    if (lower.heap) free(lower.heap);
    if (upper.heap) free(upper.heap);
    if (prefix.heap) free(prefix.heap);
    if ((*env)->ExceptionCheck(env)) {
        esker_iter_free(made->iter);
        free(made);
        return 0;
    }
    return (jlong)(intptr_t)made;
}

NATIVE(void, seek)(JNIEnv *env, jclass class, jlong handle, jbyteArray array) {
    (void)class;
    char room[ESKER_KEY_MAX];
    bytes key;
    if (take_all(env, &key, array, room, sizeof room)) {
        failed(env, esker_iter_seek(HANDLE(rows, handle)->iter, key.slice.data, key.slice.size));
        free(key.heap);
    }
}

/* Up to `most` rows, fewer when they have `bytes_wanted` bytes: each has the sizes of key and value, then both. NULL at
 * the end. */
NATIVE(jbyteArray, rows)(JNIEnv *env, jclass class, jlong handle, jboolean reverse, jint most, jint bytes_wanted) {
    (void)class;
    rows *from = HANDLE(rows, handle);
    size_t used = 0;
    for (jint n = 0; n < most && used < (size_t)bytes_wanted; n++) {
        esker_slice key, value;
        bool found = false;
        if (failed(env, reverse ? esker_iter_prev(from->iter, &key, &value, &found)
                                : esker_iter_next(from->iter, &key, &value, &found))) {
            return NULL;
        }
        if (!found) {
            break;
        }
        int32_t sizes[2] = {(int32_t)key.size, (int32_t)value.size};
        size_t needed = used + sizeof sizes + key.size + value.size;
        if (needed > from->room) {
            size_t room = needed > from->room * 2 ? needed : from->room * 2;
            char *grown = realloc(from->page, room);
            if (!grown) {
                out_of_memory(env);
                return NULL;
            }
            from->page = grown;
            from->room = room;
        }
        memcpy(from->page + used, sizes, sizeof sizes);
        used += sizeof sizes;
        memcpy(from->page + used, key.data, key.size);
        used += key.size;
        if (value.size) {
            memcpy(from->page + used, value.data, value.size);
            used += value.size;
        }
    }
    return used ? to_java(env, from->page, used) : NULL;
}

NATIVE(void, free)(JNIEnv *env, jclass class, jint what, jlong handle) {
    (void)env, (void)class;
    switch (what) {
    case 0: esker_db_free(HANDLE(esker_db, handle)); break;
    case 1: esker_kvs_free(HANDLE(esker_kvs, handle)); break;
    case 2: esker_snapshot_free(HANDLE(esker_snapshot, handle)); break;
    case 3: esker_txn_free(HANDLE(esker_txn, handle)); break;
    case 4: {
        rows *freed = HANDLE(rows, handle);
        esker_iter_free(freed->iter);
        free(freed->page);
        free(freed);
        break;
    }
    }
}

NATIVE(jbyteArray, version)(JNIEnv *env, jclass class) {
    (void)class;
    const char *version = esker_version();
    return to_java(env, version, strlen(version));
}

#ifdef ESKER_MEASURE
esker_error *esker_measure(const esker_kvs *, const char *, const esker_slice *, size_t, uint64_t *);

/* Nanoseconds of an operation in Rust with `count` keys of 16 bytes each. */
NATIVE(jlong, measure)(JNIEnv *env, jclass class, jlong kvs, jbyteArray operation, jbyteArray packed, jint count) {
    (void)class;
    char *name = NULL;
    uint64_t took = 0;
    bytes keys;
    if (!take_text(env, &name, operation) || !take_all(env, &keys, packed, NULL, 0)) {
        return 0;
    }
    esker_slice *slices = allocate(env, (size_t)count * sizeof *slices);
    if (slices) {
        for (jint n = 0; n < count; n++) {
            slices[n].data = (const char *)keys.slice.data + 16 * n;
            slices[n].size = 16;
        }
        failed(env, esker_measure(HANDLE(esker_kvs, kvs), name, slices, (size_t)count, &took));
    }
    free(slices);
    free(keys.heap);
    free(name);
    return (jlong)took;
}
#endif
