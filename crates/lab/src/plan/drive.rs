//! A drive of a plan: a profile, the figures that are another than its, and the whole scaled down.
//!
//! | figure | part of the model that follows it |
//! | --- | --- |
//! | `sequential_read` | the link to the host; the channels, where they carry less |
//! | `sequential_write` | the link, or the time of a program where the dies bound it |
//! | `random_reads` | commands that the firmware starts in a second |
//! | `read_latency_us`, `write_latency_us` | the firmware's time, after all other parts of the way |

use esker_base::units::human_bytes;
use esker_flash::Parameters;
use esker_flash::drive::Media;
use esker_flash::profile::{Kind, Profile};

use super::file::{Drive, Translation};
use super::inputs::{Node, SsdNode};

/// The read and the write whose latency is published.
const SMALL: f64 = 4096.0;
/// Bytes of a terabyte, as drives are sold.
const TB: f64 = 1e12;
/// The largest drive, in bytes.
const MOST_BYTES: u64 = 1 << 50;

/// Facts of a drive for a report and for its life. Sizes are those of the real drive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Its name in the file.
    pub(super) name: String,
    /// The drive's full name.
    pub(super) title: String,
    pub(super) capacity_bytes: f64,
    /// Bytes of all media; none where no wear is modelled.
    pub(super) media_bytes: Option<f64>,
    pub(super) rated_erasures: u32,
    pub(super) price: Option<f64>,
    pub(super) assumptions: Vec<String>,
}

/// A key of a drive, and why it cannot be so.
type Refused = (&'static str, String);

/// The model of a drive, and its facts.
///
/// # Errors
/// The key that is wrong, and why.
pub(super) fn resolve(name: &str, drive: &Drive, scale: f64) -> Result<(Node, Facts), Refused> {
    let profile = Profile::find(&drive.profile).map_err(|e| ("profile", e.to_string()))?;
    if drive.price.is_some() && drive.price_per_tb.is_some() {
        return Err((
            "price_per_tb",
            "the drive has a price already: leave one of them out".to_owned(),
        ));
    }
    if drive.capacity.is_some_and(|bytes| bytes.0 > MOST_BYTES) {
        let why = format!("no drive is larger than {}: correct the size", human_bytes(MOST_BYTES));
        return Err(("capacity", why));
    }
    let made = match &profile.kind {
        Kind::Disk(_) => disk(drive, &profile, scale),
        Kind::Ssd(_) => ssd(drive, &profile, scale),
    };
    let (node, mut facts) = made?;
    name.clone_into(&mut facts.name);
    let by_size = drive.price_per_tb.map(|price| price.0 * facts.capacity_bytes / TB);
    facts.price = drive.price.map(|price| price.0).or(by_size);
    Ok((node, facts))
}

#[allow(clippy::cast_precision_loss)] // a size for people
fn disk(drive: &Drive, profile: &Profile, scale: f64) -> Result<(Node, Facts), Refused> {
    let of_flash = [
        ("over_provisioning", drive.over_provisioning.is_some()),
        ("reclaim_unit", drive.reclaim_unit.is_some()),
        ("placement", drive.placement.is_some()),
        ("translation", drive.translation.is_some()),
        ("rated_erasures", drive.rated_erasures.is_some()),
        ("sequential_read", drive.sequential_read.is_some()),
        ("sequential_write", drive.sequential_write.is_some()),
        ("random_reads", drive.random_reads.is_some()),
        ("read_latency_us", drive.read_latency_us.is_some()),
        ("write_latency_us", drive.write_latency_us.is_some()),
    ];
    if let Some((key, _)) = of_flash.iter().find(|(_, is_said)| *is_said) {
        let why = format!("{} is a disk, which has no such figure: leave it out", profile.name);
        return Err((key, why));
    }
    let Some(capacity) = drive.capacity else {
        return Err((
            "profile",
            "a disk needs a capacity: add for example capacity = \"4TB\"".to_owned(),
        ));
    };
    let Kind::Disk(parameters) = &profile.kind else { unreachable!("a profile of a disk") };
    let parameters = (**parameters)
        .clone()
        .with_capacity(scaled(capacity.0, scale))
        .map_err(|error| ("capacity", error.to_string()))?;
    let facts = Facts {
        name: String::new(),
        title: profile.title.to_owned(),
        capacity_bytes: capacity.0 as f64,
        media_bytes: None,
        rated_erasures: 0,
        price: None,
        assumptions: profile.assumptions.iter().map(|&one| one.to_owned()).collect(),
    };
    Ok((Node::Disk(Box::new(parameters)), facts))
}

/// Bytes divided by the scale.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn scaled(bytes: u64, scale: f64) -> u64 {
    (bytes as f64 / scale).round() as u64
}

#[allow(clippy::cast_precision_loss)] // sizes for people
fn ssd(drive: &Drive, profile: &Profile, scale: f64) -> Result<(Node, Facts), Refused> {
    let sided = sided(drive, profile)?;
    let profile = &sided;
    let whole = profile.ssd().ok_or(("profile", "it is no solid-state drive".to_owned()))?;
    let mut whole = whole.clone();
    rates(drive, &mut whole)?;
    if let Some(erasures) = drive.rated_erasures {
        if whole.media == Media::InPlace || erasures == 0 {
            let why = "a drive that is written in place has no erasures, and any other has one: leave it out";
            return Err(("rated_erasures", why.to_owned()));
        }
        whole.rated_erasures = erasures;
    }
    let capacity = drive.capacity.map_or(whole.capacity, |bytes| bytes.0);
    let advice = |error: esker_flash::FlashError| {
        let key = if drive.capacity.is_some() { "capacity" } else { "profile" };
        (key, format!("scaled down by {scale}: {error}; give another capacity, or another scale"))
    };
    let mut made = whole.scaled(scaled(capacity, scale)).map_err(advice)?;
    if made.media == Media::InPlace
        && (drive.over_provisioning.is_some() || drive.reclaim_unit.is_some())
    {
        let why = "the drive is written in place and has no spare media: leave it out";
        return Err(("over_provisioning", why.to_owned()));
    }
    if let Some(unit) = drive.reclaim_unit {
        made = made.with_units_of(unit.0).map_err(|error| ("reclaim_unit", error.to_string()))?;
    }
    if let Some(share) = drive.over_provisioning {
        if !(0.0..=1.0).contains(&share) {
            let why = format!("{share} is no share of the capacity, 0 to 1: write 0.07 for 7 %");
            return Err(("over_provisioning", why));
        }
        made.units = made.units_for(share);
    }
    let placement = drive.placement.unwrap_or(false);
    if placement && made.configurations.is_empty() {
        let why = format!("{} has no data placement: leave it out", profile.name);
        return Err(("placement", why));
    }
    made.check().map_err(|error| {
        let key = if drive.over_provisioning.is_some() { "over_provisioning" } else { "profile" };
        (key, error.to_string())
    })?;
    let mut assumptions: Vec<String> =
        profile.assumptions.iter().map(|&one| one.to_owned()).collect();
    if drive.over_provisioning.is_some() {
        assumptions.retain(|one| !one.contains("over-provisioning"));
    }
    let is_worn = made.media == Media::Flash && made.rated_erasures > 0;
    let facts = Facts {
        name: String::new(),
        title: profile.title.to_owned(),
        capacity_bytes: capacity as f64,
        media_bytes: is_worn.then(|| capacity as f64 * (1.0 + made.over_provisioning())),
        rated_erasures: made.rated_erasures,
        price: None,
        assumptions,
    };
    Ok((Node::Ssd(Box::new(SsdNode { parameters: made, placement })), facts))
}

/// The profile with the translation layer where it is to be.
fn sided(drive: &Drive, profile: &Profile) -> Result<Profile, Refused> {
    let is_host = profile.ssd().is_some_and(|one| one.timing.host_queues.is_some());
    match (drive.translation, &profile.in_drive) {
        (Some(Translation::Drive), Some(other)) => Ok((**other).clone()),
        (Some(Translation::Host), _) if !is_host => Err((
            "translation",
            format!(
                "the controller of {} translates itself, and no host can: leave it out, or take the profile \
                 host-managed-256",
                profile.name
            ),
        )),
        _ => Ok(profile.clone()),
    }
}

/// Puts published figures in.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rates(drive: &Drive, of: &mut Parameters) -> Result<(), Refused> {
    let dies = f64::from(of.dies);
    let (program, page) = (f64::from(of.program_size), f64::from(of.nand_page_size));
    if let Some(rate) = drive.sequential_read {
        let rate = rate.0;
        let most = dies * page * 1e9 / of.timing.read_ns.max(1) as f64;
        if rate as f64 > most {
            return Err(("sequential_read", too_fast("read", most / 1e6, "MB/s")));
        }
        of.timing.link_read_bytes_per_s = rate;
        let each = rate.div_ceil(u64::from(of.channels));
        of.timing.channel_bytes_per_s = of.timing.channel_bytes_per_s.max(each);
    }
    if let Some(rate) = drive.sequential_write {
        let rate = rate.0;
        let by_dies = dies * program * 1e9 / of.timing.program_ns.max(1) as f64;
        let is_bound_by_dies = by_dies <= of.timing.link_write_bytes_per_s as f64;
        if is_bound_by_dies || rate as f64 > by_dies {
            of.timing.program_ns = (dies * program * 1e9 / rate as f64).round() as u64;
        }
        of.timing.link_write_bytes_per_s = match is_bound_by_dies {
            true => of.timing.link_write_bytes_per_s.max(rate),
            false => rate,
        };
        let each = rate.div_ceil(u64::from(of.channels));
        of.timing.channel_bytes_per_s = of.timing.channel_bytes_per_s.max(each);
    }
    if let Some(rate) = drive.random_reads {
        let most = dies * 1e9 / of.timing.read_ns.max(1) as f64;
        if rate as f64 > most {
            return Err(("random_reads", too_fast("read", most / 1e3, "thousand pages a second")));
        }
        if rate == 0 {
            return Err(("random_reads", "a drive that reads nothing is none".to_owned()));
        }
        of.timing.commands_per_s = rate;
    }
    let timing = &mut of.timing;
    let way = |rate: u64| SMALL * 1e9 / rate.max(1) as f64;
    if let Some(us) = drive.read_latency_us {
        let rest = timing.read_ns as f64
            + way(timing.channel_bytes_per_s)
            + way(timing.link_read_bytes_per_s)
            + timing.host_ns as f64;
        timing.read_firmware_ns = firmware("read_latency_us", us, rest)?;
    }
    if let Some(us) = drive.write_latency_us {
        let rest = way(timing.link_write_bytes_per_s) + timing.host_ns as f64;
        timing.write_firmware_ns = firmware("write_latency_us", us, rest)?;
    }
    Ok(())
}

/// The firmware's part of a latency, in nanoseconds like the rest of the way.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a short span
fn firmware(key: &'static str, us: f64, rest_ns: f64) -> Result<u64, Refused> {
    let left = us * 1e3 - rest_ns;
    if left.is_nan() || !(0.0..1e9).contains(&left) {
        let why = format!(
            "{us} µs is not possible: the media, the channel and the link of this profile take {:.1} µs, and a latency \
             is below a second",
            rest_ns / 1e3
        );
        return Err((key, why));
    }
    Ok(left.round() as u64)
}

fn too_fast(verb: &str, most: f64, unit: &str) -> String {
    format!(
        "the dies of this profile {verb} {most:.0} {unit} at most: begin with the profile of a faster drive"
    )
}
