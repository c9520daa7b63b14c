//! Repairs of metadata of which other copies are sound, when a cache is opened.

use crate::copies::{self, Found};
use crate::owner::has_partition_table;
use crate::store::Store;

/// Writes damaged copies of the superblock and of the journal anew. A repair that fails is left to the next opening:
/// sound copies are there. Returns remarks for the user.
pub(super) fn mend(store: &mut Store, found: &Found) -> Vec<String> {
    let mut remarks = Vec::new();
    let flash = store.medium.name().to_owned();
    let had_table = found.damaged.contains(&0)
        && found.damaged.contains(&1)
        && has_partition_table(&mut store.medium).unwrap_or(false);
    let outcome = |repair: Result<(), String>| match repair {
        Ok(()) => "was written anew".to_owned(),
        Err(error) => format!("could not be written anew: {error}"),
    };
    // The superblock may have changed since it was found.
    let now = copies::find(&mut store.medium);
    let mended = now.and_then(|now| Ok(copies::mend(&mut store.medium, &now)?));
    let mended = outcome(mended.map_err(|error| error.to_string()));
    match found.damaged[..] {
        [] => {}
        [0, 1] => {
            let by = if had_table { "a partition table" } else { "other data" };
            remarks.push(format!(
                "{flash}: its beginning was overwritten with {by}; the superblock {mended} from the copy near the end"
            ));
        }
        [copy] => remarks
            .push(format!("{flash}: copy {copy} of the superblock was damaged, and {mended}")),
        _ => remarks.push(format!(
            "{flash}: all copies of the superblock but one were damaged; it {mended}"
        )),
    }
    match store.mend() {
        Ok(0) => {}
        Ok(bytes) => remarks.push(format!(
            "{flash}: {bytes} bytes of the journal were damaged, and were written anew from their second copy"
        )),
        Err(error) => remarks.push(format!(
            "{flash}: damage of the journal could not be repaired from its second copy: {error}"
        )),
    }
    remarks
}
