//! The stages in which a slow volume waits, and the cure of each.

use esker_base::units::{counted, human_bytes};
use esker_volume::{Status, VolumeInfo, VolumeSpace};

use super::answer::{ExplainView, StatsView};

/// From how many percent of the space on cleaning competes with users.
const FULL_PERCENT: u64 = 85;

/// Explains the latencies of a volume, and the space that its ancestors hold, if it has some.
pub(crate) fn volume(
    status: &Status,
    info: &VolumeInfo,
    space: Option<&VolumeSpace>,
    stats: StatsView,
) -> ExplainView {
    let slowest = stats.stages.iter().max_by_key(|stage| stage.latency.sum_ns);
    let slowest = slowest.filter(|stage| stage.latency.sum_ns > 0).map(|stage| stage.stage.clone());
    let mut findings = Vec::new();
    if let Some(stage) = &slowest {
        findings.push(finding(stage, status, info));
    }
    let pool = &status.name;
    let [_, one, two, more] = status.segments;
    let lost = one + two + more;
    if lost > 0 {
        findings.push(format!(
            "{} lost chunks: reads of them are computed from parities, and moving them takes bandwidth; \
             see `esker pool status {pool}`",
            if lost == 1 { "1 segment has".to_owned() } else { format!("{lost} segments have") }
        ));
    }
    if status.scrub.as_ref().is_some_and(|scrub| scrub.is_running) {
        findings.push("A scrub reads all drives; it ends by itself".to_owned());
    }
    let percent = status.space.live.saturating_mul(100) / status.space.usable.max(1);
    if percent >= FULL_PERCENT {
        findings.push(format!(
            "{percent} % of the space is used: cleaning writes more the fuller a pool is; `esker pool add {pool} DEVICE`, \
             or delete"
        ));
    }
    if let Some(space) = space {
        let (count, name) = (info.ancestors, &info.name);
        findings.push(format!(
            "{} of its {} lie in {count} ancestors: volumes, deleted or not, that it is a clone of; {} more \
             there nobody shows any more, and they are freed within a minute; see `esker volume du {pool}/{name}`",
            human_bytes(space.inherited),
            human_bytes(space.stored),
            human_bytes(space.unswept)
        ));
    }
    if stats.errors > 0 {
        findings.push(format!("{} failed", counted(stats.errors, "command")));
    }
    ExplainView { stats, slowest, findings }
}

fn finding(stage: &str, status: &Status, info: &VolumeInfo) -> String {
    let (pool, volume) = (&status.name, &info.name);
    match stage {
        "limit" => {
            let some = |limit: u64, text: String| if limit == 0 { "any".to_owned() } else { text };
            let options = info.options;
            format!(
                "It waits for its limits most: {} operations and {} bytes a second; \
                 `esker volume limit {pool}/{volume} --iops N --bandwidth SIZE` changes them",
                some(options.iops_limit, options.iops_limit.to_string()),
                some(options.bytes_limit, human_bytes(options.bytes_limit))
            )
        }
        "buffer" => format!(
            "Writes wait most for room in the write buffer, of which {} of {} are used: segments are not written as fast as \
             users write; `esker pool add {pool} DEVICE`, or limit the volume that writes most",
            human_bytes(status.log.used),
            human_bytes(status.log.bytes)
        ),
        "log" => {
            let members: Vec<String> =
                status.log.members.iter().map(|drive| drive.0.to_string()).collect();
            format!(
                "Writes wait most for the write buffer's copies to be durable, which lie on {}: the slower one decides; \
                 `esker pool add {pool} DEVICE --as-buffer` puts them on a faster device",
                members.join(" and ")
            )
        }
        "map" => format!(
            "Most of the time goes to the map: {} of memory, and {} leaves read; serve the pool with more --map",
            human_bytes(status.map_bytes),
            status.map_loads
        ),
        _ => format!(
            "Reads wait most for the drives; `esker pool status {pool}` shows their errors, and `esker volume top {pool}` \
             who asks most"
        ),
    }
}
