//! A server of one customer after the other, in the order in which they come.

/// A server whose customers come in the order of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Server {
    free_ns: u64,
}

impl Server {
    /// A customer that comes now and needs `service_ns`: when the service starts and ends.
    pub(super) fn serve(&mut self, now_ns: u64, service_ns: u64) -> (u64, u64) {
        let start = now_ns.max(self.free_ns);
        self.free_ns = start + service_ns;
        (start, self.free_ns)
    }
}

/// How long `bytes` take at a rate, to the nearest nanosecond.
pub(super) fn transfer_ns(bytes: u32, bytes_per_s: u64) -> u64 {
    let exact = u64::from(bytes) * 1_000_000_000; // below 2^62
    exact.saturating_add(bytes_per_s / 2) / bytes_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_take_bytes_over_rate_to_the_nearest_nanosecond() {
        assert_eq!(transfer_ns(4096, 400_000_000), 10_240);
        assert_eq!(transfer_ns(4096, 5_800_000_000), 706);
        assert_eq!(transfer_ns(u32::MAX, 1), u64::from(u32::MAX) * 1_000_000_000);
        assert_eq!(transfer_ns(1, u64::MAX), 0);
    }
}
