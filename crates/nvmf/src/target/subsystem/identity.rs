//! The identity of a namespace: a UUID that belongs to its device, not to its number.
//!
//! | the device | UUID |
//! | --- | --- |
//! | has one given to it ([`NamespaceConfig::uuid`]) | that |
//! | has an identity of its own: identifiers of a drive, a file's inode and birth | derived from the subsystem's NQN and it |
//! | has none: memory | derived from the NQN, the number, and how many such devices had the number before |
//!
//! The NQN is in it because hosts refuse two subsystems with namespaces of one identity.
//!
//! [`NamespaceConfig::uuid`]: crate::target::config::NamespaceConfig::uuid

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use esker_device::Device;
use sha2::{Digest, Sha256};

use super::late::Late;
use crate::error::NvmfError;
use crate::target::config::NamespaceConfig;
use crate::target::reservation::{Reservations, Store};

/// A UUID.
pub(crate) type Uuid = [u8; 16];

/// The state of a device that stays when the device gets another number or leaves for a while.
#[derive(Clone)]
pub(crate) struct Belongings {
    pub(crate) reservations: Arc<Reservations>,
    pub(crate) late: Arc<Late>,
}

/// The devices that a subsystem has had.
#[derive(Default)]
pub(crate) struct Devices {
    /// The latest device without an identity under each number, and how many the number had before.
    nameless: BTreeMap<u32, (u64, Weak<dyn Device>)>,
    belongings: BTreeMap<Uuid, Belongings>,
}

impl Devices {
    /// The identity of a device under a number; `taken` are those of the subsystem's other namespaces.
    pub(crate) fn identify(
        &mut self,
        nqn: &str,
        config: &NamespaceConfig,
        taken: &[Uuid],
        store: Option<&Store>,
    ) -> Result<Uuid, NvmfError> {
        let nsid = config.nsid.to_le_bytes();
        if let Some(uuid) = config.uuid {
            return Ok(uuid);
        }
        if let Some(name) = config.device.identity().and_then(|identity| identity.stable_name()) {
            let uuid = derived(&[nqn.as_bytes(), b"\0", name.as_bytes()]);
            return Ok(match taken.contains(&uuid) {
                // The device has a second number.
                true => derived(&[nqn.as_bytes(), b"\0", name.as_bytes(), b"\0", &nsid]),
                false => uuid,
            });
        }
        let before = match self.nameless.get(&config.nsid) {
            None => store.map_or(0, |store| store.devices_before(nqn, config.nsid)),
            Some((before, device)) if is_same(device, &config.device) => *before,
            Some((before, _)) => {
                let count = before + 1;
                store.map_or(Ok(()), |store| store.count_devices(nqn, config.nsid, count))?;
                count
            }
        };
        self.nameless.insert(config.nsid, (before, Arc::downgrade(&config.device)));
        Ok(match before {
            0 => derived(&[nqn.as_bytes(), &nsid]),
            _ => derived(&[nqn.as_bytes(), &nsid, &before.to_le_bytes()]),
        })
    }

    /// The state of the device with an identity.
    pub(crate) fn belongings(
        &mut self,
        (nqn, nsid): (&str, u32),
        uuid: Uuid,
        store: Option<&Arc<Store>>,
    ) -> Result<Belongings, NvmfError> {
        if let Some(known) = self.belongings.get(&uuid) {
            return Ok(known.clone());
        }
        // Those that nothing is known of any more make room.
        self.belongings.retain(|_, one| {
            Arc::strong_count(&one.reservations) > 1 || !one.reservations.is_empty()
        });
        let reservations = Arc::new(Reservations::new(store, nqn, nsid, uuid)?);
        let new = Belongings { reservations, late: Arc::default() };
        self.belongings.insert(uuid, new.clone());
        Ok(new)
    }
}

fn is_same(known: &Weak<dyn Device>, device: &Arc<dyn Device>) -> bool {
    known.upgrade().is_some_and(|known| Arc::ptr_eq(&known, device))
}

/// A UUID of version 8 (RFC 9562, 5.8): the same for the same parts.
fn derived(parts: &[&[u8]]) -> Uuid {
    let digest = parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part));
    let mut uuid: Uuid = digest.finalize()[..16].try_into().expect("16 bytes");
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
