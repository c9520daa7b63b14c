/* Esker: an embedded key-value store for flash, and paged memory.
 * Generated from bindings/c/src by cbindgen; do not edit. Link with -lesker (pkg-config esker).
 *
 * Rules for all functions:
 *
 *   - A call that may fail returns NULL when it succeeded, else an error that the caller owns: esker_error_code has its
 *     number, esker_error_message its text, esker_error_free frees it. Results are written on success alone.
 *   - A handle (a pointer to esker_db, esker_kvs, ...) belongs to the caller until its own function frees it, in any order:
 *     each keeps what it needs. A NULL or a handle of another type is refused; use of a freed one is undefined.
 *   - Handles may be used by many threads at once. An iterator, a batch and a transaction are for one at a time: a second
 *     thread is told ESKER_BUSY. Nobody may use a handle while it is freed.
 *   - Keys, values and texts that are passed in are copied or done with when the call returns. Texts are UTF-8 and end
 *     with a zero; paths are bytes.
 *   - A forked child may free handles of its parent; all other calls with them answer ESKER_CLOSED.
 *   - No call sets a signal handler, prints, or changes the locale. There is no global state.
 */


#ifndef ESKER_H
#define ESKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A thread of the arena serves faults.
#define ESKER_HANDLER 0

// The thread that faults serves the fault, from a handler of SIGBUS. That is faster; system calls on pages that are not
// in memory fail with EFAULT, no thread may block SIGBUS, and children have no slow part.
#define ESKER_SIGNAL 1

// Keys have no bound on this side.
#define ESKER_UNBOUNDED 0

// The bound is one of the keys.
#define ESKER_INCLUDED 1

// The bound is none of the keys.
#define ESKER_EXCLUDED 2

// No error: what `esker_error_code` says of NULL.
#define ESKER_OK 0

// A device or file system failed; `esker_error_system` has the system's error number.
#define ESKER_IO 1

// The KVDB, KVS, file or device named is not there.
#define ESKER_NOT_FOUND 2

// It is there already.
#define ESKER_EXISTS 3

// An argument, a key, a value, a batch, a name, an option or a place cannot be.
#define ESKER_INVALID 4

// This build, device or file system cannot do it.
#define ESKER_UNSUPPORTED 5

// A class or its file system is full.
#define ESKER_NO_SPACE 6

// A medium returned other data than was written.
#define ESKER_DAMAGED 7

// The KVDB, or these keys of it, take no writes.
#define ESKER_READ_ONLY 8

// Someone else wrote a key of the transaction since it began: begin it again, which may succeed at once.
#define ESKER_TRANSACTION_CONFLICT 9

// The transaction was open for too long: begin it again.
#define ESKER_TRANSACTION_EXPIRED 10

// Work or readers of this process, or another thread with this handle, have to end first: try again then.
#define ESKER_BUSY 11

// Another process, or another opening in this one, has the KVDB or a device of it: nothing was opened.
#define ESKER_IN_USE 12

// The work was called off.
#define ESKER_CANCELLED 13

// The KVDB is closed, the KVS dropped, the transaction ended, or this is a forked child.
#define ESKER_CLOSED 14

// An earlier failure stopped writes: open the KVDB again.
#define ESKER_STOPPED 15

// A thread of the engine panicked, or this call did.
#define ESKER_PANICKED 16

// The KVDB is there, and the file or block device of one of its classes is not. A new KVDB is no remedy.
#define ESKER_CLASS_MISSING 17

// The longest key, in bytes.
#define ESKER_KEY_MAX 1344

// The longest value, in bytes.
#define ESKER_VALUE_MAX 1048576

// The longest name of a KVS, in bytes.
#define ESKER_KVS_NAME_MAX 255

// The most metadata of a KVS, in bytes.
#define ESKER_METADATA_MAX 4096

// The write is durable when the call returns. Without it, it is as the options of the KVDB say.
#define ESKER_DURABLE 1

// A compaction merges everything, and leaves no garbage.
#define ESKER_COMPACT_FULL 0

// A compaction ends when the media hold at most `goal` bytes for each live byte.
#define ESKER_COMPACT_SPACE 1

// As `ESKER_COMPACT_FULL`; and then nothing that was deleted before is on the media.
#define ESKER_COMPACT_SCRUB 2

// Paged memory: a fast part, which is never paged, and a slow one, which is paged to a device. docs/memory.md says what is
// not safe.
typedef struct esker_arena esker_arena;

// Writes that happen all or not at all, for one thread at a time. The caller owns it, and frees it with
// `esker_batch_free`. It keeps its writes when it is written.
typedef struct esker_batch esker_batch;

// An open KVDB, used from any thread. The caller owns the handle, closes the KVDB with `esker_close`, and frees the handle
// with `esker_db_free`.
typedef struct esker_db esker_db;

// The result of a call: NULL when it succeeded. Else the caller owns it, and frees it with `esker_error_free`.
typedef struct esker_error esker_error;

// A walk over a KVS as it was when it was made, for one thread at a time. It stands between two keys. The caller owns it,
// and frees it with `esker_iter_free`. While it lives, it keeps the data that it may read.
typedef struct esker_iter esker_iter;

// An ordered map of keys to values in a KVDB, used from any thread. The caller owns the handle, and frees it with
// `esker_kvs_free`. When the KVDB is closed or the KVS dropped, its calls answer `ESKER_CLOSED`.
typedef struct esker_kvs esker_kvs;

// Texts. The caller owns them, and frees them with `esker_list_free`.
typedef struct esker_list esker_list;

// Options of a KVDB, and where its classes are. The caller owns them, frees them with `esker_options_free`, and may use
// them for several calls. A setter keeps a copy of what it is given. One that is given what cannot be remembers that, and
// the call that uses the options answers `ESKER_INVALID`.
typedef struct esker_options esker_options;

// All KVSs of a KVDB as they were when it was made, used from any thread. The caller owns it, and frees it with
// `esker_snapshot_free`. While it lives, it keeps the data that it may read.
typedef struct esker_snapshot esker_snapshot;

// A transaction with snapshot isolation, for one thread at a time. Its reads see the KVDB as it was when it began, with
// its own writes. The caller owns it, and frees it with `esker_txn_free`, which forgets what was not committed.
typedef struct esker_txn esker_txn;

// Bytes that belong to somebody else: to the caller, or to the library until the call that its function names.
typedef struct {
    // Where they are. NULL is fine where there are none.
    const void *data;
    // How many there are.
    size_t size;
} esker_slice;

// A bound of a range of keys.
typedef struct {
    // `ESKER_UNBOUNDED`, `ESKER_INCLUDED` or `ESKER_EXCLUDED`.
    int32_t kind;
    // The key; not looked at when there is no bound.
    esker_slice key;
} esker_bound;

// A range of keys. All bytes zero is the range of all keys.
typedef struct {
    // Where it begins.
    esker_bound lower;
    // Where it ends.
    esker_bound upper;
} esker_range;

// A value, or a text with a zero behind it, that the caller owns, and frees with `esker_value_free`. Where there is none
// `data` is NULL; an empty value has other data.
typedef struct {
    // The bytes.
    uint8_t *data;
    // How many there are; the zero behind a text does not count.
    size_t size;
    // For the library: do not change it.
    size_t capacity;
} esker_value;

// Which keys an iterator has. All bytes zero is all keys with their values.
typedef struct {
    // The range of the keys. Leave it zero where there is a prefix.
    esker_range range;
    // How the keys begin, `prefix.size` bytes; none for keys of any beginning.
    esker_slice prefix;
    // Whether values stay unread: they come out empty.
    bool keys_only;
    // How many rows the walk is expected to take, so that their values are read at once; 0 where nobody knows.
    size_t expected_rows;
} esker_iter_settings;

// How a KVS is made. All bytes zero is the default. Settings may be changed later.
typedef struct {
    // Where its data goes: the name of a template such as `staging-only`, or cells such as `old-keys=capacity`. NULL is
    // `auto`.
    const char *policy;
    // How its values are compressed: `none`, `lz4`, `zstd` or `auto`. NULL is `none`.
    const char *compression;
    // Milliseconds after which a value expires; 0 is never.
    uint64_t ttl_ms;
} esker_kvs_settings;

// Receives a remark, a text of `size` bytes with a zero behind it that is there during the call. Any thread of the
// KVDB's may call it, also several at once. It must neither close nor free the KVDB.
typedef void (*esker_remark_fn)(void *context,
                                const char *remark,
                                size_t size);

// Receives how far long work is: its phase in words, how much of it is done, and how much there is, 0 where nobody knows.
// False calls the work off: it ends with `ESKER_CANCELLED`, and nothing is lost. The thread that works calls it.
typedef bool (*esker_progress_fn)(void *context,
                                  const char *phase,
                                  uint64_t done,
                                  uint64_t total);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens an arena over a device specification, which must be there and is overwritten. `budget` is the memory for the slow
// part, `slow` the most of it that can be reserved, `fast` the size of the fast part, all in bytes; `mode` is `ESKER_HANDLER`
// or `ESKER_SIGNAL`. NULL when it fails; then `why` holds the reason, cut to `why_size` bytes.
esker_arena *esker_arena_open(const char *device,
                              size_t budget,
                              size_t slow,
                              size_t fast,
                              int mode,
                              char *why,
                              size_t why_size);

// Closes an arena. Nobody may use its memory any more. NULL is fine.
void esker_arena_close(esker_arena *arena);

// Memory of the slow part, which is paged, aligned to `alignment`, a power of two of at most 4096. NULL when it is used up.
void *esker_alloc_slow(const esker_arena *arena,
                       size_t size,
                       size_t alignment);

// The same of the fast part, which is never paged.
void *esker_alloc_fast(const esker_arena *arena,
                       size_t size,
                       size_t alignment);

// Frees memory of either part. 0, or -1 when it is none of the arena's. NULL is fine.
int esker_free(const esker_arena *arena,
               void *memory);

// How many bytes can be used; 0 when the memory is none of the arena's.
size_t esker_usable_size(const esker_arena *arena,
                         void *memory);

// Makes whole pages of slow memory read as zeroes. 0, or -1 when they are not in the slow part.
int esker_discard(const esker_arena *arena,
                  void *memory,
                  size_t size);

// An empty batch.
esker_batch *esker_batch_new(void);

// Frees a batch. NULL is fine.
void esker_batch_free(esker_batch *batch);

// Adds a put. Of several writes to one key, the last one counts.
esker_error *esker_batch_put(esker_batch *batch,
                             const esker_kvs *kvs,
                             const void *key,
                             size_t key_size,
                             const void *value,
                             size_t value_size);

// Adds a delete.
esker_error *esker_batch_delete(esker_batch *batch,
                                const esker_kvs *kvs,
                                const void *key,
                                size_t key_size);

// Adds a delete of all keys that begin with a prefix: those of earlier writes of the batch, too.
esker_error *esker_batch_delete_prefix(esker_batch *batch,
                                       const esker_kvs *kvs,
                                       const void *prefix,
                                       size_t prefix_size);

// Adds a delete of all keys of a range: those of earlier writes of the batch, too. A range that ends before it begins is
// refused when the batch is written.
esker_error *esker_batch_delete_range(esker_batch *batch,
                                      const esker_kvs *kvs,
                                      const esker_range *range);

// Removes all writes from a batch.
esker_error *esker_batch_clear(esker_batch *batch);

// How many writes a batch holds; 0 for what is no batch.
size_t esker_batch_size(const esker_batch *batch);

// Frees a value, and makes it one that is not there, so that a second call does nothing. NULL is fine.
void esker_value_free(esker_value *value);

// Frees `count` values, as `esker_get_many` returns them. NULL is fine.
void esker_values_free(esker_value *values,
                       size_t count);

// The number of an error, one of `ESKER_…`; `ESKER_OK` for NULL.
int32_t esker_error_code(const esker_error *error);

// The message of an error, which says what happened, to which file or key, and what to do. It belongs to the error.
// "no error" for NULL.
const char *esker_error_message(const esker_error *error);

// The system's error number (`errno`) behind an error; 0 where there is none, and for NULL.
int32_t esker_error_system(const esker_error *error);

// Frees an error. NULL is fine.
void esker_error_free(esker_error *error);

// Makes an iterator over a KVS as it is now, before its first key. `settings` may be NULL.
esker_error *esker_iter_new(const esker_kvs *kvs,
                            const esker_iter_settings *settings,
                            esker_iter **iter);

// Steps over the next key. Where there is one, `found` is true, and `key` and `value` belong to the iterator until its
// next call; `value` may be NULL. Else the iterator is at its end.
esker_error *esker_iter_next(esker_iter *iter,
                             esker_slice *key,
                             esker_slice *value,
                             bool *found);

// Steps over the key before, as `esker_iter_next` does over the next one: after that it returns the same key again.
esker_error *esker_iter_prev(esker_iter *iter,
                             esker_slice *key,
                             esker_slice *value,
                             bool *found);

// Goes to the point just before a key, whether it is there or not: `esker_iter_next` steps over it or the one behind,
// `esker_iter_prev` over the one before.
esker_error *esker_iter_seek(esker_iter *iter,
                             const void *key,
                             size_t key_size);

// Goes to the point before the first key.
esker_error *esker_iter_seek_to_first(esker_iter *iter);

// Goes to the point behind the last key.
esker_error *esker_iter_seek_to_last(esker_iter *iter);

// Frees an iterator. NULL is fine.
void esker_iter_free(esker_iter *iter);

// The version of the library: "0.1.0".
const char *esker_version(void);

// Opens the KVDB in a directory. `options` may be NULL.
esker_error *esker_open(const char *dir,
                        const esker_options *options,
                        esker_db **db);

// Opens the KVDB in a directory, or makes it where there is none.
esker_error *esker_open_or_create(const char *dir,
                                  const esker_options *options,
                                  esker_db **db);

// Opens the KVDB in a directory to read: several processes may, as long as nobody has it open to write.
esker_error *esker_open_read_only(const char *dir,
                                  const esker_options *options,
                                  esker_db **db);

// Makes a KVDB in a directory, and opens it.
esker_error *esker_create(const char *dir,
                          const esker_options *options,
                          esker_db **db);

// Closes a KVDB: all that was written is durable then, or the error says why not. Its other handles answer `ESKER_CLOSED`
// from then on, also to calls of other threads that are under way. Another call has the same result. The handle is still
// to be freed.
esker_error *esker_close(const esker_db *db);

// Frees the handle of a KVDB. One that is not closed is closed, and errors of that are lost. Handles of its KVSs,
// iterators, snapshots and transactions are freed by themselves, before or after. NULL is fine.
void esker_db_free(esker_db *db);

// The KVS of a name. `ESKER_NOT_FOUND` where there is none.
esker_error *esker_kvs_open(const esker_db *db,
                            const char *name,
                            esker_kvs **kvs);

// Creates a KVS. `settings` may be NULL.
esker_error *esker_kvs_create(const esker_db *db,
                              const char *name,
                              const esker_kvs_settings *settings,
                              esker_kvs **kvs);

// The KVS of a name, which is created with these settings where there is none. One that is there keeps its own.
esker_error *esker_kvs_open_or_create(const esker_db *db,
                                      const char *name,
                                      const esker_kvs_settings *settings,
                                      esker_kvs **kvs);

// Drops a KVS with all it holds.
esker_error *esker_kvs_drop(const esker_db *db,
                            const char *name);

// The names of all KVSs, in the order of their creation, in a list that the caller frees.
esker_error *esker_kvs_names(const esker_db *db,
                             esker_list **names);

// Writes a batch: all of it or nothing, now and after a crash. `flags` are 0 or `ESKER_DURABLE`.
esker_error *esker_write(const esker_db *db,
                         const esker_batch *batch,
                         uint32_t flags);

// Makes everything written so far durable.
esker_error *esker_sync(const esker_db *db);

// Makes a snapshot, which the caller frees.
esker_error *esker_snapshot_new(const esker_db *db,
                                esker_snapshot **snapshot);

// Begins a transaction, which the caller frees.
esker_error *esker_txn_begin(const esker_db *db,
                             esker_txn **txn);

// Statistics as JSON, which the caller frees. `version` is the number of its form, 1; fields may be added to it.
esker_error *esker_stats(const esker_db *db,
                         esker_value *json);

// Remarks about how devices were opened, about damage, and about readers that keep much space, in a list that the caller
// frees.
esker_error *esker_remarks(const esker_db *db,
                           esker_list **remarks);

// The version of the on-media format that a KVDB has; 0 for what is no KVDB.
uint32_t esker_format_version(const esker_db *db);

// The name of a KVS. It belongs to the handle. NULL for what is no KVS.
const char *esker_kvs_name(const esker_kvs *kvs);

// Frees the handle of a KVS, which goes on as it was. NULL is fine.
void esker_kvs_free(esker_kvs *kvs);

// Maps a key to a value. `flags` are 0 or `ESKER_DURABLE`.
esker_error *esker_put(const esker_kvs *kvs,
                       const void *key,
                       size_t key_size,
                       const void *value,
                       size_t value_size,
                       uint32_t flags);

// Reads the value of a key to `value`, which the caller frees; its data is NULL where there is none.
esker_error *esker_get(const esker_kvs *kvs,
                       const void *key,
                       size_t key_size,
                       esker_value *value);

// Reads the value of a key to a buffer of the caller's. `found` says whether there is one, and `size` how large it is: where
// that is more than `capacity`, the buffer has its first bytes.
esker_error *esker_get_into(const esker_kvs *kvs,
                            const void *key,
                            size_t key_size,
                            void *buffer,
                            size_t capacity,
                            size_t *size,
                            bool *found);

// Reads the values of `count` keys to as many `values`, which the caller frees with `esker_values_free`. Those that are
// not there have data that is NULL. It takes less time than as many calls of `esker_get`.
esker_error *esker_get_many(const esker_kvs *kvs,
                            const esker_slice *keys,
                            size_t count,
                            esker_value *values);

// Says whether a key has a value, which is not read.
esker_error *esker_contains(const esker_kvs *kvs,
                            const void *key,
                            size_t key_size,
                            bool *found);

// Removes a key, whether it is there or not.
esker_error *esker_delete(const esker_kvs *kvs,
                          const void *key,
                          size_t key_size);

// Removes all keys that begin with a prefix, of at least one byte, by one record.
esker_error *esker_delete_prefix(const esker_kvs *kvs,
                                 const void *prefix,
                                 size_t prefix_size);

// Removes all keys of a range by one record; a range of NULL is that of all keys.
esker_error *esker_delete_range(const esker_kvs *kvs,
                                const esker_range *range);

// Maps a key to a new value if it has the old one; NULL for one that is not there, so that a new one of NULL deletes.
// `swapped` says whether it had. Else `current` has its value, which the caller frees; `current` may be NULL.
esker_error *esker_compare_and_set(const esker_kvs *kvs,
                                   const void *key,
                                   size_t key_size,
                                   const esker_slice *old_value,
                                   const esker_slice *new_value,
                                   bool *swapped,
                                   esker_value *current);

// The options of a KVS as JSON, which the caller frees: policy, compression, time to live.
esker_error *esker_kvs_options(const esker_kvs *kvs,
                               esker_value *json);

// Changes where the data of a KVS goes, durably: as `esker_kvs_settings.policy`.
esker_error *esker_kvs_set_policy(const esker_kvs *kvs,
                                  const char *policy);

// Changes how values that age from now on are compressed, durably: as `esker_kvs_settings.compression`.
esker_error *esker_kvs_set_compression(const esker_kvs *kvs,
                                       const char *compression);

// Changes how many milliseconds values live that are put from now on, durably; 0 is for ever.
esker_error *esker_kvs_set_ttl_ms(const esker_kvs *kvs,
                                  uint64_t ttl_ms);

// Reads the metadata that the caller has set to `metadata`, which it frees: empty where there is none.
esker_error *esker_kvs_metadata(const esker_kvs *kvs,
                                esker_value *metadata);

// Sets up to 4,096 bytes of the caller's that stay with the KVS, durably.
esker_error *esker_kvs_set_metadata(const esker_kvs *kvs,
                                    const void *metadata,
                                    size_t size);

// How many texts there are; 0 for NULL.
size_t esker_list_size(const esker_list *list);

// The text at `index`, from 0. It belongs to the list. NULL where there is none.
const char *esker_list_at(const esker_list *list,
                          size_t index);

// Frees a list. NULL is fine.
void esker_list_free(esker_list *list);

// Copies a KVDB to a new one in a directory, while reads and writes go on. `options` say where the classes of the copy
// are, and may be NULL. `report` is JSON that the caller frees, or NULL.
esker_error *esker_backup(const esker_db *db,
                          const char *to,
                          const esker_options *options,
                          esker_value *report);

// Verifies a KVDB that nobody has open to write, without changing it. Damage is in `findings` of the report, and no
// error. `report` is JSON that the caller frees; `sound` says whether nothing was found. Either may be NULL.
esker_error *esker_check(const char *dir,
                         const esker_options *options,
                         bool *sound,
                         esker_value *report);

// Salvages what is sound of a damaged KVDB, which nobody has open, to a new one in another directory. `report` is JSON that
// the caller frees, or NULL.
esker_error *esker_repair(const char *damaged,
                          const esker_options *damaged_options,
                          const char *to,
                          const esker_options *to_options,
                          esker_value *report);

// Removes a KVDB with all it holds.
esker_error *esker_destroy(const char *dir,
                           const esker_options *options);

// Merges and moves data, while the KVDB is in use, until it is as asked for: `ESKER_COMPACT_FULL`, `…_SPACE` with a `goal`
// of at least 1.02, or `…_SCRUB`. Returns then, or when `esker_cancel_compact` or a progress function calls it off.
// `status` is JSON that the caller frees, or NULL.
esker_error *esker_compact(const esker_db *db,
                           int32_t request,
                           double goal,
                           esker_value *status);

// How a compaction, or the removal of a class, is getting on, as JSON that the caller frees.
esker_error *esker_compact_status(const esker_db *db,
                                  esker_value *status);

// Calls off the compaction, or the removal of a class, that is under way. It ends soon; its work so far stays.
esker_error *esker_cancel_compact(const esker_db *db);

// Turns the memtable into kvsets now, full or not.
esker_error *esker_ingest(const esker_db *db);

// Runs or waits for maintenance until nothing is due.
esker_error *esker_settle(const esker_db *db);

// Runs one step of maintenance that is due, for `esker_options_set_manual`. `worked` says whether there was one; it may be
// NULL.
esker_error *esker_step(const esker_db *db,
                        bool *worked);

// Upgrades a KVDB to the newest version of the on-media format, durably. There is no way back.
esker_error *esker_upgrade(const esker_db *db);

// Gives a KVDB a staging class while it runs: a raw block device, a directory, a file that is not there yet, or NULL for a
// file in the KVDB's own directory.
esker_error *esker_add_staging(const esker_db *db,
                               const char *path);

// Takes the staging class away while the KVDB is in use, after its data has been moved to capacity.
esker_error *esker_remove_staging(const esker_db *db);

// The default options: a directory with a capacity class in a file of it, and a memory budget of a quarter of the
// memory that the machine and the control group have, at most 1 GiB.
esker_options *esker_options_new(void);

// Frees options. NULL is fine.
void esker_options_free(esker_options *options);

// Sets the DRAM that the engine may use for everything, in bytes: at least 16 MiB.
void esker_options_set_memory(esker_options *options,
                              uint64_t bytes);

// Sets when acknowledged writes are durable: within so many milliseconds, 0 for each before it returns, and with so many
// bytes at most that are not durable yet, 0 for the default of 8 MiB.
void esker_options_set_durability(esker_options *options,
                                  uint64_t ms,
                                  uint64_t bytes);

// Sets how long a transaction may be open, in milliseconds.
void esker_options_set_transaction_ms(esker_options *options,
                                      uint64_t ms);

// Sets how many bytes the media may hold for each live byte: 1.02 to 100.
void esker_options_set_space_amplification(esker_options *options,
                                           double ratio);

// Gives a new KVDB a staging class: a raw block device, a directory, a file that is not there yet, or NULL for a file in the
// KVDB's own directory. One that is there knows its classes itself.
void esker_options_set_staging(esker_options *options,
                               const char *path);

// Says where a new KVDB has its capacity class: as for the staging class.
void esker_options_set_capacity(esker_options *options,
                                const char *path);

// Has maintenance done by the caller's own calls of `esker_step` and by writes that have to wait for it, or by threads
// of the KVDB's as by default.
void esker_options_set_manual(esker_options *options,
                              bool manual);

// Sets the size of a part of the engine, which else follows from the memory budget: `memtable_bytes`, `block_bytes`,
// `frame_bytes`, `key_extent_bytes`, `allocation_bytes`, `root_kvsets`, `spill_bytes`, `compact_kvsets`, `leaf_key_bytes`,
// `gather_bytes` or `workers`. Set the memory budget before.
void esker_options_set_tuning(esker_options *options,
                              const char *name,
                              uint64_t value);

// Has remarks told to `receiver`, such as the log of the program: each once, with `context`, which has to be there as long
// as a KVDB that was opened with these options. NULL for nobody.
void esker_options_set_on_remark(esker_options *options,
                                 esker_remark_fn receiver,
                                 void *context);

// Has the progress of long work told to `observer`: opening after a crash, check, backup, repair and compaction. `context`
// has to be there as long as a KVDB that was opened with these options. NULL for nobody.
void esker_options_set_on_progress(esker_options *options,
                                   esker_progress_fn observer,
                                   void *context);

// Frees a snapshot. NULL is fine.
void esker_snapshot_free(esker_snapshot *snapshot);

// As `esker_get`, of the moment of a snapshot.
esker_error *esker_snapshot_get(const esker_snapshot *snapshot,
                                const esker_kvs *kvs,
                                const void *key,
                                size_t key_size,
                                esker_value *value);

// As `esker_get_into`, of the moment of a snapshot.
esker_error *esker_snapshot_get_into(const esker_snapshot *snapshot,
                                     const esker_kvs *kvs,
                                     const void *key,
                                     size_t key_size,
                                     void *buffer,
                                     size_t capacity,
                                     size_t *size,
                                     bool *found);

// As `esker_get_many`, of the moment of a snapshot.
esker_error *esker_snapshot_get_many(const esker_snapshot *snapshot,
                                     const esker_kvs *kvs,
                                     const esker_slice *keys,
                                     size_t count,
                                     esker_value *values);

// As `esker_contains`, of the moment of a snapshot.
esker_error *esker_snapshot_contains(const esker_snapshot *snapshot,
                                     const esker_kvs *kvs,
                                     const void *key,
                                     size_t key_size,
                                     bool *found);

// As `esker_iter_new`, of the moment of a snapshot. The iterator may outlive it.
esker_error *esker_snapshot_iter(const esker_snapshot *snapshot,
                                 const esker_kvs *kvs,
                                 const esker_iter_settings *settings,
                                 esker_iter **iter);

// Commits a transaction: all of its writes or none. `flags` are 0 or `ESKER_DURABLE`. `ESKER_TRANSACTION_CONFLICT` says
// that someone else wrote one of its keys since it began. It has ended in any case, and is to be freed.
esker_error *esker_txn_commit(esker_txn *txn,
                              uint32_t flags);

// Frees a transaction, and forgets its writes unless it was committed. NULL is fine.
void esker_txn_free(esker_txn *txn);

// As `esker_put`, when the transaction is committed.
esker_error *esker_txn_put(esker_txn *txn,
                           const esker_kvs *kvs,
                           const void *key,
                           size_t key_size,
                           const void *value,
                           size_t value_size);

// As `esker_delete`, when the transaction is committed.
esker_error *esker_txn_delete(esker_txn *txn,
                              const esker_kvs *kvs,
                              const void *key,
                              size_t key_size);

// As `esker_delete_prefix`, when the transaction is committed.
esker_error *esker_txn_delete_prefix(esker_txn *txn,
                                     const esker_kvs *kvs,
                                     const void *prefix,
                                     size_t prefix_size);

// As `esker_delete_range`, when the transaction is committed.
esker_error *esker_txn_delete_range(esker_txn *txn,
                                    const esker_kvs *kvs,
                                    const esker_range *range);

// As `esker_get`, within a transaction.
esker_error *esker_txn_get(const esker_txn *txn,
                           const esker_kvs *kvs,
                           const void *key,
                           size_t key_size,
                           esker_value *value);

// As `esker_get_into`, within a transaction.
esker_error *esker_txn_get_into(const esker_txn *txn,
                                const esker_kvs *kvs,
                                const void *key,
                                size_t key_size,
                                void *buffer,
                                size_t capacity,
                                size_t *size,
                                bool *found);

// As `esker_get`; committing fails when someone else has written the key since the beginning, as if it were written here.
esker_error *esker_txn_get_for_update(esker_txn *txn,
                                      const esker_kvs *kvs,
                                      const void *key,
                                      size_t key_size,
                                      esker_value *value);

// As `esker_get_many`, within a transaction.
esker_error *esker_txn_get_many(const esker_txn *txn,
                                const esker_kvs *kvs,
                                const esker_slice *keys,
                                size_t count,
                                esker_value *values);

// As `esker_contains`, within a transaction.
esker_error *esker_txn_contains(const esker_txn *txn,
                                const esker_kvs *kvs,
                                const void *key,
                                size_t key_size,
                                bool *found);

// Says whether someone else has written a key since the transaction began: then committing a write of it would fail.
esker_error *esker_txn_is_changed(const esker_txn *txn,
                                  const esker_kvs *kvs,
                                  const void *key,
                                  size_t key_size,
                                  bool *changed);

// As `esker_iter_new`, within a transaction: over its writes until now, too.
esker_error *esker_txn_iter(const esker_txn *txn,
                            const esker_kvs *kvs,
                            const esker_iter_settings *settings,
                            esker_iter **iter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ESKER_H */
