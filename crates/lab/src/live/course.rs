//! The requests and bytes of a device, sampled when the page asks.

use std::sync::Arc;

use esker_base::{Clock, Nanos};
use esker_device::{Device, DeviceStats};
use esker_flash::Ssd;
use esker_report::{Axis, Chart, Line, Page, Panel, Panels, Section, Subject, Unit};
use parking_lot::Mutex;

/// The course of a load, as far as pages have asked: without one it has no points.
pub struct LoadCourse {
    device: Arc<dyn Device>,
    model: Option<Ssd>,
    about: String,
    command: String,
    clock: Clock,
    began: Nanos,
    samples: Mutex<Vec<Sample>>,
}

/// A moment of the device.
struct Sample {
    at: Nanos,
    stats: DeviceStats,
    /// Bytes that the host wrote to the drive, and those that its media wrote.
    drive: Option<(u64, u64)>,
}

/// A figure between two moments: a second, or none where it cannot be told.
type Figure = fn(&Sample, &Sample) -> Option<f64>;
/// A panel: the name and the unit of its axis, and its lines.
type Shown = (&'static str, Unit, &'static [(&'static str, Figure)]);

const PANELS: [Shown; 3] = [
    (
        "requests a second",
        Unit::Rate,
        &[
            ("reads", |from, to| rate(from, to, |one| one.reads)),
            ("writes", |from, to| rate(from, to, |one| one.writes)),
            ("discards", |from, to| rate(from, to, |one| one.discards)),
        ],
    ),
    (
        "bytes a second",
        Unit::BytesRate,
        &[
            ("read", |from, to| rate(from, to, |one| one.read_bytes)),
            ("written", |from, to| rate(from, to, |one| one.written_bytes)),
            ("to the medium", |from, to| rate(from, to, |one| one.media_written_bytes)),
        ],
    ),
    ("media bytes for each byte of the host", Unit::Factor, &[("write amplification", amplified)]),
];

fn rate(from: &Sample, to: &Sample, of: fn(&DeviceStats) -> u64) -> Option<f64> {
    let seconds = to.at.since(from.at).as_secs_f64();
    (seconds > 0.0).then(|| of(&to.stats).saturating_sub(of(&from.stats)) as f64 / seconds)
}

fn amplified(from: &Sample, to: &Sample) -> Option<f64> {
    let ((host_from, media_from), (host_to, media_to)) = from.drive.zip(to.drive)?;
    let host = host_to.saturating_sub(host_from);
    (host > 0).then(|| media_to.saturating_sub(media_from) as f64 / host as f64)
}

impl LoadCourse {
    /// The course of a load that begins now; `about` describes the load.
    #[must_use]
    pub fn of(
        device: Arc<dyn Device>,
        model: Option<Ssd>,
        about: String,
        command: String,
    ) -> LoadCourse {
        let clock = Clock::real();
        let (began, samples) = (clock.now(), Mutex::default());
        LoadCourse { device, model, about, command, clock, began, samples }
    }

    fn sample(&self) -> Sample {
        let report = self.model.as_ref().map(Ssd::report);
        let drive = report.map(|report| (report.host_written_bytes, report.media_written_bytes()));
        Sample { at: self.clock.now(), stats: self.device.stats(), drive }
    }
}

impl Subject for LoadCourse {
    fn title(&self) -> String {
        format!("A load on {}", self.device.name())
    }

    fn now(&self, _: u64) -> Option<(u64, Page)> {
        let sample = self.sample();
        let mut samples = self.samples.lock();
        samples.push(sample);
        let version = samples.len() as u64;
        let (first, last) = (samples.first()?, samples.last()?);
        let reads = rate(first, last, |one| one.reads).unwrap_or(0.0);
        let writes = rate(first, last, |one| one.writes).unwrap_or(0.0);
        let seconds = last.at.since(self.began).as_secs_f64();
        let headline = format!(
            "The load has run for {seconds:.0} s, at {} and {} since the page was opened.",
            Unit::Count.show(reads) + " reads",
            Unit::Count.show(writes) + " writes a second"
        );
        let mut page = Page::new(self.title(), headline);
        page.about.clone_from(&self.about);
        page.command.clone_from(&self.command);
        let mut section = Section::new("Over time");
        match chart(&samples, self.began) {
            Some(chart) => section.add(chart),
            None => section.text("The first figures come in a moment."),
        }
        page.sections.push(section);
        Some((version, page))
    }
}

/// Rates between one moment and the next.
fn chart(samples: &[Sample], began: Nanos) -> Option<Chart> {
    let pairs: Vec<(&Sample, &Sample)> =
        samples.windows(2).map(|pair| (&pair[0], &pair[1])).collect();
    let at = |sample: &Sample| sample.at.since(began).as_secs_f64();
    let middles: Vec<f64> =
        pairs.iter().map(|(from, to)| f64::midpoint(at(from), at(to))).collect();
    let panels = PANELS.iter().filter_map(|(name, unit, lines)| {
        let line = |(name, figure): &(&str, Figure)| {
            let values: Vec<Option<f64>> =
                pairs.iter().map(|(from, to)| figure(from, to)).collect();
            let is_shown = values.iter().flatten().any(|value| *value > 0.0);
            is_shown.then(|| Line::slope(*name, values))
        };
        let lines: Vec<Line> = lines.iter().filter_map(line).collect();
        let axis = Axis::linear(*name, *unit);
        (!lines.is_empty()).then(|| Panel::new(axis, middles.clone(), lines))
    });
    let panels: Vec<Panel> = panels.collect();
    let (from, to) = pairs.last()?;
    let bytes = rate(from, to, |one| one.read_bytes + one.written_bytes)?;
    let title = format!("{} of reads and writes now", Unit::BytesRate.show(bytes));
    (!panels.is_empty()).then(|| Chart::new(title, Panels { x: Axis::seconds(), panels }))
}

#[cfg(test)]
mod tests {
    use esker_base::{AlignedBuf, Lba};
    use esker_device::{MemoryDevice, Port};

    use super::*;

    #[test]
    fn course_has_a_point_for_each_time_that_a_page_asks() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("memory", 1 << 20, 512));
        let course = LoadCourse::of(device.clone(), None, String::new(), String::new());
        let (version, page) = course.now(0).unwrap();
        assert!(version == 1 && page.live().contains("The first figures come"));
        let mut port = Port::open(&*device, 1).unwrap();
        port.write(Lba(0), AlignedBuf::zeroed(4096), None).unwrap();
        Clock::real().sleep(std::time::Duration::from_millis(2));
        let (version, page) = course.now(version).unwrap();
        assert_eq!(version, 2);
        let text = serde_json::to_string(&page).unwrap();
        assert!(text.contains("\"writes\"") && !text.contains("\"reads\""), "{text}");
    }
}
