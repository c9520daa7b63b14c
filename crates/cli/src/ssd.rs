//! `esker ssd`: drives in software: which there are, and those that lie in files.

mod info;
mod profiles;

use std::path::Path;

use esker_base::units::human_bytes;
use esker_device::Create;
use esker_flash::{FlashError, Ssd};
use esker_stack::{DiskSpec, Model, Spec, SsdSpec, Stack, Time};

use crate::args::{Division, NamespaceCommand, SsdCommand};
use crate::failure::{Failure, Result};
use crate::figures::wrapped;
use crate::output;
use crate::unmade;

/// Runs a command.
pub(crate) fn run(command: &SsdCommand) -> Result {
    match command {
        SsdCommand::Profiles { name, json } => profiles::show(name.as_deref(), *json),
        SsdCommand::Create { drive, image, division } => create(drive, image, division),
        SsdCommand::Info { image, json } => {
            let (model, ssd) = open(image)?;
            info::show(image, &model, &ssd, *json)
        }
        SsdCommand::Namespace(NamespaceCommand::Create { image, size, handles }) => {
            let (_, ssd) = open(image)?;
            let bytes = size.unwrap_or_else(|| ssd.free_bytes());
            if bytes == 0 {
                let why = "no room is left; delete a namespace first";
                return Err(Failure::new(
                    esker_base::ErrorKind::NoSpace,
                    format!("{}: {why}", image.display()),
                ));
            }
            let handles = (!handles.is_empty()).then_some(&handles[..]);
            let nsid = ssd.create_namespace(bytes, handles).map_err(|e| failed(image, &e))?;
            close(image, &ssd)?;
            let (size, device) = (human_bytes(bytes), device(image, nsid));
            output::print(&format!("namespace {nsid} of {size}: {device}\n"))
        }
        SsdCommand::Namespace(NamespaceCommand::Delete { image, nsid }) => {
            let (_, ssd) = open(image)?;
            ssd.delete_namespace(*nsid).map_err(|error| failed(image, &error))?;
            close(image, &ssd)?;
            output::print(&format!("namespace {nsid} deleted\n"))
        }
    }
}

fn failed(image: &Path, error: &FlashError) -> Failure {
    Failure::new(error.kind(), format!("{}: {error}", image.display()))
}

fn close(image: &Path, ssd: &Ssd) -> Result {
    ssd.checkpoint().map_err(|error| failed(image, &error))
}

/// The specification of a namespace.
fn device(image: &Path, nsid: u32) -> String {
    let spec = SsdSpec { nsid: Some(nsid), ..at(image) };
    Spec::Ssd(Box::new(spec)).to_string()
}

fn at(image: &Path) -> SsdSpec {
    SsdSpec { image: Some(image.to_owned()), ..SsdSpec::default() }
}

/// The drive in a file, without its time.
fn open(image: &Path) -> Result<(Model, Ssd)> {
    let spec = SsdSpec { time: Some(Time::None), ..at(image) };
    let model = Stack::new().drive(&spec, Create::Never)?;
    let ssd = model.ssd.clone().expect("a drive was opened");
    Ok((model, ssd))
}

fn create(drive: &str, image: &Path, division: &Division) -> Result {
    let spec = match described(drive, division)? {
        Spec::Ssd(spec) => *spec,
        Spec::Disk(spec) => return create_disk(drive, spec, image),
        other => return Err(Failure::usage(format!("{other}: it is no drive"))),
    };
    if spec.image.is_some() || spec.drive.is_some() || spec.time.is_some() || spec.nsid.is_some() {
        let why = "a drive in a file has no image=, drive=, time= or nsid= when it is made; those \
                   are for who opens it";
        return Err(Failure::usage(format!("{drive}: {why}")));
    }
    let spec = SsdSpec { image: Some(image.to_owned()), time: Some(Time::None), ..spec };
    let whole = Spec::Ssd(Box::new(spec.clone()));
    let (model, ssd) = unmade::or_nothing([&whole], || make(&spec, image))?;
    let (parameters, namespaces) = (ssd.parameters(), ssd.namespaces());
    let mut text = format!(
        "created {}: {} of {}, {} of media\n",
        image.display(),
        human_bytes(parameters.capacity),
        model.profile.as_ref().map_or("an unknown profile", |profile| profile.title),
        human_bytes(parameters.media_bytes())
    );
    for nsid in namespaces {
        text.push_str(&format!("namespace {nsid}: {}\n", device(image, nsid)));
    }
    for assumption in model.assumptions() {
        text.push_str(&wrapped("assumed: ", 9, &assumption));
    }
    output::print(&text)
}

/// Makes the image of a drive.
fn make(spec: &SsdSpec, image: &Path) -> Result<(Model, Ssd)> {
    let model = Stack::new().drive(spec, Create::New)?;
    let ssd = model.ssd.clone().expect("a drive was made");
    close(image, &ssd)?;
    Ok((model, ssd))
}

/// Makes the image of a disk, which holds content only: a hole of its size.
fn create_disk(drive: &str, spec: DiskSpec, image: &Path) -> Result {
    if spec.image.is_some() || spec.time.is_some() {
        let why =
            "a disk in a file has no image= or time= when it is made; those are for who opens it";
        return Err(Failure::usage(format!("{drive}: {why}")));
    }
    let spec = Spec::Disk(DiskSpec { image: Some(image.to_owned()), ..spec });
    let opened = unmade::or_nothing([&spec], || {
        Ok(Stack::new().open(&spec.clone().with_time(Time::None), Create::New)?)
    })?;
    let geometry = opened.device.geometry();
    let title = opened.model.as_ref().and_then(|model| model.profile.as_ref());
    let mut text = format!(
        "created {}: {} of {}\ndisk: {spec}\n",
        image.display(),
        human_bytes(geometry.capacity.bytes(geometry.lba_size)),
        title.map_or("an unknown profile", |profile| profile.title),
    );
    for assumption in opened.model.iter().flat_map(Model::assumptions) {
        text.push_str(&wrapped("assumed: ", 9, &assumption));
    }
    output::print(&text)
}

/// The drive, and the options as if they had been keys of it: mistakes in them are reported once.
fn described(drive: &str, division: &Division) -> Result<Spec> {
    let has_scheme = ["ssd:", "disk:"].iter().any(|scheme| drive.starts_with(scheme));
    let mut text = if has_scheme { drive.to_owned() } else { format!("ssd:{drive}") };
    let options = [
        ("capacity", &division.capacity),
        ("namespaces", &division.namespaces),
        ("fdp", &division.fdp),
        ("handles", &division.handles),
    ];
    for (key, value) in options {
        let Some(value) = value else { continue };
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(&format!("{key}={value}"));
    }
    Ok(text.parse()?)
}
