//! Arguments as people write them. Each parser answers with a sentence that says the right form.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use esker_base::units::human_bytes;
use esker_bench::Workload;
use esker_kv::{Kvdb, Policy};
use esker_stack::Spec;

use crate::host::memory_of_machine;

/// An address to listen on, or a port of this machine alone.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let address = port.or_else(|_| text.parse());
    address.map_err(|_| {
        "say a port of 127.0.0.1, or an address with a port: 9421, [::1]:9421".to_owned()
    })
}

/// Values that `parser` takes, from `least` to `most`, both as people write them.
pub(crate) fn within<T: PartialOrd + 'static>(
    parser: fn(&str) -> Result<T, String>,
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = parser(text)?;
        match value >= parser(least)? && value <= parser(most)? {
            true => Ok(value),
            false => Err(format!("'{text}' is out of range; give {least} to {most}")),
        }
    }
}

/// Values that `parser` takes, from `least` on, as people write it.
pub(crate) fn at_least<T: PartialOrd + 'static>(
    parser: fn(&str) -> Result<T, String>,
    least: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = parser(text)?;
        match value >= parser(least)? {
            true => Ok(value),
            false => Err(format!("'{text}' is too little; give {least} or more")),
        }
    }
}

/// A number from `least` to `most`.
pub(crate) fn number<T>(
    least: T,
    most: T,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| match text.trim().parse() {
        Ok(number) if least <= number && number <= most => Ok(number),
        _ => Err(format!("'{text}' is no such number; give {least} to {most}")),
    }
}

/// A seed of random choices.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    number(0, u64::MAX)(text)
}

/// A size in bytes that is not zero.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    match esker_base::units::parse_bytes(text)? {
        0 => Err("0 bytes are too few; give 1 or more, for example 64MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A size of memory: no more than the machine has.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    fits(bytes(text)?)
}

/// The same, for which zero has a meaning.
pub(crate) fn memory_or_zero(text: &str) -> Result<u64, String> {
    fits(bytes_or_zero(text)?)
}

fn fits(bytes: u64) -> Result<u64, String> {
    match memory_of_machine() {
        Some(all) if bytes > all => Err(format!(
            "{} are more than this machine's memory; give at most {}",
            human_bytes(bytes),
            human_bytes(all)
        )),
        _ => Ok(bytes),
    }
}

/// Bytes a second, of which a limit that is not zero lets a block through.
pub(crate) fn bandwidth(text: &str) -> Result<u64, String> {
    match bytes_or_zero(text)? {
        1..4096 => Err(format!(
            "'{text}' a second let no block through; give 4KiB or more, or 0 for no limit"
        )),
        bytes => Ok(bytes),
    }
}

/// A size in bytes for which zero has a meaning.
pub(crate) fn bytes_or_zero(text: &str) -> Result<u64, String> {
    esker_base::units::parse_bytes(text)
}

/// A count of at least 1: `1000000`, `1,000,000`, `1_000_000`, `500k`, `2M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a count of 1 or more; write for example 1000000 or 1M");
    let plain: String = text.chars().filter(|c| !",_".contains(*c)).collect();
    let (digits, scale) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1_000),
        Some((at, 'M')) => (&plain[..at], 1_000_000),
        Some((at, 'G')) => (&plain[..at], 1_000_000_000),
        _ => (&plain[..], 1u64),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(scale) {
        Some(count) if count > 0 => Ok(count),
        _ => Err(wrong()),
    }
}

/// A count for which zero has a meaning.
pub(crate) fn count_or_zero(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { count(text) }
}

/// A count of at least 1, of things in memory.
pub(crate) fn length(text: &str) -> Result<usize, String> {
    usize::try_from(count(text)?).map_err(|error| error.to_string())
}

/// A count of at least 1 that fits 32 bits.
pub(crate) fn small_count(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?)
        .map_err(|_| format!("'{text}' are too many; give 1 to {}", u32::MAX))
}

/// A size, and a weight that is 1 where nothing is said: `64KiB:3`.
pub(crate) fn weighted_size(text: &str) -> Result<(u64, u32), String> {
    let (size, weight) = text.split_once(':').unwrap_or((text, "1"));
    let weight = weight.trim().parse().ok().filter(|weight| *weight > 0);
    let weight = weight.ok_or_else(|| format!("'{text}': write for example 64KiB or 64KiB:3"))?;
    Ok((bytes(size)?, weight))
}

/// A factor above 0.
pub(crate) fn times(text: &str) -> Result<f64, String> {
    number(1e-6, 1e6)(text)
}

/// How many threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let threads = length(text).ok().filter(|threads| *threads <= 4096);
    threads.ok_or_else(|| format!("'{text}' threads cannot run; give 1 to 4096"))
}

/// A span of time: `500us`, `200ms`, `0.5s`, `90s`, `10min`, `2h`, `7d`, or a number of what `plain` is.
fn time_of(text: &str, plain: Duration) -> Result<Duration, String> {
    const UNITS: [(&str, Duration); 6] = [
        ("us", Duration::from_micros(1)),
        ("ms", Duration::from_millis(1)),
        ("s", Duration::from_secs(1)),
        ("min", Duration::from_secs(60)),
        ("h", Duration::from_secs(3600)),
        ("d", DAY),
    ];
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = match &text[digits.len()..] {
        "" => Some(plain),
        name => UNITS.iter().find(|(unit, _)| *unit == name).map(|(_, unit)| *unit),
    };
    let span = unit.and_then(|unit| {
        let seconds = digits.trim_end().parse::<f64>().ok()? * unit.as_secs_f64();
        (seconds >= 0.0).then_some(seconds)
    });
    let seconds = span.ok_or_else(|| {
        format!("'{text}' is no span of time; write for example 500ms, 10s, 10min, 2h or 7d")
    })?;
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= MOST_DAYS * DAY);
    span.ok_or_else(|| {
        format!("'{text}' is longer than {MOST_DAYS}d; give at most that, for example 10min or 7d")
    })
}

const DAY: Duration = Duration::from_secs(86_400);
/// The longest span of time.
const MOST_DAYS: u32 = 36_500;
const NO_TIME: &str = "no time at all is too short; give more than 0, for example 10s";

/// A span of time; a plain number is of seconds.
pub(crate) fn time_or_zero(text: &str) -> Result<Duration, String> {
    time_of(text, Duration::from_secs(1))
}

/// A span of time that is not zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match time_or_zero(text)? {
        Duration::ZERO => Err(NO_TIME.to_owned()),
        span => Ok(span),
    }
}

/// The largest id of a controller (NVMe base specification, 3.1.2).
const MOST_CONTROLLERS: u16 = 65_519;

/// The ids of controllers, from the first to the last.
pub(crate) fn controller_ids(text: &str) -> Result<std::ops::RangeInclusive<u16>, String> {
    let ends = text.split_once('-');
    let range = ends.and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
    let sensible = range.filter(|ids: &std::ops::RangeInclusive<u16>| {
        !ids.is_empty() && *ids.start() > 0 && *ids.end() <= MOST_CONTROLLERS
    });
    sensible.ok_or_else(|| {
        format!(
            "'{text}' is no range of ids from 1 to {MOST_CONTROLLERS}; write for example 1-1000"
        )
    })
}

/// A span of time of at least a day; a plain number is of days.
pub(crate) fn days(text: &str) -> Result<Duration, String> {
    let span = time_of(text, DAY)?;
    let least = (span >= DAY).then_some(span);
    least.ok_or_else(|| format!("'{text}' is less than a day; give 1d or more, for example 7d"))
}

/// A span of time in whole milliseconds, of which a plain number is.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    let span = time_of(text, Duration::from_millis(1))?;
    u64::try_from(span.as_millis()).map_err(|error| error.to_string())
}

/// A span of time in whole seconds.
pub(crate) fn whole_seconds(text: &str) -> Result<u64, String> {
    let span = time_or_zero(text)?;
    let whole = (span.subsec_nanos() == 0).then_some(span.as_secs());
    whole.ok_or_else(|| {
        format!("'{text}' is no number of whole seconds; give 0s or more, for example 90s")
    })
}

/// The same, at least one.
pub(crate) fn some_seconds(text: &str) -> Result<u32, String> {
    let seconds = match whole_seconds(text)? {
        0 => return Err(NO_TIME.to_owned()),
        seconds => seconds,
    };
    u32::try_from(seconds).map_err(|error| error.to_string())
}

/// A span of time in whole seconds.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    whole_seconds(text).map(Duration::from_secs)
}

/// How long something may be silent: whole seconds, at least one.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    some_seconds(text).map(|seconds| Duration::from_secs(seconds.into()))
}

/// A span of time of at most a second; a plain number is of microseconds.
pub(crate) fn microseconds(text: &str) -> Result<Duration, String> {
    let span = time_of(text, Duration::from_micros(1))?;
    let short = (span <= Duration::from_secs(1)).then_some(span);
    short.ok_or_else(|| format!("'{text}' is more than a second; give 0 to 1s, for example 50us"))
}

/// A rate in operations a second: `50000`, `50k`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = count(text).ok().filter(|rate| *rate <= 1_000_000_000);
    rate.map(|rate| rate as f64).ok_or_else(|| {
        format!("'{text}' is not a rate of 1 to 1G operations a second; write for example 50k")
    })
}

/// The skew of a zipfian distribution.
pub(crate) fn theta(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(theta) if theta > 0.0 && theta < 1.0 => Ok(theta),
        _ => Err(format!("'{text}' is not a skew; give one between 0 and 1, such as YCSB's 0.99")),
    }
}

/// One of the workloads of YCSB.
pub(crate) fn workload(name: &str) -> Result<Workload, String> {
    Workload::preset(name)
        .ok_or_else(|| format!("'{name}' is no workload; use load, a, b, c, d, e or f"))
}

/// A KVS to be created with the database: `NAME` or `NAME:POLICY`. The engine refuses the same names, but
/// then the database is there already.
pub(crate) fn kvs(text: &str) -> Result<(String, Policy), String> {
    let (name, policy) = match text.split_once(':') {
        Some((name, policy)) => (name, policy.parse()?),
        None => (text, Policy::default()),
    };
    Kvdb::check_kvs_name(name).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), policy))
}

/// Where a media class is to live.
#[derive(Clone, Debug)]
pub(crate) enum Medium {
    /// A directory, a new file, or a raw block device.
    Path(PathBuf),
    /// A device of another kind.
    Device(Box<Spec>),
}

impl Medium {
    pub(crate) fn parse(text: &str) -> Result<Medium, String> {
        match Spec::has_scheme(text) {
            true => Ok(Medium::Device(Box::new(spec(text)?))),
            false => Ok(Medium::Path(text.into())),
        }
    }
}

/// A device specification.
pub(crate) fn spec(text: &str) -> Result<Spec, String> {
    text.parse().map_err(|error: esker_stack::StackError| error.to_string())
}

/// Where a class is, or is to be, if anywhere.
#[derive(Clone, Debug)]
pub(crate) enum Staging {
    /// In the database's own directory.
    Inside,
    /// Elsewhere.
    At(Medium),
    /// Nowhere.
    None,
}

impl Staging {
    pub(crate) fn parse(text: &str) -> Result<Staging, String> {
        Ok(match text {
            "" => Staging::Inside,
            "none" => Staging::None,
            text => Staging::At(Medium::parse(text)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_of_loopback() {
        assert_eq!(listen("9421").unwrap().to_string(), "127.0.0.1:9421");
        assert_eq!(listen("[::1]:9421").unwrap().to_string(), "[::1]:9421");
        for wrong in ["localhost", "65536", "127.0.0.1", ""] {
            assert!(listen(wrong).unwrap_err().contains("127.0.0.1"), "{wrong}");
        }
    }

    #[test]
    fn counts_read_back_as_people_write_them() {
        let texts = ["1", "1,000", "1_000_000", "500k", "2M"];
        let counts = texts.map(|text| count(text).unwrap());
        assert_eq!(counts, [1, 1_000, 1_000_000, 500_000, 2_000_000]);
        for wrong in ["0", "-1", "", "k", "1.5M", "many", "99999999999G", "0M"] {
            assert!(count(wrong).unwrap_err().contains("not a count"), "{wrong}");
        }
    }

    #[test]
    fn times_have_units_and_are_not_negative() {
        assert_eq!(time("0.5").unwrap(), Duration::from_millis(500));
        for (text, millis) in [
            ("2", 2_000),
            ("2s", 2_000),
            ("250ms", 250),
            ("1500us", 1),
            ("0.5 h", 1_800_000),
            ("10min", 600_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(time(text).unwrap().as_millis(), millis, "{text}");
        }
        assert_eq!(time_or_zero("0").unwrap(), Duration::ZERO);
        assert_eq!(time_or_zero("36500d").unwrap(), DAY * 36_500);
        for wrong in
            ["-1", "inf", "NaN", "soon", "1e300", "", "s", "1 week", "10m", "36501d", "1S", "1µs"]
        {
            assert!(time(wrong).unwrap_err().contains("10min"), "{wrong}");
        }
        assert!(time("0ms").unwrap_err().contains("too short"));
        assert_eq!((whole_seconds("0"), whole_seconds("1.5min")), (Ok(0), Ok(90)));
        assert!(whole_seconds("1500ms").unwrap_err().contains("whole seconds"));
        assert_eq!(some_seconds("2min"), Ok(120));
        assert!(some_seconds("0").is_err() && patience("0s").is_err() && patience("0.5").is_err());
        assert_eq!((days("30"), days("36h")), (Ok(DAY * 30), Ok(DAY * 3 / 2)));
        assert!(days("5s").unwrap_err().contains("less than a day"));
        assert_eq!(microseconds("50").unwrap(), Duration::from_micros(50));
        assert_eq!(microseconds("1ms").unwrap(), Duration::from_millis(1));
        assert_eq!(microseconds("0us").unwrap(), Duration::ZERO);
        for wrong in ["-1", "1000001", "2s", ""] {
            assert!(microseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_kvs_has_the_default_policy_unless_it_names_one() {
        assert_eq!(kvs("users").unwrap(), ("users".to_owned(), Policy::default()));
        assert_eq!(kvs("users:capacity-only").unwrap().1, Policy::CAPACITY_ONLY);
        assert!(kvs("users:fast").unwrap_err().contains("use one of staging-max-capacity"));
        for wrong in ["", "a b", ":capacity-only", "a/b", &"k".repeat(256)] {
            assert!(kvs(wrong).unwrap_err().contains("1 to 255 letters"), "{wrong}");
        }
        assert_eq!(kvs(&"k".repeat(255)).unwrap().0.len(), 255);
    }
}
