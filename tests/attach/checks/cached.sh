# A write-back cache of flash before a disk: what a file system was told is durable is in flash or on the disk,
# and once it is written back the disk alone has everything.
# shellcheck shell=bash disable=SC2154

cache_spec() {
    origin=$check/disk
    flash="file:$check/flash?capacity=${1:-128MiB}"
    cached="cache:($origin)?flash=($check/flash)&mode=wb"
    mkdir -p "$check/at"
    "$ESKER" cache create "$origin" "$flash" --mode wb
}

# apart ext4|xfs: writes everything back; the disk is sound without the cache.
apart() {
    "$ESKER" cache detach "$origin" "$flash"
    examine "$1" "$check/disk"
}

check_ext4_lives_on_a_cached_disk() {
    sparse 512m
    cache_spec
    lives "$cached" ext4
    apart ext4
    attach "$check/disk" --loop
    mount_fs "$loop" -o ro
    compare
    umount_fs
    detach
}

check_xfs_lives_on_a_cached_disk() {
    sparse 512m
    cache_spec
    lives "$cached" xfs
    apart xfs
}

check_ext4_and_sqlite_survive_a_killed_cache() {
    sparse 512m
    cache_spec
    survives "$cached" ext4
    apart ext4
    attach "$check/disk" --loop
    sound ext4
    detach
}

check_xfs_and_sqlite_survive_a_killed_cache() {
    sparse 512m
    cache_spec
    survives "$cached" xfs
    apart xfs
    attach "$check/disk" --loop
    sound xfs
    detach
}

# Much smaller than what is written: blocks are written back all the time.
check_a_small_cache_verifies() {
    sparse 512m
    cache_spec 32MiB
    attach "$cached" --loop
    verify "$loop" --bs=4k
    verify "$loop" --bsrange=4k-256k --size=200m --io_size=150m
    detach
}
