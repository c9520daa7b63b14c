//! How fast the translation layer counts: uniform random writes to a 64 GiB drive of 4 KiB pages
//! with 15 % over-provisioning, on one core, in the steady state.
//!
//! `cargo bench -p esker-flash --bench counting`

use esker_base::{Clock, Rng};
use esker_device::fdp::Isolation;
use esker_flash::ftl::{Cleaning, CleaningPace, Counting, Frontier, Ftl, FtlOptions, LogicalPage};

const PAGES: u32 = 16 << 20;
const UNIT_PAGES: u32 = PAGES / 1024;
const BATCH: usize = 256;

fn main() {
    let options = FtlOptions {
        logical_pages: PAGES,
        unit_pages: UNIT_PAGES,
        units: 0,
        groups: 1,
        handles: vec![Isolation::Initially],
        cleaning: Cleaning::Greedy,
        frontier: Frontier::Separate,
        pace: CleaningPace::Steady,
        wear_spread: Some(50),
        seed: 1,
    };
    let mut ftl = Ftl::new(options.with_over_provisioning(0.15)).expect("valid options");
    #[allow(clippy::cast_precision_loss)]
    let per_page = ftl.map_bytes() as f64 / f64::from(PAGES);
    println!("64 GiB in pages of 4 KiB, 15 % over-provisioning: {per_page:.2} bytes of map a page");
    ftl.write(LogicalPage(0), PAGES, 0, &mut Counting);
    let mut rng = Rng::new(7);
    let mut pages = [LogicalPage(0); BATCH];
    let mut run = |ftl: &mut Ftl, writes: u32| {
        for _ in 0..writes / 256 {
            for page in &mut pages {
                *page =
                    LogicalPage(u32::try_from(rng.below(u64::from(PAGES))).expect("below 2^32"));
            }
            ftl.write_each(&pages, 0, &mut Counting);
        }
    };
    run(&mut ftl, 4 * PAGES);
    let clock = Clock::real();
    let mut rates: Vec<f64> = (0..7)
        .map(|_| {
            let (start, before) = (clock.now(), ftl.counts());
            run(&mut ftl, PAGES);
            let seconds = (clock.now() - start).as_secs_f64();
            let counts = ftl.counts().since(&before);
            #[allow(clippy::cast_precision_loss)]
            let (host, media) = (counts.host as f64 / seconds, counts.media() as f64 / seconds);
            println!(
                "{:6.1} M host page writes/s, {:6.1} M media page writes/s, WAF {:.4}",
                host / 1e6,
                media / 1e6,
                counts.write_amplification()
            );
            host / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("median {:.1} M host page writes a second", rates[rates.len() / 2]);
}
