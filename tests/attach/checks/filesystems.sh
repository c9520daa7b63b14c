# File systems on the loop device.
# shellcheck shell=bash disable=SC2154

# fill: a tree of files of all sizes.
fill() {
    cp -r "$root/crates" "$root/docs" "$check/files/"
    head -c 40000000 /dev/urandom > "$check/files/large"
    cp "$check/files/large" "$check/large"
}

compare() {
    cmp "$check/large" "$check/files/large"
    diff -r "$root/docs" "$check/files/docs"
    diff -r "$root/crates" "$check/files/crates"
}

# lives SPEC ext4|xfs: a file system is made, filled, checked, mounted again and compared.
lives() {
    attach "$1" --loop
    make_fs "$2" "$loop"
    mount_fs "$loop"
    fill
    umount_fs
    examine "$2" "$loop"
    detach
    # Another process finds the same.
    attach "$1" --loop
    mount_fs "$loop"
    compare
    umount_fs
    detach
}

check_ext4_lives_on_a_file() {
    sparse 512m
    lives "$check/disk" ext4
    # The file holds the file system itself.
    e2fsck -fn "$check/disk"
}

check_xfs_lives_on_a_file() {
    sparse 512m
    lives "$check/disk" xfs
    xfs_repair -n "$check/disk"
}

check_ext4_lives_on_a_model_of_a_drive() {
    "$ESKER" ssd create micron-7450 "$check/drive" --capacity 512MiB
    lives "ssd:micron-7450?capacity=512MiB&time=none&image=$check/drive" ext4
}

# Deleted and trimmed data takes no room in the file behind.
trims() {
    sparse 512m
    attach "$check/disk" --loop
    make_fs "$1" "$loop"
    mount_fs "$loop"
    head -c 200000000 /dev/urandom > "$check/files/large"
    sync -f "$check/files"
    local full empty
    full=$(allocated "$check/disk")
    rm "$check/files/large"
    sync -f "$check/files"
    fstrim -v "$check/files"
    until_true 'the file behind has shrunk' shrunk "$full"
    empty=$(allocated "$check/disk")
    echo "allocated: $full, then $empty"
    umount_fs
    examine "$1" "$loop"
    detach
}

# XFS frees what was deleted in the background, and passes over what its log still holds: it may take
# more than one trim.
shrunk() {
    sync -f "$check/files"
    fstrim "$check/files"
    [ "$(allocated "$check/disk")" -lt $(($1 - 150000000)) ]
}

check_fstrim_of_ext4_reaches_the_device() {
    trims ext4
}

check_fstrim_of_xfs_reaches_the_device() {
    trims xfs
}

check_detach_waits_for_nobody_but_tells_who_is_in_the_way() {
    sparse 128m
    attach "$check/disk" --loop
    make_fs ext4 "$loop"
    mount_fs "$loop"
    local code=0
    "$ESKER" detach "$check/at" 2> "$check/why" || code=$?
    [ "$code" = 77 ]
    grep -q 'it is mounted' "$check/why"
    # A signal meanwhile is heard, and obeyed once the file system is unmounted.
    kill -INT "$server_pid"
    until_true 'the server says why it goes on' grep -q 'when nobody uses it' "$check/server.log"
    echo still here > "$check/files/x"
    umount_fs
    ends "$server_pid"
    grep -q '^detached: ' "$check/server.log"
    no_loop
}

check_signals_end_it() {
    local signal
    for signal in INT TERM; do
        attach mem:16MiB --loop
        dd if=/dev/zero of="$loop" bs=4k count=100 oflag=direct status=none
        kill "-$signal" "$server_pid"
        ends "$server_pid"
        ! is_mounted "$check/at"
        no_loop
    done
}
