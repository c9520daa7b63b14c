//! `esker ssd info`.

use std::fmt::Write as _;
use std::path::Path;

use esker_base::units::human_bytes;
use esker_flash::ftl::Writer;
use esker_flash::ssd::{Report, UnitsOf};
use esker_flash::{Parameters, Ssd};
use esker_stack::Model;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::figures::{align, grouped, wrapped};
use crate::output;

/// The most lines of the histogram of wear.
const WEAR_LINES: u32 = 12;

/// Shows a drive.
pub(super) fn show(image: &Path, model: &Model, ssd: &Ssd, json: bool) -> Result {
    let report = ssd.report();
    if json {
        return output::document("esker-ssd-info/1", json_of(model, ssd, &report));
    }
    let title = model.profile.as_ref().map_or("a drive of no known profile", |known| known.title);
    let mut text = format!("{}: {title}, as {}\n\n", image.display(), ssd.name());
    text.push_str(&align(&figures(&report, ssd), 2));
    let _ = write!(text, "\n{}\n{}", units(&report), namespaces(&report));
    if !report.wear.is_empty() {
        let _ = write!(text, "\n{}", wear(&report.wear));
    }
    text.push('\n');
    for assumption in model.assumptions() {
        text.push_str(&wrapped("assumed: ", 9, &assumption));
    }
    output::print(&text)
}

fn figures(report: &Report, ssd: &Ssd) -> Vec<Vec<String>> {
    let parameters = &report.parameters;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    vec![
        row(
            "capacity",
            format!(
                "{}, {} of it in no namespace; LBAs of {} bytes, mapping unit {}",
                human_bytes(parameters.capacity),
                human_bytes(free_bytes(report)),
                parameters.lba_size,
                human_bytes(parameters.page_size.into())
            ),
        ),
        row("media", media(parameters)),
        row("FTL", translation(parameters)),
        row("placement", placement(report)),
        row("host wrote", human_bytes(report.host_written_bytes)),
        row("media wrote", human_bytes(report.media_written_bytes())),
        row("WAF", format!("{:.4}", report.write_amplification())),
        row(
            "life used",
            format!(
                "{:.3} % of {} erasures a unit, on average",
                report.used_percent(),
                grouped(parameters.rated_erasures.into())
            ),
        ),
        row("largest gap", human_bytes(ssd.free_bytes())),
    ]
}

fn free_bytes(report: &Report) -> u64 {
    let taken: u64 = report.namespaces.iter().map(|(_, bytes, _)| bytes).sum();
    report.parameters.capacity.saturating_sub(taken)
}

fn media(parameters: &Parameters) -> String {
    if parameters.units == 0 {
        return format!("{} written in place", human_bytes(parameters.media_bytes()));
    }
    format!(
        "{} in {} reclaim units of {}: {:.1} % over-provisioning",
        human_bytes(parameters.media_bytes()),
        grouped(parameters.units.into()),
        human_bytes(parameters.unit_size),
        parameters.over_provisioning() * 100.0
    )
}

fn translation(parameters: &Parameters) -> String {
    match parameters.timing.host_queues {
        Some(queues) => format!("in the host, which holds back up to {} reads", queues.window),
        None => "in the drive".to_owned(),
    }
}

fn placement(report: &Report) -> String {
    let configurations = &report.parameters.configurations;
    match report.placement {
        None if configurations.is_empty() => "none".to_owned(),
        None => "off".to_owned(),
        Some(index) => {
            let found = configurations.get(index);
            let handles = found.map_or(0, |one| one.handles.len());
            let groups = found.map_or(0, |one| one.groups);
            format!("configuration {index}: reclaim groups {groups}, handles {handles}")
        }
    }
}

fn writer_name(writer: Writer) -> String {
    match writer {
        Writer::Host(handle) => format!("handle {handle}"),
        Writer::Cleaning => "cleaning".to_owned(),
        Writer::CleaningOf(handle) => format!("cleaning of handle {handle}"),
        Writer::Levelling => "levelling".to_owned(),
        Writer::LevellingOf(handle) => format!("levelling of handle {handle}"),
    }
}

/// The share of the pages in these units that is valid, in percent.
fn valid_percent(units: UnitsOf, parameters: &Parameters) -> f64 {
    let pages = u64::from(units.open + units.closed) * parameters.unit_size
        / u64::from(parameters.page_size);
    100.0 * units.valid_pages as f64 / pages.max(1) as f64
}

fn units(report: &Report) -> String {
    if report.parameters.units == 0 {
        return String::new();
    }
    let header = ["units of", "open", "full", "valid"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (writer, units) in &report.writers {
        let valid = valid_percent(*units, &report.parameters);
        rows.push(vec![
            writer_name(*writer),
            grouped(units.open.into()),
            grouped(units.closed.into()),
            format!("{valid:.1} %"),
        ]);
    }
    format!(
        "{}erased and free: {} (cleaning keeps up to {})\n",
        align(&rows, 1),
        grouped(report.free_units.into()),
        grouped(report.reserve_units.into())
    )
}

fn namespaces(report: &Report) -> String {
    if report.namespaces.is_empty() {
        return "no namespaces; make one with `esker ssd namespace create`\n".to_owned();
    }
    let header = ["namespace", "handles", "size"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (id, bytes, handles) in &report.namespaces {
        let handles = match report.placement {
            Some(_) => handles.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
            None => "-".to_owned(),
        };
        rows.push(vec![id.to_string(), handles, human_bytes(*bytes)]);
    }
    align(&rows, 2)
}

/// How many units were erased how often, neighbouring counts together where there are many.
fn wear(counts: &[(u32, u32)]) -> String {
    const BAR: u64 = 40;
    let (least, most) = (counts[0].0, counts[counts.len() - 1].0);
    let step = (most - least + 1).div_ceil(WEAR_LINES).max(1);
    let mut buckets: Vec<(u32, u64)> = Vec::new();
    for (erasures, units) in counts {
        let from = least + (erasures - least) / step * step;
        match buckets.last_mut() {
            Some((known, sum)) if *known == from => *sum += u64::from(*units),
            _ => buckets.push((from, u64::from(*units))),
        }
    }
    let highest = buckets.iter().map(|(_, units)| *units).max().unwrap_or(1);
    let mut rows = vec![["erasures", "units", ""].map(str::to_owned).to_vec()];
    for (from, units) in buckets {
        let range = match step {
            1 => from.to_string(),
            _ => format!("{from} to {}", from + step - 1),
        };
        let bar = "#".repeat(esker_base::units::to_usize((units * BAR).div_ceil(highest)));
        rows.push(vec![range, grouped(units), bar]);
    }
    let width = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
    rows.iter_mut().for_each(|row| row[1] = format!("{:>width$}", row[1]));
    align(&rows, 3)
}

fn json_of(model: &Model, ssd: &Ssd, report: &Report) -> Value {
    let parameters = &report.parameters;
    let writers = report.writers.iter().map(|(writer, units)| {
        json!({
            "writer": writer_name(*writer),
            "open": units.open,
            "closed": units.closed,
            "valid_pages": units.valid_pages,
        })
    });
    let namespaces = report
        .namespaces
        .iter()
        .map(|(id, bytes, handles)| json!({ "nsid": id, "bytes": bytes, "handles": handles }));
    let wear = report.wear.iter().map(|(erasures, units)| json!([erasures, units]));
    json!({
        "name": ssd.name(),
        "profile": model.profile.as_ref().map(|profile| profile.name),
        "title": model.profile.as_ref().map(|profile| profile.title),
        "sources": model.profile.as_ref().map(|profile| profile.sources.clone()),
        "assumptions": model.assumptions(),
        "capacity_bytes": parameters.capacity,
        "free_bytes": free_bytes(report),
        "lba_bytes": parameters.lba_size,
        "page_bytes": parameters.page_size,
        "media_bytes": parameters.media_bytes(),
        "over_provisioning": parameters.over_provisioning(),
        "unit_bytes": parameters.unit_size,
        "units": parameters.units,
        "free_units": report.free_units,
        "reserve_units": report.reserve_units,
        "ftl": if parameters.timing.host_queues.is_some() { "host" } else { "drive" },
        "placement": report.placement,
        "host_written_bytes": report.host_written_bytes,
        "media_written_bytes": report.media_written_bytes(),
        "write_amplification": report.write_amplification(),
        "used_percent": report.used_percent(),
        "rated_erasures": parameters.rated_erasures,
        "writers": writers.collect::<Vec<_>>(),
        "wear": wear.collect::<Vec<_>>(),
        "namespaces": namespaces.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_gathers_neighbouring_counts() {
        let text = wear(&[(0, 10), (1, 20)]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains(&"#".repeat(40)) && text.contains(&"#".repeat(20)), "{text}");
        let many: Vec<(u32, u32)> = (100..1_000).map(|erasures| (erasures, 1)).collect();
        let text = wear(&many);
        assert_eq!(text.lines().count(), 13);
        assert!(text.contains("100 to 174"), "{text}");
    }
}
