//! An inverted index: documents in one KVS, the words that they hold in another, both written by one batch.
//!
//! `cargo run -p esker-kv --example index`

use esker_kv::{Batch, KvError, Kvdb, Kvs, Policy};

const DOCUMENTS: [(&str, &str); 3] = [
    ("kalevala", "old song of the wizard and the smith"),
    ("edda", "song of gods and of a smith"),
    ("beowulf", "a king and his hall"),
];

/// A word and a document, so that the documents of a word are neighbours.
fn posting(word: &str, name: &str) -> Vec<u8> {
    [word, "\0", name].concat().into_bytes()
}

/// Adds or replaces a document: all of it, or nothing.
fn add(db: &Kvdb, documents: &Kvs, words: &Kvs, name: &str, text: &str) -> Result<(), KvError> {
    let mut batch = Batch::new();
    if let Some(old) = documents.get(name)? {
        let old = String::from_utf8_lossy(&old).into_owned();
        old.split(' ').for_each(|word| batch.delete(words, posting(word, name)));
    }
    batch.put(documents, name, text);
    text.split(' ').for_each(|word| batch.put(words, posting(word, name), ""));
    db.write(&batch)
}

/// The documents that hold a word.
fn find(words: &Kvs, word: &str) -> Result<Vec<String>, KvError> {
    let prefix = posting(word, "");
    let name = |key: esker_kv::Key| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
    words.prefix(&prefix)?.keys().map(|key| key.map(name)).collect()
}

fn main() -> Result<(), KvError> {
    let dir = std::env::args().nth(1).unwrap_or("/tmp/esker-index".into());
    let db = Kvdb::builder(dir).open_or_create()?;
    let documents = db.kvs_or_create("documents", Policy::default())?;
    let words = db.kvs_or_create("words", Policy::default())?;
    for (name, text) in DOCUMENTS {
        add(&db, &documents, &words, name, text)?;
    }
    for word in ["smith", "king", "ship"] {
        println!("{word}: {}", find(&words, word)?.join(", "));
    }
    // From s to t, backwards.
    for key in words.range("s".."t")?.keys().rev() {
        println!("{}", key?.escape_ascii());
    }
    db.close()
}
