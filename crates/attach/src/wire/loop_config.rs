//! The argument of `LOOP_CONFIGURE` (`struct loop_config` of `linux/loop.h`).
//!
//! | offset | size | name | |
//! | --- | --- | --- | --- |
//! | 0 | 4 | fd | the file that it stands on |
//! | 4 | 4 | block_size | bytes per logical block |
//! | 8 | 232 | info | `struct loop_info64`; flags at 60, the name of the file at 64 |
//! | 240 | 64 | reserved | zero |

/// Bytes of the structure.
pub(crate) const LOOP_CONFIG_SIZE: usize = 304;

const READ_ONLY: u32 = 1;
/// It goes when its last user closes it.
const AUTOCLEAR: u32 = 4;
/// The kernel looks for partitions on it.
const PARTITION_SCAN: u32 = 8;
const DIRECT_IO: u32 = 16;
/// Bytes for the name of the file, its last one zero.
const NAME_SIZE: usize = 64;

/// A loop device to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopConfig<'a> {
    pub(crate) fd: u32,
    pub(crate) block_size: u32,
    pub(crate) read_only: bool,
    /// The name that tools show for the file it stands on; cut to 63 bytes.
    pub(crate) name: &'a [u8],
}

impl LoopConfig<'_> {
    pub(crate) fn encode(&self) -> [u8; LOOP_CONFIG_SIZE] {
        let mut bytes = [0; LOOP_CONFIG_SIZE];
        bytes[..4].copy_from_slice(&self.fd.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.block_size.to_le_bytes());
        let mut flags = DIRECT_IO | PARTITION_SCAN | AUTOCLEAR;
        if self.read_only {
            flags |= READ_ONLY;
        }
        bytes[60..64].copy_from_slice(&flags.to_le_bytes());
        let length = self.name.len().min(NAME_SIZE - 1);
        bytes[64..64 + length].copy_from_slice(&self.name[..length]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_linux_loop_h_has_them() {
        let name = [b'n'; 100];
        let config = LoopConfig { fd: 3, block_size: 4096, read_only: true, name: &name };
        let bytes = config.encode();
        assert_eq!(bytes[..8], [3, 0, 0, 0, 0, 16, 0, 0]);
        assert_eq!(bytes[60..65], [29, 0, 0, 0, b'n']);
        assert_eq!(bytes[126..128], [b'n', 0]);
    }
}
