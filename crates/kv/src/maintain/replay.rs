//! Moving the log and the beginning of its replay on, ahead of need.

use crate::engine::shared::Engine;
use crate::maintain::steps;
use crate::media::space::Purpose;
use crate::omf::manifest::Edit;
use crate::types::error::Result;
use crate::types::ids::BlockId;
use crate::values::block::ValueBlock;

/// The log goes on in segments that may stay: the one that was opened ahead, too.
pub(crate) fn leave_segments(engine: &Engine, stays: impl Fn(&ValueBlock) -> bool) -> Result<()> {
    loop {
        let mut log = engine.log.wait_for_segment(|| engine.life.check_running())?;
        if log.segments().all(|segment| stays(segment)) {
            return Ok(());
        }
        engine.life.check_running()?;
        // It stays until the manifest lets go of it.
        engine.view.load().active.refer_to(log.segment());
        if !log.pass_over() {
            let segment = engine.open_segment(Purpose::User, 0)?;
            log.set_spare(segment);
        }
    }
}

/// Replay begins in the log's segment when there is nothing to replay before it.
pub(crate) fn advance_replay(engine: &Engine) -> Result<()> {
    let _lane = engine.scheduler.ingest_lane();
    let (seqno, first, active) = {
        let log = engine.log.tail();
        let view = engine.view.load();
        if !view.active.is_empty() || !view.frozen.is_empty() {
            // Written meanwhile, to where the log is now: the next ingest says so.
            return Ok(());
        }
        (log.last_seqno(), log.segment().clone(), view.active.clone())
    };
    engine.commit(vec![Edit::Ingested { seqno, first: first.id }])?;
    // It was empty: whatever it holds by now lies in that segment, or behind it.
    active.forget_blocks_before(first.id);
    engine.log.set_replay_from(first);
    Ok(())
}

/// Leaves the log segments that there are, and has everything in them ingested: the next compaction moves it.
pub(crate) fn leave_log(engine: &Engine) -> Result<()> {
    let newest = BlockId(engine.ids.last());
    leave_segments(engine, |segment| segment.id > newest)?;
    steps::ingest_all(engine)?;
    advance_replay(engine)
}
