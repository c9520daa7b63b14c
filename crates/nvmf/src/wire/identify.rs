//! Identify data structures (Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5).

use super::structure;

/// Identify: opcode.
pub const OPCODE: u8 = 0x06;
/// Bytes of every Identify data structure.
pub const SIZE: usize = 4096;

/// CNS values of Identify.
pub mod cns {
    /// Identify Namespace, NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace, specific to an I/O command set.
    pub const IO_NAMESPACE: u8 = 0x05;
    /// Identify Controller, specific to an I/O command set.
    pub const IO_CONTROLLER: u8 = 0x06;
    /// Active namespace list of an I/O command set.
    pub const IO_ACTIVE_NAMESPACES: u8 = 0x07;
    /// Identify Namespace, independent of I/O command sets.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Controllers attached to a namespace.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// Endurance groups.
    pub const ENDURANCE_GROUPS: u8 = 0x19;
    /// I/O command set combinations.
    pub const IO_COMMAND_SETS: u8 = 0x1c;
}

/// OAES: namespace attribute notices.
pub const OAES_NAMESPACE: u32 = 1 << 8;
/// OAES: ANA change notices.
pub const OAES_ANA: u32 = 1 << 11;
/// OAES: discovery log page change notifications.
pub const OAES_DISCOVERY: u32 = 1 << 31;
/// CTRATT: host identifiers of 128 bits.
pub const CTRATT_HOSTID_128: u32 = 1 << 0;
/// CTRATT: endurance groups.
pub const CTRATT_ENDURANCE_GROUPS: u32 = 1 << 4;
/// CTRATT: traffic based keep alive.
pub const CTRATT_TBKAS: u32 = 1 << 6;
/// CTRATT: flexible data placement.
pub const CTRATT_FDPS: u32 = 1 << 19;
/// ONCS: Compare.
pub const ONCS_COMPARE: u16 = 1 << 0;
/// ONCS: Dataset Management.
pub const ONCS_DSM: u16 = 1 << 2;
/// ONCS: Write Zeroes.
pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// ONCS: reservations.
pub const ONCS_RESERVATIONS: u16 = 1 << 5;
/// ONCS: Verify.
pub const ONCS_VERIFY: u16 = 1 << 7;
/// ONCS: Copy.
pub const ONCS_COPY: u16 = 1 << 8;
/// OCFS: format 0 of Copy's source ranges.
pub const OCFS_0: u16 = 1 << 0;
/// CMIC: ports, controllers, ANA reporting.
pub const CMIC_MULTI_ANA: u8 = 0x0b;

structure! {
    /// Identify Controller (Base 2.1, Figure 313).
    IdentifyController [4096] {
        /// PCI vendor id.
        0 vid: u16,
        /// PCI subsystem vendor id.
        2 ssvid: u16,
        /// Serial number.
        4 sn: [u8; 20],
        /// Model number.
        24 mn: [u8; 40],
        /// Firmware revision.
        64 fr: [u8; 8],
        /// Recommended arbitration burst.
        72 rab: u8,
        /// Several ports, several controllers, ANA reporting.
        76 cmic: u8,
        /// Largest transfer: 4 KiB << mdts; 0 without limit.
        77 mdts: u8,
        /// Controller id.
        78 cntlid: u16,
        /// Version.
        80 ver: u32,
        /// Optional asynchronous events.
        92 oaes: u32,
        /// Controller attributes.
        96 ctratt: u32,
        /// Controller type: 1 I/O, 2 discovery.
        111 cntrltype: u8,
        /// Optional admin commands.
        256 oacs: u16,
        /// Concurrent Abort commands, 0's based.
        258 acl: u8,
        /// Concurrent Asynchronous Event Requests, 0's based.
        259 aerl: u8,
        /// Firmware updates.
        260 frmw: u8,
        /// Log page attributes.
        261 lpa: u8,
        /// Entries of the error log, 0's based.
        262 elpe: u8,
        /// Warning composite temperature in kelvin.
        266 wctemp: u16,
        /// Critical composite temperature in kelvin.
        268 cctemp: u16,
        /// Keep alive granularity in units of 100 ms.
        320 kas: u16,
        /// Largest endurance group id.
        340 endgidmax: u16,
        /// ANA transition time in seconds.
        342 anatt: u8,
        /// ANA capabilities.
        343 anacap: u8,
        /// Largest ANA group id.
        344 anagrpmax: u32,
        /// Number of ANA groups.
        348 nanagrpid: u32,
        /// Submission queue entry sizes.
        512 sqes: u8,
        /// Completion queue entry sizes.
        513 cqes: u8,
        /// Most commands outstanding on one queue.
        514 maxcmd: u16,
        /// Largest namespace id.
        516 nn: u32,
        /// Optional NVM commands.
        520 oncs: u16,
        /// Fused operations.
        522 fuses: u16,
        /// Volatile write cache.
        525 vwc: u8,
        /// Atomic write unit, normal, in LBAs, 0's based.
        526 awun: u16,
        /// Atomic write unit, power fail.
        528 awupf: u16,
        /// Formats of Copy's source ranges.
        534 ocfs: u16,
        /// SGL support.
        536 sgls: u32,
        /// Most namespaces allowed.
        540 mnan: u32,
        /// NQN of the subsystem.
        768 subnqn: [u8; 256],
        /// Largest command capsule in units of 16 bytes.
        1792 ioccsz: u32,
        /// Largest response capsule in units of 16 bytes.
        1796 iorcsz: u32,
        /// In-capsule data offset in units of 16 bytes.
        1800 icdoff: u16,
        /// Fabrics controller attributes.
        1802 fcatt: u8,
        /// SGL data block descriptors at most.
        1803 msdbd: u8,
        /// Optional fabrics commands.
        1804 ofcs: u16,
    }
}

structure! {
    /// Identify Namespace, NVM command set (NVM Command Set 1.1, Figure 114).
    IdentifyNamespace [4096] {
        /// Size in LBAs.
        0 nsze: u64,
        /// Capacity in LBAs.
        8 ncap: u64,
        /// Utilization in LBAs.
        16 nuse: u64,
        /// Features.
        24 nsfeat: u8,
        /// Number of LBA formats, 0's based.
        25 nlbaf: u8,
        /// Formatted LBA size: index of the format.
        26 flbas: u8,
        /// Multi-path and sharing.
        30 nmic: u8,
        /// Reservation capabilities.
        31 rescap: u8,
        /// Value that deallocated LBAs read as.
        33 dlfeat: u8,
        /// Optimal I/O boundary in LBAs.
        46 noiob: u16,
        /// Preferred write granularity in LBAs, 0's based.
        64 npwg: u16,
        /// Preferred write alignment in LBAs, 0's based.
        66 npwa: u16,
        /// Preferred deallocate granularity in LBAs, 0's based.
        68 npdg: u16,
        /// Preferred deallocate alignment in LBAs, 0's based.
        70 npda: u16,
        /// Optimal write size in LBAs, 0's based.
        72 nows: u16,
        /// LBAs of one source range of Copy at most.
        74 mssrl: u16,
        /// LBAs of one Copy at most.
        76 mcl: u32,
        /// Source ranges of one Copy at most, 0's based.
        80 msrc: u8,
        /// ANA group.
        92 anagrpid: u32,
        /// Endurance group.
        102 endgid: u16,
        /// Namespace globally unique identifier.
        104 nguid: [u8; 16],
        /// IEEE extended unique identifier.
        120 eui64: [u8; 8],
        /// LBA format 0: metadata size.
        128 lbaf0_ms: u16,
        /// LBA format 0: LBA size as a power of two.
        130 lbaf0_lbads: u8,
    }
}

/// The LBA format that is in use, given the bytes of [`IdentifyNamespace`]: bytes of metadata, and the
/// LBA size as a power of two. FLBAS has the upper bits of its index apart from the lower ones.
#[must_use]
pub fn format_in_use(namespace: &[u8; SIZE]) -> (u16, u8) {
    let flbas = namespace[26];
    let index = usize::from(flbas & 0x0f | (flbas >> 5 & 3) << 4);
    let [a, b, lbads, _] = namespace[128..].as_chunks::<4>().0[index];
    (u16::from_le_bytes([a, b]), lbads)
}

/// NSFEAT of the independent structure: this namespace has no volatile write cache, whatever the
/// controller says (VWCNP).
pub const NSFEAT_VWCNP: u8 = 0x20;
/// NSFEAT: the preferred sizes are given.
pub const NSFEAT_OPTPERF: u8 = 0x10;
/// DLFEAT: deallocated LBAs read as zeroes (bits 2:0), and Write Zeroes can deallocate (bit 3).
pub const DLFEAT_ZEROES: u8 = 0x09;
/// The bits of DLFEAT that [`DLFEAT_ZEROES`] is about.
pub const DLFEAT_MASK: u8 = 0x0f;
/// RESCAP: the six types of reservation, and that Ignore Existing Key is as of version 1.3.
pub const RESCAP_ALL: u8 = 0xfe;
/// RESCAP: reservations can persist through power loss.
pub const RESCAP_PERSIST: u8 = 0x01;
/// The ANA group that all namespaces are in.
pub const ANA_GROUP: u32 = 1;

structure! {
    /// Identify Namespace, independent of I/O command sets (Base 2.1, Figure 320).
    IndependentNamespace [4096] {
        /// Features.
        0 nsfeat: u8,
        /// Multi-path and sharing.
        1 nmic: u8,
        /// Reservation capabilities.
        2 rescap: u8,
        /// Format progress.
        3 fpi: u8,
        /// ANA group.
        4 anagrpid: u32,
        /// Attributes.
        8 nsattr: u8,
        /// NVM set.
        10 nvmsetid: u16,
        /// Endurance group.
        12 endgid: u16,
        /// Status: bit 0 is ready.
        14 nstat: u8,
    }
}

structure! {
    /// Identify Controller of the NVM command set (NVM Command Set 1.1, Figure 119).
    NvmController [4096] {
        /// Largest Verify: 4 KiB << vsl; 0 without limit.
        0 vsl: u8,
        /// Largest Write Zeroes: 4 KiB << wzsl; 0 without limit.
        1 wzsl: u8,
        /// Largest Write Uncorrectable.
        2 wusl: u8,
        /// Ranges of Dataset Management at most; 0 without limit.
        3 dmrl: u8,
        /// LBAs of one range at most.
        4 dmrsl: u32,
        /// LBAs of all ranges at most.
        8 dmsl: u64,
    }
}

/// The namespace identification descriptors (Base 2.1, Figure 315): EUI-64, NGUID, UUID and the
/// command set, in a list padded to [`SIZE`].
#[must_use]
pub fn descriptors(nguid: &[u8; 16], uuid: &[u8; 16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SIZE);
    let mut push = |kind: u8, size: u8, value: &[u8]| {
        bytes.extend_from_slice(&[kind, size, 0, 0]);
        bytes.extend_from_slice(value);
    };
    push(2, 16, nguid);
    push(3, 16, uuid);
    push(4, 1, &[0]);
    bytes.resize(SIZE, 0);
    bytes
}

/// The UUID among namespace identification descriptors, if there is one.
#[must_use]
pub fn uuid_of(descriptors: &[u8]) -> Option<[u8; 16]> {
    let mut rest = descriptors;
    while let [kind, size, _, _, after @ ..] = rest {
        let value = after.get(..usize::from(*size))?;
        match kind {
            0 => return None,
            3 => return value.try_into().ok(),
            _ => rest = &after[value.len()..],
        }
    }
    None
}

/// A list of namespace ids, padded to [`SIZE`] (Base 2.1, 4.4.2): those above `after`, ascending.
#[must_use]
pub fn namespace_list(ids: impl IntoIterator<Item = u32>, after: u32) -> Vec<u8> {
    let chosen = ids.into_iter().filter(|&id| id > after).take(SIZE / 4);
    let mut bytes: Vec<u8> = chosen.flat_map(u32::to_le_bytes).collect();
    bytes.resize(SIZE, 0);
    bytes
}

/// The ids of a namespace list.
#[must_use]
pub fn namespaces_of(list: &[u8]) -> Vec<u32> {
    let ids = list.as_chunks::<4>().0.iter().map(|&id| u32::from_le_bytes(id));
    ids.take_while(|&id| id != 0).collect()
}

/// A list of 16-bit ids after their number, padded to [`SIZE`]: controllers (Base 2.1, 4.4.1) and
/// endurance groups (5.1.13.2.17).
#[must_use]
pub fn id_list(ids: &[u16]) -> Vec<u8> {
    let ids = &ids[..ids.len().min(SIZE / 2 - 1)];
    let mut bytes = super::saturate16(ids.len() as u64).to_le_bytes().to_vec();
    bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    bytes.resize(SIZE, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_in_use_is_found_among_64() {
        let mut bytes =
            IdentifyNamespace { lbaf0_lbads: 9, ..IdentifyNamespace::default() }.encode();
        assert_eq!(format_in_use(&bytes), (0, 9));
        bytes[128 + 4 * 4..][..3].copy_from_slice(&[8, 0, 12]);
        bytes[26] = 4;
        assert_eq!(format_in_use(&bytes), (8, 12));
        bytes[128 + 63 * 4..][..3].copy_from_slice(&[0, 1, 13]);
        bytes[26] = 0x6f;
        assert_eq!(format_in_use(&bytes), (256, 13));
    }
}
