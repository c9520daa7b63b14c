//! `esker ssd profiles`.

use std::fmt::Write as _;

use esker_base::units::human_bytes;
use esker_flash::Profile;
use esker_flash::profile::Kind;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::figures::wrapped;
use crate::output;

/// Shows all profiles, or one.
pub(super) fn show(name: Option<&str>, json: bool) -> Result {
    let profiles = match name {
        Some(name) => {
            let found = Profile::find(name);
            vec![found.map_err(|error| Failure::new(esker_base::ErrorKind::NotFound, error))?]
        }
        None => Profile::all(),
    };
    if json {
        let profiles: Vec<Value> = profiles.iter().map(json_of).collect();
        return output::document("esker-ssd-profiles/1", json!({ "profiles": profiles }));
    }
    let both = profiles.iter().flat_map(|one| std::iter::once(one).chain(one.in_drive.as_deref()));
    let texts: Vec<String> = both.map(text_of).collect();
    output::print(&texts.join("\n"))
}

fn scheme(profile: &Profile) -> &'static str {
    if profile.ssd().is_some() { "ssd" } else { "disk" }
}

/// Whether it is the drive with a controller of its own beside one that the host manages.
fn is_twin(profile: &Profile) -> bool {
    let named = Profile::find(profile.name);
    named.is_ok_and(|named| named.in_drive.is_some_and(|twin| twin.title == profile.title))
}

fn capacity(profile: &Profile) -> Option<u64> {
    profile.ssd().map(|drive| drive.capacity)
}

fn text_of(profile: &Profile) -> String {
    let ftl = match profile.ssd().map(|drive| (drive.timing.host_queues, &profile.in_drive)) {
        Some((Some(_), Some(_))) => "?ftl=host",
        Some((None, _)) if is_twin(profile) => "?ftl=drive",
        _ => "",
    };
    let mut text = format!("{}:{}{ftl}\n  {}\n", scheme(profile), profile.name, profile.title);
    let mut list = |what: &str, lines: Vec<String>| {
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { what } else { "" };
            let _ = write!(text, "{}", wrapped(&format!("  {label:<10} "), 15, line));
        }
    };
    match &profile.kind {
        Kind::Ssd(drive) => list(
            "made of",
            vec![format!(
                "{} for the host, {} of media, {} dies on {} channels, LBAs of {} bytes, mapping \
                 unit {}",
                human_bytes(drive.capacity),
                human_bytes(drive.media_bytes()),
                drive.dies,
                drive.channels,
                drive.lba_size,
                human_bytes(drive.page_size.into())
            )],
        ),
        Kind::Disk(disk) => list(
            "made of",
            vec![format!(
                "{} surfaces of {} tracks, {} rotations a minute",
                disk.heads, disk.cylinders, disk.rpm
            )],
        ),
    }
    let published = profile.published.iter();
    let published =
        published.map(|one| format!("{}: {}", one.figure.name(), one.figure.show(one.value)));
    list("published", published.collect());
    list("sources", profile.sources.iter().map(|&one| one.to_owned()).collect());
    list("assumed", profile.assumptions.iter().map(|&one| one.to_owned()).collect());
    text
}

fn json_of(profile: &Profile) -> Value {
    let published = profile.published.iter().map(|one| {
        json!({
            "figure": one.figure.name(),
            "value": one.value,
            "shown": one.figure.show(one.value),
        })
    });
    json!({
        "name": profile.name,
        "scheme": scheme(profile),
        "title": profile.title,
        "capacity_bytes": capacity(profile),
        "media_bytes": profile.ssd().map(esker_flash::Parameters::media_bytes),
        "published": published.collect::<Vec<_>>(),
        "sources": profile.sources,
        "assumptions": profile.assumptions,
        "in_drive": profile.in_drive.as_deref().map(json_of),
    })
}
