// Esker for C++17: handles that free themselves, keys and values as std::string_view, range-for, exceptions.
//
//     auto db = esker::Db::open_or_create("db");
//     auto users = db.kvs_or_create("users");
//     users.put("42", "Ada");
//     for (auto [id, name] : users.range("40", "50")) std::cout << id << " = " << name << "\n";
//     db.close();
//
// A call that fails throws esker::Error; its code is one of ESKER_... in esker.h, which says what each call does. Handles
// are moved, not copied. A Kvs, Snapshot, Transaction or Rows may outlive its Db, and throws ESKER_CLOSED once that is closed.
#ifndef ESKER_HPP
#define ESKER_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "esker.h"

namespace esker {

/// A call failed.
class Error : public std::runtime_error {
  public:
    Error(int code, int system, const std::string &message)
        : std::runtime_error(message), code_(code), system_(system) {}
    /// One of ESKER_...
    int code() const noexcept { return code_; }
    /// The system's error number, or 0.
    int system() const noexcept { return system_; }
    /// Whether the same transaction may succeed when it is begun again.
    bool is_retryable() const noexcept {
        return code_ == ESKER_TRANSACTION_CONFLICT || code_ == ESKER_TRANSACTION_EXPIRED;
    }

  private:
    int code_;
    int system_;
};

/// Throws the error of a call, if it has one.
inline void check(esker_error *error) {
    if (error) {
        std::unique_ptr<esker_error, void (*)(esker_error *)> owned(error, esker_error_free);
        throw Error(esker_error_code(error), esker_error_system(error), esker_error_message(error));
    }
}

namespace detail {

template <typename T, void (*Free)(T *)> struct Freed {
    void operator()(T *handle) const noexcept { Free(handle); }
};

template <typename T, void (*Free)(T *)> using Owned = std::unique_ptr<T, Freed<T, Free>>;

inline esker_slice slice(std::string_view bytes) noexcept { return {bytes.data(), bytes.size()}; }

inline std::string_view view(esker_slice bytes) noexcept {
    return bytes.size ? std::string_view(static_cast<const char *>(bytes.data), bytes.size) : std::string_view();
}

} // namespace detail

/// A value or a text that was read, without a copy.
class Value {
  public:
    Value() noexcept : value_{nullptr, 0, 0} {}
    Value(Value &&other) noexcept : value_(std::exchange(other.value_, esker_value{nullptr, 0, 0})) {}
    Value &operator=(Value &&other) noexcept {
        std::swap(value_, other.value_);
        return *this;
    }
    Value(const Value &) = delete;
    Value &operator=(const Value &) = delete;
    ~Value() { esker_value_free(&value_); }

    /// Whether there is a value.
    explicit operator bool() const noexcept { return value_.data != nullptr; }
    std::string_view view() const noexcept {
        return value_.size ? std::string_view(reinterpret_cast<const char *>(value_.data), value_.size)
                           : std::string_view();
    }
    operator std::string_view() const noexcept { return view(); }
    std::string str() const { return std::string(view()); }
    /// Where a function of esker.h writes one.
    esker_value *out() noexcept {
        esker_value_free(&value_);
        return &value_;
    }

  private:
    esker_value value_;
};

/// A range of keys, or those that begin alike.
class Bounds {
  public:
    /// All keys.
    Bounds() noexcept : settings_() {}
    /// Keys from `from` on.
    Bounds &from(std::string_view key) noexcept { return lower(ESKER_INCLUDED, key); }
    /// Keys behind `after`.
    Bounds &after(std::string_view key) noexcept { return lower(ESKER_EXCLUDED, key); }
    /// Keys before `before`.
    Bounds &before(std::string_view key) noexcept { return upper(ESKER_EXCLUDED, key); }
    /// Keys to `to`, which is one of them.
    Bounds &to(std::string_view key) noexcept { return upper(ESKER_INCLUDED, key); }
    Bounds &prefix(std::string_view key) noexcept {
        settings_.prefix = detail::slice(key);
        return *this;
    }
    Bounds &keys_only(bool keys_only = true) noexcept {
        settings_.keys_only = keys_only;
        return *this;
    }
    /// About how many rows the walk will take.
    Bounds &expecting(std::size_t rows) noexcept {
        settings_.expected_rows = rows;
        return *this;
    }
    const esker_iter_settings *settings() const noexcept { return &settings_; }
    const esker_range *range() const noexcept { return &settings_.range; }

  private:
    Bounds &lower(int kind, std::string_view key) noexcept {
        settings_.range.lower = {kind, detail::slice(key)};
        return *this;
    }
    Bounds &upper(int kind, std::string_view key) noexcept {
        settings_.range.upper = {kind, detail::slice(key)};
        return *this;
    }
    esker_iter_settings settings_;
};

/// A row of a walk: both parts belong to the walk until its next step.
using Row = std::pair<std::string_view, std::string_view>;

/// A walk over keys in their order, for range-for; or a cursor, by seek, next and prev. For one thread at a time.
class Rows {
  public:
    explicit Rows(esker_iter *iter) noexcept : iter_(iter) {}

    /// The next row, or none at the end.
    std::optional<Row> next() { return step(esker_iter_next); }
    /// The row before.
    std::optional<Row> prev() { return step(esker_iter_prev); }
    void seek(std::string_view key) { check(esker_iter_seek(iter_.get(), key.data(), key.size())); }
    void seek_to_first() { check(esker_iter_seek_to_first(iter_.get())); }
    void seek_to_last() { check(esker_iter_seek_to_last(iter_.get())); }

    /// The same rows from the last to the first, for range-for.
    Rows reversed() && {
        backward_ = true;
        return std::move(*this);
    }

    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Row;
        using difference_type = std::ptrdiff_t;
        using pointer = const Row *;
        using reference = const Row &;

        iterator() noexcept = default;
        explicit iterator(Rows &rows) : rows_(&rows) { ++*this; }
        reference operator*() const noexcept { return *row_; }
        pointer operator->() const noexcept { return &*row_; }
        iterator &operator++() {
            row_ = rows_->backward_ ? rows_->prev() : rows_->next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &a, const iterator &b) noexcept {
            return a.row_.has_value() == b.row_.has_value();
        }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return !(a == b); }

      private:
        Rows *rows_ = nullptr;
        std::optional<Row> row_;
    };

    /// Begins the walk anew.
    iterator begin() {
        backward_ ? seek_to_last() : seek_to_first();
        return iterator(*this);
    }
    iterator end() noexcept { return iterator(); }

  private:
    template <typename Step> std::optional<Row> step(Step step) {
        esker_slice key, value;
        bool found = false;
        check(step(iter_.get(), &key, &value, &found));
        return found ? std::optional<Row>(Row(detail::view(key), detail::view(value))) : std::nullopt;
    }
    detail::Owned<esker_iter, esker_iter_free> iter_;
    bool backward_ = false;
};

/// When a write is durable.
enum class Durability : std::uint32_t {
    /// As the options of the KVDB say.
    usual = 0,
    /// When the call returns.
    now = ESKER_DURABLE,
};

/// An ordered map of keys to values. Used from any thread.
class Kvs {
  public:
    explicit Kvs(esker_kvs *kvs) noexcept : kvs_(kvs) {}
    const esker_kvs *raw() const noexcept { return kvs_.get(); }
    std::string_view name() const noexcept { return esker_kvs_name(raw()); }

    void put(std::string_view key, std::string_view value, Durability durability = Durability::usual) const {
        check(esker_put(raw(), key.data(), key.size(), value.data(), value.size(),
                        static_cast<std::uint32_t>(durability)));
    }
    /// The value of a key; one that is false where there is none.
    Value get(std::string_view key) const {
        Value value;
        check(esker_get(raw(), key.data(), key.size(), value.out()));
        return value;
    }
    /// Reads a value to a string, whose memory is used again; false where there is none.
    bool get(std::string_view key, std::string &value) const {
        value.resize(value.capacity());
        std::size_t size = 0;
        bool found = false;
        for (;;) {
            const std::size_t room = value.size();
            check(esker_get_into(raw(), key.data(), key.size(), value.data(), room, &size, &found));
            value.resize(size);
            if (size <= room) {
                return found;
            }
        }
    }
    std::vector<Value> get_many(const std::vector<std::string_view> &keys) const {
        std::vector<esker_slice> slices;
        slices.reserve(keys.size());
        for (std::string_view key : keys) {
            slices.push_back(detail::slice(key));
        }
        std::vector<esker_value> found(keys.size());
        std::vector<Value> values(keys.size());
        check(esker_get_many(raw(), slices.data(), slices.size(), found.data()));
        for (std::size_t at = 0; at < found.size(); at++) {
            *values[at].out() = found[at];
        }
        return values;
    }
    bool contains(std::string_view key) const {
        bool found = false;
        check(esker_contains(raw(), key.data(), key.size(), &found));
        return found;
    }
    void erase(std::string_view key) const { check(esker_delete(raw(), key.data(), key.size())); }
    void erase_prefix(std::string_view prefix) const {
        check(esker_delete_prefix(raw(), prefix.data(), prefix.size()));
    }
    void erase(const Bounds &bounds) const { check(esker_delete_range(raw(), bounds.range())); }
    void clear() const { check(esker_delete_range(raw(), nullptr)); }
    /// Maps a key to `desired` if it has `expected`, none for one that is not there; says whether it had.
    bool compare_and_set(std::string_view key, std::optional<std::string_view> expected,
                         std::optional<std::string_view> desired) const {
        const esker_slice old_value = detail::slice(expected.value_or(std::string_view()));
        const esker_slice new_value = detail::slice(desired.value_or(std::string_view()));
        bool swapped = false;
        check(esker_compare_and_set(raw(), key.data(), key.size(), expected ? &old_value : nullptr,
                                    desired ? &new_value : nullptr, &swapped, nullptr));
        return swapped;
    }
    Rows rows(const Bounds &bounds = Bounds()) const {
        esker_iter *iter = nullptr;
        check(esker_iter_new(raw(), bounds.settings(), &iter));
        return Rows(iter);
    }
    /// The rows from `from` on that are before `before`.
    Rows range(std::string_view from, std::string_view before) const {
        return rows(Bounds().from(from).before(before));
    }
    Rows prefix(std::string_view prefix) const { return rows(Bounds().prefix(prefix)); }
    Value options() const {
        Value json;
        check(esker_kvs_options(raw(), json.out()));
        return json;
    }
    void set_policy(const std::string &policy) const { check(esker_kvs_set_policy(raw(), policy.c_str())); }
    void set_compression(const std::string &name) const { check(esker_kvs_set_compression(raw(), name.c_str())); }
    void set_ttl_ms(std::uint64_t ttl_ms) const { check(esker_kvs_set_ttl_ms(raw(), ttl_ms)); }
    Value metadata() const {
        Value metadata;
        check(esker_kvs_metadata(raw(), metadata.out()));
        return metadata;
    }
    void set_metadata(std::string_view metadata) const {
        check(esker_kvs_set_metadata(raw(), metadata.data(), metadata.size()));
    }

  private:
    detail::Owned<esker_kvs, esker_kvs_free> kvs_;
};

/// Writes that happen all or not at all. For one thread at a time.
class Batch {
  public:
    Batch() : batch_(esker_batch_new()) {}
    Batch &put(const Kvs &kvs, std::string_view key, std::string_view value) {
        check(esker_batch_put(batch_.get(), kvs.raw(), key.data(), key.size(), value.data(), value.size()));
        return *this;
    }
    Batch &erase(const Kvs &kvs, std::string_view key) {
        check(esker_batch_delete(batch_.get(), kvs.raw(), key.data(), key.size()));
        return *this;
    }
    Batch &erase_prefix(const Kvs &kvs, std::string_view prefix) {
        check(esker_batch_delete_prefix(batch_.get(), kvs.raw(), prefix.data(), prefix.size()));
        return *this;
    }
    Batch &erase(const Kvs &kvs, const Bounds &bounds) {
        check(esker_batch_delete_range(batch_.get(), kvs.raw(), bounds.range()));
        return *this;
    }
    void clear() { check(esker_batch_clear(batch_.get())); }
    std::size_t size() const noexcept { return esker_batch_size(batch_.get()); }
    const esker_batch *raw() const noexcept { return batch_.get(); }

  private:
    detail::Owned<esker_batch, esker_batch_free> batch_;
};

/// All KVSs as they were at one moment. Used from any thread.
class Snapshot {
  public:
    explicit Snapshot(esker_snapshot *snapshot) noexcept : snapshot_(snapshot) {}
    Value get(const Kvs &kvs, std::string_view key) const {
        Value value;
        check(esker_snapshot_get(snapshot_.get(), kvs.raw(), key.data(), key.size(), value.out()));
        return value;
    }
    bool contains(const Kvs &kvs, std::string_view key) const {
        bool found = false;
        check(esker_snapshot_contains(snapshot_.get(), kvs.raw(), key.data(), key.size(), &found));
        return found;
    }
    Rows rows(const Kvs &kvs, const Bounds &bounds = Bounds()) const {
        esker_iter *iter = nullptr;
        check(esker_snapshot_iter(snapshot_.get(), kvs.raw(), bounds.settings(), &iter));
        return Rows(iter);
    }

  private:
    detail::Owned<esker_snapshot, esker_snapshot_free> snapshot_;
};

/// A transaction, which is forgotten unless it is committed. For one thread at a time.
class Transaction {
  public:
    explicit Transaction(esker_txn *txn) noexcept : txn_(txn) {}
    void put(const Kvs &kvs, std::string_view key, std::string_view value) {
        check(esker_txn_put(txn_.get(), kvs.raw(), key.data(), key.size(), value.data(), value.size()));
    }
    void erase(const Kvs &kvs, std::string_view key) {
        check(esker_txn_delete(txn_.get(), kvs.raw(), key.data(), key.size()));
    }
    void erase_prefix(const Kvs &kvs, std::string_view prefix) {
        check(esker_txn_delete_prefix(txn_.get(), kvs.raw(), prefix.data(), prefix.size()));
    }
    void erase(const Kvs &kvs, const Bounds &bounds) {
        check(esker_txn_delete_range(txn_.get(), kvs.raw(), bounds.range()));
    }
    Value get(const Kvs &kvs, std::string_view key) const {
        Value value;
        check(esker_txn_get(txn_.get(), kvs.raw(), key.data(), key.size(), value.out()));
        return value;
    }
    Value get_for_update(const Kvs &kvs, std::string_view key) {
        Value value;
        check(esker_txn_get_for_update(txn_.get(), kvs.raw(), key.data(), key.size(), value.out()));
        return value;
    }
    bool contains(const Kvs &kvs, std::string_view key) const {
        bool found = false;
        check(esker_txn_contains(txn_.get(), kvs.raw(), key.data(), key.size(), &found));
        return found;
    }
    Rows rows(const Kvs &kvs, const Bounds &bounds = Bounds()) const {
        esker_iter *iter = nullptr;
        check(esker_txn_iter(txn_.get(), kvs.raw(), bounds.settings(), &iter));
        return Rows(iter);
    }
    void commit(Durability durability = Durability::usual) {
        check(esker_txn_commit(txn_.get(), static_cast<std::uint32_t>(durability)));
    }

  private:
    detail::Owned<esker_txn, esker_txn_free> txn_;
};

/// Options of a KVDB, and where its classes are.
class Options {
  public:
    Options() : options_(esker_options_new()) {}
    Options &memory(std::uint64_t bytes) {
        esker_options_set_memory(options_.get(), bytes);
        return *this;
    }
    Options &durability(std::uint64_t ms, std::uint64_t bytes = 0) {
        esker_options_set_durability(options_.get(), ms, bytes);
        return *this;
    }
    Options &transaction_ms(std::uint64_t ms) {
        esker_options_set_transaction_ms(options_.get(), ms);
        return *this;
    }
    Options &space_amplification(double ratio) {
        esker_options_set_space_amplification(options_.get(), ratio);
        return *this;
    }
    /// A staging class in the KVDB's own directory, or at a path.
    Options &staging() {
        esker_options_set_staging(options_.get(), nullptr);
        return *this;
    }
    Options &staging(const std::string &path) {
        esker_options_set_staging(options_.get(), path.c_str());
        return *this;
    }
    Options &capacity(const std::string &path) {
        esker_options_set_capacity(options_.get(), path.c_str());
        return *this;
    }
    /// A receiver of remarks, called by any thread. What it throws is passed over.
    Options &on_remark(std::function<void(std::string_view)> receiver) {
        auto kept = std::make_shared<std::function<void(std::string_view)>>(std::move(receiver));
        const esker_remark_fn tell = [](void *context, const char *remark, std::size_t size) {
            try {
                (*static_cast<std::function<void(std::string_view)> *>(context))(std::string_view(remark, size));
            } catch (...) {
            }
        };
        esker_options_set_on_remark(options_.get(), tell, kept.get());
        kept_.push_back(std::move(kept));
        return *this;
    }
    /// An observer of long work: phase, done, total or 0. False, or an exception, calls the work off.
    Options &on_progress(std::function<bool(std::string_view, std::uint64_t, std::uint64_t)> observer) {
        using Observer = std::function<bool(std::string_view, std::uint64_t, std::uint64_t)>;
        auto kept = std::make_shared<Observer>(std::move(observer));
        const esker_progress_fn tell = [](void *context, const char *phase, std::uint64_t done, std::uint64_t total) {
            try {
                return (*static_cast<Observer *>(context))(phase, done, total);
            } catch (...) {
                return false;
            }
        };
        esker_options_set_on_progress(options_.get(), tell, kept.get());
        kept_.push_back(std::move(kept));
        return *this;
    }
    const esker_options *raw() const noexcept { return options_.get(); }
    /// State that has to live as long as a KVDB that was opened with them.
    const std::vector<std::shared_ptr<void>> &kept() const noexcept { return kept_; }

  private:
    std::vector<std::shared_ptr<void>> kept_;
    detail::Owned<esker_options, esker_options_free> options_;
};

/// Goal of a compaction.
enum class Compaction : int { full = ESKER_COMPACT_FULL, scrub = ESKER_COMPACT_SCRUB };

/// An open KVDB. Used from any thread. Destroying it closes it, and loses errors of that: prefer close.
class Db {
  public:
    static Db open(const std::string &dir, const Options &options = Options()) {
        return Db(esker_open, dir, options);
    }
    static Db open_or_create(const std::string &dir, const Options &options = Options()) {
        return Db(esker_open_or_create, dir, options);
    }
    static Db open_read_only(const std::string &dir, const Options &options = Options()) {
        return Db(esker_open_read_only, dir, options);
    }
    static Db create(const std::string &dir, const Options &options = Options()) {
        return Db(esker_create, dir, options);
    }
    /// Removes a KVDB with all it holds.
    static void destroy(const std::string &dir, const Options &options = Options()) {
        check(esker_destroy(dir.c_str(), options.raw()));
    }
    /// Verifies a KVDB that nobody has open to write: whether it is sound, and a report in JSON.
    static std::pair<bool, Value> verify(const std::string &dir, const Options &options = Options()) {
        std::pair<bool, Value> found;
        check(esker_check(dir.c_str(), options.raw(), &found.first, found.second.out()));
        return found;
    }

    /// Salvages what is sound of a damaged KVDB to a new one; a report in JSON.
    static Value repair(const std::string &damaged, const std::string &to, const Options &options = Options()) {
        Value json;
        check(esker_repair(damaged.c_str(), nullptr, to.c_str(), options.raw(), json.out()));
        return json;
    }

    void close() const { check(esker_close(raw())); }
    Kvs kvs(const std::string &name) const {
        esker_kvs *kvs = nullptr;
        check(esker_kvs_open(raw(), name.c_str(), &kvs));
        return Kvs(kvs);
    }
    Kvs create_kvs(const std::string &name, const esker_kvs_settings *settings = nullptr) const {
        esker_kvs *kvs = nullptr;
        check(esker_kvs_create(raw(), name.c_str(), settings, &kvs));
        return Kvs(kvs);
    }
    Kvs kvs_or_create(const std::string &name, const esker_kvs_settings *settings = nullptr) const {
        esker_kvs *kvs = nullptr;
        check(esker_kvs_open_or_create(raw(), name.c_str(), settings, &kvs));
        return Kvs(kvs);
    }
    void drop_kvs(const std::string &name) const { check(esker_kvs_drop(raw(), name.c_str())); }
    std::vector<std::string> kvs_names() const {
        return listed([this](esker_list **out) { return esker_kvs_names(raw(), out); });
    }
    std::vector<std::string> remarks() const {
        return listed([this](esker_list **out) { return esker_remarks(raw(), out); });
    }
    void write(const Batch &batch, Durability durability = Durability::usual) const {
        check(esker_write(raw(), batch.raw(), static_cast<std::uint32_t>(durability)));
    }
    void sync() const { check(esker_sync(raw())); }
    Snapshot snapshot() const {
        esker_snapshot *snapshot = nullptr;
        check(esker_snapshot_new(raw(), &snapshot));
        return Snapshot(snapshot);
    }
    Transaction transaction() const {
        esker_txn *txn = nullptr;
        check(esker_txn_begin(raw(), &txn));
        return Transaction(txn);
    }
    /// Statistics in JSON.
    Value stats() const {
        Value json;
        check(esker_stats(raw(), json.out()));
        return json;
    }
    Value backup(const std::string &to, const Options &options = Options()) const {
        Value json;
        check(esker_backup(raw(), to.c_str(), options.raw(), json.out()));
        return json;
    }
    Value compact(Compaction request = Compaction::full) const {
        Value json;
        check(esker_compact(raw(), static_cast<int>(request), 0, json.out()));
        return json;
    }
    /// Compacts until the media hold at most so many bytes for each live one.
    Value compact_to(double space_amplification) const {
        Value json;
        check(esker_compact(raw(), ESKER_COMPACT_SPACE, space_amplification, json.out()));
        return json;
    }
    /// How a compaction, or the removal of a class, is getting on, in JSON.
    Value compact_status() const {
        Value json;
        check(esker_compact_status(raw(), json.out()));
        return json;
    }
    void cancel_compact() const { check(esker_cancel_compact(raw())); }
    /// Turns the memtable into kvsets now.
    void ingest() const { check(esker_ingest(raw())); }
    /// Waits for maintenance until nothing is due.
    void settle() const { check(esker_settle(raw())); }
    std::uint32_t format_version() const noexcept { return esker_format_version(raw()); }
    void upgrade() const { check(esker_upgrade(raw())); }
    /// Gives it a staging class in its own directory, or at a path.
    void add_staging() const { check(esker_add_staging(raw(), nullptr)); }
    void add_staging(const std::string &path) const { check(esker_add_staging(raw(), path.c_str())); }
    void remove_staging() const { check(esker_remove_staging(raw())); }
    const esker_db *raw() const noexcept { return db_.get(); }

  private:
    template <typename Open>
    Db(Open open, const std::string &dir, const Options &options) : kept_(options.kept()) {
        esker_db *db = nullptr;
        check(open(dir.c_str(), options.raw(), &db));
        db_.reset(db);
    }
    template <typename Get> static std::vector<std::string> listed(Get get) {
        esker_list *raw = nullptr;
        check(get(&raw));
        detail::Owned<esker_list, esker_list_free> list(raw);
        std::vector<std::string> texts;
        for (std::size_t at = 0; at < esker_list_size(raw); at++) {
            texts.emplace_back(esker_list_at(raw, at));
        }
        return texts;
    }
    // Before the KVDB, so that callbacks outlive it.
    std::vector<std::shared_ptr<void>> kept_;
    detail::Owned<esker_db, esker_db_free> db_;
};

} // namespace esker

#endif
