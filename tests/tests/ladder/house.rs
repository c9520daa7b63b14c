//! The rooms of each crate.

/// The rooms of a crate, from the ground up. A crate without rooms is one file.
pub(crate) const ROOMS: [(&str, &str); 22] = [
    (
        "attach",
        "error wire mount_table sys loop_device mount engine server holders attachment detach",
    ),
    (
        "base",
        "units clock checksum sync process buf append codec error files memory pool prefetch progress rng silence thread latency pace policy",
    ),
    (
        "bench",
        "counter key operation options store value error zipf distribution pace workload result \
         measure table html worker watch driver",
    ),
    (
        "c",
        "error border bytes list options kvs iter batch snapshot transaction kvdb maintenance arena measure",
    ),
    (
        "cache",
        "options omf pairing error mapping sets admit layout medium owner copies journal store origin stats state \
         counts shared commit writeback clean queue cache replay resize",
    ),
    (
        "cli",
        "stderr failure figures host metrics output signals progress live traffic args docs unmade run \
         ssd trace pool attach cache media measure place demo kv bench target lab volume",
    ),
    (
        "device",
        "geometry identity op_kind error command fdp stats device blocking conformance forward \
         immediate file memory null occupant stripe write_through",
    ),
    ("flash", "emulate error disk timing ftl drive profile ssd theory"),
    (
        "kv",
        "sync types omf media values manifest log tree compaction engine maintain write read recover \
         api copies",
    ),
    (
        "lab",
        "error erase steps text spread study outcome store live compare device_load fdp flash_cache host_ssd \
         hse memory pooled plan",
    ),
    ("node", "js error opened range work lanes rows database"),
    ("nvmf", "wire socket conn error auth tls stream target initiator"),
    (
        "pager",
        "raw types heap filter pages predict protocol ranges areas compressed slots staging trap unserved uffd order client link \
         space walk awake engine shared chase forks inject greet server probe launch signal arena bytes",
    ),
    ("preload", "connect mapping"),
    ("preload-malloc", ""),
    (
        "python",
        "callers remarks error bytes work opened options range rows kvs batch snapshot transaction kvdb copies measure",
    ),
    ("report", "escape table unit chart block verdict figures svg markup page text live"),
    ("serve", "error process http token live metrics events socket requests target caches pool"),
    ("sim", "fuzz hook contents flight fault lba_set history image enumerate record"),
    ("stack", "error time spec drive missing closings pool served traced stack"),
    (
        "trace",
        "format error input memory keys sample request load names decode omf read capture compact recorder \
         reuse mrc stats",
    ),
    (
        "volume",
        "parity types fragment omf drive buffer catalog config space segment map stats engine \
         commit keep admission append read queue recover pool",
    ),
];

/// The rooms of `name`.
pub(crate) fn rooms(name: &str) -> Option<Vec<&'static str>> {
    let (_, order) = ROOMS.iter().find(|(known, _)| *known == name)?;
    Some(order.split_whitespace().collect())
}
