use super::*;
use esker_base::Rng;
use esker_device::MemoryDevice;
use esker_sim::HookDevice;

fn media(bytes: u64) -> Arc<Media> {
    let device = Arc::new(MemoryDevice::new("m", bytes, 512));
    let tuning =
        Tuning { allocation_bytes: 4096, block_bytes: 4096, ..Tuning::for_budget(16 << 20) };
    Arc::new(Media::new(MediaClass::Capacity, device, &tuning, &Clock::virtual_time()))
}

#[test]
fn extents_never_overlap_and_all_space_comes_back() {
    let media = media(1 << 20);
    let start = media.used_bytes();
    let mut rng = Rng::new(3);
    let mut held: Vec<Allocation> = Vec::new();
    for _ in 0..2000 {
        if rng.chance(1, 2) {
            let size = 1 + rng.below(40_000);
            if let Ok(mut a) = media.allocate(Stream::Log, size, Purpose::Maintenance) {
                if rng.chance(1, 4) {
                    a.truncate(a.bytes() / 2);
                }
                let end = a.extent.lba + a.extent.count;
                let apart = |b: &Allocation| {
                    end <= b.extent.lba || b.extent.lba + b.extent.count <= a.extent.lba
                };
                assert!(held.iter().all(apart));
                held.push(a);
            }
        } else if !held.is_empty() {
            let victim = usize::try_from(rng.below(held.len() as u64)).unwrap();
            held.swap_remove(victim);
        }
    }
    held.clear();
    media.reclaim().unwrap();
    assert_eq!(media.used_bytes(), start);
    assert_eq!(media.space.lock().free.count(), 1);
}

#[test]
fn the_reserve_is_for_maintenance() {
    let media = media(1 << 20);
    let mut held = Vec::new();
    while let Ok(a) = media.allocate(Stream::Log, 4096, Purpose::User) {
        held.push(a);
    }
    assert!(media.allocate(Stream::Log, 4096, Purpose::Maintenance).is_ok());
}

#[test]
fn the_last_of_the_space_is_for_opening() {
    let media = media(1 << 20);
    let mut held = Vec::new();
    while let Ok(a) = media.allocate(Stream::Log, 4096, Purpose::Maintenance) {
        held.push(a);
    }
    let bytes = media.unit.bytes(media.lba_size);
    assert!(media.allocate(Stream::Log, bytes, Purpose::Opening).is_ok());
}

#[test]
fn an_extent_claimed_twice_is_corruption() {
    let media = media(1 << 20);
    let extent = Extent { class: MediaClass::Capacity, lba: Lba(64), count: LbaCount(8) };
    let _held = media.claim(Stream::OldKeys, extent).unwrap();
    assert!(media.claim(Stream::OldKeys, extent).is_err());
}

#[test]
fn capacity_is_never_less_than_what_is_used() {
    // A file on a file system that has only so many bytes of room for it.
    let room = Arc::new(AtomicU64::new(8 << 20));
    let (left, memory) = (room.clone(), Arc::new(MemoryDevice::new("m", 16 << 20, 512)));
    let file =
        HookDevice::new(memory).with_usable_bytes(move |_| Some(left.load(Ordering::Relaxed)));
    let media = Arc::new(Media::new(
        MediaClass::Capacity,
        Arc::new(file),
        &Tuning::for_budget(16 << 20),
        &Clock::virtual_time(),
    ));
    assert_eq!(media.capacity_bytes(), 8 << 20);
    let _taken = media.allocate(Stream::Log, 4 << 20, Purpose::Opening).unwrap();
    room.store(1 << 20, Ordering::Relaxed);
    media.allocate(Stream::Log, 4 << 20, Purpose::Opening).map(drop).unwrap_err();
    assert!(media.used_bytes() >= 4 << 20);
    assert_eq!(media.capacity_bytes(), media.used_bytes());
}
