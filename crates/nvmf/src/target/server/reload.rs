//! Another configuration for a target that runs: subsystems, namespaces, hosts and their keys.
//!
//! Invariants
//! 1. Everything that can be refused is refused before anything changes.
//! 2. A host that may not use a subsystem any more has lost its connections to it, or is about to,
//!    when [`Target::reconfigure`] returns. Keys are asked for when a host connects: a host that is
//!    connected keeps its connections when its key changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use super::Target;
use crate::error::NvmfError;
use crate::target::config::{Limits, PortalConfig, TargetConfig};
use crate::target::subsystem::Subsystem;

/// Settings that a target was started with and keeps.
pub(crate) struct Started {
    portals: Vec<PortalConfig>,
    limits: Limits,
    reservations: Option<PathBuf>,
    controller_ids: Option<RangeInclusive<u16>>,
}

impl Started {
    pub(crate) fn new(config: &TargetConfig) -> Started {
        let TargetConfig { portals, limits, reservations, controller_ids, .. } = config.clone();
        Started { portals, limits, reservations, controller_ids }
    }

    /// Returns the parts of `config` that need another start, in sentences.
    fn differences(&self, config: &TargetConfig, keeps_portals: bool) -> Vec<String> {
        let parts = [
            (
                "the addresses listened on and announced",
                keeps_portals && self.portals != config.portals,
            ),
            ("workers and limits", self.limits != config.limits),
            ("the file of reservations", self.reservations != config.reservations),
            ("the ids of controllers", self.controller_ids != config.controller_ids),
        ];
        let changed = parts.iter().filter(|(_, is_changed)| *is_changed);
        changed
            .map(|(what, _)| format!("{what} stay as they are until the target is started again"))
            .collect()
    }
}

impl Target {
    /// Checks a configuration as [`Target::reconfigure`] does, and changes nothing.
    ///
    /// # Errors
    /// When the configuration is wrong.
    pub fn check(&self, config: &TargetConfig) -> Result<(), NvmfError> {
        config.check()?;
        let known = |nqn: &str| self.shared.subsystem(nqn);
        let known = config.subsystems.iter().filter_map(|one| Some((known(&one.nqn)?, one)));
        known.into_iter().try_for_each(|(subsystem, wanted)| subsystem.check(wanted))
    }

    /// Puts another configuration into force: subsystems and namespaces come and go, hosts may
    /// connect or not any more, keys are others, referrals too. Connected hosts are told. Namespaces
    /// are the same if their device is, as an object; addresses, limits and the file of reservations
    /// stay as they were. Returns the parts of the configuration that are not in force, in sentences.
    ///
    /// # Errors
    /// When the configuration is wrong; the one before is in force then.
    pub fn reconfigure(&self, config: &TargetConfig) -> Result<Vec<String>, NvmfError> {
        config.check()?;
        self.put(config, self.started.differences(config, true))
    }

    /// The same, with the portals of the configuration. Portals with the same address and the same encryption stay; hosts
    /// that came through one that is gone lose their connections. Returns the number of each portal, too.
    ///
    /// # Errors
    /// When the configuration is wrong, or an address cannot be had; the one before is in force then.
    pub fn reconfigure_with_portals(
        &self,
        config: &TargetConfig,
    ) -> Result<(Vec<String>, Vec<usize>), NvmfError> {
        config.check()?;
        let bound = self.bind(&config.portals)?;
        let remarks = self.put(config, self.started.differences(config, false))?;
        Ok((remarks, self.put_portals(bound)))
    }

    /// Puts a configuration that was checked into force, but for its portals.
    fn put(
        &self,
        config: &TargetConfig,
        mut remarks: Vec<String>,
    ) -> Result<Vec<String>, NvmfError> {
        let shared = &self.shared;
        let mut list = shared.subsystems.write();
        let (mut next, mut kept) = (Vec::new(), Vec::new());
        let by_nqn: BTreeMap<String, Arc<Subsystem>> =
            list.iter().map(|one| (one.nqn.clone(), one.clone())).collect();
        for wanted in &config.subsystems {
            match by_nqn.get(&wanted.nqn) {
                Some(known) => {
                    known.check(wanted)?;
                    if wanted.serial.as_ref().is_some_and(|serial| *serial != known.serial)
                        || wanted.model != known.model
                    {
                        let nqn = &wanted.nqn;
                        let stay = "stay as they are until the target is started again";
                        remarks.push(format!("serial and model of {nqn} {stay}"));
                    }
                    kept.push((known.clone(), wanted));
                    next.push(known.clone());
                }
                None => {
                    let limits = &shared.limits;
                    next.push(Arc::new(Subsystem::new(wanted, limits, shared.store.clone())?));
                }
            }
        }
        let ids = |all: &[Arc<Subsystem>]| -> Vec<String> {
            all.iter().map(|one| one.nqn.clone()).collect()
        };
        let mut is_other = ids(&list) != ids(&next);
        let before = std::mem::replace(&mut *list, next);
        let stay: BTreeSet<*const Subsystem> = list.iter().map(Arc::as_ptr).collect();
        let is_gone = |one: &&Arc<Subsystem>| !stay.contains(&Arc::as_ptr(one));
        let gone: Vec<_> = before.iter().filter(is_gone).cloned().collect();
        drop(list);
        let mut changed = Vec::new();
        for (subsystem, wanted) in kept {
            let (namespaces, has_others) = subsystem.become_(wanted)?;
            is_other |= has_others;
            changed.extend(namespaces.into_iter().map(|nsid| (subsystem.clone(), nsid)));
        }
        shared.expel();
        gone.iter().for_each(|one| one.retire());
        {
            let mut referrals = shared.referrals.write();
            is_other |= *referrals != config.referrals;
            referrals.clone_from(&config.referrals);
        }
        for (subsystem, nsid) in changed {
            shared.namespace_changed(&subsystem, nsid);
        }
        if is_other {
            shared.discovery_changed();
        }
        Ok(remarks)
    }
}
