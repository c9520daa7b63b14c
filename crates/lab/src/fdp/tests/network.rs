//! The experiment over the network, small.

use super::tiny;
use crate::LabError;
use crate::Report;
use crate::fdp::FdpOptions;
use crate::fdp::network::{NetworkFigures, OverNetwork, Pair, Planned, Workload, workloads};

/// Small stores without placement and with it, and small KVDBs with it.
fn small() -> Vec<Planned> {
    let mut all = workloads(&FdpOptions { engine: true, ..tiny() });
    for planned in &mut all {
        match &mut planned.workload {
            Workload::Stores(of) => (of.drive.bytes, of.drive.units) = (32 << 20, 64),
            Workload::Engine(of) => {
                (of.drive_bytes, of.units, of.fill) = (64 << 20, 128, 0.4);
            }
        }
    }
    all.remove(4);
    all
}

fn report(pairs: Vec<Pair>) -> Report<OverNetwork> {
    Report::of(NetworkFigures { pairs })
}

#[test]
#[ignore = "a minute with optimisation: cargo test --release -p esker-lab -- --ignored"]
fn the_network_changes_nothing_that_a_drive_writes() {
    let planned = small();
    let pairs: Vec<Pair> =
        planned.iter().map(|planned| planned.run(&mut |_| true).unwrap()).collect();
    for pair in &pairs {
        assert!(pair.is_equal(), "{}: {:?} {:?}", pair.name, pair.in_process, pair.over_network);
        let host = pair.over_network.host_bytes;
        assert!(pair.network_bytes >= host, "{} of {host}", pair.network_bytes);
    }
    for both in pairs.chunks_exact(2) {
        let [shared, placed] =
            [&both[0], &both[1]].map(|pair| pair.over_network.write_amplification);
        assert!(placed < 1.06 && shared > placed + 0.03, "{}: {shared} {placed}", both[0].name);
    }
    let fine = report(pairs.clone());
    fine.figures.check().unwrap();
    assert_eq!(fine.page().text().matches("  equal  ").count(), pairs.len());
    // The pair as it would be if placement ids were lost on the way.
    let lost = Pair { over_network: pairs[0].over_network.clone(), ..pairs[1].clone() };
    let wrong = report(vec![pairs[0].clone(), lost]);
    let error = wrong.figures.check().unwrap_err();
    assert!(matches!(&error, LabError::Differs { name, .. } if name.ends_with("handle each")));
    assert!(wrong.page().text().contains("DIFFERENT"), "{}", wrong.page().text());
    let back: NetworkFigures = serde_json::from_value(fine.json()).unwrap();
    assert_eq!(back.pairs.len(), pairs.len());
}
