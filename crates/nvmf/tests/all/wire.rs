//! The bytes: annotated golden dumps of the wire format, decoders that meet any bytes at all.

use esker_base::Rng;
use esker_device::PlacementId;
use esker_nvmf::wire::auth::Message;
use esker_nvmf::wire::capsule::{Cqe, Sgl, Sqe};
use esker_nvmf::wire::command::{
    DsmRange, LbaRange, Registrant, ReservationKeys, ReservationStatus, SourceRange, io,
    source_ranges,
};
use esker_nvmf::wire::fabrics::{AuthTransfer, Connect, ConnectData, Property};
use esker_nvmf::wire::identify::{
    IdentifyController, IdentifyNamespace, IndependentNamespace, NvmController, descriptors,
    namespace_list, namespaces_of, uuid_of,
};
use esker_nvmf::wire::log::{
    AnaGroup, AnaHeader, DiscoveryEntry, DiscoveryHeader, ErrorEntry, SmartLog,
};
use esker_nvmf::wire::pdu::{CommonHeader, IcReq, IcResp, PduType, TermReq, Transfer};
use esker_nvmf::wire::status::Status;
use esker_nvmf::wire::{padded, text};

/// A line for each 16 bytes of a field that is not zero.
fn dump(out: &mut String, title: &str, bytes: &[u8], fields: &[(usize, usize, &str)]) {
    *out += &format!("# {title}, {} bytes\n", bytes.len());
    for &(offset, size, name) in fields {
        let field = &bytes[offset..offset + size];
        for (line, part) in field.chunks(16).enumerate() {
            let is_first = line == 0;
            if is_first || part.iter().any(|&byte| byte != 0) {
                let hex: Vec<String> = part.iter().map(|byte| format!("{byte:02x}")).collect();
                let (at, name) = (offset + line * 16, if is_first { name } else { "" });
                let line = format!("{at:04x}  {:<47}  {name}", hex.join(" "));
                *out += line.trim_end();
                *out += "\n";
            }
        }
    }
    *out += "\n";
}

fn golden(name: &str, content: &str) {
    let path = format!("{}/testdata/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, content).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(content == expected, "{path} differs:\n{content}");
}

const SQE_FIELDS: [(usize, usize, &str); 12] = [
    (0, 1, "opcode"),
    (1, 1, "fuse, psdt"),
    (2, 2, "cid"),
    (4, 4, "nsid"),
    (24, 8, "sgl address"),
    (32, 4, "sgl length"),
    (39, 1, "sgl type"),
    (40, 8, "cdw10, cdw11"),
    (48, 4, "cdw12"),
    (52, 4, "cdw13"),
    (56, 4, "cdw14"),
    (60, 4, "cdw15"),
];

fn write() -> Sqe {
    let range =
        LbaRange { slba: 0x0102_0304_0506, count: 8, fua: true, placement: Some(PlacementId(3)) };
    let sgl = Sgl { address: 0, length: 4096, kind: Sgl::IN_CAPSULE };
    Sqe { cid: 0x1234, sgl, ..range.put(Sqe::new(io::WRITE, 1)) }
}

#[test]
fn pdus_and_capsules_are_those_of_the_golden_file() {
    let mut out = String::new();
    let common = |kind: PduType, flags, hlen, pdo, plen| {
        CommonHeader { kind: kind as u8, flags, hlen, pdo, plen }.encode()
    };
    let header = CommonHeader::FIELDS;
    dump(&mut out, "Common header of ICReq", &common(PduType::IcReq, 0, 128, 0, 128), header);
    let request = IcReq { pfv: 0, hpda: 1, dgst: 3, maxr2t: 0 };
    dump(&mut out, "ICReq after it", &request.encode(), IcReq::FIELDS);
    let response = IcResp { pfv: 0, cpda: 0, dgst: 3, maxh2cdata: 1 << 20 };
    dump(&mut out, "ICResp after its common header", &response.encode(), IcResp::FIELDS);
    let capsule = common(PduType::CapsuleCmd, 3, 72, 76, 76 + 4096 + 4);
    dump(&mut out, "Common header of a command capsule with data and digests", &capsule, header);
    dump(&mut out, "Write, 8 LBAs, FUA, placement id 3", &write().encode(), &SQE_FIELDS);
    let transfer = Transfer { cccid: 0x1234, ttag: 7, offset: 4096, length: 8192 };
    dump(&mut out, "R2T, H2CData, C2HData", &transfer.encode(), Transfer::FIELDS);
    let end = TermReq { fes: 1, fei: 2 };
    dump(&mut out, "Termination request", &end.encode(), TermReq::FIELDS);
    let cqe = Cqe {
        result: 0x0807_0605_0403_0201,
        sqhd: 9,
        cid: 0x1234,
        status: Status::LBA_RANGE.final_(),
    };
    let fields = [(0, 8, "result"), (8, 2, "sqhd"), (10, 2, "sqid"), (12, 2, "cid")];
    let fields: Vec<_> = fields.into_iter().chain([(14, 2, "status")]).collect();
    dump(&mut out, "Response: LBA out of range, do not retry", &cqe.encode(), &fields);
    golden("pdu", &out);
}

#[test]
fn fabrics_and_authentication_are_those_of_the_golden_file() {
    let mut out = String::new();
    let connect = Connect { recfmt: 0, qid: 1, sqsize: 127, cattr: 4, kato: 5000 };
    dump(&mut out, "Connect, bytes 40 to 63", &connect.encode(), Connect::FIELDS);
    let data = ConnectData {
        hostid: *b"0123456789abcdef",
        cntlid: 0xffff,
        subnqn: padded("nqn.2026-01.io.esker:vol1", 0),
        hostnqn: padded("nqn.2026-01.io.esker:host", 0),
    };
    dump(&mut out, "Connect data", &data.encode(), ConnectData::FIELDS);
    let property = Property { attrib: 0, ofst: 0x14, value: 0x46_0061 };
    dump(&mut out, "Property Set of CC, bytes 40 to 63", &property.encode(), Property::FIELDS);
    let transfer = AuthTransfer { spsp0: 1, spsp1: 1, secp: 0xe9, length: 4096 };
    dump(&mut out, "Authentication, bytes 40 to 63", &transfer.encode(), AuthTransfer::FIELDS);
    for (title, message) in messages() {
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Ok(Some(message)), "{title}");
        dump(&mut out, title, &bytes, &[(0, 6, "type, id, transaction"), (6, bytes.len() - 6, "")]);
    }
    golden("fabrics", &out);
}

fn messages() -> Vec<(&'static str, Message)> {
    let transaction = 0x0102;
    let (hashes, groups) = (vec![1, 2, 3], vec![0, 1]);
    let (challenge, public) = (vec![0xc1; 32], vec![0xd1; 16]);
    vec![
        ("Negotiate", Message::Negotiate { transaction, secure_channel: 0, hashes, groups }),
        (
            "Challenge",
            Message::Challenge {
                transaction,
                hash: 1,
                group: 1,
                sequence: 5,
                challenge: challenge.clone(),
                public: public.clone(),
            },
        ),
        (
            "Reply",
            Message::Reply {
                transaction,
                sequence: 6,
                response: vec![0xe1; 32],
                challenge: Some(challenge),
                public,
            },
        ),
        ("Success 1", Message::Success1 { transaction, response: Ok(vec![0xf1; 32]) }),
        ("Success 2", Message::Success2 { transaction }),
        ("Failure", Message::Failure { transaction, is_host: false, explanation: 1 }),
    ]
}

#[test]
fn identify_and_logs_are_those_of_the_golden_file() {
    let mut out = String::new();
    let controller = IdentifyController {
        sn: padded("serial", b' '),
        mn: padded("model", b' '),
        fr: padded("0.1.0", b' '),
        cmic: 0x0b,
        mdts: 8,
        cntlid: 0x0102,
        ver: 0x0002_0100,
        oaes: 0x900,
        ctratt: 0x0008_0051,
        cntrltype: 1,
        kas: 10,
        endgidmax: 1,
        anatt: 10,
        anacap: 0x5f,
        anagrpmax: 1,
        nanagrpid: 1,
        sqes: 0x66,
        cqes: 0x44,
        maxcmd: 128,
        nn: 1024,
        oncs: 0xad,
        vwc: 5,
        sgls: 0x0010_0001,
        mnan: 1024,
        subnqn: padded("nqn.2026-01.io.esker:vol1", 0),
        ioccsz: 1028,
        iorcsz: 1,
        msdbd: 1,
        ..IdentifyController::default()
    };
    let fields = IdentifyController::FIELDS;
    dump(&mut out, "Identify Controller", &controller.encode(), fields);
    let namespace = IdentifyNamespace {
        nsze: 0x2_0000,
        ncap: 0x2_0000,
        nuse: 0x2_0000,
        nsfeat: 0x10,
        nmic: 1,
        rescap: 0xfe,
        npwg: 15,
        mssrl: 32_768,
        mcl: 32_768,
        msrc: 127,
        anagrpid: 1,
        endgid: 1,
        nguid: *b"0123456789abcdef",
        lbaf0_lbads: 12,
        ..IdentifyNamespace::default()
    };
    dump(&mut out, "Identify Namespace", &namespace.encode(), IdentifyNamespace::FIELDS);
    let smart = SmartLog {
        temperature: 300,
        avail_spare: 100,
        data_units_read: 1 << 64,
        host_writes: 0x0102,
        ..SmartLog::default()
    };
    dump(&mut out, "SMART log", &smart.encode(), SmartLog::FIELDS);
    let ana = AnaGroup { grpid: 1, nnsids: 1, chgcnt: 2, state: 3 };
    dump(&mut out, "ANA header", &AnaHeader { chgcnt: 2, ngrps: 1 }.encode(), AnaHeader::FIELDS);
    dump(&mut out, "ANA group", &ana.encode(), AnaGroup::FIELDS);
    let header = DiscoveryHeader { genctr: 3, numrec: 1, recfmt: 0 };
    dump(&mut out, "Discovery header", &header.encode(), DiscoveryHeader::FIELDS);
    let entry = DiscoveryEntry {
        trtype: 3,
        adrfam: 1,
        subtype: 2,
        portid: 1,
        cntlid: 0xffff,
        asqsz: 32,
        trsvcid: padded("4420", b' '),
        subnqn: padded("nqn.2026-01.io.esker:vol1", 0),
        traddr: padded("192.0.2.1", b' '),
        ..DiscoveryEntry::default()
    };
    dump(&mut out, "Discovery entry", &entry.encode(), DiscoveryEntry::FIELDS);
    let source = SourceRange { slba: 0x0102_0304_0506, nlb: 7 };
    dump(&mut out, "Source range of Copy", &source.encode(), SourceRange::FIELDS);
    golden("identify", &out);
}

#[test]
fn commands_read_back_what_was_put_into_them() {
    let sqe = Sqe::decode(&write().encode()).unwrap();
    assert_eq!(sqe, write());
    let range = LbaRange::of(&sqe);
    assert_eq!((range.slba, range.count, range.fua), (0x0102_0304_0506, 8, true));
    assert_eq!(range.placement, Some(PlacementId(3)));
    assert!(sqe.is_from_host());
    assert_eq!(text(&padded::<16>("abc", b' ')), "abc");
    let uuid = *b"fedcba9876543210";
    assert_eq!(uuid_of(&descriptors(&[1; 16], &uuid)), Some(uuid));
    assert_eq!(namespaces_of(&namespace_list([1, 5, 9], 1)), [5, 9]);
}

/// Bytes cut short and changed: every decoder answers.
#[test]
fn decoders_survive_cut_and_changed_bytes() {
    let mut rng = Rng::new(7);
    let mut samples: Vec<Vec<u8>> =
        messages().iter().map(|(_, message)| message.encode()).collect();
    samples.push(write().encode().to_vec());
    samples.push(descriptors(&[1; 16], &[2; 16]));
    samples.push(vec![0xff; 4096]);
    let decode_all = |bytes: &[u8]| {
        let _ = (Message::decode(bytes), Sqe::decode(bytes), Cqe::decode(bytes));
        let _ = (CommonHeader::decode(bytes), IcReq::decode(bytes), IcResp::decode(bytes));
        let _ = (Transfer::decode(bytes), TermReq::decode(bytes), Connect::decode(bytes));
        let _ = (ConnectData::decode(bytes), Property::decode(bytes), SmartLog::decode(bytes));
        let _ = (IdentifyController::decode(bytes), IdentifyNamespace::decode(bytes));
        let _ = (IndependentNamespace::decode(bytes), NvmController::decode(bytes));
        let _ = (AnaHeader::decode(bytes), AnaGroup::decode(bytes), DsmRange::decode(bytes));
        let _ = source_ranges(3, bytes);
        let _ = (DiscoveryHeader::decode(bytes), DiscoveryEntry::decode(bytes));
        let _ = (ReservationKeys::decode(bytes), ReservationStatus::decode(bytes));
        let _ = (Registrant::decode(bytes), ErrorEntry::decode(bytes), uuid_of(bytes));
        let _ = (namespaces_of(bytes), text(bytes));
        if let Ok(sqe) = Sqe::decode(bytes) {
            let _ = LbaRange::of(&sqe);
            let _ = esker_nvmf::wire::command::dsm_ranges(&sqe, bytes);
        }
    };
    for sample in samples {
        for size in 0..sample.len().min(300) {
            decode_all(&sample[..size]);
        }
        for _ in 0..300 {
            let mut changed = sample.clone();
            for _ in 0..=rng.below(6) {
                let at = usize::try_from(rng.below(changed.len() as u64)).unwrap();
                changed[at] = rng.u64().to_le_bytes()[0];
            }
            decode_all(&changed);
        }
    }
}
