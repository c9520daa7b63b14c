//! Transfers between accounts by several threads: a transaction that conflicts with another one is begun again.
//!
//! `cargo run -p esker-kv --example transfer`

use esker_kv::{KvError, Kvdb, Kvs, Policy, Readable};

const ACCOUNTS: u32 = 4;
const EACH: u64 = 1000;

fn balance(bytes: Option<esker_kv::Value>) -> u64 {
    bytes.map_or(0, |bytes| String::from_utf8_lossy(&bytes).parse().unwrap_or(0))
}

/// Moves one coin; the number of attempts that took.
fn transfer(db: &Kvdb, accounts: &Kvs, from: u32, to: u32) -> Result<u32, KvError> {
    for attempt in 1.. {
        let mut transaction = db.transaction();
        let (from, to) = (from.to_string(), to.to_string());
        let had = balance(transaction.get(accounts, &from)?);
        let other = balance(transaction.get(accounts, &to)?);
        if had == 0 {
            return Ok(attempt);
        }
        transaction.put(accounts, &from, (had - 1).to_string())?;
        transaction.put(accounts, &to, (other + 1).to_string())?;
        match transaction.commit() {
            Err(KvError::TransactionConflict { .. }) => {}
            done => return done.map(|()| attempt),
        }
    }
    unreachable!("some attempt ends")
}

fn main() -> Result<(), KvError> {
    let dir = std::env::args().nth(1).unwrap_or("/tmp/esker-transfer".into());
    let db = Kvdb::builder(dir).open_or_create()?;
    let accounts = db.kvs_or_create("accounts", Policy::default())?;
    for account in 0..ACCOUNTS {
        // Only where it is new.
        let _ = accounts.compare_and_set(
            account.to_string(),
            None,
            Some(EACH.to_string().as_bytes()),
        )?;
    }
    let attempts = std::thread::scope(|scope| {
        let threads = [(0, 1), (1, 2), (2, 3), (3, 0)].map(|(from, to)| {
            let (db, accounts) = (&db, &accounts);
            scope.spawn(move || {
                (0..100).map(|_| transfer(db, accounts, from, to)).sum::<Result<u32, KvError>>()
            })
        });
        let attempts = threads.map(|thread| thread.join().expect("a thread"));
        attempts.into_iter().sum::<Result<u32, KvError>>()
    })?;
    let snapshot = db.snapshot();
    let sum: u64 = snapshot
        .iter(&accounts)?
        .map(|row| row.map(|(_, value)| balance(Some(value))))
        .sum::<Result<u64, KvError>>()?;
    println!("400 transfers took {attempts} attempts; {sum} coins in all");
    assert_eq!(sum, EACH * u64::from(ACCOUNTS));
    db.close()
}
