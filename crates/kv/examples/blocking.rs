//! Under tokio: calls may wait for a drive, so they run on threads that may block. Handles are cheap to clone.
//!
//! `cargo run -p esker-kv --example blocking`

use esker_kv::{KvError, Kvdb, Kvs, Policy, Value, WriteOptions};
use tokio::task::{JoinError, spawn_blocking};

/// Runs a call of the engine on a thread that may block.
async fn call<T: Send + 'static>(
    kvs: &Kvs,
    call: impl FnOnce(&Kvs) -> Result<T, KvError> + Send + 'static,
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    let kvs = kvs.clone();
    let called: Result<Result<T, KvError>, JoinError> = spawn_blocking(move || call(&kvs)).await;
    Ok(called??)
}

async fn serve(db: Kvdb) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let kvs = db.kvs_or_create("sessions", Policy::default())?;
    let writers: Vec<_> = (0..16u32)
        .map(|user| {
            let kvs = kvs.clone();
            tokio::spawn(async move {
                // The answer is sent when the write is durable.
                call(&kvs, move |kvs| {
                    kvs.put_with(user.to_be_bytes(), "online", &WriteOptions::durable())
                })
                .await
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let first: Option<Value> = call(&kvs, |kvs| kvs.get(0u32.to_be_bytes())).await?;
    let users = call(&kvs, |kvs| Ok(kvs.iter()?.keys().count())).await?;
    println!("{users} users; the first is {}", first.as_deref().unwrap_or_default().escape_ascii());
    spawn_blocking(move || db.close()).await??;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let dir = std::env::args().nth(1).unwrap_or("/tmp/esker-blocking".into());
    let db = Kvdb::builder(dir).open_or_create()?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(serve(db))
}
