// Stores and reads: c++ -std=c++17 start.cpp $(pkg-config --cflags --libs esker) -o start && ./start DIRECTORY
#include <esker.hpp>
#include <iostream>

int main(int argc, char **argv) try {
    auto db = esker::Db::open_or_create(argc > 1 ? argv[1] : "db");
    auto users = db.kvs_or_create("users"), names = db.kvs_or_create("names");
    esker::Batch batch; // all or nothing, across KVSs
    batch.put(users, "42", "Ada").put(names, "Ada", "42");
    db.write(batch, esker::Durability::now);
    std::cout << "42 is " << users.get("42").view() << "\n";
    for (auto [id, name] : users.range("40", "50")) {
        std::cout << id << " = " << name << "\n";
    }
    db.close(); // all is durable, or it throws
} catch (const esker::Error &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
