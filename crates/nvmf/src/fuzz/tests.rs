//! The corpora, and mutations of them.

use std::collections::BTreeMap;

use esker_base::BufPool;
use esker_sim::fuzz::{Target, Watched, replay};

use super::*;
use crate::auth::Hash;
use crate::target::reservation::omf::{FileContent, Owner, Record};
use crate::wire::capsule::Sgl;
use crate::wire::padded;

#[global_allocator]
static MEMORY: Watched = Watched;

/// Bytes that both ends send in a short session, the host's first.
fn session(digests: bool) -> (Vec<u8>, Vec<u8>) {
    let (mut host, mut controller) = (stream::host(digests), stream::controller());
    let mut pool = BufPool::new(0);
    let mut said = stream::to_host(&mut host, &[]).unwrap();
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    while !said.is_empty() {
        asked.extend_from_slice(&said);
        let back = stream::to_controller(&mut controller, &mut pool, &said).unwrap();
        answered.extend_from_slice(&back);
        said = stream::to_host(&mut host, &back).unwrap();
    }
    (asked, answered)
}

fn file_of_reservations() -> Vec<u8> {
    let name = |n: u32| format!("nqn.2026-01.io.example:disk{n}");
    let held = Record {
        generation: 5,
        reservation: Some((1, [0xaa; 16])),
        registrants: vec![([0xaa; 16], 7), ([0xbb; 16], 9)],
    };
    reservations::encode(&FileContent {
        records: BTreeMap::from([
            ((name(1), Owner::Device([0xdd; 16])), held),
            ((name(2), Owner::Number(7)), Record::default()),
        ]),
        devices_before: BTreeMap::from([((name(2), 7), 1)]),
    })
}

fn commands() -> Vec<(&'static str, Vec<u8>)> {
    let read = Sqe { sgl: Sgl { address: 0, length: 4096, kind: 0x5a }, ..Sqe::new(0x02, 1) };
    let range = LbaRange { slba: 1 << 40, count: 8, fua: true, placement: None };
    let ranges = command::DsmRange { attributes: 4, count: 8, slba: 64 };
    vec![
        ("read", range.put(read).encode().to_vec()),
        ("ranges", [&Sqe::new(0x09, 1).encode()[..], &ranges.encode()].concat()),
        ("sources", [&Sqe::new(0x19, 1).encode()[..], &[1; 32]].concat()),
    ]
}

fn structures() -> Vec<(&'static str, Vec<u8>)> {
    let with = |kind: u8, bytes: &[u8]| [&[kind][..], bytes].concat();
    let connect = fabrics::ConnectData {
        hostid: [7; 16],
        cntlid: u16::MAX,
        subnqn: padded("nqn.2026-01.io.example:disk1", 0),
        hostnqn: padded("nqn.2014-08.org.nvmexpress:uuid:1", 0),
    };
    let nqn: [u8; nqn::FIELD_SIZE] = padded("nqn.2026-01.io.example:disk1", 0);
    let entry = log::DiscoveryEntry { subnqn: nqn, ..log::DiscoveryEntry::default() };
    vec![
        ("icreq", with(1, &pdu::IcReq { dgst: 3, ..pdu::IcReq::default() }.encode())),
        ("transfer", with(4, &pdu::Transfer { length: 512, ..pdu::Transfer::default() }.encode())),
        ("connect", with(6, &connect.encode())),
        ("nqn", with(6, &[&nqn[..], &[0; 768]].concat())),
        ("descriptors", with(18, &identify::descriptors(&[1; 16], &[2; 16]))),
        ("discovery", with(21, &entry.encode())),
    ]
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let (transaction, sequence, public) = (1, 9, vec![3; 256]);
    let (hashes, groups) = (vec![1, 2, 3], vec![0, 1]);
    let negotiate = Message::Negotiate { transaction, secure_channel: 0, hashes, groups };
    let (hash, group, challenge) = (1, 1, vec![4; 32]);
    let response = vec![5; 32];
    let reply = Message::Reply {
        transaction,
        sequence,
        response: response.clone(),
        challenge: Some(challenge.clone()),
        public: public.clone(),
    };
    let asked = Message::Challenge { transaction, hash, group, sequence, challenge, public };
    let good = Message::Success1 { transaction, response: Ok(response) };
    let failure = Message::Failure { transaction, is_host: true, explanation: 1 };
    vec![
        ("negotiate", negotiate.encode()),
        ("challenge", asked.encode()),
        ("reply", reply.encode()),
        ("success", good.encode()),
        ("failure", failure.encode()),
    ]
}

#[test]
fn corpora_are_accepted_and_mutations_do_no_harm() {
    // In pieces smaller than a header, each answer is sent before the next header comes.
    let (asked, answered) = session(false);
    let (asked_safely, answered_safely) = session(true);
    let in_pieces = |first: u8, bytes: &[u8]| [&[first][..], bytes].concat();
    let secret = Secret::new(&[6; 32], Some(Hash::Sha256)).to_text();
    let key = TlsKey::new(&[7; 48], false).unwrap().to_text();
    replay(&[
        Target::new(
            "nvmf_controller",
            nvmf_controller,
            vec![("plain", in_pieces(127, &asked)), ("digests", in_pieces(1, &asked_safely))],
        )
        .memory(4 << 20),
        Target::new(
            "nvmf_host",
            nvmf_host,
            vec![("plain", in_pieces(1, &answered)), ("digests", in_pieces(129, &answered_safely))],
        )
        .memory(1 << 20),
        Target::new("nvmf_command", nvmf_command, commands()),
        Target::new("nvmf_structure", nvmf_structure, structures()),
        Target::new("nvmf_auth", nvmf_auth, messages()),
        Target::new("nvmf_reservations", nvmf_reservations, vec![("two", file_of_reservations())]),
        Target::of_texts(
            "nvmf_text",
            nvmf_text,
            &[
                ("secret", &secret),
                ("key", &key),
                ("name", "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
                ("url", "nqn.2026-01.io.example:disk1?nsid=7&hdgst=1&ddgst=0"),
            ],
        ),
    ]);
}
