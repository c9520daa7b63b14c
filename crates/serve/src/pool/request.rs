//! Bodies of requests that change a pool. Unknown fields are refused.

use super::hosts::HostView;
use crate::requests::body::requests;

requests! {
    /// A device that is to be of the pool.
    AddDrive {
        /// Its specification. The server opens it.
        device: String,
        /// It is to hold the write buffer.
        #[serde(default)]
        buffer: bool,
        /// Its content may be lost.
        #[serde(default)]
        overwrite: bool,
    }

    /// A device that takes the place of a drive.
    ReplaceDrive {
        /// Its specification. The server opens it.
        device: String,
        /// Its content may be lost.
        #[serde(default)]
        overwrite: bool,
    }

    /// A drive that was missing, or that failed.
    RejoinDrive {
        /// The specification of its device, which the server opens; none for the device that it had.
        device: Option<String>,
    }

    /// How the pool goes on, until it is closed.
    ChangeSettings {
        /// Percent of maintenance's time that repair and sweeps get at least, from 1 to 90.
        repair_share: u8,
    }

    /// A thin volume.
    CreateVolume {
        /// Its name.
        name: String,
        /// Its size as a host sees it: a multiple of 4,096.
        bytes: u64,
        /// Whether blocks are compressed.
        #[serde(default = "yes")]
        compression: bool,
        /// The most operations a second; 0 for no limit.
        #[serde(default)]
        iops_limit: u64,
        /// The most bytes a second; 0 for no limit.
        #[serde(default)]
        bytes_limit: u64,
    }

    /// The changes.
    ChangeVolume {
        /// Its size.
        bytes: Option<u64>,
        /// It may become smaller, and lose what lies behind its end.
        #[serde(default)]
        shrink: bool,
        /// Whether blocks are compressed.
        compression: Option<bool>,
        /// The most operations a second; 0 for no limit.
        iops_limit: Option<u64>,
        /// The most bytes a second; 0 for no limit.
        bytes_limit: Option<u64>,
        /// The hosts that may use it, and no others.
        hosts: Option<Vec<HostView>>,
        /// It may be in use: hosts that are connected see it shrink, or lose it.
        #[serde(default)]
        force: bool,
    }

    /// How a volume is deleted.
    DeleteVolume {
        /// For how many seconds it can be restored; a day where nothing is said, and 0 deletes it at once.
        keep_secs: Option<u64>,
        /// It may be in use: hosts that are connected lose it.
        #[serde(default)]
        force: bool,
    }

    /// How a snapshot is deleted.
    DeleteSnapshot {
        /// It may be in use: hosts that are connected lose it.
        #[serde(default)]
        force: bool,
    }

    /// A snapshot that is to be made.
    CreateSnapshot {
        /// Its name.
        name: String,
    }

    /// A volume that begins as a snapshot.
    CloneSnapshot {
        /// The snapshot.
        snapshot: String,
        /// The new volume's name.
        name: String,
    }

    /// Back to a snapshot.
    Rollback {
        /// The snapshot.
        snapshot: String,
        /// Only while the volume has this generation.
        if_generation: Option<u64>,
        /// It may be in use: its content changes under hosts that are connected.
        #[serde(default)]
        force: bool,
    }

    /// A host that may use a volume from now on.
    AddHost {
        /// Its NQN, or `*` for any host.
        nqn: String,
        /// It may use this snapshot, and not the volume.
        snapshot: Option<String>,
        /// The file with the secret that the host has to know (DH-HMAC-CHAP).
        key_file: Option<std::path::PathBuf>,
        /// The file with the secret by which the host knows the server.
        controller_key_file: Option<std::path::PathBuf>,
        /// The file with the host's key for TLS.
        tls_key_file: Option<std::path::PathBuf>,
    }

    /// How a host is taken off.
    RemoveHost {
        /// It may be connected: it loses the volume.
        #[serde(default)]
        force: bool,
    }
}

fn yes() -> bool {
    true
}
