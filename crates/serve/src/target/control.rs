//! A target that requests change while it runs.
//!
//! Invariants
//! 1. A change is another configuration: it is made of the one in force, checked as a whole, and put into force as a
//!    whole. So what is refused has changed nothing, and the configuration in force can be written out at any time.
//! 2. Changes and new readings of the configuration are made one at a time, under one lock. Nobody waits for that lock
//!    to look.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_device::Create;
use esker_nvmf::Target;
use esker_nvmf::target::PortalState;
use esker_nvmf::wire::log::AnaState;
use esker_stack::{Opened, Spec, Stack, show_uuid};
use parking_lot::{Mutex, RwLock};

use super::config::{Plan, Planner, Source};
use super::file::{Ana, PortalFile, SubsystemFile, TargetFile};
use super::view::{ChangedView, LASTS, NamespaceView, PortalView, SubsystemView, TargetView};
use crate::error::{Result, ServeError};
use crate::requests::changes::{self, Changes};
use crate::requests::route::Outcome;

/// How often commands under way are counted.
const STEP: Duration = Duration::from_millis(20);

/// A target that requests change.
pub(crate) struct Control {
    pub(super) target: Arc<Target>,
    stack: Arc<Stack>,
    /// It has the devices: one that is not served any more is closed.
    pub(super) planner: RwLock<Planner>,
    /// Held while something is changed.
    pub(super) changing: Mutex<()>,
    pub(super) changes: Changes<()>,
    /// The target ends: no request waits for anything any more.
    pub(super) is_ending: AtomicBool,
    /// When this process began to serve, in seconds since 1970.
    pub(super) began: u64,
}

/// A change of a configuration.
pub(super) struct Edit {
    /// In words.
    pub(super) did: String,
    /// The namespace that is added, replaced or limited.
    pub(super) nsid: Option<u32>,
    /// Whether a portal is added.
    pub(super) adds_portal: bool,
}

impl Edit {
    pub(super) fn new(did: String) -> Edit {
        Edit { did, nsid: None, adds_portal: false }
    }
}

impl Control {
    pub(super) fn new(target: Arc<Target>, stack: Arc<Stack>, planner: Planner) -> Control {
        let (changing, changes) = (Mutex::default(), Changes::default());
        let (planner, began) = (RwLock::new(planner), changes::now());
        let is_ending = AtomicBool::new(false);
        Control { target, stack, planner, changing, changes, is_ending, began }
    }

    /// Reads the configuration again; what requests have changed is gone. Returns remarks.
    pub(super) fn reload(&self) -> Result<Vec<String>> {
        let _one_at_a_time = self.changing.lock();
        let plan = self.planner.read().plan()?;
        self.enforce(plan, false)
    }

    /// Puts a plan into force. Returns remarks.
    fn enforce(&self, mut plan: Plan, is_request: bool) -> Result<Vec<String>> {
        let (mut remarks, numbers) = match self.planner.read().is_controlled() {
            true => self.target.reconfigure_with_portals(&plan.target)?,
            // A signal alone leaves the addresses as they are.
            false => (self.target.reconfigure(&plan.target)?, Vec::new()),
        };
        plan.listens(&self.target, &numbers);
        remarks.append(&mut plan.remarks);
        self.planner.write().keep(plan, is_request);
        Ok(remarks)
    }

    /// Opens a device before the turn of its change, unless the namespace has it already.
    pub(super) fn open(
        &self,
        nqn: &str,
        nsid: Option<u32>,
        device: &str,
    ) -> Result<Option<Opened>> {
        if nsid.is_some_and(|nsid| self.planner.read().has(nqn, nsid, device)) {
            return Ok(None);
        }
        Ok(Some(self.stack.open(&device.parse::<Spec>()?, Create::Never)?))
    }

    /// Makes a change, which has its turn; `opened` is the device that was opened for it.
    pub(super) fn change(
        &self,
        opened: Option<Opened>,
        is_rehearsal: bool,
        edit: impl FnOnce(&mut TargetFile) -> Result<Edit>,
    ) -> Result<Outcome<ChangedView, ()>> {
        let (plan, Edit { did, nsid, adds_portal }) = {
            let planner = self.planner.read();
            let mut file = planner.file().clone();
            let done = edit(&mut file)?;
            (planner.plan_of(file, Source::Prepared(opened))?, done)
        };
        if is_rehearsal {
            self.target.check(&plan.target)?;
            return Ok(Outcome::Would(did));
        }
        let remarks = self.enforce(plan, true)?;
        // A new one has the largest number.
        let newest = self.target.portals().last().map(|one| one.portal);
        let portal = newest.filter(|_| adds_portal);
        Ok(Outcome::Did(ChangedView { nsid, portal, ..changed(did, remarks) }, ()))
    }

    /// Has hosts go on through other portals, and waits until no command is under way through this one, or the time is up.
    pub(super) fn drain(&self, portal: usize, patience: Duration) -> Result<()> {
        {
            let _one_at_a_time = self.changing.lock();
            self.change(None, false, |file| {
                self.portal_of(file, portal)?.ana = Ana::Inaccessible;
                Ok(Edit::new(String::new()))
            })?;
        }
        let clock = Clock::real();
        let end = clock.now() + patience;
        // A command that came before may be on its way to a device still.
        clock.sleep(STEP);
        // One that was set back meanwhile takes new commands, and is not waited for.
        let is_drained =
            |one: &PortalState| one.portal == portal && one.ana == AnaState::Inaccessible;
        while self.target.portals().iter().any(is_drained)
            && self.target.commands_through(portal) != Some(0)
            && clock.now() < end
        {
            if self.is_ending.load(Ordering::Acquire) {
                return Err(ServeError::new(ErrorKind::Closed, "the target ends"));
            }
            clock.sleep(STEP);
        }
        Ok(())
    }

    /// A portal of a configuration, by the number that it has.
    pub(super) fn portal_of<'a>(
        &self,
        file: &'a mut TargetFile,
        portal: usize,
    ) -> Result<&'a mut PortalFile> {
        let all = self.target.portals();
        let known = all.iter().find(|one| one.portal == portal);
        let is_it = |one: &&mut PortalFile| known.is_some_and(|it| it.listen == one.listen);
        file.portal.iter_mut().find(is_it).ok_or_else(|| {
            let why = format!("there is no portal {portal}; GET /v1/target shows them");
            ServeError::new(ErrorKind::NotFound, why)
        })
    }

    /// The configuration in force, with the addresses that are listened on.
    pub(super) fn in_force(&self) -> TargetFile {
        self.planner.read().file().clone()
    }

    /// How the target is.
    pub(super) fn view(&self) -> TargetView {
        let (file, is_changed) = {
            let planner = self.planner.read();
            (planner.file().clone(), planner.is_changed())
        };
        let target = &self.target;
        TargetView {
            portals: self.portals(),
            subsystems: file.subsystem.iter().map(|one| self.subsystem(one)).collect(),
            connected: target.connected().into_iter().map(Into::into).collect(),
            refused: target.refusals().into_iter().map(Into::into).collect(),
            is_changed,
        }
    }

    fn portals(&self) -> Vec<PortalView> {
        let view = |one: PortalState| PortalView {
            portal: one.portal,
            listen: one.listen,
            announce: one.announce,
            tls: one.tls,
            ana: one.ana.into(),
        };
        self.target.portals().into_iter().map(view).collect()
    }

    fn subsystem(&self, file: &SubsystemFile) -> SubsystemView {
        // One that a change has taken meanwhile has none.
        let served = self.target.namespaces(&file.nqn).unwrap_or_default();
        let namespaces = file.namespace.iter().map(|one| {
            let found = served.iter().find(|its| its.nsid == one.nsid);
            NamespaceView {
                nsid: one.nsid,
                device: one.device.clone(),
                write_cache: one.write_cache.unwrap_or(file.write_cache),
                uuid: found.map(|its| show_uuid(&its.uuid)),
                bytes: found.map_or(0, |its| its.capacity * u64::from(its.lba_size)),
                lba_size: found.map_or(0, |its| its.lba_size),
                iops_limit: one.iops_limit,
                bytes_limit: one.bytes_limit,
            }
        });
        let is_its =
            |one: &PortalState| file.listen.is_empty() || file.listen.contains(&one.listen);
        let portals = self.target.portals().into_iter().filter(is_its).map(|one| one.portal);
        SubsystemView {
            nqn: file.nqn.clone(),
            portals: portals.collect(),
            allow_any: file.allow_any,
            hosts: file.host.clone(),
            namespaces: namespaces.collect(),
        }
    }
}

/// The answer to a change that was made.
pub(super) fn changed(did: String, remarks: Vec<String>) -> ChangedView {
    ChangedView { did, nsid: None, portal: None, remarks, lasts: LASTS.to_owned() }
}

/// The subsystem with an NQN, in a configuration.
pub(super) fn subsystem<'a>(file: &'a mut TargetFile, nqn: &str) -> Result<&'a mut SubsystemFile> {
    let known: Vec<_> = file.subsystem.iter().map(|one| one.nqn.clone()).collect();
    file.subsystem.iter_mut().find(|one| one.nqn == nqn).ok_or_else(|| {
        let why = format!("there is no subsystem '{nqn}'; there are: {}", known.join(", "));
        ServeError::new(ErrorKind::NotFound, why)
    })
}
