//! `esker lab pooled`: runs Cassandra, YCSB and the storage of each arm on this machine.
//!
//! | module | content |
//! | --- | --- |
//! | `jars` | the Java programs, which Maven builds |
//! | `storage` | drives, pools, attached devices, file systems |
//! | `node` | nodes of Cassandra |
//! | `client` | YCSB and the tools beside it |
//! | `meters` | processor time and traffic of block devices |
//! | `machine` | the above, as the plan asks for it |
//! | `survive` | a node killed and a drive failed under load |

mod client;
mod jars;
mod machine;
mod meters;
mod node;
mod storage;
mod survive;

pub(super) use machine::Machine;
