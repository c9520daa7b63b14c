//! A bar on the terminal with the time that is left, for work that lasts over two seconds.
//!
//! Invariants
//! 1. Nothing is drawn where standard error is no terminal, with `--quiet`, or on a terminal that cannot move its cursor.
//! 2. A bar leaves its line empty, whatever ends the work.
//! 3. A call that draws nothing costs a lock and a look at the clock.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_base::progress::Unit;
use esker_base::units::human_bytes;
use esker_base::{Clock, Nanos, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use crate::failure::Result;
use crate::figures::grouped;
use crate::signals::Interrupt;
use crate::stderr;

/// Work that is shorter draws nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// The bar is drawn anew so often.
const STEP: Duration = Duration::from_millis(100);
/// The length of a bar that knows a share.
const LENGTH: u64 = 1000;
/// Templates of work whose end is known, and of other work.
const KNOWN: &str = "  {bar:20} {percent:>3} %  {wide_msg}";
const UNKNOWN: &str = "  {wide_msg}";
/// The share of the work below which the time left is a guess.
const LEAST_SHARE: f64 = 0.001;

/// A bar; clones draw the same one.
#[derive(Clone)]
pub(crate) struct Bar(Option<Arc<Mutex<Drawing>>>);

struct Drawing {
    clock: Clock,
    began: Nanos,
    /// When it may be drawn next.
    next: Nanos,
    part: Part,
    shown: Option<ProgressBar>,
    has_ended: bool,
}

/// A part of the work, whose end is foretold from its own pace.
#[derive(Default)]
struct Part {
    name: String,
    began: Nanos,
    /// The share that was done when it began.
    share: f64,
}

impl Bar {
    /// A bar for work that begins now.
    pub(crate) fn new() -> Bar {
        if stderr::is_quiet() || !io::stderr().is_terminal() {
            return Bar(None);
        }
        let clock = Clock::real();
        let began = clock.now();
        let (part, shown) = (Part::default(), None);
        Bar(Some(Arc::new(Mutex::new(Drawing {
            clock,
            began,
            next: began,
            part,
            shown,
            has_ended: false,
        }))))
    }

    /// Shows how far the engine is.
    pub(crate) fn progress(&self, progress: &Progress) {
        let &Progress { phase, done, total, unit, .. } = progress;
        let share = total.map(|total| done as f64 / total.max(1) as f64);
        self.draw(phase, share, || {
            let amounts = |count: u64| match unit {
                Unit::Bytes => human_bytes(count),
                _ => grouped(count),
            };
            let noun = match unit {
                Unit::Records => " records",
                Unit::Leaves => " leaves",
                _ => "",
            };
            let done = total.map_or(done, |total| done.min(total));
            let all = total.map_or(String::new(), |total| format!(" of {}", amounts(total)));
            format!("{phase}, {}{all}{noun}", amounts(done))
        });
    }

    /// Shows a share of a part of the work, from 0 to 1, and says more of it.
    pub(crate) fn share(&self, part: &str, share: f64, text: impl FnOnce() -> String) {
        self.draw(part, Some(share), text);
    }

    /// Shows that so many of all steps are done, and which one goes on.
    pub(crate) fn step(&self, done: usize, count: usize, step: &str) {
        let share = done as f64 / count.max(1) as f64;
        self.draw("", Some(share), || format!("{} of {count}: {step}", done + 1));
    }

    /// Shows work without a known end.
    pub(crate) fn say(&self, part: &str, text: impl FnOnce() -> String) {
        self.draw(part, None, text);
    }

    fn draw(&self, part: &str, share: Option<f64>, text: impl FnOnce() -> String) {
        if let Some(drawing) = &self.0 {
            drawing.lock().draw(part, share, text);
        }
    }

    /// Empties the line: something else is said. A later part is drawn again.
    pub(crate) fn clear(&self) {
        if let Some(drawing) = &self.0 {
            drawing.lock().clear();
        }
    }

    /// Empties the line, for good.
    pub(crate) fn end(&self) {
        if let Some(drawing) = &self.0 {
            let mut drawing = drawing.lock();
            drawing.clear();
            drawing.has_ended = true;
        }
    }
}

impl Drawing {
    fn draw(&mut self, part: &str, share: Option<f64>, text: impl FnOnce() -> String) {
        let now = self.clock.now();
        if now < self.next || self.has_ended {
            return;
        }
        self.next = now + STEP;
        if self.part.name != part || share.unwrap_or(0.0) < self.part.share {
            let name = part.to_owned();
            self.part = Part { name, began: now, share: share.unwrap_or(0.0) };
        }
        if now.since(self.began) < PATIENCE {
            return;
        }
        let mut text = text();
        let left = share.and_then(|share| left(now.since(self.part.began), self.part.share, share));
        if let Some(left) = left {
            text.push_str(&format!(", {} left", spoken(left)));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 to LENGTH
        let position = (share.unwrap_or(0.0).clamp(0.0, 1.0) * LENGTH as f64) as u64;
        // Nothing of this draws but the last line: the terminal never shows half of it.
        let bar = self.shown.get_or_insert_with(new_bar).clone();
        let bar = bar.with_message(text).with_position(position);
        bar.set_style(style(if share.is_some() { KNOWN } else { UNKNOWN }));
        stderr::IS_DRAWN.store(!bar.is_hidden(), Ordering::Relaxed);
        bar.force_draw();
    }

    fn clear(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
            stderr::IS_DRAWN.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Drawing {
    fn drop(&mut self) {
        self.clear();
    }
}

fn new_bar() -> ProgressBar {
    ProgressBar::with_draw_target(Some(LENGTH), ProgressDrawTarget::stderr())
}

fn style(template: &str) -> ProgressStyle {
    // ASCII, without colours: any terminal shows it.
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// How long a part goes on that came from one share to another in so long; `None` as long as that is a guess.
fn left(passed: Duration, from: f64, to: f64) -> Option<Duration> {
    let done = to - from;
    if done < LEAST_SHARE {
        return None;
    }
    Duration::try_from_secs_f64(passed.as_secs_f64() * (1.0 - to).max(0.0) / done).ok()
}

/// A span in its two largest units.
fn spoken(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Work of the engine that is drawn, and called off by the signals that ask for its end.
pub(crate) struct Watch {
    pub(crate) bar: Bar,
    pub(crate) interrupt: Interrupt,
}

impl Watch {
    /// Work that begins now.
    pub(crate) fn start() -> Result<Watch> {
        Ok(Watch { interrupt: Interrupt::catch()?, bar: Bar::new() })
    }

    /// The observer of the work; it does nothing once this is dropped.
    pub(crate) fn observer(
        &self,
    ) -> impl FnMut(&Progress) -> ControlFlow<()> + Send + 'static + use<> {
        let (bar, has_come) = (self.bar.clone(), self.interrupt.flag());
        move |progress: &Progress| {
            if has_come.load(Ordering::Relaxed) {
                bar.end();
                return ControlFlow::Break(());
            }
            bar.progress(progress);
            ControlFlow::Continue(())
        }
    }

    /// As [`Interrupt::outcome`].
    pub(crate) fn outcome(&self, kept: &str) -> Result {
        self.bar.clear();
        self.interrupt.outcome(kept)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_the_pace_of_the_part() {
        let ten = Duration::from_secs(10);
        assert_eq!(left(ten, 0.0, 0.25), Some(Duration::from_secs(30)));
        assert_eq!(left(ten, 0.5, 0.75), Some(ten));
        assert_eq!(left(ten, 0.0, 1.2), Some(Duration::ZERO));
        assert_eq!(left(ten, 0.5, 0.5), None);
    }

    #[test]
    fn span_is_spoken_in_two_units() {
        let spoken = |seconds| spoken(Duration::from_secs(seconds));
        assert_eq!([spoken(59), spoken(61), spoken(7261)], ["59 s", "1 min 1 s", "2 h 1 min"]);
    }
}
