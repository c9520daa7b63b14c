//! A target that requests change while it runs.
//!
//! Invariants
//! 1. A change is another configuration: it is made of the one in force, checked as a whole, and put into force as a
//!    whole. So what is refused has changed nothing, and the configuration in force can be written out at any time.
//! 2. Changes and new readings of the configuration are made one at a time, under one lock. Nobody waits for that lock
//!    to look.

use std::sync::Arc;
use std::time::Duration;

use esker_base::{Clock, ErrorKind};
use esker_device::Create;
use esker_nvmf::Target;
use esker_nvmf::wire::log::AnaState;
use esker_stack::{Opened, Spec, Stack};
use parking_lot::{Mutex, RwLock};

use super::config::{Plan, Planner, Source};
use super::file::{SubsystemFile, TargetFile};
use super::view::{
    AnaView, ChangedView, LASTS, NamespaceView, PortalView, SubsystemView, TargetView,
};
use crate::error::{Result, ServeError};
use crate::requests::changes::{self, Changes};
use crate::requests::route::Outcome;

/// The longest wait for a device that a namespace which was just removed lets go of.
const LETTING_GO: Duration = Duration::from_secs(2);
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
    /// When this process began to serve, in seconds since 1970.
    pub(super) began: u64,
}

/// A change of a configuration.
pub(super) struct Edit {
    /// In words.
    pub(super) did: String,
    /// The namespace that is added or replaced.
    pub(super) nsid: Option<u32>,
}

impl Control {
    pub(super) fn new(target: Arc<Target>, stack: Arc<Stack>, planner: Planner) -> Control {
        let (changing, changes) = (Mutex::default(), Changes::default());
        let (planner, began) = (RwLock::new(planner), changes::now());
        Control { target, stack, planner, changing, changes, began }
    }

    /// Reads the configuration again; what requests have changed is gone. Returns remarks.
    pub(super) fn reload(&self) -> Result<Vec<String>> {
        let _one_at_a_time = self.changing.lock();
        let plan = self.planner.read().plan()?;
        self.enforce(plan, false)
    }

    /// Puts a plan into force. Returns remarks.
    fn enforce(&self, mut plan: Plan, is_request: bool) -> Result<Vec<String>> {
        let mut remarks = self.target.reconfigure(&plan.target)?;
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
        let spec: Spec = device.parse()?;
        let clock = Clock::real();
        let end = clock.now() + LETTING_GO;
        loop {
            match self.stack.open(&spec, Create::Never) {
                Err(error) if error.kind() == ErrorKind::Conflict && clock.now() < end => {
                    clock.sleep(STEP);
                }
                opened => return Ok(Some(opened?)),
            }
        }
    }

    /// Makes a change, which has its turn; `opened` is the device that was opened for it.
    pub(super) fn change(
        &self,
        opened: Option<Opened>,
        is_rehearsal: bool,
        edit: impl FnOnce(&mut TargetFile) -> Result<Edit>,
    ) -> Result<Outcome<ChangedView, ()>> {
        let (plan, Edit { did, nsid }) = {
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
        Ok(Outcome::Did(changed(did, nsid, remarks), ()))
    }

    /// The configuration in force, with the addresses that are listened on.
    pub(super) fn file(&self) -> Result<TargetFile> {
        let mut file = self.planner.read().file().clone();
        let of = |tls| self.target.portals().into_iter().filter(move |one| one.tls == tls);
        file.listen = of(false).map(|one| one.listen).collect();
        file.listen_tls = of(true).map(|one| one.listen).collect();
        file.absolute()
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
        let portals = self.target.portals().into_iter().enumerate();
        let view = |(portal, one): (usize, esker_nvmf::target::PortalState)| PortalView {
            portal,
            listen: one.listen,
            announce: one.announce,
            tls: one.tls,
            ana: one.ana.into(),
        };
        portals.map(view).collect()
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
                uuid: found.map(|its| uuid_text(its.uuid)),
                bytes: found.map_or(0, |its| its.capacity * u64::from(its.lba_size)),
                lba_size: found.map_or(0, |its| its.lba_size),
            }
        });
        SubsystemView {
            nqn: file.nqn.clone(),
            allow_any: file.allow_any,
            hosts: file.host.clone(),
            namespaces: namespaces.collect(),
        }
    }
}

/// The answer to a change that was made.
pub(super) fn changed(did: String, nsid: Option<u32>, remarks: Vec<String>) -> ChangedView {
    ChangedView { did, nsid, remarks, lasts: LASTS.to_owned() }
}

/// The subsystem with an NQN, in a configuration.
pub(super) fn subsystem<'a>(file: &'a mut TargetFile, nqn: &str) -> Result<&'a mut SubsystemFile> {
    let known: Vec<_> = file.subsystem.iter().map(|one| one.nqn.clone()).collect();
    file.subsystem.iter_mut().find(|one| one.nqn == nqn).ok_or_else(|| {
        let why = format!("there is no subsystem '{nqn}'; there are: {}", known.join(", "));
        ServeError::new(ErrorKind::NotFound, why)
    })
}

/// As people write it.
fn uuid_text(uuid: [u8; 16]) -> String {
    let hex = data_encoding::HEXLOWER.encode(&uuid);
    let (a, rest) = hex.split_at(8);
    let parts = [&rest[..4], &rest[4..8], &rest[8..12], &rest[12..]];
    format!("{a}-{}", parts.join("-"))
}

impl From<AnaState> for AnaView {
    fn from(state: AnaState) -> AnaView {
        match state {
            AnaState::Optimized => AnaView::Optimized,
            AnaState::NonOptimized => AnaView::NonOptimized,
            AnaState::Inaccessible => AnaView::Inaccessible,
            AnaState::PersistentLoss => AnaView::PersistentLoss,
            AnaState::Change => AnaView::Change,
        }
    }
}
