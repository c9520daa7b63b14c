//! NVMe over TCP: a target that serves devices, and an initiator that is one.
//!
//! | module | content |
//! | --- | --- |
//! | [`wire`] | every byte: PDUs, capsules, commands, Identify structures, log pages |
//! | [`conn`] | the protocol of one connection, both ends, without a socket |
//! | [`tls`] | TLS with pre-shared keys, as a feature of the build |
//! | [`auth`] | DH-HMAC-CHAP: secrets, proofs, Diffie-Hellman groups |
//! | [`target`] | [`Target`]: subsystems and namespaces over devices, served by event loops |
//! | [`initiator`] | [`Initiator`]: a remote namespace as a device |
//! | [`error`] | [`NvmfError`] |
//!
//! The answers to every command, and measurements: `docs/nvmf.md`. The real kernel at the other
//! end: `tests/interop/run`.

pub mod auth;
pub mod conn;
pub mod error;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod initiator;
mod socket;
mod stream;
pub mod target;
pub mod tls;
pub mod wire;

pub use error::NvmfError;
pub use initiator::{Initiator, InitiatorConfig};
pub use target::{Target, TargetConfig};
