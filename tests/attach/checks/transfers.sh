# Reads and writes, of the file and of the block device.
# shellcheck shell=bash disable=SC2154

# verify FILE OPTION...: fio writes at random and compares what it reads.
verify() {
    local target=$1
    shift
    fio --name=verify --filename="$target" --direct=1 --ioengine=io_uring --iodepth=16 --rw=randwrite \
        --size=48m --io_size=32m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --verify_state_save=0 --randrepeat=0 --output-format=terse \
        --fsync=64 "$@" > /dev/null
}

# LBAs of 4 KiB, and requests that begin and end anywhere.
check_file_verifies() {
    sparse 64m
    attach "$check/disk"
    verify "$file" --bs=4k
    verify "$file" --bsrange=512-256k --blockalign=512 --direct=0
    verify "$file" --bs=1m
    detach
}

check_loop_verifies() {
    sparse 64m
    attach "$check/disk" --loop
    [ "$(blockdev --getss "$loop")" = 4096 ]
    [ "$(cat "/sys/block/${loop#/dev/}/loop/dio")" = 1 ]
    verify "$loop" --bs=4k
    verify "$loop" --bsrange=4k-512k
    detach
}

# Bytes at every place and size of three LBAs, against a plain file.
check_parts_of_lbas_are_as_in_a_plain_file() {
    sparse 1m
    sparse 1m plain
    attach 'mem:1MiB'
    local n offset size
    for n in $(seq 60); do
        offset=$((n * 131 % 9000)) size=$((n * 577 % 9000 + 1))
        head -c "$size" /dev/urandom > "$check/bytes"
        dd if="$check/bytes" of="$file" bs="$size" seek="$offset" oflag=seek_bytes conv=notrunc status=none
        dd if="$check/bytes" of="$check/plain" bs="$size" seek="$offset" oflag=seek_bytes conv=notrunc status=none
        if [ $((n % 7)) = 0 ]; then
            fallocate -p -o $((offset + 100)) -l "$size" "$file"
            fallocate -p -o $((offset + 100)) -l "$size" "$check/plain"
        fi
        if [ $((n % 11)) = 0 ]; then
            fallocate -z -n -o "$offset" -l 5000 "$file"
            fallocate -z -n -o "$offset" -l 5000 "$check/plain"
        fi
    done
    cmp "$file" "$check/plain"
    ! fallocate -z -o 1040000 -l 99999 "$file" || die 'there is room beyond the end'
    ! truncate -s 5 "$file" || die 'a device was truncated'
    detach
}

check_read_only_means_it() {
    sparse 128m
    make_fs ext4 "$check/disk"
    local before
    before=$(sha256sum < "$check/disk")
    attach "$check/disk" --loop --read-only
    [ "$(blockdev --getro "$loop")" = 1 ]
    ! dd if=/dev/zero of="$file" bs=4k count=1 conv=notrunc 2> /dev/null || die 'the file was written'
    ! dd if=/dev/zero of="$loop" bs=4k count=1 2> /dev/null || die 'the block device was written'
    mount_fs "$loop" -o ro,noload
    ! touch "$check/files/x" 2> /dev/null || die 'the file system was written'
    umount_fs
    detach
    [ "$(sha256sum < "$check/disk")" = "$before" ]
}

# Nothing but fusermount3 helps a user who is not root.
check_another_user_attaches_through_fusermount3() {
    command -v fusermount3 > /dev/null || skip 'fusermount3 is not installed (package fuse3)'
    id nobody > /dev/null 2>&1 || skip 'there is no user nobody'
    mkdir "$check/at"
    chown nobody "$check/at"
    chmod 755 "$state" "$work" "$check"
    local as=(setpriv --reuid nobody --regid nogroup --clear-groups)
    "${as[@]}" test -w /dev/fuse || skip 'nobody may not open /dev/fuse'
    "${as[@]}" test -x "$ESKER" 2> /dev/null || skip "nobody may not run $ESKER"
    start server "${as[@]}" "$ESKER" attach mem:1MiB "$check/at"
    until_true 'the device is attached' is_attached
    "${as[@]}" dd if=/dev/urandom of="$check/at/disk" bs=3000 count=9 conv=notrunc,fsync status=none
    "${as[@]}" "$ESKER" detach "$check/at"
    ends "$server_pid"
}
