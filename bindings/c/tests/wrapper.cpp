// The wrapper for C++.
#include <iostream>
#include <set>

#include "check.h"
#include "esker.hpp"

static esker::Options small() { return std::move(esker::Options().memory(32 << 20)); }

template <typename Call> static void throws(int code, Call call) {
    try {
        call();
    } catch (const esker::Error &error) {
        if (error.code() != code) {
            std::cerr << "error " << error.code() << ", not " << code << ": " << error.what() << "\n";
            exit(1);
        }
        return;
    }
    std::cerr << "it did not throw " << code << "\n";
    exit(1);
}

static void values_keys_and_ranges_are_string_views() {
    auto db = esker::Db::open_or_create("db", small());
    auto kvs = db.kvs_or_create("a");
    CHECK(kvs.name() == "a");
    for (const char *key : {"a", "b", "c", "ca", "d"}) {
        kvs.put(key, std::string("value of ") + key);
    }
    CHECK(kvs.get("b").view() == "value of b" && !kvs.get("x"));
    kvs.put("", "", esker::Durability::now);
    CHECK(kvs.get("") && kvs.get("").view().empty());
    std::string value = "former";
    CHECK(kvs.get("c", value) && value == "value of c");
    CHECK(!kvs.get("x", value) && value.empty());
    kvs.put("long", std::string(100000, 'l'));
    CHECK(kvs.get("long", value) && value.size() == 100000);
    CHECK(kvs.get("c", value) && value == "value of c");
    auto many = kvs.get_many({"a", "x", "d"});
    CHECK(many[0].view() == "value of a" && !many[1] && many[2].view() == "value of d");
    std::string keys;
    for (auto [key, found] : kvs.range("b", "d")) {
        CHECK(found == "value of " + std::string(key));
        keys += key;
    }
    CHECK(keys == "bcca");
    keys.clear();
    for (auto [key, found] : kvs.prefix("c").reversed()) {
        keys += key;
        CHECK(!found.empty());
    }
    CHECK(keys == "cac");
    keys.clear();
    for (const auto &row : kvs.rows(esker::Bounds().after("a").to("c").keys_only())) {
        CHECK(row.second.empty());
        keys += row.first;
    }
    CHECK(keys == "bc");
    auto rows = kvs.rows();
    rows.seek("cb");
    CHECK(rows.prev()->first == "ca" && rows.next()->first == "ca" && rows.next()->first == "d");
    CHECK(kvs.compare_and_set("n", std::nullopt, "1") && !kvs.compare_and_set("n", "2", "3"));
    CHECK(kvs.compare_and_set("n", "1", std::nullopt) && !kvs.contains("n"));
    kvs.erase("a");
    kvs.erase_prefix("c");
    kvs.erase(esker::Bounds().from("d").before("e"));
    CHECK(kvs.contains("b") && !kvs.contains("a") && !kvs.contains("ca") && !kvs.contains("d"));
    kvs.set_metadata("mine");
    CHECK(kvs.metadata().view() == "mine");
    kvs.clear();
    CHECK(kvs.rows().begin() == esker::Rows(nullptr).end());
    db.close();
    throws(ESKER_CLOSED, [&] { kvs.put("k", "v"); });
}

static void batches_snapshots_and_transactions_work() {
    auto db = esker::Db::create("db", small().staging());
    auto a = db.create_kvs("a");
    esker_kvs_settings settings = {"capacity-only", "lz4", 0};
    auto b = db.create_kvs("b", &settings);
    CHECK((db.kvs_names() == std::vector<std::string>{"a", "b"}));
    esker::Batch batch;
    batch.put(a, "k", "v").put(b, "k", "w").erase(a, "old").erase_prefix(a, "p/").erase(a, esker::Bounds().from("x"));
    CHECK(batch.size() == 5);
    db.write(batch, esker::Durability::now);
    auto snapshot = db.snapshot();
    {
        auto forgotten = db.transaction();
        forgotten.put(a, "k", "never");
    }
    auto transaction = db.transaction(), other = db.transaction();
    CHECK(transaction.get_for_update(a, "k").view() == "v");
    transaction.put(a, "k", "2");
    transaction.erase(b, "k");
    CHECK(transaction.get(a, "k").view() == "2" && !transaction.contains(b, "k"));
    transaction.commit();
    other.put(a, "k", "3");
    try {
        other.commit();
        CHECK(false);
    } catch (const esker::Error &error) {
        CHECK(error.is_retryable() && error.code() == ESKER_TRANSACTION_CONFLICT);
    }
    CHECK(a.get("k").view() == "2" && snapshot.get(a, "k").view() == "v" && snapshot.contains(b, "k"));
    std::size_t count = 0;
    for (auto [key, value] : snapshot.rows(a)) {
        count += key == "k" && value == "v";
    }
    CHECK(count == 1);
    CHECK(db.stats().view().find("\"version\":1") != std::string_view::npos);
    CHECK(db.compact().view().find("cancelled") != std::string_view::npos);
    db.compact_to(2);
    CHECK(db.compact_status().view().find("\"active\":false") != std::string_view::npos);
    db.cancel_compact();
    db.ingest();
    db.settle();
    db.remove_staging();
    db.add_staging();
    throws(ESKER_EXISTS, [&] { db.add_staging(); });
    db.upgrade();
    CHECK(db.format_version() >= 2);
    db.backup("copy", small());
    db.sync();
    db.drop_kvs("b");
    throws(ESKER_NOT_FOUND, [&] { db.kvs("b"); });
    // The KVDB goes first.
    { auto gone = std::move(db); }
    throws(ESKER_CLOSED, [&] { snapshot.get(a, "k"); });
    CHECK(esker::Db::verify("copy").first);
    CHECK(esker::Db::repair("copy", "salvaged", small()).view().find("\"recovered\":1") != std::string_view::npos);
    esker::Db::destroy("copy");
    throws(ESKER_NOT_FOUND, [] { esker::Db::open("copy"); });
}

static void exceptions_of_callbacks_stay_on_this_side() {
    int remarks = 0, calls = 0;
    auto options = small();
    options.on_remark([&](std::string_view remark) {
        remarks += !remark.empty();
        throw 1;
    });
    options.on_progress([&](std::string_view, std::uint64_t, std::uint64_t) -> bool {
        calls++;
        throw std::runtime_error("of the observer");
    });
    auto db = esker::Db::create("db", options);
    auto kvs = db.create_kvs("a");
    for (int n = 0; n < 4000; n++) {
        kvs.put(std::to_string(n), std::string(2000, 'v'));
    }
    try {
        auto status = db.compact();
        CHECK(calls == 0 || status.view().find("\"cancelled\":true") != std::string_view::npos);
    } catch (const esker::Error &error) {
        CHECK(error.code() == ESKER_CANCELLED);
    }
    CHECK(calls > 0);
    db.close();
}

static const check_case cases[] = {
    {"values_keys_and_ranges_are_string_views", values_keys_and_ranges_are_string_views},
    {"batches_snapshots_and_transactions_work", batches_snapshots_and_transactions_work},
    {"exceptions_of_callbacks_stay_on_this_side", exceptions_of_callbacks_stay_on_this_side},
};

MAIN(cases)
