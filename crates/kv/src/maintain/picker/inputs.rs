//! Inputs of the picker: the facts about an engine at one moment, for one view.

use crate::compaction::window::Windows;
use crate::engine::job::Job;
use crate::engine::shared::Engine;
use crate::maintain::picker::Picker;
use crate::maintain::picker::room::Room;
use crate::tree::view::View;

impl<'v> Picker<'v> {
    /// A picker of the next step, in a view.
    pub(crate) fn new(engine: &'v Engine, view: &'v View) -> Picker<'v> {
        let is_much = engine.budget.miss_rate().is_much();
        Picker {
            view,
            tuning: &engine.tuning,
            room: Room::on(&engine.classes),
            replay_from: engine.log.replay_from().id,
            now_ms: engine.wall_clock.now_ms(),
            space_percent: engine.options.space_percent(),
            is_quiet: engine.pacer.is_quiet(),
            spill_most: if is_much { spill_of_one_window(engine, view) } else { None },
            emptying: engine.scheduler.manual.emptying(),
        }
    }
}

/// The most that a spill takes in whose values are in the log only, in bytes: one window that has all of the memory, or
/// one of two that overlap where the roots hold several spills. None where it holds less than a spill: small ones would
/// scatter a leaf's values.
fn spill_of_one_window(engine: &Engine, view: &View) -> Option<u64> {
    let spill_bytes = engine.pacer.spill_bytes();
    let (of_two, alone) = Windows::most(engine.budget.spill_windows());
    if view.root_bytes() > 3 * spill_bytes {
        Some(of_two)
    } else {
        Some(alone).filter(|most| *most >= spill_bytes)
    }
}

/// The steps that are worth doing now, as [`Picker::pick`] has them. Writers learn by how much the media exceed the goal
/// for space.
pub(crate) fn pick(engine: &Engine, view: &View) -> Vec<Job> {
    let picker = Picker::new(engine, view);
    // Staging that has room for more is no reason to hold garbage.
    if view.root_bytes() > engine.pacer.spill_bytes() && engine.classes.staging_room() > 0 {
        let asked = engine.scheduler.manual.goal();
        let is_asked = engine.scheduler.manual.is_active() && asked > 0;
        let goal = if is_asked { asked.min(picker.space_percent) } else { picker.space_percent };
        let over = picker.space().percent().saturating_sub(goal);
        engine.pacer.set_over_goal(over);
    }
    picker.pick()
}
